//! Between stored columns and the contract's types, the same for both stores.

use prost::Message as _;
use uuid::Uuid;

use crate::contract::v1::stream_response::Payload;
use crate::contract::v1::{self, TaskState};
use crate::contract::wkt::{Struct, Timestamp};
use crate::domain::{Error, TaskId};
use crate::store::types::{Event, Interrupted, TaskRecord, TurnRequest};

/// The state of a stored number.
pub(crate) fn state(number: i64) -> Result<TaskState, Error> {
    i32::try_from(number)
        .ok()
        .and_then(|number| TaskState::try_from(number).ok())
        .ok_or_else(|| Error::internal(format!("a stored state has the number {number}")))
}

/// Decodes stored bytes.
pub(crate) fn decode<T: prost::Message + Default>(bytes: &[u8]) -> Result<T, Error> {
    T::decode(bytes).map_err(Error::internal)
}

/// A stored message, with the ids that its task knows.
pub(crate) fn message(body: &[u8], task: &str, context: &str) -> Result<v1::Message, Error> {
    let mut message: v1::Message = decode(body)?;
    task.clone_into(&mut message.task_id);
    context.clone_into(&mut message.context_id);
    Ok(message)
}

/// The bytes of what a request says beside its message.
pub(crate) fn request_body(request: &TurnRequest) -> Vec<u8> {
    let configuration = (!request.output_modes.is_empty()).then(|| v1::SendMessageConfiguration {
        accepted_output_modes: request.output_modes.clone(),
        ..Default::default()
    });
    let request = v1::SendMessageRequest {
        metadata: request.metadata.clone(),
        configuration,
        ..Default::default()
    };
    request.encode_to_vec()
}

/// The reverse of [`request_body`].
pub(crate) fn request(body: &[u8], trace: Option<String>) -> Result<TurnRequest, Error> {
    let request: v1::SendMessageRequest = decode(body)?;
    let output_modes = request.configuration.unwrap_or_default().accepted_output_modes;
    Ok(TurnRequest { metadata: request.metadata, output_modes, trace })
}

/// Optional metadata.
pub(crate) fn metadata(bytes: Option<&[u8]>) -> Result<Option<Struct>, Error> {
    bytes.map(decode).transpose()
}

/// A task's row as a listing shows it.
pub(crate) struct Head {
    pub(crate) id: Uuid,
    pub(crate) context_id: String,
    pub(crate) state: i64,
    pub(crate) status_at: i64,
    pub(crate) status_message: Option<Vec<u8>>,
    pub(crate) metadata: Option<Vec<u8>>,
}

impl Head {
    /// The task without history and artifacts.
    pub(crate) fn task(self) -> Result<v1::Task, Error> {
        let id = TaskId::from(self.id).to_string();
        let message = match self.status_message {
            Some(body) => Some(message(&body, &id, &self.context_id)?),
            None => None,
        };
        Ok(v1::Task {
            status: Some(v1::TaskStatus {
                state: state(self.state)? as i32,
                message,
                timestamp: Some(Timestamp::from_micros(self.status_at)),
            }),
            id,
            context_id: self.context_id,
            artifacts: Vec::new(),
            history: Vec::new(),
            metadata: metadata(self.metadata.as_deref())?,
        })
    }
}

/// The columns of a task's row that only its own reads need.
pub(crate) struct Tail {
    pub(crate) generation: i64,
    pub(crate) shown: bool,
    pub(crate) reply: Option<Vec<u8>>,
    pub(crate) interrupted_generation: Option<i64>,
    pub(crate) interrupted_turn: Option<i64>,
    pub(crate) cancel_requested: bool,
}

/// A task read whole.
pub(crate) fn record(task: v1::Task, tail: Tail) -> Result<TaskRecord, Error> {
    // A direct reply belongs to no task that anybody can see (SEND-18).
    let reply = tail.reply.map(|body| message(&body, "", &task.context_id)).transpose()?;
    let interrupted = tail
        .interrupted_generation
        .zip(tail.interrupted_turn)
        .map(|(generation, turn)| Interrupted { generation, turn });
    Ok(TaskRecord {
        task,
        generation: tail.generation,
        shown: tail.shown,
        reply,
        interrupted,
        cancel_requested: tail.cancel_requested,
    })
}

/// A stored event, complete with what its task and its row know.
pub(crate) fn event(
    task: &str,
    context: &str,
    generation: i64,
    turn: i64,
    at: i64,
    body: &[u8],
) -> Result<Event, Error> {
    let mut response: v1::StreamResponse = decode(body)?;
    match &mut response.payload {
        Some(Payload::StatusUpdate(update)) => {
            task.clone_into(&mut update.task_id);
            context.clone_into(&mut update.context_id);
            let status = update.status.get_or_insert_default();
            status.timestamp = Some(Timestamp::from_micros(at));
            if let Some(message) = &mut status.message {
                task.clone_into(&mut message.task_id);
                context.clone_into(&mut message.context_id);
            }
        }
        Some(Payload::ArtifactUpdate(update)) => {
            task.clone_into(&mut update.task_id);
            context.clone_into(&mut update.context_id);
        }
        Some(Payload::Task(_) | Payload::Message(_)) | None => {
            return Err(Error::internal("a stored event is no update"));
        }
    }
    Ok(Event { generation, turn, response })
}
