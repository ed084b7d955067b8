//! What is sent, and what the store is told about it.

use std::time::Duration;

use a2ad::agent::text_part;
use a2ad::contract::v1::{self, TaskState};
use a2ad::domain::{ContextId, LeaseToken, TaskId};
use a2ad::store::{Accept, Dedupe, LeaseRequest, Report, Target, TurnEnd, TurnRequest, Update};
use uuid::Uuid;

/// A message that the demo agent echoes.
pub(crate) fn message(n: usize) -> v1::Message {
    v1::Message {
        message_id: Uuid::now_v7().to_string(),
        role: v1::Role::User.into(),
        parts: vec![text_part(format!("{n}: {}", "echo this, if you please. ".repeat(8)))],
        ..Default::default()
    }
}

/// The whole life of an echo, as the service tells it to the store: taken with a lease, then
/// WORKING, an artifact and COMPLETED in one report.
pub(crate) struct Echo {
    pub(crate) task: TaskId,
    pub(crate) accept: Accept,
    pub(crate) report: Report,
}

impl Echo {
    pub(crate) fn new(n: usize) -> Self {
        let (task, token) = (TaskId::generate(), LeaseToken::generate());
        let message = message(n);
        let status = |state| Update::Status { state, message: None, metadata: None };
        let artifact = v1::Artifact {
            artifact_id: "answer".to_owned(),
            name: "answer".to_owned(),
            parts: message.parts.clone(),
            ..Default::default()
        };
        let artifact =
            Update::Artifact { artifact, append: false, last_chunk: true, metadata: None };
        Self {
            task,
            accept: Accept {
                message,
                dedupe: Some(Dedupe {
                    context: String::new(),
                    task: String::new(),
                    digest: [7; 32],
                    window: Duration::from_secs(24 * 3600),
                }),
                target: Target::New { task, context: ContextId::generate(), shown: false },
                request: TurnRequest::default(),
                lease: Some(LeaseRequest { token, lease: Duration::from_secs(15) }),
            },
            report: Report {
                lease: token,
                turn: 1,
                sequence: 1,
                updates: vec![status(TaskState::Working), artifact, status(TaskState::Completed)],
                end: Some(TurnEnd::Finished),
            },
        }
    }
}
