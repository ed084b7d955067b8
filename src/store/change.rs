//! What a write does to a task, decided on its locked row alone.
//!
//! Both stores lock the row, ask here what follows, and write exactly that. Nothing here reads a
//! clock or a table, so the rules of a task's life are written once.

use prost::Message as _;
use prost::bytes::Bytes;

use crate::contract::v1::stream_response::Payload;
use crate::contract::v1::{self, TaskState};
use crate::contract::wkt::Struct;
use crate::domain::task::{ends_turn, may_move};
use crate::domain::{Error, LeaseToken};
use crate::store::types::{Report, TurnEnd, Update};

/// States of a turn, as stored.
pub(crate) mod turn_state {
    /// Waits for an earlier turn of its task.
    pub(crate) const BLOCKED: i16 = 0;
    /// May be claimed once it is due.
    pub(crate) const QUEUED: i16 = 1;
    /// Runs under a lease.
    pub(crate) const LEASED: i16 = 2;
    /// Has ended.
    pub(crate) const DONE: i16 = 3;
    /// Will never run, for its task ended first.
    pub(crate) const DROPPED: i16 = 4;
}

/// The columns of a task's row that decide, as they stand under its lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) state: TaskState,
    pub(crate) status_at: i64,
    /// The place in the history that the current status message keeps, if there is one.
    pub(crate) status_seq: Option<i64>,
    pub(crate) generation: i64,
    pub(crate) next_seq: i64,
    pub(crate) shown: bool,
    pub(crate) replied: bool,
    pub(crate) lease: Option<LeaseToken>,
    pub(crate) head_turn: i64,
    pub(crate) next_turn: i64,
    pub(crate) interrupted: Option<(i64, i64)>,
    pub(crate) cancel_requested_at: Option<i64>,
    pub(crate) updated_at: i64,
    pub(crate) terminal_at: Option<i64>,
}

/// An event to append.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NewEvent {
    pub(crate) generation: i64,
    pub(crate) turn: i64,
    pub(crate) state: Option<TaskState>,
    /// A `StreamResponse` without task, context and time.
    pub(crate) body: Vec<u8>,
}

/// A piece of an artifact to store.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NewChunk {
    pub(crate) artifact_id: String,
    pub(crate) generation: i64,
    pub(crate) append: bool,
    /// An encoded `Artifact` without parts.
    pub(crate) head: Vec<u8>,
    /// An encoded `Artifact` of nothing but parts, so that head and chunks join to the whole.
    pub(crate) parts: Vec<u8>,
}

/// What happens to the turn that reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnChange {
    /// It goes on.
    Goes,
    /// It is done.
    Done,
    /// It rests until then, with one more error.
    Failed { due_at: i64 },
    /// It is due at once, uncounted.
    HandedBack,
}

/// All that a write does.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    /// The row afterwards.
    pub(crate) row: Row,
    /// The time at which it was decided.
    pub(crate) now: i64,
    /// The stamp of its events.
    pub(crate) at: i64,
    /// Whether the status was replaced: its message then moves into the history.
    pub(crate) new_status: bool,
    /// The new status message, encoded; meaningful if the status was replaced.
    pub(crate) status_message: Option<Vec<u8>>,
    /// Messages for the history, by place.
    pub(crate) messages: Vec<(i64, Vec<u8>)>,
    pub(crate) events: Vec<NewEvent>,
    pub(crate) chunks: Vec<NewChunk>,
    /// What listings count: state and difference.
    pub(crate) counts: Vec<(TaskState, i64)>,
    /// Whether every other unfinished turn is dropped.
    pub(crate) drops_turns: bool,
    /// The turn that becomes due because this one ended.
    pub(crate) unblocks: Option<i64>,
}

/// Cuts a time to whole milliseconds, towards the past.
pub(crate) fn floor_ms(us: i64) -> i64 {
    us.div_euclid(1000) * 1000
}

/// The bytes of a message as stored: without the ids that its task knows.
pub(crate) fn message_body(message: &v1::Message) -> Vec<u8> {
    let bare = v1::Message { task_id: String::new(), context_id: String::new(), ..message.clone() };
    bare.encode_to_vec()
}

