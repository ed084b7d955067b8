//! What the gRPC side does beside the operations: versions, deadlines, sizes, names, health.

use std::sync::Arc;
use std::time::{Duration, Instant};

use a2ad::client::text_message;
use a2ad::contract::v1::{self, TaskState};
use bytes::Bytes;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt;

use crate::rig::flaky::Flaky;
use crate::rig::raw;
use crate::rig::{TestServer, any_port, eventually, send, send_at_once, task_of};

/// Longer than anything takes that works.
const PATIENCE: Duration = Duration::from_secs(30);
const SERVICE: &str = "lf.a2a.v1.A2AService";

fn reason(status: &Status) -> String {
    status.get_details_error_info().map(|info| info.reason).unwrap_or_default()
}

/// The status of an answer that must be trailers alone: HTTP 200, no body.
fn trailers_only(response: &http::Response<Bytes>) -> Status {
    assert_eq!(response.status(), 200);
    assert!(response.body().is_empty());
    Status::from_header_map(response.headers()).unwrap()
}

#[tokio::test]
async fn a_call_says_its_version_and_only_1_0_is_spoken() {
    let server = TestServer::start().await;
    let body = raw::frame(&v1::ListTasksRequest::default());
    let list = async |version: &str| {
        let path = format!("/{SERVICE}/ListTasks");
        let headers = [("a2a-version", version)];
        raw::grpc(server.addr(), &path, &headers, body.clone()).await
    };
    for good in ["1.0", "1.0.1", "1.0, 1.0"] {
        let response = list(good).await;
        assert!(response.headers().get("grpc-status").is_none(), "{good}: {response:?}");
        assert!(!response.body().is_empty());
    }
    for bad in ["", "0.3", "1.1", "2", "latest", "1.0,0.3"] {
        let status = trailers_only(&list(bad).await);
        assert_eq!(status.code(), Code::FailedPrecondition, "{bad}");
        assert_eq!(reason(&status), "VERSION_NOT_SUPPORTED");
        assert!(status.message().contains("supported: 1.0"), "{}", status.message());
    }
}

#[tokio::test]
async fn a_deadline_ends_the_call_and_not_the_work() {
    let server = TestServer::start().await;
    let addr = server.addr();
    let path = format!("/{SERVICE}/SendMessage");
    let begin = Instant::now();
    let late =
        raw::grpc(addr, &path, &[("grpc-timeout", "300m")], raw::frame(&send("slow 60"))).await;
    let status = trailers_only(&late);
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert!(begin.elapsed() < Duration::from_secs(10));

    let mut client = server.client().await;
    let mut task = v1::Task::default();
    eventually("the work that goes on", async || {
        let page = client.list_tasks(v1::ListTasksRequest::default()).await.unwrap().into_inner();
        let Some(found) = page.tasks.into_iter().next() else { return false };
        task = found;
        task.status.as_ref().unwrap().state() == TaskState::Working
    })
    .await;
    let cancel = v1::CancelTaskRequest { id: task.id, ..Default::default() };
    let ended = client.cancel_task(cancel).await.unwrap().into_inner();
    assert_eq!(ended.status.unwrap().state(), TaskState::Canceled);

    let response =
        raw::grpc(addr, &path, &[("grpc-timeout", "soon")], raw::frame(&send("hello"))).await;
    let status = trailers_only(&response);
    assert_eq!(
        (status.code(), reason(&status).as_str()),
        (Code::InvalidArgument, "INVALID_PARAMS")
    );
    assert!(status.message().contains("grpc-timeout"));
}

