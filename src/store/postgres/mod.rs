//! The store of production: one PostgreSQL, any number of servers.
//!
//! A new task is one statement. Every other write of a task is one short transaction of two round
//! trips: the row is locked and read, `change` decides, and everything that follows from it goes
//! out together with the commit. Claims and the loops' work are single statements. A write runs
//! to its end on the store's own tracker, also when its caller is gone.

mod accept;
mod claim;
mod connect;
mod db;
mod listen;
mod migrations;
mod page;
mod read;
mod rows;
mod upkeep;
mod write;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::contract::wkt::Struct;
use crate::domain::{Clock, Error, Scope, TaskId};
use crate::store::Store;
use crate::store::hints::Hints;
use crate::store::types::{
    Accept, Accepted, CancelRequested, Event, HeldLease, Page, PageQuery, Renewed, Replied, Reply,
    Report, Reported, Shown, TaskRecord, Turn, View,
};

use db::Db;
use listen::Outbox;

pub use connect::ConnectError;
pub use db::StatementMode;

/// How to connect. `Debug` shows no URL, for it may hold a password.
#[derive(Clone)]
pub struct Settings {
    /// `postgres://user:password@host/database?...`.
    pub url: String,
    /// The same database without a pooler between, for LISTEN and migrations; `url` if not set.
    pub direct_url: Option<String>,
    /// How statements are sent.
    pub statement_mode: StatementMode,
    /// The most connections, beside one that listens.
    pub pool_size: usize,
    /// How long a connection may be waited for.
    pub wait: Duration,
    /// How long a statement may take before it is canceled in the database.
    pub statement_timeout: Duration,
    /// Whether to apply migrations; without, an older schema is refused.
    pub migrate: bool,
    /// Replaces the database's clock, in tests.
    pub clock: Option<Arc<dyn Clock>>,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("statement_mode", &self.statement_mode)
            .field("pool_size", &self.pool_size)
            .finish_non_exhaustive()
    }
}

impl Settings {
    /// Defaults for a database: 16 connections, typed statements, ten seconds for each.
    #[must_use]
    pub fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            direct_url: None,
            statement_mode: StatementMode::Typed,
            pool_size: 16,
            wait: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(10),
            migrate: true,
            clock: None,
        }
    }

    fn direct(&self) -> &str {
        self.direct_url.as_deref().unwrap_or(&self.url)
    }
}

/// The store.
#[derive(Debug, Clone)]
pub struct Postgres {
    inner: Arc<Inner>,
}

