//! The embedded store: one SQLite file, one process.
//!
//! Writes go through one thread that groups commits (`writer`), reads through a pool of
//! connections that each see one snapshot. WAL with `synchronous = FULL`: what was answered is on
//! the disk. Checkpoints run beside the writer, on a connection of their own.

mod accept;
mod checkpoint;
mod open;
mod page;
mod pool;
mod read;
mod retention;
mod rows;
mod scoped;
mod turns;
mod upkeep;
mod writer;

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::Connection;

use crate::contract::wkt::Struct;
use crate::domain::{Clock, Error, Scope, TaskId};
use crate::store::Store;
use crate::store::hints::Hints;
use crate::store::retention::{Erased, Purged, Retention, Tally};
use crate::store::types::{
    Accept, Accepted, Backlog, CancelRequested, Event, HeldLease, Owners, Page, PageQuery, Renewed,
    Replied, Reply, Report, Reported, Shown, TaskRecord, Turn, View,
};

use checkpoint::Checkpoints;
use pool::Readers;
use writer::Writer;

pub use open::OpenError;

/// Where the database is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A file, made if it is not there.
    File(PathBuf),
    /// A file without a name that is gone with the process: for tests and demos.
    Memory,
}

/// How to open the store.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the database is.
    pub location: Location,
    /// How many reads run at a time.
    pub readers: usize,
    /// Whether to apply migrations; without, an older schema is refused.
    pub migrate: bool,
    /// Over how many bytes the WAL is begun anew, even if a write must wait for a moment.
    pub wal_bytes_max: u32,
    /// Where stamps come from.
    pub clock: Arc<dyn Clock>,
}

impl Settings {
    /// Four readers, migrations on, and a WAL of 64 MiB.
    #[must_use]
    pub fn new(location: Location, clock: Arc<dyn Clock>) -> Self {
        Self { location, readers: 4, migrate: true, wal_bytes_max: 64 << 20, clock }
    }
}

/// The store.
#[derive(Debug)]
pub struct Sqlite {
    writer: Writer,
    readers: Readers,
    hints: Arc<Hints>,
    clock: Arc<dyn Clock>,
    names: Arc<Names>,
    checkpoints: Checkpoints,
    /// Held for as long as the store is open or writes, so that no second one opens the file.
    _lock: Option<Arc<File>>,
}

/// Numbers of interned names. They never change, so a number that was seen once is good until its
/// owner is erased.
#[derive(Debug, Default)]
struct Names {
    tenants: Mutex<HashMap<String, i64>>,
    owners: Mutex<HashMap<String, i64>>,
    /// How often an owner was erased.
    erased: AtomicU64,
}

/// A scope by its numbers.
#[derive(Debug, Clone, Copy)]
struct ScopeKey {
    tenant: i64,
    owner: i64,
}

impl Names {
    /// The numbers of a scope; `None` if nothing was ever sent under one of its names. For
    /// readers, who see what is committed and may believe it for ever.
    fn find(&self, connection: &Connection, scope: &Scope) -> Result<Option<ScopeKey>, Error> {
        let (tenant, owner) = (scope.tenant().as_str(), scope.owner().as_str());
        let erased = self.erased.load(Ordering::SeqCst);
        let tenant_number = number(&self.tenants, connection, TENANT, tenant)?;
        let owner_number = number(&self.owners, connection, OWNER, owner)?;
        keep(&self.tenants, tenant, tenant_number, || true);
        // A read that began before an owner was erased does not know it yet.
        keep(&self.owners, owner, owner_number, || erased == self.erased.load(Ordering::SeqCst));
        Ok(key(tenant_number, owner_number))
    }

    /// Forgets the number of an owner that was erased.
    fn forget(&self, scope: &Scope) {
        self.erased.fetch_add(1, Ordering::SeqCst);
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        owners.remove(scope.owner().as_str());
    }

    /// As [`find`](Self::find) for the writer, whose transaction may still be rolled back.
    fn look(&self, connection: &Connection, scope: &Scope) -> Result<Option<ScopeKey>, Error> {
        let tenant = number(&self.tenants, connection, TENANT, scope.tenant().as_str())?;
        let owner = number(&self.owners, connection, OWNER, scope.owner().as_str())?;
        Ok(key(tenant, owner))
    }

