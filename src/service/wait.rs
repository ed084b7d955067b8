//! Waiting for a task: for its answer, or for its end.

use std::sync::Arc;

use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::contract::v1::TaskState;
use crate::domain::error::chain;
use crate::domain::{Error, Scope, TaskId};
use crate::service::Inner;
use crate::service::send::Arrived;
use crate::store::{Store, TaskRecord, View};

/// How often a whole task is read at once in the hope that it has settled; a task with a long
/// story is then only looked at until it has.
const HOPEFUL_READS: u32 = 2;

/// Shows a task when its time has come, also if nobody waits for it any more: a caller that
/// leaves, or is sent away, may look for its task.
pub(super) struct Showing {
    store: Arc<dyn Store>,
    scope: Scope,
    task: TaskId,
    tasks: TaskTracker,
    drain: CancellationToken,
    /// When, as long as that is open.
    pub(super) at: Option<Instant>,
}

impl Showing {
    /// Shows the task if its time has come.
    pub(super) async fn look(&mut self) -> Result<(), Error> {
        if self.at.is_some_and(|at| at <= Instant::now()) {
            self.store.show(&self.scope, self.task).await?;
            self.at = None;
        }
        Ok(())
    }
}

impl Drop for Showing {
    fn drop(&mut self) {
        let Some(at) = self.at else { return };
        let (store, scope, task) = (Arc::clone(&self.store), self.scope.clone(), self.task);
        let drain = self.drain.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = sleep_until(at) => {}
                () = drain.cancelled() => {}
            }
            if let Err(error) = store.show(&scope, task).await {
                tracing::warn!(task.id = %task, error.chain = chain(&error), "could not show a task");
            }
        });
    }
}

impl Inner {
    /// Waits until the caller of what `arrived` has its answer: the task has ended or replied, or
    /// its own turn or a later one interrupted it (SEND-04, SEND-19). Shows the task when a direct
    /// reply takes too long.
    pub(super) async fn settled(
        &self,
        scope: &Scope,
        arrived: Arrived,
        history: u32,
    ) -> Result<TaskRecord, Error> {
        let accepted = &arrived.turn;
        let mut showing = self.showing(scope, accepted.task);
        let hint = self.store.hints().watch_task(accepted.task);
        if let Some((_hint, change)) = arrived.first_change {
            self.change(change, showing.at).await?;
            showing.look().await?;
        }
        let mut reads = 0;
        loop {
            let changed = hint.armed();
            let record = if reads < HOPEFUL_READS {
                self.whole(scope, accepted.task, history).await?
            } else {
                let glance = View { hidden: true, ..View::default() };
                self.store.task(scope, accepted.task, glance).await?
            };
            let record = record.ok_or(Error::TaskNotFound)?;
            if record.settles(accepted) {
                showing.at = None;
                if reads < HOPEFUL_READS {
                    return Ok(record);
                }
                let whole = self.whole(scope, accepted.task, history).await?;
                return whole.ok_or(Error::TaskNotFound);
            }
            reads += 1;
            if record.shown {
                showing.at = None;
            }
            self.change(changed, showing.at).await?;
            showing.look().await?;
        }
    }

    /// As [`settled`](Self::settled), and the task as it is when that takes longer than the settings
    /// allow.
    pub(super) async fn settled_in_time(
        &self,
        scope: &Scope,
        arrived: Arrived,
        history: u32,
    ) -> Result<TaskRecord, Error> {
        let task = arrived.turn.task;
        let settled = self.settled(scope, arrived, history);
        let Some(longest) = self.settings.send_wait else { return settled.await };
        if let Ok(settled) = timeout(longest, settled).await {
            return settled;
        }
        // The caller gets a task, so there is one from now on.
        self.store.show(scope, task).await?;
        self.whole(scope, task, history).await?.ok_or(Error::TaskNotFound)
    }

    pub(super) fn showing(&self, scope: &Scope, task: TaskId) -> Showing {
        Showing {
            store: Arc::clone(&self.store),
            scope: scope.clone(),
            task,
            tasks: self.tasks.clone(),
            drain: self.drain.clone(),
            at: Some(Instant::now() + self.settings.show_after),
        }
    }

    /// Waits for a change, for `until`, or for the time to look anyway: a hint can be lost.
    pub(super) async fn change(
        &self,
        changed: impl Future<Output = ()>,
        until: Option<Instant>,
    ) -> Result<(), Error> {
        let poll_at = Instant::now() + self.settings.poll;
        let wake_at = until.map_or(poll_at, |until| until.min(poll_at));
        tokio::select! {
            () = changed => Ok(()),
            () = sleep_until(wake_at) => Ok(()),
            () = self.drain.cancelled() => Err(Error::ShuttingDown),
        }
    }

    /// Waits until a task has ended, at most until `until`; `None` if it has not by then.
    pub(super) async fn ended(
        &self,
        scope: &Scope,
        task: TaskId,
        until: Option<Instant>,
    ) -> Result<Option<TaskRecord>, Error> {
        let hint = self.store.hints().watch_task(task);
        loop {
            let changed = hint.armed();
            let glance = View::default();
            let record = self.store.task(scope, task, glance).await?.ok_or(Error::TaskNotFound)?;
            let state = record.task.status.as_ref().map_or(TaskState::Unspecified, |s| s.state());
            if state.is_terminal() {
                let whole = self.whole(scope, task, self.settings.history_default).await?;
                return whole.map(Some).ok_or(Error::TaskNotFound);
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                return Ok(None);
            }
            self.change(changed, until).await?;
        }
    }

    /// A task with history and artifacts, shown or not.
    pub(super) async fn whole(
        &self,
        scope: &Scope,
        task: TaskId,
        history: u32,
    ) -> Result<Option<TaskRecord>, Error> {
        self.store.task(scope, task, View { history, artifacts: true, hidden: true }).await
    }
}
