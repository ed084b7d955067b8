//! Where the protocol leaves a choice, in both of its positions, and extensions.

use std::time::Duration;

use a2ad::agent::demo::Demo;
use a2ad::agent::{Agent, AgentError, AgentTurn, TurnHandle};
use a2ad::bindings::{MissingVersion, Settings};
use a2ad::client::Client;
use a2ad::config::Cards;
use a2ad::contract::fault::StatusTable;
use a2ad::contract::v1::send_message_response::Payload;
use a2ad::contract::v1::{self, TaskState, stream_response};
use a2ad::server::Server;
use a2ad::service::offers::RequireExtensions;
use a2ad::service::{self, StreamEnds};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Code, Request, Status, Streaming};
use tonic_types::StatusExt;

use crate::rig::raw::{frame, grpc};
use crate::rig::{self, TestServer, send, task_of};

fn reason(status: &Status) -> String {
    status.get_details_error_info().unwrap().reason
}

const LIST: &str = "/lf.a2a.v1.A2AService/ListTasks";

#[tokio::test]
async fn a_request_without_a_version_speaks_what_the_settings_say() {
    for (missing_version, code) in [(MissingVersion::V0_3, "9"), (MissingVersion::V1_0, "0")] {
        let settings = Settings { missing_version, ..Settings::default() };
        let server = TestServer::with(|server| server.bindings(settings)).await;
        let body = frame(&v1::ListTasksRequest::default());
        let answer = grpc(server.addr(), LIST, &[("a2a-version", "")], body.clone()).await;
        let status = answer.headers().get("grpc-status").map_or("0", |v| v.to_str().unwrap());
        assert_eq!(status, code, "{missing_version:?}");
        let other = grpc(server.addr(), LIST, &[("a2a-version", "0.3")], body).await;
        assert_eq!(other.headers()["grpc-status"], "9", "a version that is named counts");
    }
}

#[tokio::test]
async fn errors_have_the_statuses_of_the_chosen_edition() {
    for (status_table, code) in [
        (StatusTable::V1_0_1, Code::FailedPrecondition),
        (StatusTable::V1_0_0, Code::Unimplemented),
    ] {
        let settings = Settings { status_table, ..Settings::default() };
        let server = TestServer::with(|server| server.bindings(settings)).await;
        let mut client = server.client().await;
        let asked = v1::GetExtendedAgentCardRequest::default();
        let refused = client.get_extended_agent_card(asked).await.unwrap_err();
        assert_eq!((refused.code(), reason(&refused).as_str()), (code, "UNSUPPORTED_OPERATION"));
        let asked = v1::TaskPushNotificationConfig::default();
        let refused = client.create_task_push_notification_config(asked).await.unwrap_err();
        assert_eq!(refused.code(), code);
        assert_eq!(reason(&refused), "PUSH_NOTIFICATION_NOT_SUPPORTED");
        let body = frame(&v1::ListTasksRequest::default());
        let refused = grpc(server.addr(), LIST, &[("a2a-version", "0.3")], body).await;
        let number = (code as i32).to_string();
        assert_eq!(refused.headers()["grpc-status"], number.as_str(), "at the door as well");
    }
}

#[tokio::test]
async fn a_send_waits_as_long_as_it_takes_or_as_the_settings_say() {
    let settings = |send_wait| service::Settings { send_wait, ..service::Settings::default() };
    for (send_wait, state) in [
        (None, TaskState::Completed),
        (Some(Duration::ZERO), TaskState::Submitted),
        (Some(Duration::from_millis(100)), TaskState::Working),
        (Some(Duration::from_secs(3600)), TaskState::Completed),
    ] {
        let server = TestServer::with(|server| server.settings(settings(send_wait))).await;
        let mut client = server.client().await;
        let answered = task_of(client.send_message(send("slow 1")).await.unwrap());
        let early = state == TaskState::Submitted
            && matches!(rig::state(&answered), TaskState::Submitted | TaskState::Working);
        assert!(early || rig::state(&answered) == state, "{send_wait:?}: {answered:?}");
        let listed = client.list_tasks(v1::ListTasksRequest::default()).await.unwrap();
        assert_eq!(listed.into_inner().tasks.len(), 1, "a task that was told is there");
        let reply = client.send_message(send("reply hi")).await.unwrap().into_inner();
        let is_message = matches!(reply.payload, Some(Payload::Message(_)));
        assert!(is_message || send_wait == Some(Duration::ZERO), "{send_wait:?}: {reply:?}");
    }
}

