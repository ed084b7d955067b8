//! SendMessage.

use std::sync::Arc;

use prost::Message as _;
use sha2::{Digest as _, Sha256};
use tokio::sync::futures::OwnedNotified;
use tokio::time::Instant;

use crate::contract::v1;
use crate::contract::v1::send_message_response::Payload;
use crate::domain::{ContextId, Error, LeaseToken, Scope, TaskId};
use crate::service::room::{self, Asked};
use crate::service::settings::Dedupe;
use crate::service::validate::{self, Target};
use crate::service::{Call, Inner};
use crate::store::hints::TaskHint;
use crate::store::{self, Accept, Accepted, AcceptedTurn, TaskRecord, Turn, TurnRequest};

/// A message that was stored.
pub(super) struct Arrived {
    pub(super) turn: AcceptedTurn,
    /// Whether it had been stored before.
    pub(super) is_repeat: bool,
    /// For a turn that began here this moment: its first change. Until then a read finds nothing.
    pub(super) first_change: Option<(TaskHint, OwnedNotified)>,
}

/// A message that was taken in, and how its sender wants to hear of it.
pub(super) struct Sent {
    pub(super) scope: Scope,
    pub(super) arrived: Arrived,
    /// The most messages of history.
    pub(super) history: u32,
    /// Whether the sender waits for nothing.
    pub(super) at_once: bool,
}

impl Inner {
    pub(super) async fn send_message(
        self: &Arc<Self>,
        call: &Call,
        request: v1::SendMessageRequest,
    ) -> Result<v1::SendMessageResponse, Error> {
        let Sent { scope, arrived, history, at_once } = self.take_in(call, request).await?;
        let record = if at_once {
            self.as_it_is(&scope, &arrived, history).await?
        } else {
            self.settled_in_time(&scope, arrived, history).await?
        };
        let task = TaskId::parse(&record.task.id);
        let asked = Asked::of_task(&scope, &record.task.id);
        let answer = self.answer(record)?;
        let again = || async {
            let task = task.ok_or_else(|| Error::internal("a stored task has no id"))?;
            let record = self.whole(&scope, task, history).await?.ok_or(Error::TaskNotFound)?;
            self.answer(record)
        };
        room::kept(call.room.as_ref(), asked, answer, again).await
    }

    /// Checks and stores what a sender wants.
    pub(super) async fn take_in(
        self: &Arc<Self>,
        call: &Call,
        mut request: v1::SendMessageRequest,
    ) -> Result<Sent, Error> {
        let tenant = std::mem::take(&mut request.tenant);
        let metadata = request.metadata.clone();
        let send = validate::send(request, &self.input_modes, &self.settings)?;
        let (scope, target) = match send.target {
            Target::New => {
                let context = send.context.clone().unwrap_or_else(ContextId::generate);
                let shown = send.at_once;
                let target = store::Target::New { task: TaskId::generate(), context, shown };
                (Self::scope(call, &tenant)?, target)
            }
            Target::Task(task) => {
                let target = store::Target::Existing { task, context: send.context.clone() };
                (Self::scope_of_task(call, &tenant)?, target)
            }
            Target::Nothing => return Err(Error::TaskNotFound),
        };
        if self.drain.is_cancelled() {
            return Err(Error::ShuttingDown);
        }
        if matches!(target, store::Target::New { .. }) {
            self.meter.task(&*self.store, &scope).await?;
        }
        let accept = Accept {
            dedupe: self.dedupe(call, &send.message),
            message: send.message,
            target,
            request: TurnRequest {
                metadata,
                output_modes: send.output_modes,
                trace: call.trace.clone(),
            },
            lease: None,
        };
        // As one, so that no lease is left lying when the caller leaves in between.
        let (this, owned) = (Arc::clone(self), scope.clone());
        let arrived = self.to_its_end(async move { this.accept(&owned, accept).await }).await?;
        Ok(Sent { scope, arrived, history: send.history, at_once: send.at_once })
    }

