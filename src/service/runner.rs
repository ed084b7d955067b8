//! One turn: the agent works, and what it says is stored in the order in which it says it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use prost::Message as _;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::agent::{AgentError, AgentTurn, Said, TurnHandle, Wish, text_part};
use crate::contract::v1::{self, TaskState};
use crate::domain::error::chain;
use crate::domain::task::ends_turn;
use crate::domain::{Error, MessageId};
use crate::service::runners::Runners;
use crate::store::{
    HeldLease, Replied, Reply, Report, Reported, Store, Turn, TurnEnd, Update, View,
};

/// Outcomes that an agent may have in the queue before it has to wait.
const QUEUE: usize = 64;
/// Bytes of artifacts after which what was said is stored in more than one report.
const REPORT_BYTES: usize = 4 << 20;
/// How often at most a runner looks for a cancel when its task changes.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Between two tries to store a report while the store does not answer.
const RETRY_EVERY: Duration = Duration::from_millis(200);

/// What a turn runs with.
pub(super) struct Run {
    pub(super) pool: Arc<Runners>,
    pub(super) held: HeldLease,
    /// Says that the lease is lost.
    pub(super) lost: CancellationToken,
    /// Says that the client wants the task canceled.
    pub(super) canceled: watch::Receiver<Option<Wish>>,
    /// Says that the server has no time left.
    pub(super) hand_back: CancellationToken,
}

/// How an attempt of the agent ended.
enum Attempt {
    /// It returned, or ended the turn.
    Returned(Result<(), AgentError>),
    /// Its lease is lost, or cannot be trusted any more: whatever it says counts for nothing.
    Lost,
    /// The server hands the turn back.
    HandedBack,
}

/// Writes what a turn says, with its lease and the number of each report.
struct Pen<'a> {
    run: &'a Run,
    sequence: i64,
    /// The last status that was stored by this attempt.
    state: Option<TaskState>,
    ended: bool,
    /// Whether a cancel had been requested when the last report was stored.
    cancel_requested: bool,
}

/// Runs a leased turn. What can go wrong is told to the store, or left to the next attempt. Returns
/// how it ended, in a word for the numbers.
pub(super) async fn run(run: Run, turn: Turn) -> &'static str {
    let mut pen = Pen::new(&run, turn.last_report);
    let settings = &run.pool.settings;
    if run.hand_back.is_cancelled() {
        pen.end(TurnEnd::HandedBack).await;
        return "handed_back";
    }
    if turn.cancel.is_some() {
        pen.finish(TaskState::Canceled, None).await;
        return "canceled";
    }
    if turn.interruptions > settings.max_interruptions {
        let why = format!("the work was interrupted {} times", turn.interruptions);
        pen.finish(TaskState::Failed, Some(&why)).await;
        return "given_up";
    }
    let artifacts = match artifacts_so_far(&*run.pool.store, &turn).await {
        Ok(artifacts) => artifacts,
        Err(error) => {
            tracing::warn!(task.id = %turn.task, error.chain = chain(&error), "could not begin a turn");
            pen.end(TurnEnd::HandedBack).await;
            return "handed_back";
        }
    };
    let attempt = work(&mut pen, agent_turn(&turn, artifacts)).await;
    close(&mut pen, &turn, attempt).await
}

