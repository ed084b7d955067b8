//! How an agent reports.

use std::collections::BTreeSet;

use prost::Message as _;
use tokio::sync::{mpsc, oneshot, watch};

use crate::agent::text_part;
use crate::contract::v1::{self, TaskState};
use crate::contract::wkt::Struct;
use crate::domain::payload::Checker;
use crate::domain::task::{ends_turn, may_move};
use crate::domain::{MessageId, Violation};

/// What a report may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Bytes of a status message with its metadata.
    pub(crate) status_bytes: usize,
    /// Bytes of one artifact update.
    pub(crate) chunk_bytes: usize,
    /// Objects and arrays inside each other.
    pub(crate) nesting: usize,
}

/// A client's wish that the task be canceled, with the metadata of its request.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Wish(pub(crate) Option<Struct>);

/// What goes from the handle to the runner, in order.
pub(crate) enum Said {
    /// A new status.
    Status { state: TaskState, message: Option<v1::Message>, metadata: Option<Struct> },
    /// A new artifact or a piece of one.
    Artifact { artifact: v1::Artifact, append: bool, last_chunk: bool },
    /// A direct message.
    Reply(v1::Message),
    /// Asks to hear when everything before it is stored.
    Flush(oneshot::Sender<()>),
}

/// Why a report is not taken. The agent should return.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The turn has ended, by an earlier report.
    #[error("the turn has ended already")]
    Ended,
    /// The lease is lost: another attempt may be running.
    #[error("the lease of this turn is lost")]
    LeaseLost,
    /// The state cannot be reported.
    #[error("a task cannot be moved to {}", .0.as_str_name())]
    State(TaskState),
    /// The artifact's last chunk was reported before.
    #[error("the artifact {0} had its last chunk")]
    Closed(String),
    /// The content breaks the protocol or a limit.
    #[error("{}", list(.0))]
    Invalid(Vec<Violation>),
}

fn list(violations: &[Violation]) -> String {
    let lines: Vec<_> = violations.iter().map(|v| format!("{} {}", v.field, v.problem)).collect();
    lines.join("; ")
}

/// Reports of one attempt at one turn.
///
/// Outcomes are queued and stored in order; those that come together are stored together, so an
/// agent that reports several without waiting in between costs one write. [`flush`](Self::flush)
/// waits until they are stored. What is queued when [`Agent::run`](crate::agent::Agent::run)
/// returns is stored too.
#[derive(Debug)]
pub struct TurnHandle {
    said: mpsc::Sender<Said>,
    cancel: watch::Receiver<Option<Wish>>,
    limits: Limits,
    ended: bool,
    closed: BTreeSet<String>,
}

impl TurnHandle {
    pub(crate) fn new(
        said: mpsc::Sender<Said>,
        cancel: watch::Receiver<Option<Wish>>,
        limits: Limits,
    ) -> Self {
        Self { said, cancel, limits, ended: false, closed: BTreeSet::new() }
    }

    /// Reports a status. A terminal one and INPUT_REQUIRED end the turn; AUTH_REQUIRED does not.
    ///
    /// # Errors
    /// When the turn has ended, the lease is lost, or the content is not valid.
    pub async fn status(
        &mut self,
        state: TaskState,
        message: Option<v1::Message>,
        metadata: Option<Struct>,
    ) -> Result<(), Refused> {
        if !may_move(TaskState::Working, state) {
            return Err(Refused::State(state));
        }
        let message = message.map(from_agent);
        let mut checker = Checker::new(self.limits.nesting);
        checker.metadata("metadata", metadata.as_ref());
        let metadata_bytes = metadata.as_ref().map_or(0, Struct::encoded_len);
        if let Some(message) = &message {
            self.check_message(&mut checker, message, metadata_bytes);
        }
        checker.finish().map_err(Refused::Invalid)?;
        self.say(Said::Status { state, message, metadata }).await?;
        self.ended = ends_turn(state);
        Ok(())
    }

