//! The way of statements with a scope to a connection: as they are, but for one test in a debug
//! build.

use std::borrow::Cow;

use rusqlite::Connection;

/// What is run.
#[cfg(not(debug_assertions))]
pub(super) fn scoped<'a>(_connection: &Connection, sql: &'a str) -> Cow<'a, str> {
    sql.into()
}

/// What is run.
#[cfg(debug_assertions)]
pub(super) fn scoped<'a>(connection: &Connection, sql: &'a str) -> Cow<'a, str> {
    let proof = connection.path().and_then(proofs::of);
    proof.and_then(|proof| proof.instead_of(sql)).map_or(sql.into(), Into::into)
}

/// By file, since a connection knows nothing else of its store.
#[cfg(debug_assertions)]
pub(super) mod proofs {
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex, PoisonError};

    use crate::store::proof::Proof;

    static PROOFS: Mutex<BTreeMap<String, Arc<Proof>>> = Mutex::new(BTreeMap::new());

    pub(super) fn of(path: &str) -> Option<Arc<Proof>> {
        PROOFS.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned()
    }

    /// That of the store in this file, from now on.
    #[must_use]
    pub(crate) fn begin(path: &str) -> Arc<Proof> {
        let mut proofs = PROOFS.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(proofs.entry(path.to_owned()).or_default())
    }
}
