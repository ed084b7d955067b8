//! What goes into a store and what comes out.

use std::time::Duration;

use crate::contract::v1::{self, TaskState};
use crate::contract::wkt::Struct;
use crate::domain::page::Cursor;
use crate::domain::{ContextId, LeaseToken, Scope, TaskId};

/// A message to accept.
#[derive(Debug, Clone)]
pub struct Accept {
    /// The message, checked. Its task and context are those of `target`.
    pub message: v1::Message,
    /// How repeats are recognised; `None` takes every message as new.
    pub dedupe: Option<Dedupe>,
    /// Which task it goes to.
    pub target: Target,
    /// What the agent is told beside the message.
    pub request: TurnRequest,
    /// Leases the new turn in the same transaction, if no other turn of the task is unfinished.
    pub lease: Option<LeaseRequest>,
}

/// The key and content of a message as it was sent (IDEM-05). The key is the scope, these two
/// texts and the message's id.
#[derive(Debug, Clone)]
pub struct Dedupe {
    /// `message.context_id` as sent, or empty.
    pub context: String,
    /// `message.task_id` as sent, or empty.
    pub task: String,
    /// SHA-256 of the decoded message.
    pub digest: [u8; 32],
    /// How long the row counts; an older one is overwritten.
    pub window: Duration,
}

/// Where a message goes.
#[derive(Debug, Clone)]
pub enum Target {
    /// To a task that begins with it, in state SUBMITTED.
    New {
        /// The fresh id.
        task: TaskId,
        /// The context, the client's or a fresh one.
        context: ContextId,
        /// Whether the task is listed from the start.
        shown: bool,
    },
    /// To a task that exists and is shown.
    Existing {
        /// The task.
        task: TaskId,
        /// The context that the message names, which must be the task's.
        context: Option<ContextId>,
    },
}

/// What of a request reaches the agent beside the message.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TurnRequest {
    /// The request's metadata.
    pub metadata: Option<Struct>,
    /// Media types the client can take; empty states no preference.
    pub output_modes: Vec<String>,
    /// The W3C `traceparent` of the call.
    pub trace: Option<String>,
}

/// The turns that are due and that nobody has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backlog {
    /// How many, [`BACKLOG_MAX`] at most.
    pub due: u32,
    /// How long the one that is due longest has been so.
    pub longest: Duration,
}

/// How many due turns are counted.
pub const BACKLOG_MAX: u32 = 1000;

/// Whose tasks are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owners {
    /// The scope's owner's.
    One,
    /// Those of every owner in the scope's tenant.
    All,
}

/// A lease to take with an accepted turn.
#[derive(Debug, Clone, Copy)]
pub struct LeaseRequest {
    /// The token that reports will carry.
    pub token: LeaseToken,
    /// How long it lasts.
    pub lease: Duration,
}

/// What became of an accepted message.
#[derive(Debug, Clone, PartialEq)]
pub enum Accepted {
    /// It was stored.
    New(AcceptedTurn),
    /// The same message came before and made this.
    Repeat(AcceptedTurn),
    /// The same id came before with other content.
    OtherContent,
    /// This scope has no such task.
    NotFound,
    /// The task exists and belongs to another context than the message says.
    OtherContext,
    /// The task has ended.
    Ended(TaskState),
}

/// An accepted turn, by which a waiting caller recognises its outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcceptedTurn {
    /// The task.
    pub task: TaskId,
    /// The turn the message became, from 1.
    pub turn: i64,
    /// The task's generation when the message was accepted.
    pub generation: i64,
    /// Whether the lease that was asked for was given.
    pub leased: bool,
}

/// A leased turn: all that a runner needs to begin.
#[derive(Debug, Clone, PartialEq)]
pub struct Turn {
    /// Whose task.
    pub scope: Scope,
    /// The task.
    pub task: TaskId,
    /// The task's context.
    pub context: ContextId,
    /// The turn's number within its task, from 1.
    pub turn: i64,
    /// What proves the lease.
    pub lease: LeaseToken,
    /// The highest report sequence that landed; the next report carries one more.
    pub last_report: i64,
    /// The task's state.
    pub state: TaskState,
    /// Whether the task is listed.
    pub shown: bool,
    /// The message of this turn.
    pub message: v1::Message,
    /// What the request said beside it.
    pub request: TurnRequest,
    /// How often the agent failed in this turn.
    pub errors: i32,
    /// How often a runner lost this turn.
    pub interruptions: i32,
    /// Whether a cancel was requested, and with which metadata.
    pub cancel: Option<CancelWish>,
}

/// A cancel that was requested.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CancelWish {
    /// The metadata of the first CancelTask (CAN-07).
    pub metadata: Option<Struct>,
}

/// One batch of outcomes from a turn's runner.
#[derive(Debug, Clone)]
pub struct Report {
    /// The lease it holds.
    pub lease: LeaseToken,
    /// The turn.
    pub turn: i64,
    /// One more than the last report of this turn that landed.
    pub sequence: i64,
    /// Applied in order. A terminal status is the last.
    pub updates: Vec<Update>,
    /// How the turn ends, if it does. A terminal status or INPUT_REQUIRED comes with `Finished`.
    pub end: Option<TurnEnd>,
}

/// One outcome; each becomes one event.
#[derive(Debug, Clone)]
pub enum Update {
    /// A new status, also if the state is the same.
    Status {
        /// A state that [`may_move`](crate::domain::task::may_move) allows.
        state: TaskState,
        /// The agent's words. It joins the history when a newer status replaces it.
        message: Option<v1::Message>,
        /// The event's metadata.
        metadata: Option<Struct>,
    },
    /// A new artifact or a piece of one (EVT-08).
    Artifact {
        /// With its id and at least one part.
        artifact: v1::Artifact,
        /// Adds to the artifact of this id instead of replacing it.
        append: bool,
        /// Nothing more comes for it.
        last_chunk: bool,
        /// The event's metadata.
        metadata: Option<Struct>,
    },
}