/// The bytes of a status event, without ids and time.
pub(crate) fn status_body(
    state: TaskState,
    message: Option<&v1::Message>,
    metadata: Option<&Struct>,
) -> Vec<u8> {
    let status = v1::TaskStatus {
        state: state as i32,
        message: message.map(|message| v1::Message {
            task_id: String::new(),
            context_id: String::new(),
            ..message.clone()
        }),
        timestamp: None,
    };
    let update = v1::TaskStatusUpdateEvent {
        status: Some(status),
        metadata: metadata.cloned(),
        ..Default::default()
    };
    v1::StreamResponse { payload: Some(Payload::StatusUpdate(update)) }.encode_to_vec()
}

impl Change {
    /// Nothing yet, but that the row moves.
    pub(crate) fn begin(row: &Row, now: i64) -> Self {
        let mut row = row.clone();
        row.updated_at = now.max(row.updated_at + 1);
        Self {
            now,
            at: floor_ms(now).max(row.status_at),
            row,
            new_status: false,
            status_message: None,
            messages: Vec::new(),
            events: Vec::new(),
            chunks: Vec::new(),
            counts: Vec::new(),
            drops_turns: false,
            unblocks: None,
        }
    }

    fn status(
        &mut self,
        turn: i64,
        state: TaskState,
        message: Option<&v1::Message>,
        metadata: Option<&Struct>,
    ) {
        let row = &mut self.row;
        row.generation += 1;
        row.state = state;
        row.status_at = self.at;
        // A message of this very batch that is replaced again goes straight into the history.
        if let (true, Some(seq), Some(body)) =
            (self.new_status, row.status_seq, self.status_message.take())
        {
            self.messages.push((seq, body));
        }
        self.new_status = true;
        self.status_message = message.map(message_body);
        row.status_seq = message.map(|_| {
            row.next_seq += 1;
            row.next_seq - 1
        });
        if state.is_interrupted() {
            row.interrupted = Some((row.generation, turn));
        }
        if state.is_terminal() {
            row.terminal_at = Some(self.at);
        }
        let body = status_body(state, message, metadata);
        self.events.push(NewEvent { generation: row.generation, turn, state: Some(state), body });
    }

    fn artifact(&mut self, turn: i64, update: v1::TaskArtifactUpdateEvent) {
        self.row.generation += 1;
        let generation = self.row.generation;
        let artifact = update.artifact.clone().unwrap_or_default();
        let parts = v1::Artifact { parts: artifact.parts.clone(), ..Default::default() };
        let head = v1::Artifact { parts: Vec::new(), ..artifact };
        self.chunks.push(NewChunk {
            artifact_id: head.artifact_id.clone(),
            generation,
            append: update.append,
            head: head.encode_to_vec(),
            parts: parts.encode_to_vec(),
        });
        let body = v1::StreamResponse { payload: Some(Payload::ArtifactUpdate(update)) };
        self.events.push(NewEvent { generation, turn, state: None, body: body.encode_to_vec() });
    }

    /// Lists the task, and keeps the counts true to the state before and after.
    fn count(&mut self, before: &Row) {
        let after = &self.row;
        if before.shown && before.state != after.state {
            self.counts.push((before.state, -1));
        }
        if after.shown && (!before.shown || before.state != after.state) {
            self.counts.push((after.state, 1));
        }
    }

    /// Ends the head turn; the next one, if there is one, becomes due.
    fn end_turn(&mut self) {
        self.row.lease = None;
        if self.row.state.is_terminal() {
            self.drops_turns = self.row.head_turn < self.row.next_turn;
            self.row.head_turn = self.row.next_turn;
        } else {
            self.row.head_turn += 1;
            self.unblocks = (self.row.head_turn < self.row.next_turn).then_some(self.row.head_turn);
        }
    }
}