    /// The numbers of a scope, made if need be.
    fn intern(&self, connection: &Connection, scope: &Scope) -> Result<ScopeKey, Error> {
        if let Some(key) = self.look(connection, scope)? {
            return Ok(key);
        }
        let tenant = scope.tenant().as_str();
        let owner = scope.owner().as_str();
        connection
            .prepare_cached("insert into tenants (name) values (?1) on conflict do nothing")?
            .execute([tenant])?;
        connection
            .prepare_cached("insert into owners (name) values (?1) on conflict do nothing")?
            .execute([owner])?;
        let mut find_tenant = connection.prepare_cached(TENANT)?;
        let mut find_owner = connection.prepare_cached(OWNER)?;
        Ok(ScopeKey {
            tenant: find_tenant.query_row([tenant], |row| row.get(0))?,
            owner: find_owner.query_row([owner], |row| row.get(0))?,
        })
    }
}

const TENANT: &str = "select id from tenants where name = ?1";
const OWNER: &str = "select id from owners where name = ?1";

fn number(
    cache: &Mutex<HashMap<String, i64>>,
    connection: &Connection,
    sql: &str,
    name: &str,
) -> Result<Option<i64>, Error> {
    let cached = cache.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied();
    if cached.is_some() {
        return Ok(cached);
    }
    let mut found = connection.prepare_cached(sql)?;
    let mut rows = found.query([name])?;
    Ok(rows.next()?.map(|row| row.get(0)).transpose()?)
}

fn keep(
    cache: &Mutex<HashMap<String, i64>>,
    name: &str,
    number: Option<i64>,
    is_true: impl FnOnce() -> bool,
) {
    let Some(number) = number else { return };
    let mut cache = cache.lock().unwrap_or_else(PoisonError::into_inner);
    if is_true() {
        cache.entry(name.to_owned()).or_insert(number);
    }
}

fn key(tenant: Option<i64>, owner: Option<i64>) -> Option<ScopeKey> {
    tenant.zip(owner).map(|(tenant, owner)| ScopeKey { tenant, owner })
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode;
        match error.sqlite_error_code() {
            Some(
                ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::DiskFull
                | ErrorCode::OutOfMemory
                | ErrorCode::SystemIoFailure
                | ErrorCode::CannotOpen
                | ErrorCode::OperationInterrupted,
            ) => Self::unavailable(error),
            _ => Self::internal(error),
        }
    }
}

impl Sqlite {
    /// For the test that takes scopes out of statements: of the store in the file at `path`.
    #[cfg(debug_assertions)]
    #[doc(hidden)]
    #[must_use]
    pub fn proof(path: &str) -> Arc<crate::store::proof::Proof> {
        scoped::proofs::begin(path)
    }

    /// Opens the store, applies migrations, and frees the leases of the process before.
    ///
    /// # Errors
    /// When the file cannot be opened, is in use, or has a schema that this program does not know.
    pub async fn open(settings: Settings) -> Result<Self, OpenError> {
        open::open(settings).await
    }

    /// Applies the migrations that the file lacks, and no more. Returns the version before and
    /// after.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn migrate(settings: Settings) -> Result<(u32, u32), OpenError> {
        open::migrate_alone(settings).await
    }

    /// Writes the file anew, without what was deleted from it.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn scrub(settings: Settings) -> Result<(), OpenError> {
        open::scrub(settings).await
    }

    fn now(&self) -> i64 {
        self.clock.now_us()
    }

    /// Runs a write about one task, then wakes whom it concerns, also if the caller has left.
    async fn write_task<T, F>(&self, task: TaskId, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Connection, &mut Wake) -> Result<T, Error> + Send + 'static,
    {
        let hints = Arc::clone(&self.hints);
        let written = self.writer.write_then(
            move |connection| {
                let mut wake = Wake::default();
                work(connection, &mut wake).map(|value| (value, wake))
            },
            move |(_, wake)| {
                if wake.task {
                    hints.wake_task(task);
                }
                if wake.turns {
                    hints.wake_turns();
                }
            },
        );
        written.await.map(|(value, _)| value)
    }
}

/// Whom a write concerns.
#[derive(Debug, Default, Clone, Copy)]
struct Wake {
    task: bool,
    turns: bool,
}

