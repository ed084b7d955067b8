//! The protocol over gRPC: eleven calls that decode, ask the service, and encode.

use std::collections::HashMap;
use std::task::{Context, Poll};

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use http::header::WWW_AUTHENTICATE;
use tokio::time::Instant;
use tonic::body::Body;
use tonic::metadata::MetadataMap;
use tonic::server::NamedService;
use tonic::{Code, Request, Response, Status};
use tonic_types::{BadRequest, ErrorDetail, ErrorInfo, FieldViolation, RetryInfo, StatusExt};

use crate::bindings::operation::Operation;
use crate::bindings::{Door, Failure, deadline, log, until};
use crate::contract::fault::Fault;
use crate::contract::v1::a2a_service_server::{A2aService, A2aServiceServer};
use crate::contract::wkt::Empty;
use crate::contract::{A2A_EXTENSIONS, ERROR_DOMAIN, v1};
use crate::domain::Error;
use crate::service::{Call, EventStream, Service, Streamed};

/// The service under its gRPC name, behind `door`. A request may have `receive_bytes_max` bytes;
/// how large an answer may get is the service's own decision.
pub fn server(
    service: Service,
    door: Door,
    receive_bytes_max: usize,
) -> Entrance<A2aServiceServer<Grpc>> {
    let server = A2aServiceServer::new(Grpc { service, door: door.clone() })
        .max_decoding_message_size(receive_bytes_max)
        .max_encoding_message_size(usize::MAX);
    Entrance { inner: server, door }
}

/// Lets a call in before its body is read, and leaves the [`Call`] with the request.
#[derive(Debug, Clone)]
pub struct Entrance<S> {
    inner: S,
    door: Door,
}

impl<S: NamedService> NamedService for Entrance<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> tower::Service<http::Request<Body>> for Entrance<S>
where
    S: tower::Service<http::Request<Body>, Response = http::Response<Body>>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        // The one that was asked whether it is ready goes; its clone stays.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let door = self.door.clone();
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            let name = parts.uri.path().rsplit('/').next().unwrap_or_default();
            let operation = Operation::named(name);
            let name = operation.map_or("enter", Operation::name);
            let entered = match door.enter(name, &parts, None).await {
                Ok(call) => match operation.map_or(Ok(()), |of| door.permit(&call, of)) {
                    Ok(()) => Ok(call),
                    Err(error) => {
                        door.note_denied(&call, name, &error);
                        Err(error)
                    }
                },
                refused => refused,
            };
            match entered {
                Ok(call) => {
                    parts.extensions.insert(call);
                    inner.call(http::Request::from_parts(parts, body)).await
                }
                Err(error) => {
                    log(name, &error);
                    Ok(of_failure(door.failure(&error)).into_http())
                }
            }
        })
    }
}

/// The gRPC face of the service.
#[derive(Debug)]
pub struct Grpc {
    service: Service,
    door: Door,
}

/// The call that [`Entrance`] let in, and its message.
fn open<T>(request: Request<T>) -> Result<(Call, T), Status> {
    let (_, mut extensions, message) = request.into_parts();
    let Some(call) = extensions.remove::<Call>() else {
        let error = Error::internal("a call came past the entrance");
        log("enter", &error);
        return Err(status(&error));
    };
    Ok((call, message))
}

/// When the time of a call is over; one that cannot be read was refused before.
fn deadline_of<T>(request: &Request<T>) -> Option<Instant> {
    let within = deadline(request.metadata().as_ref()).ok().flatten()?;
    Instant::now().checked_add(within)
}

impl Grpc {
    /// The outcome of `operation`, told in gRPC, with the extensions that `call` activated.
    fn close<T>(
        &self,
        operation: &'static str,
        call: &Call,
        outcome: Result<T, Error>,
    ) -> Result<Response<T>, Status> {
        let mut response = outcome.map(Response::new).map_err(|error| {
            log(operation, &error);
            self.door.note_denied(call, operation, &error);
            of_failure(self.door.failure(&error))
        })?;
        let activated = call.activated().and_then(|uris| uris.parse().ok());
        if let Some(activated) = activated {
            response.metadata_mut().insert(A2A_EXTENSIONS, activated);
        }
        Ok(response)
    }

    /// As [`close`](Self::close), for a stream: what ends it midway is told in its trailers.
    fn stream(
        &self,
        operation: &'static str,
        call: &Call,
        deadline: Option<Instant>,
        outcome: Result<EventStream, Error>,
    ) -> Result<Response<Events>, Status> {
        let door = self.door.clone();
        let told = move |item: Result<Streamed, Error>| match item {
            Ok(item) => Ok(item.response),
            Err(error) => {
                log(operation, &error);
                Err(of_failure(door.failure(&error)))
            }
        };
        self.close(operation, call, outcome.map(|items| until(items, deadline).map(told).boxed()))
    }
}

/// What a streaming call answers with once it is accepted.
type Events = BoxStream<'static, Result<v1::StreamResponse, Status>>;

#[tonic::async_trait]
impl A2aService for Grpc {
    async fn send_message(
        &self,
        request: Request<v1::SendMessageRequest>,
    ) -> Result<Response<v1::SendMessageResponse>, Status> {
        let (call, message) = open(request)?;
        let outcome = self.service.send_message(&call, message).await;
        self.close("SendMessage", &call, outcome)
    }

    type SendStreamingMessageStream = Events;