/// Asks for what its message names, and ends no task.
struct Asking;

#[async_trait::async_trait]
impl Agent for Asking {
    fn card(&self) -> v1::AgentCard {
        Demo.card()
    }

    async fn run(&self, turn: AgentTurn, handle: &mut TurnHandle) -> Result<(), AgentError> {
        match turn.text().as_str() {
            "auth" => Ok(handle.say_status(TaskState::AuthRequired, "authorize this").await?),
            _ => Ok(handle.ask("which one?").await?),
        }
    }
}

/// The states that a stream tells until it ends, or until it tells nothing for a while. Nothing
/// happens to a task by itself here, so that only an end can come.
async fn told(mut stream: Streaming<v1::StreamResponse>) -> (Vec<TaskState>, bool) {
    let mut states = Vec::new();
    loop {
        let item = tokio::time::timeout(Duration::from_millis(500), stream.message()).await;
        let Ok(item) = item else { return (states, false) };
        let Some(item) = item.unwrap() else { return (states, true) };
        if let Some(stream_response::Payload::StatusUpdate(update)) = item.payload {
            states.push(update.status.unwrap().state());
        }
    }
}

#[tokio::test]
async fn a_stream_ends_after_the_states_that_the_settings_name() {
    use StreamEnds::{Input, Interrupted, Terminal};
    let (input, auth) = (TaskState::InputRequired, TaskState::AuthRequired);
    for (ends, after_input, after_auth) in
        [(Terminal, false, false), (Input, true, false), (Interrupted, true, true)]
    {
        for (text, state, ended) in [("input", input, after_input), ("auth", auth, after_auth)] {
            let defaults = service::Settings::default();
            let of_sends = service::Settings { send_stream_ends: ends, ..defaults };
            let server = TestServer::of(Server::builder(Asking).settings(of_sends)).await;
            let mut client = server.client().await;
            let sent = client.send_streaming_message(send(text)).await.unwrap().into_inner();
            assert_eq!(told(sent).await, (vec![state], ended), "a send, {ends:?}");

            // What it finds does not end a subscription, only what happens afterwards.
            let of_others = service::Settings { subscribe_ends: ends, ..defaults };
            let server = TestServer::of(Server::builder(Asking).settings(of_others)).await;
            let mut client = server.client().await;
            let asked = task_of(client.send_message(send("input")).await.unwrap());
            let follow = v1::SubscribeToTaskRequest { id: asked.id.clone(), ..Default::default() };
            let follow = client.subscribe_to_task(follow).await.unwrap().into_inner();
            let more = rig::to_task(send(text), &asked.id);
            client.send_message(more).await.unwrap();
            assert_eq!(told(follow).await, (vec![state], ended), "a subscription, {ends:?}");
        }
    }
}

#[tokio::test]
async fn a_second_cancel_is_an_error_or_the_task_as_the_settings_say() {
    for cancel_again in [false, true] {
        let settings = service::Settings { cancel_again, ..service::Settings::default() };
        let server = TestServer::with(|server| server.settings(settings)).await;
        let mut client = server.client().await;
        let asked = task_of(client.send_message(send("ask which?")).await.unwrap());
        let done = task_of(client.send_message(send("hello")).await.unwrap());
        let cancel =
            |task: &v1::Task| v1::CancelTaskRequest { id: task.id.clone(), ..Default::default() };
        let first = client.cancel_task(cancel(&asked)).await.unwrap().into_inner();
        assert_eq!(rig::state(&first), TaskState::Canceled);
        match client.cancel_task(cancel(&asked)).await {
            Ok(again) if cancel_again => assert_eq!(again.into_inner(), first),
            Err(refused) if !cancel_again => assert_eq!(reason(&refused), "TASK_NOT_CANCELABLE"),
            other => panic!("{cancel_again}: {other:?}"),
        }
        let ended = client.cancel_task(cancel(&done)).await.unwrap_err();
        assert_eq!(reason(&ended), "TASK_NOT_CANCELABLE", "any other end is one");
    }
}