/// Ends a turn as its attempt ended.
async fn close(pen: &mut Pen<'_>, turn: &Turn, attempt: Attempt) -> &'static str {
    let run = pen.run;
    let settings = &run.pool.settings;
    match attempt {
        Attempt::Lost => {
            tracing::info!(task.id = %turn.task, "a turn was lost");
            return "lost";
        }
        Attempt::HandedBack => {
            pen.end(TurnEnd::HandedBack).await;
            return "handed_back";
        }
        Attempt::Returned(_) if pen.ended => {}
        // However it left: it was asked to.
        Attempt::Returned(_) if run.canceled.borrow().is_some() => {
            pen.finish(TaskState::Canceled, None).await;
            return "canceled";
        }
        Attempt::Returned(Ok(())) => match pen.state {
            Some(state) if state.is_interrupted() => pen.end(TurnEnd::Finished).await,
            _ => {
                let why = "the agent returned without an outcome (InvalidAgentResponse)";
                pen.finish(TaskState::Failed, Some(why)).await;
                return "no_outcome";
            }
        },
        Attempt::Returned(Err(error)) => {
            let errors = turn.errors + 1;
            tracing::warn!(task.id = %turn.task, attempt = errors, error.text = %error, "an agent failed");
            if errors >= settings.max_attempts {
                let why = format!("the agent failed {errors} times; the last time: {error}");
                pen.finish(TaskState::Failed, Some(&why)).await;
                return "given_up";
            } else {
                let spread = getrandom::u32().map_or(128, |random| random % 256);
                let retry_in = pause(settings.retry_pause, errors, spread);
                pen.end(TurnEnd::Failed { retry_in }).await;
                return "failed";
            }
        }
    }
    "done"
}

fn state_of(update: &Update) -> Option<TaskState> {
    match update {
        Update::Status { state, .. } => Some(*state),
        Update::Artifact { .. } => None,
    }
}

/// How long a turn rests after its `errors`th error: `first`, doubled with each error up to 64
/// times, and a quarter less or more by `spread` of 256. Turns that failed together, because
/// something that all of them need is gone, then do not all come back at one time.
fn pause(first: Duration, errors: i32, spread: u32) -> Duration {
    let doubled = 1_u32 << (errors - 1).clamp(0, 6);
    first * doubled * (384 + spread) / 512
}

/// What was stored before: by earlier turns, by earlier attempts, or by this one on a server that
/// handed it back.
async fn artifacts_so_far(store: &dyn Store, turn: &Turn) -> Result<Vec<v1::Artifact>, Error> {
    if turn.turn == 1 && turn.errors + turn.interruptions == 0 && turn.last_report == 0 {
        return Ok(Vec::new());
    }
    let view = View { history: 0, artifacts: true, hidden: true };
    let record = store.task(&turn.scope, turn.task, view).await?;
    Ok(record.map(|record| record.task.artifacts).unwrap_or_default())
}

fn agent_turn(turn: &Turn, artifacts: Vec<v1::Artifact>) -> AgentTurn {
    AgentTurn {
        task: turn.task,
        context: turn.context.clone(),
        tenant: turn.scope.tenant().clone(),
        principal: turn.scope.owner().clone(),
        turn: turn.turn,
        attempt: 1 + turn.errors + turn.interruptions,
        message: turn.message.clone(),
        metadata: turn.request.metadata.clone(),
        output_modes: turn.request.output_modes.clone(),
        trace: turn.request.trace.clone(),
        state: turn.state,
        artifacts,
    }
}

/// Lets the agent work and stores what it says, until it returns or may not go on.
async fn work(pen: &mut Pen<'_>, turn: AgentTurn) -> Attempt {
    let run = pen.run;
    let (say, mut said) = mpsc::channel(QUEUE);
    let mut handle = TurnHandle::new(say, run.canceled.clone(), run.pool.limits());
    let agent = Arc::clone(&run.pool.agent);
    let working = AssertUnwindSafe(async move { agent.run(turn, &mut handle).await });
    let mut working = std::pin::pin!(working.catch_unwind());
    let hint = run.pool.store.hints().watch_task(run.held.task);
    let mut changed = std::pin::pin!(hint.armed());
    let mut look_at = Instant::now();
    let mut let_go_at = None;
    loop {
        let mut heard = Vec::new();
        let certain_until = run.pool.certain_until(run.held.lease);
        tokio::select! {
            biased;
            () = run.lost.cancelled(), if !pen.ended => return Attempt::Lost,
            () = run.hand_back.cancelled() => {
                while let Ok(next) = said.try_recv() {
                    heard.push(next);
                }
                if !pen.write(heard, false).await {
                    return Attempt::Lost;
                }
                return if pen.ended { Attempt::Returned(Ok(())) } else { Attempt::HandedBack };
            }
            outcome = &mut working => {
                while let Ok(next) = said.try_recv() {
                    heard.push(next);
                }
                if !pen.write(heard, outcome.is_ok()).await {
                    return Attempt::Lost;
                }
                let panicked = || Err(AgentError::new("it broke down"));
                return Attempt::Returned(outcome.unwrap_or_else(|_| panicked()));
            }
            count = said.recv_many(&mut heard, QUEUE) => {
                if count > 0 && !pen.write(heard, false).await {
                    return Attempt::Lost;
                }
                pen.pass_cancel_on().await;
            }
            () = sleep_until(certain_until), if !pen.ended => {
                if run.pool.certain_until(run.held.lease) <= Instant::now() {
                    return Attempt::Lost;
                }
            }
            () = async { changed.as_mut().await; sleep_until(look_at).await }, if !pen.ended => {
                changed.set(hint.armed());
                look_at = Instant::now() + LOOK_EVERY;
                if run.canceled.borrow().is_none() {
                    run.pool.renew(std::slice::from_ref(&run.held)).await;
                }
            }
            () = sleep_until(let_go_at.unwrap_or_else(Instant::now)), if let_go_at.is_some() => {
                // The turn is over; an agent that tidies up for longer is not waited for.
                return Attempt::Returned(Ok(()));
            }
        }
        if pen.ended && let_go_at.is_none() {
            let_go_at = Some(Instant::now() + run.pool.settings.grace);
        }
    }
}

impl<'a> Pen<'a> {
    fn new(run: &'a Run, sequence: i64) -> Self {
        Self { run, sequence, state: None, ended: false, cancel_requested: false }
    }

    /// Tells an agent of a cancel that a report came across, also if it never pauses.
    async fn pass_cancel_on(&self) {
        if self.cancel_requested && !self.ended && self.run.canceled.borrow().is_none() {
            self.run.pool.renew(std::slice::from_ref(&self.run.held)).await;
        }
    }

    /// Stores what was said, in order. `false` if the lease is lost.
    async fn write(&mut self, heard: Vec<Said>, last: bool) -> bool {
        let mut updates = Vec::new();
        let mut bytes = 0;
        let mut stored: Vec<oneshot::Sender<()>> = Vec::new();
        for said in heard {
            match said {
                Said::Status { state, message, metadata } => {
                    updates.push(Update::Status { state, message, metadata });
                }
                Said::Artifact { artifact, append, last_chunk } => {
                    bytes += artifact.encoded_len();
                    updates.push(Update::Artifact { artifact, append, last_chunk, metadata: None });
                    if bytes > REPORT_BYTES {
                        bytes = 0;
                        if !self.updates(std::mem::take(&mut updates), false).await {
                            return false;
                        }
                    }
                }
                Said::Flush(done) => stored.push(done),
                Said::Reply(message) => {
                    if !self.updates(std::mem::take(&mut updates), false).await {
                        return false;
                    }
                    if !self.reply(message).await {
                        return false;
                    }
                }
            }
        }
        let landed = updates.is_empty() || self.updates(updates, last).await;
        if landed {
            for done in stored {
                // An agent that stopped waiting does not want to know.
                let _gone = done.send(());
            }
        }
        landed
    }

    /// Stores outcomes in one report; the one that ends the turn, or the last before the agent
    /// returned while its task is interrupted, comes with the end.
    async fn updates(&mut self, updates: Vec<Update>, last: bool) -> bool {
        if updates.is_empty() {
            return true;
        }
        let state = updates.iter().rev().find_map(state_of);
        self.state = state.or(self.state);
        let over = self.state.is_some_and(|s| ends_turn(s) || (last && s.is_interrupted()));
        let end = over.then_some(TurnEnd::Finished);
        self.report(updates, end).await
    }

    async fn report(&mut self, updates: Vec<Update>, end: Option<TurnEnd>) -> bool {
        self.sequence += 1;
        let ends = end.is_some();
        let held = &self.run.held;
        let states: Vec<_> = updates.iter().filter_map(state_of).collect();
        let report =
            Report { lease: held.lease, turn: held.turn, sequence: self.sequence, updates, end };
        let store = &self.run.pool.store;
        let outcome = self.insist(|| store.report(&held.scope, held.task, &report)).await;
        match outcome {
            Some(Reported::Landed { cancel_requested, .. }) => {
                self.ended |= ends;
                self.cancel_requested = cancel_requested;
                for state in states {
                    let label = [("state", state.as_str_name())];
                    self.run.pool.metrics.statuses.one(label);
                }
                true
            }
            Some(Reported::Repeated) => {
                self.ended |= ends;
                true
            }
            Some(Reported::Stale) => {
                self.run.pool.metrics.late_reports.one([]);
                tracing::info!(task.id = %held.task, "a late report was refused");
                false
            }
            None => false,
        }
    }

    async fn reply(&mut self, message: v1::Message) -> bool {
        self.sequence += 1;
        let held = &self.run.held;
        let reply = Reply { lease: held.lease, turn: held.turn, sequence: self.sequence, message };
        let store = &self.run.pool.store;
        let outcome = self.insist(|| store.reply(&held.scope, held.task, &reply)).await;
        match outcome {
            Some(Replied::Direct | Replied::Completed | Replied::Repeated) => {
                self.ended = true;
                true
            }
            Some(Replied::Stale) => {
                self.run.pool.metrics.late_reports.one([]);
                false
            }
            None => false,
        }
    }

    /// Tries again while the store does not answer and the lease is certain; the same report
    /// counts once, however often it is sent.
    async fn insist<T, F>(&self, mut write: impl FnMut() -> F) -> Option<T>
    where
        F: Future<Output = Result<T, Error>>,
    {
        loop {
            match write().await {
                Ok(outcome) => return Some(outcome),
                Err(error @ Error::Unavailable(_)) => {
                    tracing::warn!(
                        error.chain = chain(&error),
                        "could not store a report; trying again"
                    );
                }
                Err(error) => {
                    tracing::error!(
                        task.id = %self.run.held.task,
                        error.chain = chain(&error),
                        "a report could not be stored"
                    );
                    return None;
                }
            }
            sleep(RETRY_EVERY).await;
            if self.run.pool.certain_until(self.run.held.lease) <= Instant::now() {
                return None;
            }
        }
    }

    /// Ends the turn with a status of the server's own.
    async fn finish(&mut self, state: TaskState, why: Option<&str>) {
        let message = why.map(|why| v1::Message {
            message_id: MessageId::generate().to_string(),
            role: v1::Role::Agent as i32,
            parts: vec![text_part(why)],
            ..Default::default()
        });
        let update = Update::Status { state, message, metadata: None };
        self.report(vec![update], Some(TurnEnd::Finished)).await;
    }

    /// Ends the turn without a word.
    async fn end(&mut self, end: TurnEnd) {
        self.report(Vec::new(), Some(end)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_doubles_and_is_spread_by_a_quarter() {
        let second = Duration::from_secs(1);
        for (errors, spread, ms) in
            [(1, 0, 750), (1, 128, 1000), (1, 255, 1248), (2, 128, 2000), (3, 0, 3000)]
        {
            assert_eq!(pause(second, errors, spread).as_millis(), ms, "{errors} {spread}");
        }
        assert_eq!(pause(second, i32::MAX, 128), second * 64);
        assert_eq!(pause(Duration::ZERO, 1, 255), Duration::ZERO);
    }
}
