//! What each caller may ask for: one at its limit is told when to come back, others notice nothing.

use std::fs;

use a2ad::client::{Client, text_message};
use a2ad::config::file::{File, Limits};
use a2ad::contract::v1;
use serde_json::{Value, json};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::bindings::JSON;
use crate::bindings::caller::{Binding, Caller};
use crate::rig::{
    ANN, BOB, TestServer, eventually, raw, send, send_at_once, task_of, to_task, two_callers,
};
use crate::support::program::command;

/// A server for two callers with these limits.
async fn server(limits: &str) -> TestServer {
    let limits: Limits = File::parse(limits).unwrap().limits;
    TestServer::with(|server| server.auth(two_callers()).limits(limits)).await
}

fn list() -> v1::ListTasksRequest {
    v1::ListTasksRequest::default()
}

fn in_blue(mut request: v1::SendMessageRequest) -> v1::SendMessageRequest {
    "blue".clone_into(&mut request.tenant);
    request
}

/// Refused for now, with a time to wait. Returns its words.
fn refused(status: &Status) -> String {
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    let retry = status.get_details_retry_info().expect("a time to wait").retry_delay.unwrap();
    assert!(retry.as_secs() >= 1, "{retry:?}");
    assert!(status.get_details_error_info().is_none(), "clients take its reason for a fault");
    status.message().to_owned()
}

async fn streaming(client: &mut Client, text: &str) -> tonic::Streaming<v1::StreamResponse> {
    client.send_streaming_message(send(text)).await.unwrap().into_inner()
}