#[tokio::test]
async fn a_message_of_an_agent_is_refused_or_taken_as_the_settings_say() {
    for agent_role in [false, true] {
        let settings = service::Settings { agent_role, ..service::Settings::default() };
        let server = TestServer::with(|server| server.settings(settings)).await;
        let mut client = server.client().await;
        let with = |role: v1::Role| {
            let mut request = send("hello");
            request.message.as_mut().unwrap().role = role.into();
            request
        };
        assert!(client.send_message(with(v1::Role::User)).await.is_ok());
        assert!(client.send_message(with(v1::Role::Unspecified)).await.is_err());
        assert_eq!(client.send_message(with(v1::Role::Agent)).await.is_ok(), agent_role);
    }
}

const NEEDED: &str = "https://x.example/needed/v1";
const WELCOME: &str = "https://x.example/welcome/v1";

async fn with_extensions(require_extensions: RequireExtensions) -> (TestServer, Client) {
    let extension = |uri: &str, required| v1::AgentExtension {
        uri: uri.to_owned(),
        required,
        ..Default::default()
    };
    let capabilities = v1::AgentCapabilities {
        extensions: vec![extension(NEEDED, true), extension(WELCOME, false)],
        ..Default::default()
    };
    let card = v1::AgentCard { capabilities: Some(capabilities), ..Demo.card() };
    let cards = Cards { public: Some(card), ..Cards::default() };
    let settings = service::Settings { require_extensions, ..service::Settings::default() };
    let server = TestServer::with(|server| server.cards(cards).settings(settings)).await;
    let client = server.client().await;
    (server, client)
}

fn naming<T>(message: T, extensions: &[&str]) -> Request<T> {
    let mut request = Request::new(message);
    for extension in extensions {
        let value: MetadataValue<Ascii> = extension.parse().unwrap();
        request.metadata_mut().append("a2a-extensions", value);
    }
    request
}

#[tokio::test]
async fn a_message_must_name_what_the_card_requires() {
    let (_server, mut client) = with_extensions(RequireExtensions::Sends).await;
    for extensions in [&[][..], &[WELCOME], &["https://x.example/needed/v2"]] {
        let refused = client.send_message(naming(send("hello"), extensions)).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition);
        let info = refused.get_details_error_info().unwrap();
        assert_eq!(info.reason, "EXTENSION_SUPPORT_REQUIRED");
        assert_eq!(info.metadata["extension"], NEEDED);
    }
    // Its name in the message alone does not count (AMB-11).
    let mut in_message = send("hello");
    in_message.message.as_mut().unwrap().extensions.push(NEEDED.to_owned());
    assert!(client.send_message(in_message).await.is_err());
    assert!(client.send_message(naming(send("hello"), &[NEEDED])).await.is_ok());
    assert!(client.list_tasks(v1::ListTasksRequest::default()).await.is_ok());
}

#[tokio::test]
async fn every_call_must_if_the_settings_say_so() {
    let (_server, mut client) = with_extensions(RequireExtensions::All).await;
    let refused = client.list_tasks(v1::ListTasksRequest::default()).await.unwrap_err();
    assert_eq!(reason(&refused), "EXTENSION_SUPPORT_REQUIRED");
    let request = naming(v1::ListTasksRequest::default(), &[NEEDED]);
    assert!(client.list_tasks(request).await.is_ok());
    let asked = v1::GetExtendedAgentCardRequest::default();
    let refused = client.get_extended_agent_card(asked).await.unwrap_err();
    assert_eq!(reason(&refused), "UNSUPPORTED_OPERATION", "that one never");
}

#[tokio::test]
async fn what_was_activated_is_told_with_the_answer() {
    let (_server, mut client) = with_extensions(RequireExtensions::Sends).await;
    let list = v1::ListTasksRequest::default;
    let mut told = async |extensions: &[&str]| {
        let answer = client.list_tasks(naming(list(), extensions)).await.unwrap();
        answer.metadata().get("a2a-extensions").map(|value| value.to_str().unwrap().to_owned())
    };
    assert_eq!(told(&[]).await, None);
    assert_eq!(told(&["https://x.example/other/v1"]).await, None, "ignored");
    assert_eq!(told(&[WELCOME, "x"]).await.as_deref(), Some(WELCOME));
    let both = format!("{NEEDED}, {WELCOME}");
    assert_eq!(told(&[WELCOME, NEEDED]).await.as_deref(), Some(both.as_str()));
    assert_eq!(told(&[&format!("{WELCOME} ,{NEEDED}")]).await.as_deref(), Some(both.as_str()));
}
