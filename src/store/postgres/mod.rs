//! The store for many servers: PostgreSQL.
//!
//! A write is one statement that locks the task's row first and decides on that row alone; where
//! it must see what others committed while it waited for the lock, the lock is taken by a
//! statement before it, in the same round trip. Every call runs to its end, also when its caller
//! is gone.
//!
//! - Stamps come from the database's clock, read after the lock.
//! - A call that PostgreSQL cannot answer for the moment is `Unavailable`; nothing of what it
//!   said reaches callers.
//! - Deadlines: a statement that takes too long is canceled in the database. With
//!   [`StatementMode::Cached`] sessions also have `statement_timeout`, `lock_timeout` and
//!   `idle_in_transaction_session_timeout`. With [`StatementMode::Typed`] sessions are left alone:
//!   behind PgBouncer a session is lent, and a startup parameter that it does not know ends the
//!   connection. There, the one transaction that waits for this program between two statements
//!   has its limit by `SET LOCAL`.

mod accept;
mod cancel;
mod claim;
mod fault;
mod listen;
mod migrate;
mod names;
mod page;
mod pool;
mod read;
mod reply;
mod report;
mod retention;
mod session;
mod settings;
#[doc(hidden)]
pub mod statements;
mod tls;
mod upkeep;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::contract::wkt::Struct;
use crate::domain::{Clock, Error, Scope, TaskId};
use crate::metrics::Number;
use crate::store::Store;
use crate::store::hints::Hints;
use crate::store::retention::{Erased, Purged, Retention, Tally};
use crate::store::types::{
    Accept, Accepted, Backlog, CancelRequested, Event, HeldLease, Owners, Page, PageQuery, Renewed,
    Replied, Reply, Report, Reported, Shown, TaskRecord, Turn, View,
};

use claim::Mark;
use listen::Notices;
use names::Names;
use pool::{Call, Db};
use retention::Marks;

pub use fault::ConnectError;
#[doc(hidden)]
pub use page::page_statement;
pub use settings::{Settings, StatementMode, Url};

/// The store. Clones share everything.
#[derive(Debug, Clone)]
pub struct Postgres {
    inner: Arc<Inner>,
}

/// What calls share.
#[derive(Debug)]
struct Inner {
    db: Db,
    names: Names,
    hints: Arc<Hints>,
    /// `None` where nobody else listens.
    notices: Option<Arc<Notices>>,
    clock: Option<Arc<dyn Clock>>,
    mark: Mark,
    ended: Marks,
    ended_logs: Marks,
    /// Calls under way.
    calls: TaskTracker,
    /// The connections for hints.
    background: TaskTracker,
    stop: CancellationToken,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Whom a write concerns beside those who wait for its task.
#[derive(Debug, Default, Clone, Copy)]
struct Wake {
    /// A turn became due.
    turns: bool,
}

impl Inner {
    /// The time to use instead of the database's.
    fn now(&self) -> Option<i64> {
        self.clock.as_ref().map(|clock| clock.now_us())
    }

    /// Wakes whoever waits here, and tells the other servers.
    fn wake(&self, task: TaskId, wake: Wake) {
        self.hints.wake_task(task);
        if wake.turns {
            self.hints.wake_turns();
        }
        if let Some(notices) = &self.notices {
            notices.push(Some(task), wake.turns);
        }
    }

    fn wake_turns(&self) {
        self.hints.wake_turns();
        if let Some(notices) = &self.notices {
            notices.push(None, true);
        }
    }
}

impl Postgres {
    /// For the test that takes scopes out of statements.
    #[cfg(debug_assertions)]
    #[doc(hidden)]
    #[must_use]
    pub fn proof(&self) -> &crate::store::proof::Proof {
        &self.inner.db.proof
    }

