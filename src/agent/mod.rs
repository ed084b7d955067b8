//! The seam to whatever does the work: an [`Agent`] gets a turn and says what comes of it.
//!
//! A turn is one message to work on. It runs under a lease, at least once: after a crash or an
//! error it runs again, told its attempt and what it had stored so far. What one attempt reports
//! lands only while that attempt holds the lease.

pub mod demo;
mod handle;

use async_trait::async_trait;

use crate::contract::v1::{self, TaskState};
use crate::contract::wkt::Struct;
use crate::domain::{ContextId, Principal, TaskId, Tenant};

pub(crate) use handle::{Limits, Said, Wish};
pub use handle::{Refused, TurnHandle};

/// Does the work of an agent.
#[async_trait]
pub trait Agent: Send + Sync + 'static {
    /// What the agent says about itself. Its `default_input_modes` and those of its skills are
    /// the media types it takes (AMB-43). The server fills in what is left open: interfaces,
    /// capabilities, and how callers prove who they are.
    fn card(&self) -> v1::AgentCard;

    /// Works on one turn and reports through `handle`.
    ///
    /// A turn that returns without having reported a terminal or interrupted status fails its
    /// task. The future may be dropped at any await: when its lease is lost, or the server ends.
    ///
    /// # Errors
    /// An error ends this attempt; the turn runs again after a pause, until its attempts are used
    /// up and the task fails with the error's text in its status message.
    async fn run(&self, turn: AgentTurn, handle: &mut TurnHandle) -> Result<(), AgentError>;
}

/// What an agent is given to work on.
#[derive(Debug, Clone)]
pub struct AgentTurn {
    /// The task.
    pub task: TaskId,
    /// Its context, the conversation.
    pub context: ContextId,
    /// The tenant of the task.
    pub tenant: Tenant,
    /// Who sent the message that began the task.
    pub principal: Principal,
    /// The turn's number within its task, from 1.
    pub turn: i64,
    /// From 1; more than 1 after a crash or an error.
    pub attempt: i32,
    /// The message to work on.
    pub message: v1::Message,
    /// The request's metadata.
    pub metadata: Option<Struct>,
    /// Media types the client can take; empty states no preference (SEND-11).
    pub output_modes: Vec<String>,
    /// The W3C `traceparent` of the call.
    pub trace: Option<String>,
    /// The task's state before this turn.
    pub state: TaskState,
    /// The artifacts stored so far, by earlier turns and attempts.
    pub artifacts: Vec<v1::Artifact>,
}

impl AgentTurn {
    /// The text parts of the message, joined by line breaks.
    #[must_use]
    pub fn text(&self) -> String {
        text_of(&self.message)
    }
}

/// The text parts of a message, joined by line breaks.
#[must_use]
pub fn text_of(message: &v1::Message) -> String {
    let texts = message.parts.iter().filter_map(|part| match &part.content {
        Some(v1::part::Content::Text(text)) => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// A part that is plain text.
#[must_use]
pub fn text_part(text: impl Into<String>) -> v1::Part {
    v1::Part {
        content: Some(v1::part::Content::Text(text.into())),
        media_type: "text/plain".to_owned(),
        ..Default::default()
    }
}

/// Why an attempt failed. The text reaches the caller when no attempt is left.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct AgentError(String);

impl AgentError {
    /// An error with words for the caller.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl From<Refused> for AgentError {
    fn from(refused: Refused) -> Self {
        Self(refused.to_string())
    }
}
