//! Streams and long calls through Envoy: nothing cuts them for being long or quiet.

use std::time::{Duration, Instant};

use a2ad::client::Client;
use a2ad::contract::v1::stream_response::Payload;
use a2ad::contract::v1::{self, TaskState};
use serde_json::{Value, json};

use super::{Gateway, borrowed, message};
use crate::rig::sse::Events;
use crate::rig::{raw, send, state, task_of};

/// Envoy's own default for a request as a whole is 15 s. The times of the file that are not those
/// of streams and sends are cut to a second, so that whatever they apply to would end early.
const IMPATIENT: [(&str, &str); 2] =
    [("stream_idle_timeout: 300s", "stream_idle_timeout: 1s"), ("timeout: 30s", "timeout: 1s")];
/// Says that it waits for authorization, and then nothing for longer than that.
const QUIET: &str = "auth 17";

fn quiet_for(began: Instant) {
    assert!(began.elapsed() >= Duration::from_secs(16), "it was not quiet for long enough");
}

async fn grpc_stream(mut client: Client) {
    let began = Instant::now();
    let mut stream = client.send_streaming_message(send(QUIET)).await.unwrap().into_inner();
    let mut last = None;
    while let Some(item) = stream.message().await.unwrap() {
        last = Some(item);
    }
    let Some(Payload::StatusUpdate(update)) = last.unwrap().payload else { panic!("no status") };
    assert_eq!(update.status.unwrap().state(), TaskState::Completed);
    quiet_for(began);
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_and_blocking_sends_may_be_quiet_for_longer_than_any_default() {
    let gateway = Gateway::start(&IMPATIENT).await;
    let client = gateway.client("ann").await;
    let edge = gateway.envoy.edge();
    let headers = gateway.headers("ann");
    let headers = borrowed(&headers);

    let events = async |method: &str| {
        let began = Instant::now();
        let (path, body) = match method {
            "rest" => ("/message:stream", message(QUIET)),
            _ => (
                "/",
                json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": message(QUIET)}),
            ),
        };
        let mut events = Events::ask(edge, "POST", path, &headers, body.to_string()).await;
        assert_eq!(events.response().headers()["content-type"], "text/event-stream");
        let last = events.rest().await.pop().unwrap().data.to_string();
        assert!(last.contains("TASK_STATE_COMPLETED"), "{last}");
        quiet_for(began);
    };
    // A task that only asks for authorization settles a send; one that keeps an agent busy and
    // quiet does not.
    let blocking = async |method: &str| {
        let (path, body) = match method {
            "rest" => ("/message:send", message("slow 4")),
            _ => (
                "/",
                json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": message("slow 4")}),
            ),
        };
        let answer = raw::http(edge, "POST", path, &headers, body.to_string()).await;
        let text = String::from_utf8_lossy(answer.body()).into_owned();
        assert!(text.contains("TASK_STATE_COMPLETED"), "{text}");
    };
    let mut sender = client.clone();
    let grpc_send = async {
        let task = task_of(sender.send_message(send("slow 4")).await.unwrap());
        assert_eq!(state(&task), TaskState::Completed);
    };
    tokio::join!(
        grpc_stream(client.clone()),
        events("rest"),
        events("SendStreamingMessage"),
        grpc_send,
        blocking("rest"),
        blocking("SendMessage"),
    );
}

#[tokio::test]
async fn events_pass_as_they_happen_and_a_callers_deadline_holds() {
    let gateway = Gateway::start(&[]).await;
    let mut ann = gateway.client("ann").await;
    let headers = gateway.headers("ann");
    let body = message("stream 5 300").to_string();
    let edge = gateway.envoy.edge();
    let mut events = Events::ask(edge, "POST", "/message:stream", &borrowed(&headers), body).await;
    let mut at = Vec::new();
    let mut first: Option<Value> = None;
    while let Some(event) = events.next().await {
        at.push(Instant::now());
        first.get_or_insert(event.data);
    }
    // Buffered they would all come at the end.
    assert!(at[at.len() - 1] - at[0] > Duration::from_millis(900), "{at:?}");
    let task = first.unwrap()["task"]["id"].as_str().unwrap().to_owned();
    let got = v1::GetTaskRequest { id: task, ..Default::default() };
    assert_eq!(state(&ann.get_task(got).await.unwrap().into_inner()), TaskState::Completed);

    let mut request = tonic::Request::new(send("slow 60"));
    request.set_timeout(Duration::from_secs(1));
    let began = Instant::now();
    let mut stream = ann.send_streaming_message(request).await.unwrap().into_inner();
    let ended = loop {
        match stream.message().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the stream ended in peace"),
            Err(status) => break status,
        }
    };
    assert_eq!(ended.code(), tonic::Code::DeadlineExceeded, "{ended:?}");
    assert!(began.elapsed() < Duration::from_secs(10));
}
