//! A store that can be out of reach, that can lose answers, and that counts.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use a2ad::contract::wkt::Struct;
use a2ad::domain::{Error, Scope, SystemClock, TaskId};
use a2ad::store::sqlite::{Location, Settings, Sqlite};
use a2ad::store::{
    Accept, Accepted, Backlog, CancelRequested, Erased, Event, HeldLease, Hints, Owners, Page,
    PageQuery, Purged, Renewed, Replied, Reply, Report, Reported, Retention, Shown, Store, Tally,
    TaskRecord, Turn, View,
};
use async_trait::async_trait;

/// SQLite in memory behind a switch.
#[derive(Debug)]
pub(crate) struct Flaky {
    store: Sqlite,
    down: AtomicBool,
    losing: AtomicBool,
    /// What reads of a task fail with.
    failure: Mutex<Option<fn() -> Error>>,
    /// How many messages were accepted, outcomes reported and tasks read.
    calls: [AtomicU32; 3],
    log_reads: AtomicU32,
}

impl Flaky {
    pub(crate) async fn open() -> Arc<Self> {
        let settings = Settings::new(Location::Memory, Arc::new(SystemClock));
        let store = Sqlite::open(settings).await.unwrap();
        Arc::new(Self {
            store,
            down: AtomicBool::default(),
            losing: AtomicBool::default(),
            failure: Mutex::default(),
            calls: Default::default(),
            log_reads: AtomicU32::default(),
        })
    }

    /// From now on, every call fails or none does.
    pub(crate) fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::SeqCst);
    }

    /// From now on, reports are stored and nobody is told, or everybody is.
    pub(crate) fn lose_answers(&self, losing: bool) {
        self.losing.store(losing, Ordering::SeqCst);
    }

    /// From now on, every read of a task fails with this.
    pub(crate) fn fail_with(&self, failure: Option<fn() -> Error>) {
        *self.failure.lock().unwrap() = failure;
    }

    /// How many messages were accepted, outcomes reported and tasks read, one by one.
    pub(crate) fn calls(&self) -> [u32; 3] {
        [0, 1, 2].map(|n: usize| self.calls[n].load(Ordering::SeqCst))
    }

    /// How often a task's log was read.
    pub(crate) fn log_reads(&self) -> u32 {
        self.log_reads.load(Ordering::SeqCst)
    }

    fn count(&self, n: usize) {
        self.calls[n].fetch_add(1, Ordering::SeqCst);
    }

    fn store(&self) -> Result<&Sqlite, Error> {
        if self.down.load(Ordering::SeqCst) {
            return Err(Error::unavailable("db.internal refused the connection"));
        }
        Ok(&self.store)
    }
}

#[async_trait]
impl Store for Flaky {
    async fn accept(&self, scope: &Scope, accept: &Accept) -> Result<Accepted, Error> {
        self.count(0);
        self.store()?.accept(scope, accept).await
    }

    async fn report(
        &self,
        scope: &Scope,
        task: TaskId,
        report: &Report,
    ) -> Result<Reported, Error> {
        self.count(1);
        let reported = self.store()?.report(scope, task, report).await;
        if self.losing.load(Ordering::SeqCst) {
            return Err(Error::unavailable("the connection was cut"));
        }
        reported
    }

    async fn reply(&self, scope: &Scope, task: TaskId, reply: &Reply) -> Result<Replied, Error> {
        self.store()?.reply(scope, task, reply).await
    }

    async fn show(&self, scope: &Scope, task: TaskId) -> Result<Shown, Error> {
        self.store()?.show(scope, task).await
    }

    async fn request_cancel(
        &self,
        scope: &Scope,
        task: TaskId,
        metadata: Option<&Struct>,
    ) -> Result<CancelRequested, Error> {
        self.store()?.request_cancel(scope, task, metadata).await
    }

    async fn finish_cancel(&self, scope: &Scope, task: TaskId) -> Result<bool, Error> {
        self.store()?.finish_cancel(scope, task).await
    }

    async fn task(
        &self,
        scope: &Scope,
        task: TaskId,
        view: View,
    ) -> Result<Option<TaskRecord>, Error> {
        self.count(2);
        if let Some(failure) = *self.failure.lock().unwrap() {
            return Err(failure());
        }
        self.store()?.task(scope, task, view).await
    }

    async fn tasks_page(&self, scope: &Scope, query: &PageQuery) -> Result<Page, Error> {
        self.store()?.tasks_page(scope, query).await
    }

    async fn events_after(
        &self,
        scope: &Scope,
        task: TaskId,
        after: i64,
        limit: u32,
    ) -> Result<Option<Vec<Event>>, Error> {
        self.log_reads.fetch_add(1, Ordering::SeqCst);
        self.store()?.events_after(scope, task, after, limit).await
    }

    async fn live_tasks(&self, scope: &Scope, owners: Owners) -> Result<i64, Error> {
        self.store()?.live_tasks(scope, owners).await
    }

    async fn claim_turns_of_all(&self, limit: u32, lease: Duration) -> Result<Vec<Turn>, Error> {
        self.store()?.claim_turns_of_all(limit, lease).await
    }

    async fn backlog_of_all(&self) -> Result<Backlog, Error> {
        self.store()?.backlog_of_all().await
    }

    async fn renew_leases_of_all(
        &self,
        leases: &[HeldLease],
        lease: Duration,
    ) -> Result<Vec<Renewed>, Error> {
        self.store()?.renew_leases_of_all(leases, lease).await
    }

    async fn release_expired_of_all(&self, limit: u32) -> Result<u32, Error> {
        self.store()?.release_expired_of_all(limit).await
    }

    async fn finish_cancels_of_all(&self, grace: Duration, limit: u32) -> Result<u32, Error> {
        self.store()?.finish_cancels_of_all(grace, limit).await
    }

    async fn fold_counts_of_all(&self, limit: u32) -> Result<u32, Error> {
        self.store()?.fold_counts_of_all(limit).await
    }

    async fn purge_expired_of_all(&self, hidden_for: Duration, limit: u32) -> Result<u32, Error> {
        self.store()?.purge_expired_of_all(hidden_for, limit).await
    }

    async fn purge_ended_of_all(&self, retention: &Retention, limit: u32) -> Result<Purged, Error> {
        self.store()?.purge_ended_of_all(retention, limit).await
    }

    async fn purge_events_of_all(&self, retention: &Retention, limit: u32) -> Result<u32, Error> {
        self.store()?.purge_events_of_all(retention, limit).await
    }

    async fn count_ended_of_all(&self, retention: &Retention) -> Result<Vec<Tally>, Error> {
        self.store()?.count_ended_of_all(retention).await
    }

    async fn erase(&self, scope: &Scope, limit: u32) -> Result<Erased, Error> {
        self.store()?.erase(scope, limit).await
    }

    async fn count_owned(&self, scope: &Scope) -> Result<Erased, Error> {
        self.store()?.count_owned(scope).await
    }

    async fn ping(&self) -> Result<(), Error> {
        self.store()?.ping().await
    }

    fn hints(&self) -> &Hints {
        self.store.hints()
    }

    async fn close(&self) {
        self.store.close().await;
    }
}
