//! Servers in this process, and clients for them.

use a2ad::agent::Agent;
use a2ad::agent::demo::Demo;
use a2ad::client::{Client, text_message};
use a2ad::contract::v1::send_message_response::Payload;
use a2ad::contract::v1::{self, TaskState};
use a2ad::server::{Builder, Server};

/// A server with the demo agent on a store in memory and a free port.
pub(crate) async fn demo() -> Server {
    Server::builder(Demo).start().await.unwrap()
}

/// As a builder, for tests that change something.
pub(crate) fn builder(agent: impl Agent) -> Builder {
    Server::builder(agent)
}

pub(crate) fn url(server: &Server) -> String {
    format!("http://{}", server.address())
}

pub(crate) async fn client(server: &Server) -> Client {
    Client::connect(&url(server)).await.unwrap()
}

/// A blocking send of a new message.
pub(crate) fn send(text: &str) -> v1::SendMessageRequest {
    v1::SendMessageRequest { message: Some(text_message(text)), ..Default::default() }
}

/// A send that waits for nothing.
pub(crate) fn send_at_once(text: &str) -> v1::SendMessageRequest {
    v1::SendMessageRequest {
        configuration: Some(v1::SendMessageConfiguration {
            return_immediately: true,
            ..Default::default()
        }),
        ..send(text)
    }
}

/// The same send to a task that exists.
pub(crate) fn to_task(mut request: v1::SendMessageRequest, task: &str) -> v1::SendMessageRequest {
    if let Some(message) = &mut request.message {
        task.clone_into(&mut message.task_id);
    }
    request
}

/// The task of an answer.
pub(crate) fn task(answer: v1::SendMessageResponse) -> v1::Task {
    match answer.payload {
        Some(Payload::Task(task)) => task,
        other => panic!("expected a task, got {other:?}"),
    }
}

pub(crate) fn state(task: &v1::Task) -> TaskState {
    task.status.as_ref().unwrap().state()
}

/// All texts of a message.
pub(crate) fn words(message: &v1::Message) -> String {
    a2ad::agent::text_of(message)
}

/// All texts of an artifact's parts.
pub(crate) fn parts(artifact: &v1::Artifact) -> Vec<String> {
    let text = |part: &v1::Part| match &part.content {
        Some(v1::part::Content::Text(text)) => text.clone(),
        other => panic!("expected text, got {other:?}"),
    };
    artifact.parts.iter().map(text).collect()
}