/// Whether a report keeps the rules that its sender has to keep. They are the same in every live
/// state, so they need no row. Only whoever holds the lease hears of a fault: of others nothing
/// is taken, right or wrong.
///
/// # Errors
/// `Internal`, and nothing of the report is stored.
fn check(report: &Report) -> Result<(), Error> {
    let mut before = TaskState::Working;
    for update in &report.updates {
        match update {
            Update::Status { state, .. } if !may_move(before, *state) => {
                let (from, to) = (before.as_str_name(), state.as_str_name());
                return Err(Error::internal(format!("a report moves {from} to {to}")));
            }
            Update::Status { state, .. } => before = *state,
            Update::Artifact { .. } if before.is_terminal() => {
                return Err(Error::internal("a report has an artifact after the end"));
            }
            Update::Artifact { .. } => {}
        }
    }
    Ok(())
}

/// What a report does that holds the lease.
///
/// # Errors
/// As [`check`].
pub(crate) fn report(row: &Row, report: &Report, now: i64) -> Result<(Change, TurnChange), Error> {
    check(report)?;
    let mut change = Change::begin(row, now);
    for update in &report.updates {
        match update {
            Update::Status { state, message, metadata } => {
                change.status(report.turn, *state, message.as_ref(), metadata.as_ref());
            }
            Update::Artifact { artifact, append, last_chunk, metadata } => {
                let update = v1::TaskArtifactUpdateEvent {
                    artifact: Some(artifact.clone()),
                    append: *append,
                    last_chunk: *last_chunk,
                    metadata: metadata.clone(),
                    ..Default::default()
                };
                change.artifact(report.turn, update);
            }
        }
    }
    if !report.updates.is_empty() {
        change.row.shown = true;
    }
    let turn = if change.row.state.is_terminal() {
        TurnChange::Done
    } else {
        match report.end {
            None if change.new_status && ends_turn(change.row.state) => TurnChange::Done,
            None => TurnChange::Goes,
            Some(TurnEnd::Finished) => TurnChange::Done,
            Some(TurnEnd::Failed { retry_in }) => TurnChange::Failed {
                due_at: now.saturating_add(crate::domain::clock::micros(retry_in)),
            },
            Some(TurnEnd::HandedBack) => TurnChange::HandedBack,
        }
    };
    match turn {
        TurnChange::Goes => {}
        TurnChange::Done => change.end_turn(),
        TurnChange::Failed { .. } | TurnChange::HandedBack => change.row.lease = None,
    }
    change.count(row);
    Ok((change, turn))
}

/// What a direct message does that holds the lease: the reply, encoded, or an ordinary change.
pub(crate) enum ReplyChange {
    /// The task stays hidden and keeps this.
    Direct(Change, Vec<u8>),
    /// The task completes.
    Completed(Change),
}

/// As [`ReplyChange`] says. A reply is direct if the task is hidden and nothing was reported.
pub(crate) fn reply(row: &Row, turn: i64, message: &v1::Message, now: i64) -> ReplyChange {
    let mut change = Change::begin(row, now);
    if row.shown {
        change.status(turn, TaskState::Completed, Some(message), None);
        change.end_turn();
        change.count(row);
        return ReplyChange::Completed(change);
    }
    change.row.replied = true;
    change.end_turn();
    ReplyChange::Direct(change, message_body(message))
}

/// What showing does; `None` if there is nothing to do.
pub(crate) fn show(row: &Row, now: i64) -> Option<Change> {
    (!row.shown && !row.replied).then(|| {
        let mut change = Change::begin(row, now);
        change.row.shown = true;
        change.count(row);
        change
    })
}

/// What a cancel does that takes effect: the task ends, whoever holds its lease.
pub(crate) fn cancel(row: &Row, now: i64) -> Change {
    let mut change = Change::begin(row, now);
    let turn = if row.head_turn < row.next_turn { row.head_turn } else { 0 };
    change.status(turn, TaskState::Canceled, None, None);
    change.end_turn();
    change.count(row);
    change
}

/// Joins the stored head and chunks of an artifact.
pub(crate) fn join_artifact(head: Vec<u8>, chunks: &[u8]) -> Result<v1::Artifact, Error> {
    let mut bytes = head;
    bytes.extend_from_slice(chunks);
    v1::Artifact::decode(Bytes::from(bytes)).map_err(Error::internal)
}