#[async_trait]
impl Store for Sqlite {
    async fn accept(&self, scope: &Scope, accept: &Accept) -> Result<Accepted, Error> {
        let (names, scope, accept, now) =
            (Arc::clone(&self.names), scope.clone(), accept.clone(), self.now());
        let task = accept.target.task();
        self.write_task(task, move |connection, wake| {
            accept::accept(connection, &names, &scope, &accept, now, wake)
        })
        .await
    }

    async fn report(
        &self,
        scope: &Scope,
        task: TaskId,
        report: &Report,
    ) -> Result<Reported, Error> {
        let (names, scope, report, now) =
            (Arc::clone(&self.names), scope.clone(), report.clone(), self.now());
        self.write_task(task, move |connection, wake| {
            turns::report(connection, names.look(connection, &scope)?, task, &report, now, wake)
        })
        .await
    }

    async fn reply(&self, scope: &Scope, task: TaskId, reply: &Reply) -> Result<Replied, Error> {
        let (names, scope, reply, now) =
            (Arc::clone(&self.names), scope.clone(), reply.clone(), self.now());
        self.write_task(task, move |connection, wake| {
            turns::reply(connection, names.look(connection, &scope)?, task, &reply, now, wake)
        })
        .await
    }

    async fn show(&self, scope: &Scope, task: TaskId) -> Result<Shown, Error> {
        let (names, scope, now) = (Arc::clone(&self.names), scope.clone(), self.now());
        self.write_task(task, move |connection, wake| {
            turns::show(connection, names.look(connection, &scope)?, task, now, wake)
        })
        .await
    }

    async fn request_cancel(
        &self,
        scope: &Scope,
        task: TaskId,
        metadata: Option<&Struct>,
    ) -> Result<CancelRequested, Error> {
        let (names, scope, now) = (Arc::clone(&self.names), scope.clone(), self.now());
        let metadata = metadata.map(prost::Message::encode_to_vec);
        self.write_task(task, move |connection, wake| {
            let key = names.look(connection, &scope)?;
            turns::request_cancel(connection, key, task, metadata, now, wake)
        })
        .await
    }

    async fn finish_cancel(&self, scope: &Scope, task: TaskId) -> Result<bool, Error> {
        let (names, scope, now) = (Arc::clone(&self.names), scope.clone(), self.now());
        self.write_task(task, move |connection, wake| {
            turns::finish_cancel(connection, names.look(connection, &scope)?, task, now, wake)
        })
        .await
    }

    async fn task(
        &self,
        scope: &Scope,
        task: TaskId,
        view: View,
    ) -> Result<Option<TaskRecord>, Error> {
        let (names, scope) = (Arc::clone(&self.names), scope.clone());
        self.readers
            .read(move |connection| match names.find(connection, &scope)? {
                Some(key) => read::task(connection, key, task, view),
                None => Ok(None),
            })
            .await
    }

    async fn tasks_page(&self, scope: &Scope, query: &PageQuery) -> Result<Page, Error> {
        let (names, scope, query) = (Arc::clone(&self.names), scope.clone(), query.clone());
        self.readers
            .read(move |connection| match names.find(connection, &scope)? {
                Some(key) => page::page(connection, key, &query),
                None => Ok(Page { total: query.total.then_some(0), ..Page::default() }),
            })
            .await
    }

    async fn events_after(
        &self,
        scope: &Scope,
        task: TaskId,
        after: i64,
        limit: u32,
    ) -> Result<Option<Vec<Event>>, Error> {
        let (names, scope) = (Arc::clone(&self.names), scope.clone());
        self.readers
            .read(move |connection| match names.find(connection, &scope)? {
                Some(key) => read::events(connection, key, task, after, limit),
                None => Ok(None),
            })
            .await
    }

    async fn live_tasks(&self, scope: &Scope, owners: Owners) -> Result<i64, Error> {
        let (names, scope) = (Arc::clone(&self.names), scope.clone());
        self.readers
            .read(move |connection| match names.find(connection, &scope)? {
                Some(key) => read::live_tasks(connection, key, owners),
                None => Ok(0),
            })
            .await
    }

    async fn claim_turns_of_all(&self, limit: u32, lease: Duration) -> Result<Vec<Turn>, Error> {
        let (hints, now) = (Arc::clone(&self.hints), self.now());
        let work = move |c: &Connection| turns::claim(c, limit, lease, now);
        let wake = move |turns: &Vec<Turn>| {
            for turn in turns {
                hints.wake_task(turn.task);
            }
        };
        self.writer.write_then(work, wake).await
    }

