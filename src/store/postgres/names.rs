//! Names of tenants and owners, as numbers.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio_postgres::Row;

use crate::domain::{Error, Scope};
use crate::store::postgres::pool::{Call, Db};

/// A scope by its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ScopeKey {
    pub(super) tenant: i32,
    pub(super) owner: i32,
}

/// How many scopes are remembered; then it begins anew.
const SCOPES_MAX: usize = 100_000;

/// How long a number is believed. An owner that was erased has another one when it comes back, and
/// no server is told; until then such a server finds nothing of that owner.
const BELIEVED_FOR: Duration = Duration::from_secs(60);

/// Numbers never change, and none is ever given again, so one that is out of date names nobody.
#[derive(Debug, Default)]
pub(super) struct Names(Mutex<HashMap<Scope, (ScopeKey, Instant)>>);

const FIND: &str = "-- names
select (select id from tenants where name = $1), (select id from owners where name = $2)";

const INTERN: &str = "-- intern names
with t as (
  insert into tenants (name) select $1 where not exists (select from tenants where name = $1)
  on conflict do nothing returning id
), o as (
  insert into owners (name) select $2 where not exists (select from owners where name = $2)
  on conflict do nothing returning id
)
select coalesce((select id from t), (select id from tenants where name = $1)),
  coalesce((select id from o), (select id from owners where name = $2))";

impl Names {
    /// The numbers of a scope; `None` if nothing was ever sent under one of its names.
    pub(super) async fn find(&self, db: &Db, scope: &Scope) -> Result<Option<ScopeKey>, Error> {
        match self.cached(scope) {
            Some(key) => Ok(Some(key)),
            None => self.ask(db, scope, FIND).await,
        }
    }

    /// The numbers of a scope, made if need be.
    pub(super) async fn intern(&self, db: &Db, scope: &Scope) -> Result<ScopeKey, Error> {
        if let Some(key) = self.find(db, scope).await? {
            return Ok(key);
        }
        if let Some(key) = self.ask(db, scope, INTERN).await? {
            return Ok(key);
        }
        // Somebody else made it meanwhile, which the same statement could not see yet.
        let found = self.ask(db, scope, FIND).await?;
        found.ok_or_else(|| Error::internal("a name was interned and is not there"))
    }

    /// The numbers of a scope as they are now.
    pub(super) async fn fresh(&self, db: &Db, scope: &Scope) -> Result<Option<ScopeKey>, Error> {
        self.ask(db, scope, FIND).await
    }

    /// Forgets the numbers of a scope: one of them was not there any more.
    pub(super) fn forget(&self, scope: &Scope) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(scope);
    }

    fn cached(&self, scope: &Scope) -> Option<ScopeKey> {
        let cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (key, since) = cache.get(scope)?;
        (since.elapsed() < BELIEVED_FOR).then_some(*key)
    }

    async fn ask(
        &self,
        db: &Db,
        scope: &Scope,
        sql: &'static str,
    ) -> Result<Option<ScopeKey>, Error> {
        let call = Call::new(sql)
            .with(scope.tenant().as_str().to_owned())
            .with(scope.owner().as_str().to_owned());
        let rows = db.run(&call).await?;
        let numbers = |row: &Row| -> Option<ScopeKey> {
            let (tenant, owner): (Option<i32>, Option<i32>) = (row.get(0), row.get(1));
            Some(ScopeKey { tenant: tenant?, owner: owner? })
        };
        let key = rows.first().and_then(numbers);
        if let Some(key) = key {
            let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if cache.len() >= SCOPES_MAX {
                cache.clear();
            }
            cache.insert(scope.clone(), (key, Instant::now()));
        }
        Ok(key)
    }
}
