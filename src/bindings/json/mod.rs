//! What JSON-RPC and HTTP+JSON share: bodies, messages, media types, errors, and calls.

mod body;
mod details;
mod input;
pub(crate) mod media;
pub(crate) mod sse;
mod wire;

use std::any::Any;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use futures_util::FutureExt as _;
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use tokio::time::Instant;

use crate::bindings::measure::Code;
use crate::bindings::operation::Operation;
use crate::bindings::{Door, Failure, Misfit, Refusal, deadline, jsonrpc, log, rest, until};
use crate::contract::A2A_EXTENSIONS;
use crate::domain::{Error, Violation};
use crate::service::{Call, EventStream, Service};

pub use body::Limits;
pub(super) use body::read as read_body;
pub use details::{jsonrpc as jsonrpc_error, rest as rest_error};
pub(super) use input::{Input, Source};
pub(super) use wire::write;

/// JSON-RPC at `/` and HTTP+JSON everywhere else.
#[derive(Clone)]
pub struct Json {
    pub(super) service: Service,
    pub(super) door: Door,
    pub(super) limits: Limits,
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Json").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// What an operation answers with.
pub(super) enum Answer {
    /// One message, as JSON.
    Whole(Vec<u8>),
    /// One after the other.
    Events(EventStream),
}

/// What headers say of a call, beside who makes it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    within: Option<Duration>,
    /// The last event that the caller has of a stream.
    after: Option<i64>,
}

impl Terms {
    /// Reads them.
    ///
    /// # Errors
    /// A header cannot be read.
    pub(super) fn new(headers: &HeaderMap, call: &Call) -> Result<Self, Violation> {
        let id = headers.get(LAST_EVENT_ID).filter(|_| call.wants_cursor());
        let after = id.map(|id| id.to_str().ok().and_then(|id| id.parse().ok()));
        if let Some(None) = after {
            let problem = "must be the id of an event of this task";
            return Err(Violation::new("last-event-id", problem));
        }
        Ok(Self { within: deadline(headers)?, after: after.flatten() })
    }
}

const LAST_EVENT_ID: &str = "last-event-id";

impl Json {
    /// The bindings in front of `service`, behind `door`.
    #[must_use]
    pub fn new(service: Service, door: Door, limits: Limits) -> Self {
        Self { service, door, limits }
    }

    /// Answers any request that is not for another binding.
    pub async fn answer(self, request: Request) -> Response {
        if request.uri().path().bytes().all(|byte| byte == b'/') {
            jsonrpc::answer(&self, request).await
        } else {
            rest::answer(&self, request).await
        }
    }

    /// Calls `operation`, within the time that the caller has; a panic is a fault of ours.
    pub(super) async fn call(
        &self,
        operation: Operation,
        call: &Call,
        input: Input<'_>,
        terms: Terms,
    ) -> Result<Answer, Refusal> {
        if let Err(error) = self.door.permit(call, operation) {
            self.door.note_denied(call, operation.name(), &error);
            return Err(error.into());
        }
        let deadline = terms.within.and_then(|within| Instant::now().checked_add(within));
        let answer = run(&self.service, operation, call, input, terms);
        let answer = AssertUnwindSafe(answer).catch_unwind();
        let answer = match deadline {
            None => answer.await,
            Some(deadline) => match tokio::time::timeout_at(deadline, answer).await {
                Ok(answer) => answer,
                Err(_) => return Err(Error::DeadlineExceeded.into()),
            },
        };
        match answer {
            Ok(Err(Refusal::Of(error))) => {
                self.door.note_denied(call, operation.name(), &error);
                Err(error.into())
            }
            Ok(Ok(Answer::Events(events))) => Ok(Answer::Events(until(events, deadline))),
            Ok(answer) => answer,
            Err(panic) => Err(Error::internal(format!("panic: {}", words_of(&*panic))).into()),
        }
    }

    /// What callers read of a refusal, after it was logged.
    pub(super) fn failure(&self, operation: &'static str, refusal: impl Into<Refusal>) -> Failure {
        match refusal.into() {
            Refusal::Before(Misfit { fault, text }) => {
                Failure::of_fault(fault.in_table(self.door.status_table()), text)
            }
            Refusal::Of(error) => {
                log(operation, &error);
                self.door.failure(&error)
            }
        }
    }

    /// An answer with `body`; errors have the headers that go with them.
    pub(super) fn respond(
        &self,
        status: u16,
        kind: HeaderValue,
        body: Vec<u8>,
        failure: Option<&Failure>,
    ) -> Response {
        let mut response = Response::new(Body::from(body));
        *response.status_mut() =
            StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, kind);
        let Some(failure) = failure else { return response };
        let code = failure.fault.status_name();
        response.extensions_mut().insert(Code(code));
        let headers = response.headers_mut();
        let challenge = failure.challenge.as_ref().and_then(|text| text.parse().ok());
        if let Some(challenge) = challenge {
            headers.insert(WWW_AUTHENTICATE, challenge);
        }
        if let Some(delay) = failure.retry_in {
            headers.insert(RETRY_AFTER, HeaderValue::from(delay.as_secs().max(1)));
        }
        response
    }
}

/// Says which extensions are active (EXT-06).
pub(super) fn with_extensions(mut response: Response, call: &Call) -> Response {
    if let Some(activated) = call.activated().and_then(|uris| uris.parse().ok()) {
        response.headers_mut().insert(A2A_EXTENSIONS, activated);
    }
    response
}

/// Which methods a path takes, as in `Allow`.
pub(super) fn allow(response: &mut Response, methods: &[Method]) {
    let names: Vec<_> = methods.iter().map(Method::as_str).chain(["OPTIONS"]).collect();
    if let Ok(value) = HeaderValue::from_str(&names.join(", ")) {
        response.headers_mut().insert(ALLOW, value);
    }
}

/// The answer to OPTIONS.
pub(super) fn options(methods: &[Method]) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    allow(&mut response, methods);
    response
}

fn words_of(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

async fn run(
    service: &Service,
    operation: Operation,
    call: &Call,
    input: Input<'_>,
    terms: Terms,
) -> Result<Answer, Refusal> {
    let json = match operation {
        Operation::SendMessage => write(&service.send_message(call, input.read()?).await?)?,
        Operation::GetTask => write(&service.get_task(call, input.read()?).await?)?,
        Operation::ListTasks => write(&service.list_tasks(call, input.read()?).await?)?,
        Operation::CancelTask => write(&service.cancel_task(call, input.read()?).await?)?,
        Operation::SendStreamingMessage => {
            let events = service.send_streaming_message(call, input.read()?).await?;
            return Ok(Answer::Events(events));
        }
        Operation::SubscribeToTask => {
            let request = input.read()?;
            let events = service.subscribe_to_task(call, request, terms.after).await?;
            return Ok(Answer::Events(events));
        }
        Operation::CreatePushConfig => {
            let request = input.read()?;
            write(&service.create_task_push_notification_config(call, request).await?)?
        }
        Operation::GetPushConfig => {
            let request = input.read()?;
            write(&service.get_task_push_notification_config(call, request).await?)?
        }
        Operation::ListPushConfigs => {
            let request = input.read()?;
            write(&service.list_task_push_notification_configs(call, request).await?)?
        }
        Operation::DeletePushConfig => {
            let request = input.read()?;
            write(&service.delete_task_push_notification_config(call, request).await?)?
        }
        Operation::GetExtendedAgentCard => {
            write(&service.get_extended_agent_card(call, input.read()?).await?)?
        }
    };
    Ok(Answer::Whole(json))
}
