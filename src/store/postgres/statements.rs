//! The statements of the calls that count most, as this store sends them: for measurements of
//! what the database alone costs, which is the limit that a server is held against.

use tokio_postgres::types::{ToSql, Type};

use crate::domain::{Error, TaskId};
use crate::store::postgres::names::ScopeKey;
use crate::store::postgres::pool::Call;
use crate::store::postgres::{accept, page, read, report};
use crate::store::types::{Accept, PageQuery, Report, View};

/// A tenant and an owner by their numbers, `id` of the tables `tenants` and `owners`.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// The tenant.
    pub tenant: i32,
    /// The owner.
    pub owner: i32,
}

impl From<Key> for ScopeKey {
    fn from(key: Key) -> Self {
        Self { tenant: key.tenant, owner: key.owner }
    }
}

/// A statement with its values.
pub struct Statement(Call);

impl std::fmt::Debug for Statement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Statement").field(&self.0.sql()).finish()
    }
}

impl Statement {
    /// The text.
    #[must_use]
    pub fn sql(&self) -> &'static str {
        self.0.sql()
    }

    /// The types of the parameters.
    #[must_use]
    pub fn types(&self) -> &[Type] {
        self.0.types()
    }

    /// The values of the parameters.
    pub fn values(&self) -> impl Iterator<Item = &(dyn ToSql + Sync)> {
        self.0.borrowed()
    }
}

/// Reads a page without history and artifacts.
#[must_use]
pub fn page(key: Key, query: &PageQuery) -> Statement {
    Statement(page::statement(key.into(), query))
}

/// Reads a task.
#[must_use]
pub fn task(key: Key, task: TaskId, view: View) -> Statement {
    Statement(read::statement(key.into(), task, view))
}

/// Takes a message.
#[must_use]
pub fn accept(key: Key, accept: &Accept) -> Statement {
    Statement(accept::statement(key.into(), accept, None))
}

/// Stores what an agent reports.
///
/// # Errors
/// When the report holds what no task can do.
pub fn report(key: Key, task: TaskId, report: &Report) -> Result<Statement, Error> {
    report::first(key.into(), task, report).map(Statement)
}