    /// Connects, applies migrations if the settings say so, and begins to hear hints.
    ///
    /// # Errors
    /// When the database does not answer in time, refuses, or has a schema that this program does
    /// not know.
    pub async fn connect(mut settings: Settings) -> Result<Self, ConnectError> {
        if settings.migrate {
            migrate::apply(&settings).await?;
        } else {
            migrate::check(&settings).await?;
        }
        settings.statement_mode = session::statement_mode(&settings).await?;
        tracing::debug!(mode = ?settings.statement_mode, "how statements reach PostgreSQL");
        let inner = Inner {
            db: Db::new(&settings)?,
            names: Names::default(),
            hints: Arc::default(),
            notices: settings.notify.then(Arc::default),
            clock: settings.clock.clone(),
            mark: Mark::default(),
            ended: Marks::default(),
            ended_logs: Marks::default(),
            calls: TaskTracker::new(),
            background: TaskTracker::new(),
            stop: CancellationToken::new(),
        };
        if let Some(notices) = &inner.notices {
            let way = settings.direct()?;
            let sending = listen::send(way.clone(), Arc::clone(notices), inner.stop.clone());
            drop(inner.background.spawn(sending));
            let hints = Arc::clone(&inner.hints);
            let hearing = listen::hear(way, Arc::clone(notices), hints, inner.stop.clone());
            drop(inner.background.spawn(hearing));
        }
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Applies the migrations that the database lacks. Of any number of programs that do so at
    /// once, one migrates; the others wait and find nothing left to do. Returns the version before
    /// and after.
    ///
    /// # Errors
    /// When the database cannot be reached, is newer than this program, or a migration fails; of
    /// that one nothing stays.
    pub async fn migrate(settings: &Settings) -> Result<(u32, u32), ConnectError> {
        migrate::apply(settings).await
    }

    /// How statements are sent: never [`StatementMode::Auto`].
    #[must_use]
    pub fn statement_mode(&self) -> StatementMode {
        self.inner.db.mode()
    }

    /// How many statements of the store were sent, for metrics and tests.
    #[must_use]
    pub fn statements_sent(&self) -> u64 {
        self.inner.db.sent()
    }

    /// Runs a call to its end, whatever becomes of the caller.
    async fn to_end<T, F>(&self, work: impl FnOnce(Arc<Inner>) -> F + Send) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let done = self.inner.calls.spawn(work(Arc::clone(&self.inner))).await;
        done.unwrap_or_else(|error| Err(Error::internal(error)))
    }
}

#[async_trait]
impl Store for Postgres {
    async fn accept(&self, scope: &Scope, accept: &Accept) -> Result<Accepted, Error> {
        self.inner.db.room()?;
        let (scope, accept) = (scope.clone(), accept.clone());
        self.to_end(|inner| async move { accept::accept(&inner, &scope, &accept).await }).await
    }

    async fn report(
        &self,
        scope: &Scope,
        task: TaskId,
        report: &Report,
    ) -> Result<Reported, Error> {
        let (scope, report) = (scope.clone(), report.clone());
        self.to_end(|inner| async move { report::report(&inner, &scope, task, &report).await })
            .await
    }

    async fn reply(&self, scope: &Scope, task: TaskId, reply: &Reply) -> Result<Replied, Error> {
        let (scope, reply) = (scope.clone(), reply.clone());
        self.to_end(|inner| async move { reply::reply(&inner, &scope, task, &reply).await }).await
    }

    async fn show(&self, scope: &Scope, task: TaskId) -> Result<Shown, Error> {
        let scope = scope.clone();
        self.to_end(|inner| async move { reply::show(&inner, &scope, task).await }).await
    }

    async fn request_cancel(
        &self,
        scope: &Scope,
        task: TaskId,
        metadata: Option<&Struct>,
    ) -> Result<CancelRequested, Error> {
        let (scope, metadata) = (scope.clone(), metadata.cloned());
        self.to_end(|inner| async move {
            cancel::request_cancel(&inner, &scope, task, metadata.as_ref()).await
        })
        .await
    }

    async fn finish_cancel(&self, scope: &Scope, task: TaskId) -> Result<bool, Error> {
        let scope = scope.clone();
        self.to_end(|inner| async move { cancel::finish_cancel(&inner, &scope, task).await }).await
    }

    async fn task(
        &self,
        scope: &Scope,
        task: TaskId,
        view: View,
    ) -> Result<Option<TaskRecord>, Error> {
        let scope = scope.clone();
        self.to_end(|inner| async move { read::task(&inner, &scope, task, view).await }).await
    }