    async fn send_streaming_message(
        &self,
        request: Request<v1::SendMessageRequest>,
    ) -> Result<Response<Events>, Status> {
        let deadline = deadline_of(&request);
        let (call, message) = open(request)?;
        let outcome = self.service.send_streaming_message(&call, message).await;
        self.stream("SendStreamingMessage", &call, deadline, outcome)
    }

    async fn get_task(
        &self,
        request: Request<v1::GetTaskRequest>,
    ) -> Result<Response<v1::Task>, Status> {
        let (call, message) = open(request)?;
        let outcome = self.service.get_task(&call, message).await;
        self.close("GetTask", &call, outcome)
    }

    async fn list_tasks(
        &self,
        request: Request<v1::ListTasksRequest>,
    ) -> Result<Response<v1::ListTasksResponse>, Status> {
        let (call, message) = open(request)?;
        let outcome = self.service.list_tasks(&call, message).await;
        self.close("ListTasks", &call, outcome)
    }

    async fn cancel_task(
        &self,
        request: Request<v1::CancelTaskRequest>,
    ) -> Result<Response<v1::Task>, Status> {
        let (call, message) = open(request)?;
        let outcome = self.service.cancel_task(&call, message).await;
        self.close("CancelTask", &call, outcome)
    }

    type SubscribeToTaskStream = Events;

    async fn subscribe_to_task(
        &self,
        request: Request<v1::SubscribeToTaskRequest>,
    ) -> Result<Response<Events>, Status> {
        let deadline = deadline_of(&request);
        let (call, message) = open(request)?;
        let outcome = self.service.subscribe_to_task(&call, message, None).await;
        self.stream("SubscribeToTask", &call, deadline, outcome)
    }

    async fn create_task_push_notification_config(
        &self,
        request: Request<v1::TaskPushNotificationConfig>,
    ) -> Result<Response<v1::TaskPushNotificationConfig>, Status> {
        let (call, message) = open(request)?;
        let outcome = self.service.create_task_push_notification_config(&call, message).await;
        self.close("CreateTaskPushNotificationConfig", &call, outcome)
    }

    async fn get_task_push_notification_config(
        &self,
        request: Request<v1::GetTaskPushNotificationConfigRequest>,
    ) -> Result<Response<v1::TaskPushNotificationConfig>, Status> {
        let (call, message) = open(request)?;
        let outcome = self.service.get_task_push_notification_config(&call, message).await;
        self.close("GetTaskPushNotificationConfig", &call, outcome)
    }

    async fn list_task_push_notification_configs(
        &self,
        request: Request<v1::ListTaskPushNotificationConfigsRequest>,
    ) -> Result<Response<v1::ListTaskPushNotificationConfigsResponse>, Status> {
        let (call, message) = open(request)?;
        let outcome = self.service.list_task_push_notification_configs(&call, message).await;
        self.close("ListTaskPushNotificationConfigs", &call, outcome)
    }

    async fn delete_task_push_notification_config(
        &self,
        request: Request<v1::DeleteTaskPushNotificationConfigRequest>,
    ) -> Result<Response<Empty>, Status> {
        let (call, message) = open(request)?;
        let outcome = self.service.delete_task_push_notification_config(&call, message).await;
        self.close("DeleteTaskPushNotificationConfig", &call, outcome)
    }

    async fn get_extended_agent_card(
        &self,
        request: Request<v1::GetExtendedAgentCardRequest>,
    ) -> Result<Response<v1::AgentCard>, Status> {
        let (call, message) = open(request)?;
        let outcome = self.service.get_extended_agent_card(&call, message).await;
        self.close("GetExtendedAgentCard", &call, outcome)
    }
}

/// `error` as a gRPC status: the protocol's code and words, and `ErrorInfo` before all other
/// details (GRPC-03, ERR-06). A row without a reason has no `ErrorInfo`.
#[must_use]
pub fn status(error: &Error) -> Status {
    of_failure(Failure::of(error))
}

/// `failure` as a gRPC status.
#[must_use]
pub fn status_of_failure(failure: Failure) -> Status {
    of_failure(failure)
}

/// A status for a row of the protocol's table that no [`Error`] stands for, in other words.
#[must_use]
pub fn status_of_fault(fault: Fault, text: &str) -> Status {
    let failure = Failure::of_fault(fault, text);
    of_failure(failure)
}

fn of_failure(failure: Failure) -> Status {
    let Failure { fault, text, metadata: values, violations, retry_in, challenge } = failure;
    let mut metadata = MetadataMap::new();
    if let Some(challenge) = challenge.and_then(|text| text.parse().ok()) {
        metadata.insert(WWW_AUTHENTICATE.as_str(), challenge);
    }
    let mut details = Vec::new();
    if let Some(reason) = fault.reason {
        let values = values.into_iter().map(|(key, value)| (key.to_owned(), value));
        details.push(ErrorDetail::ErrorInfo(ErrorInfo::new(
            reason,
            ERROR_DOMAIN,
            values.collect::<HashMap<_, _>>(),
        )));
    }
    if !violations.is_empty() {
        let violations = violations.into_iter().map(|v| FieldViolation::new(v.field, v.problem));
        details.push(ErrorDetail::BadRequest(BadRequest::new(violations.collect::<Vec<_>>())));
    }
    if let Some(delay) = retry_in {
        details.push(ErrorDetail::RetryInfo(RetryInfo::new(Some(delay))));
    }
    let code = Code::from_i32(fault.grpc);
    if details.is_empty() {
        return Status::with_metadata(code, text, metadata);
    }
    Status::with_error_details_vec_and_metadata(code, text, details, metadata)
}