/// How a turn ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnEnd {
    /// It is done; the next message of the task becomes due.
    Finished,
    /// The agent failed: the error counts and the turn is due again after the wait.
    Failed {
        /// How long it rests.
        retry_in: Duration,
    },
    /// It is handed back untouched and uncounted, due at once.
    HandedBack,
}

/// What became of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reported {
    /// It was stored.
    Landed {
        /// The task's generation now.
        generation: i64,
        /// Whether a cancel was requested.
        cancel_requested: bool,
    },
    /// The same report landed before.
    Repeated,
    /// The lease is not this runner's any more, or the task has ended: nothing was changed.
    Stale,
}

/// A direct message from a turn's runner.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The lease it holds.
    pub lease: LeaseToken,
    /// The turn.
    pub turn: i64,
    /// One more than the last report of this turn that landed.
    pub sequence: i64,
    /// The agent's message.
    pub message: v1::Message,
}

/// What became of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replied {
    /// The task stays hidden and the message is the answer (STR-02).
    Direct,
    /// The task was shown before, so it completed with the message.
    Completed,
    /// The same report landed before.
    Repeated,
    /// As [`Reported::Stale`].
    Stale,
}

/// What became of a wish to show a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// It is listed, now or since before.
    Yes,
    /// It became a direct reply first and stays hidden.
    Replied,
    /// This scope has no such task.
    NotFound,
}

/// What became of a wish to cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelRequested {
    /// No turn was running: the task is canceled.
    Canceled,
    /// A turn is running: its runner is told.
    Requested,
    /// The task has ended like this.
    Ended(TaskState),
    /// This scope has no such task that is shown.
    NotFound,
}

/// How much of a task to read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct View {
    /// The most messages of history, newest kept, oldest first.
    pub history: u32,
    /// Whether to read artifacts.
    pub artifacts: bool,
    /// Whether a task that is not shown counts.
    pub hidden: bool,
}

/// A task as one snapshot holds it.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskRecord {
    /// What the protocol shows of it.
    pub task: v1::Task,
    /// The number of its events.
    pub generation: i64,
    /// Whether it is listed.
    pub shown: bool,
    /// The direct reply, if it became one.
    pub reply: Option<v1::Message>,
    /// The newest INPUT_REQUIRED or AUTH_REQUIRED event, if there was one.
    pub interrupted: Option<Interrupted>,
    /// Whether a cancel was requested.
    pub cancel_requested: bool,
}

/// An event that interrupted a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interrupted {
    /// Its generation.
    pub generation: i64,
    /// The turn that reported it.
    pub turn: i64,
}

impl TaskRecord {
    /// Whether a caller whose message was accepted as `accepted` has its answer: the task has
    /// ended or replied, or its own turn or a later one interrupted it (AMB-01, SEND-19).
    #[must_use]
    pub fn settles(&self, accepted: &AcceptedTurn) -> bool {
        let state = self.task.status.as_ref().map_or(TaskState::Unspecified, |s| s.state());
        state.is_terminal()
            || self.reply.is_some()
            || self.interrupted.is_some_and(|event| {
                event.generation > accepted.generation && event.turn >= accepted.turn
            })
    }
}

/// A page to read.
#[derive(Debug, Clone)]
pub struct PageQuery {
    /// Only this context.
    pub context: Option<ContextId>,
    /// Only this state.
    pub state: Option<TaskState>,
    /// Only tasks whose status time is this or later, in microseconds, floored to milliseconds.
    pub since_us: Option<i64>,
    /// Goes on after this place.
    pub after: Option<Cursor>,
    /// The most tasks, 1 to 100.
    pub limit: u32,
    /// The most messages of history of each task.
    pub history: u32,
    /// Whether to read artifacts.
    pub artifacts: bool,
    /// Whether to count all tasks that match, in the page's own snapshot.
    pub total: bool,
    /// Stops early, after one task at least, once history and artifacts of this many bytes are
    /// read; the next cursor then goes on from there.
    pub bytes_max: usize,
}

/// A page that was read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Page {
    /// The tasks, newest status first, ties by id descending.
    pub tasks: Vec<v1::Task>,
    /// The place to go on from; `None` on the last page.
    pub next: Option<Cursor>,
    /// All tasks that match, if it was asked for.
    pub total: Option<i64>,
}

/// One entry of a task's log.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Its place in the log, from 1.
    pub generation: i64,
    /// The turn that made it; 0 for events of no turn.
    pub turn: i64,
    /// What streams send: a status or artifact update, complete with task, context and time.
    pub response: v1::StreamResponse,
}

/// A lease to prolong.
#[derive(Debug, Clone)]
pub struct HeldLease {
    /// Whose task.
    pub scope: Scope,
    /// The task.
    pub task: TaskId,
    /// The turn.
    pub turn: i64,
    /// What proves the lease.
    pub lease: LeaseToken,
}

/// A lease that was prolonged.
#[derive(Debug, Clone, PartialEq)]
pub struct Renewed {
    /// Which.
    pub lease: LeaseToken,
    /// Whether the task's cancel was requested.
    pub cancel: Option<CancelWish>,
}

impl Target {
    /// The task that the message goes to.
    #[must_use]
    pub fn task(&self) -> TaskId {
        match self {
            Self::New { task, .. } | Self::Existing { task, .. } => *task,
        }
    }
}
