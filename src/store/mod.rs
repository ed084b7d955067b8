//! The store: every task, message, artifact and event, kept before anybody is told about it.
//!
//! Two stores keep the same promises, `Sqlite` in one file and
//! `Postgres` for many servers; one suite holds both to them:
//!
//! 1. A method that returned `Ok` has committed: a crash loses nothing of it.
//! 2. One call writes one task, in one transaction; of two that compete, one lands and the other
//!    is told so by a value, not by an error.
//! 3. Every read and write is limited to its [`Scope`]. Methods that span tenants say so in their
//!    names and serve the server's own loops.
//! 4. A task's status time never goes back, is cut to milliseconds, and moves with the status
//!    alone. `generation` grows by one for each status or artifact event, from 1, without a gap,
//!    and the log has exactly one event for each.
//! 5. A terminal task never changes. A report that does not hold the lease changes nothing; the
//!    same report again changes nothing and says so.
//! 6. A listing is ordered by status time and id, both descending; a walk that goes on from its
//!    cursors meets every task that does not move exactly once. Totals are exact.
//! 7. A task that is not shown yet is in no listing, no total and no other read than those that
//!    ask for it.
//! 8. The same sent message within its window finds what the first one made; the same id with
//!    other content is told apart.
//!
//! Message bodies are stored without `task_id` and `context_id`; every read fills them in.

mod change;
mod codec;
pub mod hints;
mod listing;
pub mod migrate;
pub mod postgres;
#[cfg(debug_assertions)]
#[doc(hidden)]
pub mod proof;
mod retention;
pub mod sqlite;
mod types;

use std::time::Duration;

use async_trait::async_trait;

use crate::contract::wkt::Struct;
use crate::domain::{Error, Scope, TaskId};
use crate::metrics::Number;

pub(crate) use change::floor_ms;
pub use hints::Hints;
pub use retention::{Erased, Keep, Purged, Retention, Tally, add_up};
pub use types::*;