#[tokio::test]
async fn what_is_too_large_or_unreadable_is_refused_in_words() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let of = |bytes: usize| send(&"x".repeat(bytes));

    // Above what is read at all: GRPC-11.
    let status = client.send_message(of(17 << 20)).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    assert!(status.message().contains("16777216"), "{}", status.message());
    // Above what a message may have.
    let status = client.send_message(of(4 << 20)).await.unwrap_err();
    assert_eq!(
        (status.code(), reason(&status).as_str()),
        (Code::InvalidArgument, "INVALID_PARAMS")
    );
    assert!(status.message().contains("message"), "{}", status.message());
    // The connection is as good as before.
    task_of(client.send_message(of(1 << 20)).await.unwrap());

    let path = format!("/{SERVICE}/SendMessage");
    let garbage = raw::frame_bytes(&[0xff; 40]);
    let status = trailers_only(&raw::grpc(server.addr(), &path, &[], garbage).await);
    assert_eq!(
        (status.code(), reason(&status).as_str()),
        (Code::InvalidArgument, "INVALID_PARAMS")
    );
}

#[tokio::test]
async fn names_that_are_not_there_are_unimplemented_on_grpc_and_404_elsewhere() {
    let server = TestServer::start().await;
    let addr = server.addr();
    for path in [format!("/{SERVICE}/NoSuchMethod"), "/no.such.Service/Method".to_owned()] {
        let status = trailers_only(&raw::grpc(addr, &path, &[], raw::frame_bytes(&[])).await);
        assert_eq!(status.code(), Code::Unimplemented, "{path}");
        assert_eq!(reason(&status), "METHOD_NOT_FOUND", "{path}");
    }
    let missing = raw::get(addr, "/nothing", &[]).await;
    assert_eq!(missing.status(), 404);
    let error: serde_json::Value = serde_json::from_slice(missing.body()).unwrap();
    assert_eq!(
        (&error["error"]["code"], &error["error"]["status"]),
        (&404.into(), &"NOT_FOUND".into())
    );
    let path = format!("/{SERVICE}/GetTask");
    let json = raw::grpc(addr, &path, &[("content-type", "application/json")], Bytes::new()).await;
    assert_eq!(json.status(), 415);
}

#[tokio::test]
async fn what_is_not_offered_says_so_and_is_never_unimplemented() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let config = v1::TaskPushNotificationConfig::default();
    let statuses = vec![
        client.create_task_push_notification_config(config).await.unwrap_err(),
        client
            .get_task_push_notification_config(v1::GetTaskPushNotificationConfigRequest::default())
            .await
            .unwrap_err(),
        client
            .list_task_push_notification_configs(
                v1::ListTaskPushNotificationConfigsRequest::default(),
            )
            .await
            .unwrap_err(),
        client
            .delete_task_push_notification_config(
                v1::DeleteTaskPushNotificationConfigRequest::default(),
            )
            .await
            .unwrap_err(),
    ];
    for status in statuses {
        assert_eq!(reason(&status), "PUSH_NOTIFICATION_NOT_SUPPORTED");
    }
    let card = v1::GetExtendedAgentCardRequest::default();
    let status = client.get_extended_agent_card(card).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert_eq!(reason(&status), "UNSUPPORTED_OPERATION");
}

#[tokio::test]
async fn an_extension_that_nobody_offers_is_ignored() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let mut request = Request::new(send("hello"));
    request.metadata_mut().insert("a2a-extensions", "https://example.com/ext/v1".parse().unwrap());
    task_of(client.send_message(request).await.unwrap());
}

async fn health(client: &mut HealthClient<Channel>, service: &str) -> ServingStatus {
    let request = HealthCheckRequest { service: service.to_owned() };
    client.check(request).await.unwrap().into_inner().status()
}