    /// Reports a status with a text, or with no message for an empty one.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub async fn say_status(&mut self, state: TaskState, text: &str) -> Result<(), Refused> {
        let message = (!text.is_empty())
            .then(|| v1::Message { parts: vec![text_part(text)], ..Default::default() });
        self.status(state, message, None).await
    }

    /// Reports that work has begun or goes on.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub async fn working(&mut self) -> Result<(), Refused> {
        self.say_status(TaskState::Working, "").await
    }

    /// Ends the task well.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub async fn complete(&mut self) -> Result<(), Refused> {
        self.say_status(TaskState::Completed, "").await
    }

    /// Asks the client a question and ends the turn; the answer is a turn of its own.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub async fn ask(&mut self, question: &str) -> Result<(), Refused> {
        self.say_status(TaskState::InputRequired, question).await
    }

    /// Ends the task as a failure, with words for the client.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub async fn fail(&mut self, why: &str) -> Result<(), Refused> {
        self.say_status(TaskState::Failed, why).await
    }

    /// Declines the task, with words for the client (AMB-41).
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub async fn reject(&mut self, why: &str) -> Result<(), Refused> {
        self.say_status(TaskState::Rejected, why).await
    }

    /// Stores an artifact whole, replacing one of the same id.
    ///
    /// # Errors
    /// As [`chunk`](Self::chunk).
    pub async fn artifact(&mut self, artifact: v1::Artifact) -> Result<(), Refused> {
        self.chunk(artifact, false, true).await
    }

    /// Stores an artifact or a piece of one: `append` adds its parts to the artifact of the same
    /// id, `last` says that nothing more comes for it (EVT-08).
    ///
    /// # Errors
    /// When the turn has ended, the lease is lost, the content is not valid, or the artifact had
    /// its last chunk in this turn.
    pub async fn chunk(
        &mut self,
        artifact: v1::Artifact,
        append: bool,
        last: bool,
    ) -> Result<(), Refused> {
        let mut checker = Checker::new(self.limits.nesting);
        if artifact.artifact_id.is_empty() {
            checker.refuse("artifact.artifact_id", "must not be empty");
        }
        checker.text("artifact.artifact_id", &artifact.artifact_id);
        checker.parts("artifact.parts", &artifact.parts);
        checker.metadata("artifact.metadata", artifact.metadata.as_ref());
        let advice = "send it in several chunks, or as url parts";
        checker.size("artifact", artifact.encoded_len(), self.limits.chunk_bytes, advice);
        checker.finish().map_err(Refused::Invalid)?;
        let id = artifact.artifact_id.clone();
        if append && self.closed.contains(&id) {
            return Err(Refused::Closed(id));
        }
        self.say(Said::Artifact { artifact, append, last_chunk: last }).await?;
        if last {
            self.closed.insert(id);
        } else {
            self.closed.remove(&id);
        }
        Ok(())
    }

    /// Answers with a message in place of a task, and ends the turn (SEND-02). If the client has
    /// been told of the task already, the task completes with the message as its status message.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub async fn reply(&mut self, message: v1::Message) -> Result<(), Refused> {
        let message = from_agent(message);
        let mut checker = Checker::new(self.limits.nesting);
        self.check_message(&mut checker, &message, 0);
        checker.finish().map_err(Refused::Invalid)?;
        self.say(Said::Reply(message)).await?;
        self.ended = true;
        Ok(())
    }

    /// Waits until everything reported so far is stored.
    ///
    /// # Errors
    /// When the lease was lost before.
    pub async fn flush(&mut self) -> Result<(), Refused> {
        let (stored, wait) = oneshot::channel();
        if self.said.send(Said::Flush(stored)).await.is_err() {
            return Err(Refused::LeaseLost);
        }
        wait.await.map_err(|_gone| Refused::LeaseLost)
    }

    /// Waits until the client asks to cancel the task, and returns the metadata of its wish
    /// (CAN-07). The agent then has a short time to end the task its own way.
    pub async fn canceled(&mut self) -> Option<Struct> {
        let metadata = match self.cancel.wait_for(Option::is_some).await {
            Ok(wish) => Some(wish.as_ref().and_then(|wish| wish.0.clone())),
            Err(_) => None,
        };
        match metadata {
            Some(metadata) => metadata,
            // The runner is gone, and with it this future in a moment.
            None => std::future::pending().await,
        }
    }

    /// Whether the client has asked to cancel the task.
    #[must_use]
    pub fn cancel_requested(&self) -> bool {
        self.cancel.borrow().is_some()
    }

    fn check_message(&self, checker: &mut Checker, message: &v1::Message, more_bytes: usize) {
        checker.text("message.message_id", &message.message_id);
        checker.parts("message.parts", &message.parts);
        checker.metadata("message.metadata", message.metadata.as_ref());
        let bytes = message.encoded_len() + more_bytes;
        let advice = "put output into artifacts or url parts";
        checker.size("message", bytes, self.limits.status_bytes, advice);
    }

    async fn say(&mut self, said: Said) -> Result<(), Refused> {
        if self.ended {
            tracing::warn!("an agent reported after the end of its turn; that is dropped");
            return Err(Refused::Ended);
        }
        self.said.send(said).await.map_err(|_gone| Refused::LeaseLost)
    }
}

/// A message as the agent's: its role, and an id if it has none. Task and context are the turn's.
fn from_agent(mut message: v1::Message) -> v1::Message {
    message.set_role(v1::Role::Agent);
    if message.message_id.is_empty() {
        message.message_id = MessageId::generate().to_string();
    }
    message.task_id = String::new();
    message.context_id = String::new();
    message
}