/// What the service asks of a store. The module's text has the promises.
#[async_trait]
pub trait Store: Send + Sync + std::fmt::Debug + 'static {
    // --- a task's life ------------------------------------------------------------------------

    /// Accepts a message: de-duplication, task, message, event and turn in one transaction.
    async fn accept(&self, scope: &Scope, accept: &Accept) -> Result<Accepted, Error>;

    /// Applies what a turn's runner reports, all of it or nothing.
    async fn report(&self, scope: &Scope, task: TaskId, report: &Report)
    -> Result<Reported, Error>;

    /// Ends a turn with a direct message: the reply of a task that was never shown, else the
    /// status message that completes it.
    async fn reply(&self, scope: &Scope, task: TaskId, reply: &Reply) -> Result<Replied, Error>;

    /// Shows a task that may have become a direct reply. Repeats change nothing.
    async fn show(&self, scope: &Scope, task: TaskId) -> Result<Shown, Error>;

    /// Asks for a task's end: at once where no turn runs, else the wish is kept for its runner.
    async fn request_cancel(
        &self,
        scope: &Scope,
        task: TaskId,
        metadata: Option<&Struct>,
    ) -> Result<CancelRequested, Error>;

    /// Cancels a live task whose cancel was requested, whoever holds its lease. `false` if it
    /// has ended, is gone, or nobody asked.
    async fn finish_cancel(&self, scope: &Scope, task: TaskId) -> Result<bool, Error>;

    // --- reads --------------------------------------------------------------------------------

    /// One task from one snapshot, or `None` if this scope has no such task.
    async fn task(
        &self,
        scope: &Scope,
        task: TaskId,
        view: View,
    ) -> Result<Option<TaskRecord>, Error>;

    /// One page of a listing, newest status first.
    async fn tasks_page(&self, scope: &Scope, query: &PageQuery) -> Result<Page, Error>;

    /// At most `limit` events of a shown task with a generation above `after`, in order; `None`
    /// if this scope has no such task, or the events are gone with all others of a task that has
    /// ended. Fewer, but one at least, once they have more than [`EVENTS_BYTES`].
    async fn events_after(
        &self,
        scope: &Scope,
        task: TaskId,
        after: i64,
        limit: u32,
    ) -> Result<Option<Vec<Event>>, Error>;

    /// How many shown tasks have not ended. For [`Owners::All`] a row for each owner is read.
    async fn live_tasks(&self, scope: &Scope, owners: Owners) -> Result<i64, Error>;

    // --- the server's own loops ---------------------------------------------------------------

    /// Leases up to `limit` due turns, the longest due first. Waits for no lock. A task whose
    /// turn is claimed for a second attempt becomes shown.
    async fn claim_turns_of_all(&self, limit: u32, lease: Duration) -> Result<Vec<Turn>, Error>;

    /// How much work waits.
    async fn backlog_of_all(&self) -> Result<Backlog, Error>;

    /// Prolongs leases that are still held, each to `lease` from now. A token that is missing in
    /// the answer has lost its turn.
    async fn renew_leases_of_all(
        &self,
        leases: &[HeldLease],
        lease: Duration,
    ) -> Result<Vec<Renewed>, Error>;

    /// Frees turns whose lease ran out, at most `limit`, and counts the interruption: due again
    /// at once the first time, then after [`interruption_backoff`]. Returns how many.
    async fn release_expired_of_all(&self, limit: u32) -> Result<u32, Error>;

    /// Cancels live tasks whose cancel was requested longer than `grace` ago, at most `limit`.
    async fn finish_cancels_of_all(&self, grace: Duration, limit: u32) -> Result<u32, Error>;

    /// Sums up to `limit` count deltas into the counts. Returns how many it folded.
    async fn fold_counts_of_all(&self, limit: u32) -> Result<u32, Error>;

    /// Deletes what has expired: de-duplication rows, and tasks that were never shown and whose
    /// last change is older than `hidden_for`; at most `limit` of each. Returns how many.
    async fn purge_expired_of_all(&self, hidden_for: Duration, limit: u32) -> Result<u32, Error>;

    /// Deletes at most `limit` tasks, with all that belongs to them, that ended longer ago than
    /// their tenant keeps them, the oldest of a tenant first. Waits for no lock. Rows by which
    /// repeats are recognised stay until their own time.
    async fn purge_ended_of_all(&self, retention: &Retention, limit: u32) -> Result<Purged, Error>;

    /// Deletes the whole log of at most `limit` tasks that ended longer ago than their tenant
    /// keeps events, and keeps the tasks. Returns how many.
    async fn purge_events_of_all(&self, retention: &Retention, limit: u32) -> Result<u32, Error>;

    /// What [`purge_ended_of_all`](Self::purge_ended_of_all) would delete, without a limit.
    async fn count_ended_of_all(&self, retention: &Retention) -> Result<Vec<Tally>, Error>;

    // --- an owner's end -----------------------------------------------------------------------

    /// Deletes what belongs to the scope, live and hidden tasks included: at most `limit` tasks
    /// and as many other rows, or, when none is left, the owner's name unless another tenant has
    /// tasks of it. What runners report afterwards is stale.
    async fn erase(&self, scope: &Scope, limit: u32) -> Result<Erased, Error>;

    /// What [`erase`](Self::erase) would delete, without a limit.
    async fn count_owned(&self, scope: &Scope) -> Result<Erased, Error>;

    // --- the store itself ---------------------------------------------------------------------

    /// Its numbers as they are at the moment. None for a store that counts nothing.
    fn numbers(&self) -> Vec<Number> {
        Vec::new()
    }

    /// Whether the store answers.
    async fn ping(&self) -> Result<(), Error>;

    /// Where to wait for changes. A hint can be lost; the store is the truth.
    fn hints(&self) -> &Hints;

    /// Stops background work of the store and waits for writes under way.
    async fn close(&self);
}

/// How many bytes of events are enough for one read of a log.
pub const EVENTS_BYTES: u32 = 512 << 10;

/// How long a turn rests after its `n`th interruption: nothing the first time, then doubling
/// from 200 ms to 30 s.
#[must_use]
pub fn interruption_backoff(n: i32) -> Duration {
    match u32::try_from(n) {
        Ok(n) if n >= 2 => {
            Duration::from_millis(200 << (n - 2).min(8)).min(Duration::from_secs(30))
        }
        _ => Duration::ZERO,
    }
}
