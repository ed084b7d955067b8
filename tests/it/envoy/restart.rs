//! Both servers behind Envoy are replaced, one after the other, while callers go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use a2ad::client::Client;
use a2ad::contract::v1::stream_response::Payload;
use a2ad::contract::v1::{self, TaskState};
use serde_json::json;
use tonic::Code;

use super::{Gateway, borrowed, message};
use crate::rig::{raw, send, state, task_of};
use crate::support::rounds;

/// What the callers share.
#[derive(Default)]
struct Load {
    stop: AtomicBool,
    calls: AtomicU64,
}

impl Load {
    /// Whether there is another call to make.
    fn goes_on(&self) -> bool {
        self.calls.fetch_add(1, Ordering::Relaxed);
        !self.stop.load(Ordering::Relaxed)
    }
}

/// Short and long blocking sends, reads and listings: none may fail.
async fn calls(load: Arc<Load>, mut client: Client, text: &'static str) -> Vec<String> {
    let mut done = Vec::new();
    while load.goes_on() {
        let task = task_of(client.send_message(send(text)).await.expect("a send failed"));
        assert_eq!(state(&task), TaskState::Completed);
        let get = v1::GetTaskRequest { id: task.id.clone(), ..Default::default() };
        client.get_task(get).await.expect("a read failed");
        client.list_tasks(v1::ListTasksRequest::default()).await.expect("a listing failed");
        done.push(task.id);
    }
    done
}

/// The same over the bindings that speak JSON.
async fn json_calls(
    load: Arc<Load>,
    edge: std::net::SocketAddr,
    headers: Vec<(&'static str, String)>,
) -> Vec<String> {
    let mut done = Vec::new();
    let headers = borrowed(&headers);
    while load.goes_on() {
        let body = message("hello").to_string();
        let sent = raw::http(edge, "POST", "/message:send", &headers, body).await;
        assert_eq!(sent.status(), 200, "{sent:?}");
        let call =
            json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": message("hello")});
        let rpc = raw::http(edge, "POST", "/", &headers, call.to_string()).await;
        let rpc: serde_json::Value = serde_json::from_slice(rpc.body()).unwrap();
        let sent: serde_json::Value = serde_json::from_slice(sent.body()).unwrap();
        for task in [&sent["task"], &rpc["result"]["task"]] {
            assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{sent} {rpc}");
            done.push(task["id"].as_str().unwrap().to_owned());
        }
    }
    done
}

/// A stream that is cut by the end of its server is taken up again; nothing of the task is missed.
async fn follows(load: Arc<Load>, mut client: Client) -> Vec<String> {
    let mut done = Vec::new();
    while load.goes_on() {
        let mut stream = client
            .send_streaming_message(send("stream 20 100"))
            .await
            .expect("a stream failed")
            .into_inner();
        let (mut task, mut chunks) = (None, 0);
        loop {
            match stream.message().await {
                Ok(Some(item)) => match item.payload.unwrap() {
                    Payload::Task(snapshot) => {
                        chunks = snapshot.artifacts.iter().map(|a| a.parts.len()).sum();
                        task = Some(snapshot.id);
                    }
                    Payload::ArtifactUpdate(update) => {
                        chunks += update.artifact.unwrap().parts.len()
                    }
                    Payload::StatusUpdate(_) => {}
                    Payload::Message(message) => panic!("{message:?}"),
                },
                Ok(None) => break,
                Err(status) => {
                    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
                    let id = task.clone().expect("the first item came");
                    let subscribe = v1::SubscribeToTaskRequest { id, ..Default::default() };
                    match client.subscribe_to_task(subscribe).await {
                        Ok(again) => stream = again.into_inner(),
                        // It ended meanwhile.
                        Err(ended) if ended.code() == Code::FailedPrecondition => {
                            chunks = 20;
                            break;
                        }
                        Err(status) => panic!("{status:?}"),
                    }
                }
            }
        }
        assert_eq!(chunks, 20, "{task:?}");
        done.extend(task);
    }
    done
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_restart_under_load_fails_no_call_and_loses_no_task() {
    let mut gateway = Gateway::start(&[]).await;
    let load = Arc::new(Load::default());
    let mut callers = Vec::new();
    for text in ["hello", "hello", "slow 2"] {
        let client = gateway.client("ann").await;
        callers.push(tokio::spawn(calls(Arc::clone(&load), client, text)));
    }
    let (edge, headers) = (gateway.envoy.edge(), gateway.headers("ann"));
    callers.push(tokio::spawn(json_calls(Arc::clone(&load), edge, headers)));
    callers.push(tokio::spawn(follows(Arc::clone(&load), gateway.client("ann").await)));

    for _ in 0..rounds(1, 10) {
        for n in [0, 1] {
            let mut program = gateway.pair.programs[n].take().unwrap();
            program.signal("TERM");
            let ended = program.wait(Duration::from_secs(60));
            assert!(ended.success(), "{ended}: {}", program.output());
            gateway.pair.begin(n);
            gateway.envoy.until_healthy(2).await;
        }
    }
    load.stop.store(true, Ordering::Relaxed);
    let mut done = Vec::new();
    for caller in callers {
        done.extend(caller.await.unwrap());
    }
    println!("{} calls, {} tasks", load.calls.load(Ordering::Relaxed), done.len());
    let mut ann = gateway.client("ann").await;
    let page = v1::ListTasksRequest { page_size: Some(1), ..Default::default() };
    let total = ann.list_tasks(page).await.unwrap().into_inner().total_size;
    // Each task once: a message that was sent again found its first task.
    assert_eq!(usize::try_from(total).unwrap(), done.len());
    for id in done {
        let get = v1::GetTaskRequest { id, ..Default::default() };
        let task = ann.get_task(get).await.unwrap().into_inner();
        assert_eq!(state(&task), TaskState::Completed);
    }
}