    async fn backlog_of_all(&self) -> Result<Backlog, Error> {
        let now = self.now();
        self.readers.read(move |connection| upkeep::backlog(connection, now)).await
    }

    async fn renew_leases_of_all(
        &self,
        leases: &[HeldLease],
        lease: Duration,
    ) -> Result<Vec<Renewed>, Error> {
        let (names, leases, now) = (Arc::clone(&self.names), leases.to_vec(), self.now());
        self.writer.write(move |c| turns::renew(c, &names, &leases, lease, now)).await
    }

    async fn release_expired_of_all(&self, limit: u32) -> Result<u32, Error> {
        let (hints, now) = (Arc::clone(&self.hints), self.now());
        let work = move |c: &Connection| upkeep::release_expired(c, limit, now);
        let wake = move |released: &u32| {
            if *released > 0 {
                hints.wake_turns();
            }
        };
        self.writer.write_then(work, wake).await
    }

    async fn finish_cancels_of_all(&self, grace: Duration, limit: u32) -> Result<u32, Error> {
        let (hints, now) = (Arc::clone(&self.hints), self.now());
        let work = move |c: &Connection| upkeep::finish_cancels(c, grace, limit, now);
        let wake = move |ended: &Vec<TaskId>| {
            for task in ended {
                hints.wake_task(*task);
            }
        };
        let ended = self.writer.write_then(work, wake).await?;
        Ok(u32::try_from(ended.len()).unwrap_or(u32::MAX))
    }

    async fn fold_counts_of_all(&self, limit: u32) -> Result<u32, Error> {
        self.writer.write(move |c| upkeep::fold_counts(c, limit)).await
    }

    async fn purge_expired_of_all(&self, hidden_for: Duration, limit: u32) -> Result<u32, Error> {
        let now = self.now();
        self.writer.write(move |c| upkeep::purge_expired(c, hidden_for, limit, now)).await
    }

    async fn purge_ended_of_all(&self, retention: &Retention, limit: u32) -> Result<Purged, Error> {
        let (retention, now) = (retention.clone(), self.now());
        self.writer.write(move |c| retention::purge_ended(c, &retention, limit, now)).await
    }

    async fn purge_events_of_all(&self, retention: &Retention, limit: u32) -> Result<u32, Error> {
        let (retention, now) = (retention.clone(), self.now());
        self.writer.write(move |c| retention::purge_events(c, &retention, limit, now)).await
    }

    async fn count_ended_of_all(&self, retention: &Retention) -> Result<Vec<Tally>, Error> {
        let (retention, now) = (retention.clone(), self.now());
        self.readers.read(move |c| retention::count_ended(c, &retention, now)).await
    }

    async fn erase(&self, scope: &Scope, limit: u32) -> Result<Erased, Error> {
        let (names, owned, of) = (Arc::clone(&self.names), scope.clone(), scope.clone());
        let (after, hints) = (Arc::clone(&self.names), Arc::clone(&self.hints));
        let work = move |connection: &Connection| match names.look(connection, &owned)? {
            Some(key) => retention::erase(connection, key, owned.tenant(), limit),
            None => Ok((Erased::default(), Vec::new())),
        };
        let told = move |(erased, tasks): &(Erased, Vec<TaskId>)| {
            if erased.name {
                after.forget(&of);
            }
            for task in tasks {
                hints.wake_task(*task);
            }
        };
        self.writer.write_then(work, told).await.map(|(erased, _)| erased)
    }

    async fn count_owned(&self, scope: &Scope) -> Result<Erased, Error> {
        let (names, scope) = (Arc::clone(&self.names), scope.clone());
        self.readers
            .read(move |connection| match names.find(connection, &scope)? {
                Some(key) => retention::count_owned(connection, key, scope.tenant()),
                None => Ok(Erased::default()),
            })
            .await
    }

    async fn ping(&self) -> Result<(), Error> {
        self.writer.check()?;
        self.readers
            .read(|connection| {
                connection.prepare_cached("select 1")?.query_row((), |_| Ok(()))?;
                Ok(())
            })
            .await
    }

    fn hints(&self) -> &Hints {
        &self.hints
    }

    async fn close(&self) {
        self.writer.end().await;
        self.checkpoints.stop();
    }
}
