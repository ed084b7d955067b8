//! A server in this process, on a free port, and clients of it.

pub(crate) mod flaky;
pub(crate) mod proxy;
pub(crate) mod raw;
pub(crate) mod sse;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use a2ad::agent::demo::Demo;
use a2ad::auth::{ApiKey, ApiKeys, Auth};
use a2ad::client::{Client, Connect, text_message};
use a2ad::contract::v1::{self, TaskState, send_message_response};
use a2ad::server::{Builder, Server};

/// A key of the principal `key:ann`, for the default tenant and `blue`.
pub(crate) const ANN: &str = "ann-s3cret";
/// A key of the principal `key:bob`, for the default tenant and `blue`.
pub(crate) const BOB: &str = "bob-s3cret";

/// Any free port of this machine.
pub(crate) fn any_port() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// The mode `api-key` with [`ANN`] and [`BOB`].
pub(crate) fn two_callers() -> Auth {
    let tenants = [String::new(), "blue".to_owned()];
    let key = |name, key| ApiKey::new(name, ApiKey::hash(key), &tenants).unwrap();
    Auth::api_keys(ApiKeys::new(vec![key("ann", ANN), key("bob", BOB)]).unwrap())
}

/// A server that ends with this value.
#[derive(Debug)]
pub(crate) struct TestServer {
    server: Server,
}

impl TestServer {
    /// The demo agent over a store in memory, for everybody.
    pub(crate) async fn start() -> Self {
        Self::with(|server| server).await
    }

    /// As [`start`](Self::start), but for what `change` does to it.
    pub(crate) async fn with(change: impl FnOnce(Builder) -> Builder) -> Self {
        Self { server: change(Server::builder(Demo)).start().await.unwrap() }
    }

    /// The server that this builder makes.
    pub(crate) async fn of(builder: Builder) -> Self {
        Self { server: builder.start().await.unwrap() }
    }

    /// Where it listens.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.server.address()
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    pub(crate) fn into_server(self) -> Server {
        self.server
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr())
    }

    /// A client without credentials, on a connection of its own.
    pub(crate) async fn client(&self) -> Client {
        Connect::to(self.url()).connect().await.unwrap()
    }

    /// A client with this key.
    pub(crate) async fn client_of(&self, key: &str) -> Client {
        Connect::to(self.url()).bearer(key).unwrap().connect().await.unwrap()
    }
}

/// A request that sends a new message and waits.
pub(crate) fn send(text: &str) -> v1::SendMessageRequest {
    v1::SendMessageRequest { message: Some(text_message(text)), ..Default::default() }
}

/// A request that sends a new message and does not wait.
pub(crate) fn send_at_once(text: &str) -> v1::SendMessageRequest {
    v1::SendMessageRequest {
        configuration: Some(v1::SendMessageConfiguration {
            return_immediately: true,
            ..Default::default()
        }),
        ..send(text)
    }
}

/// The task that a send answered with.
pub(crate) fn task_of(response: tonic::Response<v1::SendMessageResponse>) -> v1::Task {
    match response.into_inner().payload {
        Some(send_message_response::Payload::Task(task)) => task,
        other => panic!("a task was expected, got {other:?}"),
    }
}

/// Waits until it holds.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds().await {
        assert!(Instant::now() < deadline, "{what} did not come true");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The same send to a task that exists.
pub(crate) fn to_task(mut request: v1::SendMessageRequest, task: &str) -> v1::SendMessageRequest {
    if let Some(message) = &mut request.message {
        task.clone_into(&mut message.task_id);
    }
    request
}

/// The state of a task.
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