#[tokio::test]
async fn health_knows_the_store() {
    let store = Flaky::open().await;
    let open = Arc::clone(&store);
    let server = TestServer::with(|server| server.open_store(open).admin(Some(any_port()))).await;
    let admin = server.server().admin_address().unwrap();
    let channel = Channel::from_shared(server.url()).unwrap().connect().await.unwrap();
    let mut client = HealthClient::new(channel);
    for service in ["", SERVICE] {
        assert_eq!(health(&mut client, service).await, ServingStatus::Serving);
    }
    assert_eq!(raw::get(admin, "/readyz", &[]).await.status(), 200);

    store.set_down(true);
    eventually("NOT_SERVING", async || {
        health(&mut client, SERVICE).await == ServingStatus::NotServing
    })
    .await;
    assert_eq!(health(&mut client, "").await, ServingStatus::NotServing);
    eventually("not ready", async || raw::get(admin, "/readyz", &[]).await.status() == 503).await;
    assert_eq!(raw::get(admin, "/healthz", &[]).await.status(), 200);
    let status =
        server.client().await.list_tasks(v1::ListTasksRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(!status.message().contains("db.internal"), "{}", status.message());
    assert!(status.get_details_retry_info().is_some());

    store.set_down(false);
    eventually("SERVING", async || health(&mut client, SERVICE).await == ServingStatus::Serving)
        .await;
}

#[tokio::test]
async fn a_draining_server_says_so_first_and_takes_calls_a_while() {
    let server =
        TestServer::with(|server| server.drain(Duration::from_secs(3), Duration::from_secs(5)))
            .await;
    let mut client = server.client().await;
    let channel = Channel::from_shared(server.url()).unwrap().connect().await.unwrap();
    let mut health_client = HealthClient::new(channel);
    let url = server.url();
    let ending = tokio::spawn(server.into_server().stop());
    eventually("NOT_SERVING", async || {
        health(&mut health_client, "").await == ServingStatus::NotServing
    })
    .await;
    task_of(client.send_message(send("hello")).await.unwrap());
    let waiting = client.send_message(send("ask me")).await;
    task_of(waiting.unwrap());
    assert!(ending.await.unwrap(), "drained");
    assert!(Channel::from_shared(url).unwrap().connect().await.is_err(), "the port is closed");
}

#[tokio::test]
async fn streams_without_an_end_do_not_hold_a_server_that_ends() {
    let server = TestServer::with(|server| server.drain(Duration::ZERO, PATIENCE)).await;
    let channel = Channel::from_shared(server.url()).unwrap().connect().await.unwrap();
    let mut client = HealthClient::new(channel);
    let request = HealthCheckRequest { service: SERVICE.to_owned() };
    let mut watch = client.watch(request).await.unwrap().into_inner();
    let seen = watch.message().await.unwrap().unwrap();
    assert_eq!(seen.status(), ServingStatus::Serving);
    let begin = Instant::now();
    assert!(server.into_server().stop().await, "drained");
    assert!(begin.elapsed() < PATIENCE / 2, "{:?}", begin.elapsed());
    let end = loop {
        match watch.message().await {
            Ok(Some(seen)) => assert_eq!(seen.status(), ServingStatus::NotServing),
            Ok(None) => panic!("the stream ended without a word"),
            Err(status) => break status,
        }
    };
    assert_eq!(end.code(), Code::Unavailable, "{end:?}");
}

#[tokio::test]
async fn a_waiting_caller_is_told_to_try_again_when_the_server_ends() {
    let server =
        TestServer::with(|server| server.drain(Duration::ZERO, Duration::from_secs(2))).await;
    let mut client = server.client().await;
    let mut waiting = client.clone();
    let waiting = tokio::spawn(async move { waiting.send_message(send("slow 60")).await });
    let mut states = Vec::new();
    eventually("the turn that runs", async || {
        let page = client.list_tasks(v1::ListTasksRequest::default()).await.unwrap().into_inner();
        states = page.tasks.iter().map(|t| t.status.as_ref().unwrap().state()).collect();
        states == [TaskState::Working]
    })
    .await;
    assert!(server.into_server().stop().await, "drained");
    let status = waiting.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
}

#[tokio::test]
async fn a_caller_who_leaves_stops_nothing() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let task = task_of(client.send_message(send_at_once("slow 1")).await.unwrap());
    drop(client);
    let mut client = server.client().await;
    let message = v1::Message { task_id: task.id.clone(), ..text_message("more") };
    let request = v1::SendMessageRequest { message: Some(message), ..Default::default() };
    let leaving = tokio::time::timeout(Duration::from_millis(50), client.send_message(request));
    drop(leaving.await);
    eventually("the end of the task", async || {
        let request = v1::GetTaskRequest { id: task.id.clone(), ..Default::default() };
        let task = client.get_task(request).await.unwrap().into_inner();
        task.status.unwrap().state() == TaskState::Completed
    })
    .await;
}