    /// Stores the message; a free runner of this server gets the turn in the same commit.
    async fn accept(&self, scope: &Scope, mut accept: Accept) -> Result<Arrived, Error> {
        // A later message of a task has a story before it, so its turn is claimed in the usual way.
        let begins = matches!(accept.target, store::Target::New { .. });
        let slot = if begins { self.runners.reserve() } else { None };
        accept.lease = slot.as_ref().map(|_| self.runners.lease());
        let asked_at = Instant::now();
        match self.store.accept(scope, &accept).await? {
            Accepted::New(turn) => {
                let became = if begins { "task" } else { "follow_up" };
                self.metrics.messages.one([("became", became)]);
                let lease = accept.lease.filter(|_| turn.leased);
                let mut arrived = Arrived { turn, is_repeat: false, first_change: None };
                let leased = lease.and_then(|lease| leased_turn(scope, &accept, lease.token));
                if let (Some(slot), Some(leased)) = (slot, leased) {
                    let hint = self.store.hints().watch_task(turn.task);
                    // Before the agent begins: what it does first is not slept over.
                    let armed = hint.armed();
                    arrived.first_change = Some((hint, armed));
                    self.runners.run(slot, leased, asked_at, "accepted");
                }
                Ok(arrived)
            }
            Accepted::Repeat(turn) => {
                self.metrics.messages.one([("became", "repeat")]);
                Ok(Arrived { turn, is_repeat: true, first_change: None })
            }
            Accepted::OtherContent => Err(Error::invalid(
                "message.message_id",
                "was used before for a message with other content; give each message an id of its own",
            )),
            Accepted::NotFound => Err(Error::TaskNotFound),
            Accepted::OtherContext => Err(Error::invalid(
                "message.context_id",
                "is not the context of the task; leave it out, or name the task's own",
            )),
            Accepted::Ended(state) => {
                let state = state.as_str_name();
                let text = format!(
                    "the task has ended ({state}) and takes no more messages; send a new one in its context"
                );
                Err(Error::Unsupported(text))
            }
        }
    }

    /// The answer of a call that waits for nothing (SEND-06, AMB-42).
    async fn as_it_is(
        &self,
        scope: &Scope,
        arrived: &Arrived,
        history: u32,
    ) -> Result<TaskRecord, Error> {
        let task = arrived.turn.task;
        if arrived.is_repeat {
            // The first call may have waited for a direct reply; this caller is told of the task.
            self.store.show(scope, task).await?;
        }
        self.whole(scope, task, history).await?.ok_or(Error::TaskNotFound)
    }

    fn dedupe(&self, call: &Call, message: &v1::Message) -> Option<store::Dedupe> {
        let wanted = match self.settings.dedupe {
            Dedupe::On => true,
            Dedupe::Off => false,
            Dedupe::Auto => !call.caller.is_anonymous(),
        };
        wanted.then(|| store::Dedupe {
            context: message.context_id.clone(),
            task: message.task_id.clone(),
            digest: Sha256::digest(message.encode_to_vec()).into(),
            window: self.settings.dedupe_window,
        })
    }

    /// A task, or the message that it turned out to be (SEND-01).
    fn answer(&self, record: TaskRecord) -> Result<v1::SendMessageResponse, Error> {
        let payload = match record.reply {
            Some(message) => Payload::Message(message),
            None => Payload::Task(self.fitting(record.task)?),
        };
        Ok(v1::SendMessageResponse { payload: Some(payload) })
    }
}

/// The turn of a task that begins with it, known without a read.
fn leased_turn(scope: &Scope, accept: &Accept, lease: LeaseToken) -> Option<Turn> {
    let store::Target::New { task, context, shown } = &accept.target else { return None };
    let message = v1::Message {
        task_id: task.to_string(),
        context_id: context.to_string(),
        ..accept.message.clone()
    };
    Some(Turn {
        scope: scope.clone(),
        task: *task,
        context: context.clone(),
        turn: 1,
        lease,
        last_report: 0,
        state: v1::TaskState::Submitted,
        shown: *shown,
        message,
        request: accept.request.clone(),
        errors: 0,
        interruptions: 0,
        cancel: None,
    })
}