struct Inner {
    db: Db,
    hints: Arc<Hints>,
    outbox: Arc<Outbox>,
    writes: TaskTracker,
    background: TaskTracker,
    stop: CancellationToken,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Whom a write concerns.
#[derive(Debug, Default, Clone)]
struct Wake {
    tasks: Vec<TaskId>,
    turns: bool,
}

impl Postgres {
    /// Connects, applies migrations if it may, checks the schema, and begins to listen.
    ///
    /// # Errors
    /// When the database cannot be reached or its schema does not fit this program.
    pub async fn connect(settings: Settings) -> Result<Self, ConnectError> {
        migrations::prepare(&settings).await?;
        let db = Db::open(&settings)?;
        let hints = Arc::new(Hints::default());
        let outbox = Arc::new(Outbox::default());
        let stop = CancellationToken::new();
        let background = TaskTracker::new();
        background.spawn(listen::run(
            settings.direct().to_owned(),
            Arc::clone(&hints),
            Arc::clone(&outbox),
            stop.clone(),
        ));
        background.close();
        let writes = TaskTracker::new();
        let inner = Inner { db, hints, outbox, writes, background, stop };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Applies the migrations that the database lacks. Of several that try at once, one does it
    /// and the others wait for it. Returns the version before and after.
    ///
    /// # Errors
    /// When the database cannot be reached, or is newer than this program.
    pub async fn migrate(settings: &Settings) -> Result<(u32, u32), ConnectError> {
        migrations::migrate(settings).await
    }

    /// Runs a write to its end, whatever becomes of the caller, and wakes whom it concerns.
    async fn write<T, F>(&self, work: impl FnOnce(Arc<Inner>) -> F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<(T, Wake), Error>> + Send + 'static,
    {
        let inner = Arc::clone(&self.inner);
        let work = work(Arc::clone(&inner));
        let writing = self.inner.writes.spawn(async move {
            let (value, wake) = work.await?;
            inner.wake(&wake);
            Ok(value)
        });
        writing.await.map_err(Error::internal)?
    }
}

impl Inner {
    fn wake(&self, wake: &Wake) {
        for task in &wake.tasks {
            self.hints.wake_task(*task);
        }
        if wake.turns {
            self.hints.wake_turns();
        }
        self.outbox.put(&wake.tasks, wake.turns);
    }
}

#[async_trait]
impl Store for Postgres {
    async fn accept(&self, scope: &Scope, accept: &Accept) -> Result<Accepted, Error> {
        let (scope, accept) = (scope.clone(), accept.clone());
        self.write(|inner| async move { accept::accept(&inner.db, &scope, &accept).await }).await
    }

    async fn report(
        &self,
        scope: &Scope,
        task: TaskId,
        report: &Report,
    ) -> Result<Reported, Error> {
        let (scope, report) = (scope.clone(), report.clone());
        self.write(|inner| async move { write::report(&inner.db, &scope, task, &report).await })
            .await
    }

    async fn reply(&self, scope: &Scope, task: TaskId, reply: &Reply) -> Result<Replied, Error> {
        let (scope, reply) = (scope.clone(), reply.clone());
        self.write(|inner| async move { write::reply(&inner.db, &scope, task, &reply).await }).await
    }

    async fn show(&self, scope: &Scope, task: TaskId) -> Result<Shown, Error> {
        let scope = scope.clone();
        self.write(|inner| async move { write::show(&inner.db, &scope, task).await }).await
    }

    async fn request_cancel(
        &self,
        scope: &Scope,
        task: TaskId,
        metadata: Option<&Struct>,
    ) -> Result<CancelRequested, Error> {
        let scope = scope.clone();
        let metadata = metadata.map(prost::Message::encode_to_vec);
        self.write(
            |inner| async move { write::request_cancel(&inner.db, &scope, task, metadata).await },
        )
        .await
    }

    async fn finish_cancel(&self, scope: &Scope, task: TaskId) -> Result<bool, Error> {
        let scope = scope.clone();
        self.write(|inner| async move { write::finish_cancel(&inner.db, &scope, task).await }).await
    }

    async fn task(
        &self,
        scope: &Scope,
        task: TaskId,
        view: View,
    ) -> Result<Option<TaskRecord>, Error> {
        read::task(&self.inner.db, scope, task, view).await
    }

    async fn tasks_page(&self, scope: &Scope, query: &PageQuery) -> Result<Page, Error> {
        page::page(&self.inner.db, scope, query).await
    }

    async fn events_after(
        &self,
        scope: &Scope,
        task: TaskId,
        after: i64,
        limit: u32,
    ) -> Result<Option<Vec<Event>>, Error> {
        read::events(&self.inner.db, scope, task, after, limit).await
    }

    async fn claim_turns_of_all(&self, limit: u32, lease: Duration) -> Result<Vec<Turn>, Error> {
        self.write(|inner| async move { claim::claim(&inner.db, limit, lease).await }).await
    }

    async fn renew_leases_of_all(
        &self,
        leases: &[HeldLease],
        lease: Duration,
    ) -> Result<Vec<Renewed>, Error> {
        claim::renew(&self.inner.db, leases, lease).await
    }

    async fn release_expired_of_all(&self, limit: u32) -> Result<u32, Error> {
        self.write(|inner| async move { claim::release_expired(&inner.db, limit).await }).await
    }

    async fn finish_cancels_of_all(&self, grace: Duration, limit: u32) -> Result<u32, Error> {
        self.write(|inner| async move { write::finish_cancels(&inner.db, grace, limit).await })
            .await
    }

    async fn fold_counts_of_all(&self, limit: u32) -> Result<u32, Error> {
        self.write(|inner| async move { upkeep::fold_counts(&inner.db, limit).await }).await
    }

    async fn purge_expired_of_all(&self, hidden_for: Duration, limit: u32) -> Result<u32, Error> {
        self.write(|inner| async move { upkeep::purge_expired(&inner.db, hidden_for, limit).await })
            .await
    }

    async fn ping(&self) -> Result<(), Error> {
        let client = self.inner.db.client().await?;
        self.inner.db.rows(&client, "select 1", &[]).await.map(drop)
    }

    fn hints(&self) -> &Hints {
        &self.inner.hints
    }

    async fn close(&self) {
        self.inner.writes.close();
        self.inner.writes.wait().await;
        self.inner.outbox.flushed(Duration::from_millis(200)).await;
        self.inner.stop.cancel();
        self.inner.background.wait().await;
        self.inner.db.close();
    }
}
