//! Waiting for a task: for its answer, or for its end.

use tokio::time::{Instant, sleep_until};

use crate::contract::v1::TaskState;
use crate::domain::{Error, Scope, TaskId};
use crate::service::Inner;
use crate::store::{AcceptedTurn, TaskRecord, View};

/// How often a whole task is read at once in the hope that it has settled; a task with a long
/// story is then only looked at until it has.
const HOPEFUL_READS: u32 = 2;

impl Inner {
    /// Waits until the caller of `accepted` has its answer: the task has ended or replied, or its
    /// own turn or a later one interrupted it (SEND-04, SEND-19). Shows the task when a direct
    /// reply takes too long.
    pub(super) async fn settled(
        &self,
        scope: &Scope,
        accepted: &AcceptedTurn,
        history: u32,
    ) -> Result<TaskRecord, Error> {
        let mut show_at = Some(Instant::now() + self.settings.show_after);
        let hint = self.store.hints().watch_task(accepted.task);
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
                if reads < HOPEFUL_READS {
                    return Ok(record);
                }
                let whole = self.whole(scope, accepted.task, history).await?;
                return whole.ok_or(Error::TaskNotFound);
            }
            reads += 1;
            if record.shown {
                show_at = None;
            }
            let poll_at = Instant::now() + self.settings.poll;
            let wake_at = show_at.map_or(poll_at, |at| at.min(poll_at));
            tokio::select! {
                () = changed => {}
                () = sleep_until(wake_at) => {}
                () = self.drain.cancelled() => return Err(Error::ShuttingDown),
            }
            if show_at.is_some_and(|at| at <= Instant::now()) {
                self.store.show(scope, accepted.task).await?;
                show_at = None;
            }
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
            let now = Instant::now();
            if until.is_some_and(|until| until <= now) {
                return Ok(None);
            }
            let poll_at = now + self.settings.poll;
            let wake_at = until.map_or(poll_at, |until| until.min(poll_at));
            tokio::select! {
                () = changed => {}
                () = sleep_until(wake_at) => {}
                () = self.drain.cancelled() => return Err(Error::ShuttingDown),
            }
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