#[tokio::test]
async fn a_caller_that_lists_too_often_is_told_when_to_come_back_over_every_binding() {
    let server = server("[limits.rates]\nlist = { calls = 1, per = '1h', burst = 3 }").await;
    let mut ann = Caller::all(server.addr(), Some(ANN)).await;
    // One bucket for all bindings.
    for caller in &mut ann {
        caller.ask(list()).await.unwrap();
    }
    for caller in &mut ann {
        let told = caller.ask(list()).await.unwrap_err();
        let code = match caller.binding {
            Binding::Grpc => 8,
            Binding::JsonRpc => -32603,
            Binding::Rest => 429,
        };
        assert_eq!(told.code, code);
        assert!(told.common.0.contains("`list`"), "{told:?}");
        let retry: Value = told.common.1[0]["retryDelay"].clone();
        let seconds: u64 = retry.as_str().unwrap().trim_end_matches('s').parse().unwrap();
        assert!((3500..=3600).contains(&seconds), "{retry}");
        // Calls of other kinds have buckets of their own.
        caller.ask(send("hello")).await.unwrap();
    }
    let bearer = format!("Bearer {ANN}");
    let headers = [JSON, ("a2a-version", "1.0"), ("authorization", bearer.as_str())];
    for (verb, path, body) in [
        ("GET", "/tasks", String::new()),
        ("POST", "/", json!({"jsonrpc": "2.0", "id": 1, "method": "ListTasks"}).to_string()),
    ] {
        let response = raw::http(server.addr(), verb, path, &headers, body).await;
        assert_eq!(response.status(), 429);
        let seconds: u64 = response.headers()["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((3500..=3600).contains(&seconds), "{response:?}");
    }
    for caller in &mut Caller::all(server.addr(), Some(BOB)).await {
        caller.ask(list()).await.unwrap();
    }
}

#[tokio::test]
async fn a_stream_too_many_stores_no_message_and_an_ended_one_makes_room() {
    let server = server("[limits.caller]\nstreams = 2\n[limits.tenant]\nstreams = 3").await;
    let (mut ann, mut bob) = (server.client_of(ANN).await, server.client_of(BOB).await);
    let first = streaming(&mut ann, "slow 60").await;
    let mut second = streaming(&mut ann, "slow 60").await;
    let words = refused(&ann.send_streaming_message(send("hello")).await.unwrap_err());
    assert!(words.contains("the caller has 2 streams"), "{words}");
    let task = second.message().await.unwrap().unwrap();
    let Some(v1::stream_response::Payload::Task(task)) = task.payload else { panic!("{task:?}") };
    let subscribe = v1::SubscribeToTaskRequest { id: task.id.clone(), ..Default::default() };
    refused(&ann.subscribe_to_task(subscribe).await.unwrap_err());
    let third = streaming(&mut bob, "slow 60").await;
    let words = refused(&bob.send_streaming_message(send("hello")).await.unwrap_err());
    assert!(words.contains("the tenant has 3 streams"), "{words}");
    // The refused message made nothing; calls that do not stream are not concerned.
    assert_eq!(ann.list_tasks(list()).await.unwrap().into_inner().total_size, 2);
    task_of(ann.send_message(send("hello")).await.unwrap());
    // In another tenant a caller has its own places.
    drop(ann.send_streaming_message(in_blue(send("hello"))).await.unwrap());
    drop((first, third));
    eventually("a place comes free", async || {
        ann.send_streaming_message(send("hello")).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn open_tasks_are_bounded_by_caller_and_by_tenant_and_follow_ups_are_not() {
    let server = server("[limits.caller]\nopen_tasks = 2\n[limits.tenant]\nopen_tasks = 3").await;
    let (mut ann, mut bob) = (server.client_of(ANN).await, server.client_of(BOB).await);
    let asked = task_of(ann.send_message(send("ask me")).await.unwrap());
    task_of(ann.send_message(send("ask me")).await.unwrap());
    for request in [send("hello"), send_at_once("hello")] {
        let words = refused(&ann.send_message(request).await.unwrap_err());
        assert!(words.contains("the caller has 2 tasks"), "{words}");
    }
    refused(&ann.send_streaming_message(send("hello")).await.unwrap_err());
    task_of(ann.send_message(in_blue(send("hello"))).await.unwrap());
    task_of(bob.send_message(send("ask me")).await.unwrap());
    let full = bob.send_message(send("hello")).await.unwrap_err();
    let words = refused(&full);
    assert!(words.contains("the tenant has 3 tasks"), "{words}");
    // An answer to a question begins no task, and ends one.
    task_of(ann.send_message(to_task(send("the red one"), &asked.id)).await.unwrap());
    let mut ended = ann.send_message(send_at_once("hello")).await;
    eventually("the tenant's number is read again", async || {
        if ended.is_err() {
            ended = ann.send_message(send_at_once("hello")).await;
        }
        ended.is_ok()
    })
    .await;
}

#[tokio::test]
async fn a_message_of_too_many_or_too_large_parts_is_refused_by_the_part() {
    let server = server("[limits]\nparts = 3\npart_bytes = 2048").await;
    let mut ann = server.client_of(ANN).await;
    let with = |parts: Vec<v1::Part>| v1::SendMessageRequest {
        message: Some(v1::Message { parts, ..text_message("") }),
        ..Default::default()
    };
    let part = |n: usize| a2ad::agent::text_part("x".repeat(n));
    task_of(ann.send_message(with(vec![part(2000); 3])).await.unwrap());
    for (parts, field) in
        [(vec![part(1); 4], "message.parts"), (vec![part(1), part(2048)], "message.parts[1]")]
    {
        let status = ann.send_message(with(parts)).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        let details = status.get_details_bad_request().unwrap();
        assert_eq!(details.field_violations[0].field, field, "{details:?}");
    }
}

#[test]
fn quotas_that_cannot_be_are_named_by_the_check_and_good_ones_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let check = |text: &str| {
        fs::write(folder.path().join("a2ad.toml"), text).unwrap();
        let output = command(folder.path(), &["check", "--config", "a2ad.toml"]).output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.code(), text)
    };
    let (code, text) = check("[limits.rates]\nlists = { calls = 1, per = '1s' }");
    assert_eq!(code, Some(78));
    assert!(text.contains("limits.rates.lists: must be one of send, get, list"), "{text}");
    let (code, text) = check("[limits.rates]\nlist = { calls = 9, per = '1s' }");
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("rates.list") && text.contains("9 in 1s, 9 at once"), "{text}");
}