    async fn tasks_page(&self, scope: &Scope, query: &PageQuery) -> Result<Page, Error> {
        self.inner.db.room()?;
        let (scope, query) = (scope.clone(), query.clone());
        self.to_end(|inner| async move { page::page(&inner, &scope, &query).await }).await
    }

    async fn events_after(
        &self,
        scope: &Scope,
        task: TaskId,
        after: i64,
        limit: u32,
    ) -> Result<Option<Vec<Event>>, Error> {
        let scope = scope.clone();
        self.to_end(
            |inner| async move { read::events_after(&inner, &scope, task, after, limit).await },
        )
        .await
    }

    async fn live_tasks(&self, scope: &Scope, owners: Owners) -> Result<i64, Error> {
        let scope = scope.clone();
        self.to_end(|inner| async move { read::live_tasks(&inner, &scope, owners).await }).await
    }

    async fn claim_turns_of_all(&self, limit: u32, lease: Duration) -> Result<Vec<Turn>, Error> {
        self.to_end(|inner| async move { claim::claim(&inner, limit, lease).await }).await
    }

    async fn backlog_of_all(&self) -> Result<Backlog, Error> {
        self.to_end(|inner| async move { upkeep::backlog(&inner).await }).await
    }

    async fn renew_leases_of_all(
        &self,
        leases: &[HeldLease],
        lease: Duration,
    ) -> Result<Vec<Renewed>, Error> {
        let leases = leases.to_vec();
        self.to_end(|inner| async move { claim::renew(&inner, &leases, lease).await }).await
    }

    async fn release_expired_of_all(&self, limit: u32) -> Result<u32, Error> {
        self.to_end(|inner| async move { claim::release_expired(&inner, limit).await }).await
    }

    async fn finish_cancels_of_all(&self, grace: Duration, limit: u32) -> Result<u32, Error> {
        self.to_end(|inner| async move { cancel::finish_cancels(&inner, grace, limit).await }).await
    }

    async fn fold_counts_of_all(&self, limit: u32) -> Result<u32, Error> {
        self.to_end(|inner| async move { upkeep::fold_counts(&inner, limit).await }).await
    }

    async fn purge_expired_of_all(&self, hidden_for: Duration, limit: u32) -> Result<u32, Error> {
        self.to_end(|inner| async move { upkeep::purge_expired(&inner, hidden_for, limit).await })
            .await
    }

    async fn purge_ended_of_all(&self, retention: &Retention, limit: u32) -> Result<Purged, Error> {
        let retention = retention.clone();
        self.to_end(|inner| async move { retention::purge_ended(&inner, &retention, limit).await })
            .await
    }

    async fn purge_events_of_all(&self, retention: &Retention, limit: u32) -> Result<u32, Error> {
        let retention = retention.clone();
        self.to_end(|inner| async move { retention::purge_events(&inner, &retention, limit).await })
            .await
    }

    async fn count_ended_of_all(&self, retention: &Retention) -> Result<Vec<Tally>, Error> {
        let retention = retention.clone();
        self.to_end(|inner| async move { retention::count_ended(&inner, &retention).await }).await
    }

    async fn erase(&self, scope: &Scope, limit: u32) -> Result<Erased, Error> {
        let scope = scope.clone();
        self.to_end(|inner| async move { retention::erase(&inner, &scope, limit).await }).await
    }

    async fn count_owned(&self, scope: &Scope) -> Result<Erased, Error> {
        let scope = scope.clone();
        self.to_end(|inner| async move { retention::count_owned(&inner, &scope).await }).await
    }

    async fn ping(&self) -> Result<(), Error> {
        let select = |inner: Arc<Inner>| async move {
            inner.db.run(&Call::new("-- ping\nselect")).await.map(drop)
        };
        self.to_end(select).await
    }

    fn numbers(&self) -> Vec<Number> {
        self.inner.db.numbers()
    }

    fn hints(&self) -> &Hints {
        &self.inner.hints
    }

    async fn close(&self) {
        let inner = &self.inner;
        inner.calls.close();
        inner.calls.wait().await;
        inner.stop.cancel();
        inner.background.close();
        inner.background.wait().await;
        inner.db.close();
    }
}
