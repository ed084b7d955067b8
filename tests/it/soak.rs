//! Hours in short: mixed load and streams that come and go, after which the server has the memory
//! that it had near the beginning.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use a2ad::client::{Client, Connect};
use a2ad::contract::v1;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::bindings::JSON;
use crate::rig::{raw, send, send_at_once};
use crate::support::program::Program;
use crate::support::torture;

/// Between two rounds of one caller.
const REST: Duration = Duration::from_millis(20);

#[derive(Default)]
struct Load {
    over: AtomicBool,
    calls: AtomicU64,
}

impl Load {
    /// Whether there is another round, after a rest that leaves others some of the machine.
    async fn goes_on(&self) -> bool {
        tokio::time::sleep(REST).await;
        self.calls.fetch_add(1, Ordering::Relaxed);
        !self.over.load(Ordering::Relaxed)
    }
}

async fn calls(load: Arc<Load>, mut client: Client) {
    while load.goes_on().await {
        client.send_message(send("hello")).await.unwrap();
        client.send_message(send_at_once("stream 3 10")).await.unwrap();
        let page = v1::ListTasksRequest { page_size: Some(20), ..Default::default() };
        let page = client.list_tasks(page).await.unwrap().into_inner();
        for task in page.tasks.into_iter().take(3) {
            let get = v1::GetTaskRequest { id: task.id, ..Default::default() };
            client.get_task(get).await.unwrap();
        }
    }
}

/// Streams on connections of their own, every other of which is left in the middle.
async fn streams(load: Arc<Load>, url: String) {
    let mut leaves = false;
    while load.goes_on().await {
        let mut client = Connect::to(&url).connect().await.unwrap();
        let stream = client.send_streaming_message(send("stream 10 5")).await.unwrap();
        let mut stream = stream.into_inner();
        let mut items = 0;
        while stream.message().await.unwrap().is_some() {
            items += 1;
            if leaves && items == 3 {
                break;
            }
        }
        leaves = !leaves;
    }
}

async fn json_calls(load: Arc<Load>, server: std::net::SocketAddr) {
    let headers = [JSON, ("a2a-version", "1.0")];
    while load.goes_on().await {
        let id = uuid::Uuid::new_v4().to_string();
        let message = json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": "hi"}]});
        for (path, streams) in [("/message:send", false), ("/message:stream", true)] {
            let body = json!({ "message": message }).to_string();
            let answer = raw::http(server, "POST", path, &headers, body).await;
            assert_eq!(answer.status(), 200);
            if !streams {
                serde_json::from_slice::<Value>(answer.body()).unwrap();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_stays_where_it_was_after_the_beginning() {
    let (beginning, whole) = match torture() {
        true => (Duration::from_secs(120), Duration::from_secs(1200)),
        false => (Duration::from_secs(25), Duration::from_secs(60)),
    };
    let folder = TempDir::new().unwrap();
    let program = Program::serve(folder.path(), &["--store", "sqlite:soak.db"]);
    let load = Arc::new(Load::default());
    let mut callers = Vec::new();
    for _ in 0..3 {
        let client = Connect::to(program.url()).connect().await.unwrap();
        callers.push(tokio::spawn(calls(Arc::clone(&load), client)));
        callers.push(tokio::spawn(streams(Arc::clone(&load), program.url())));
    }
    callers.push(tokio::spawn(json_calls(Arc::clone(&load), program.address())));

    // The mean of the second half of each stretch, so that no single burst decides.
    let began = Instant::now();
    let (mut early, mut late) = (Vec::new(), Vec::new());
    while began.elapsed() < whole {
        tokio::time::sleep(Duration::from_millis(250)).await;
        let bytes = program.resident_bytes();
        let at = began.elapsed();
        if at > beginning / 2 && at < beginning {
            early.push(bytes);
        } else if at > whole - beginning / 2 {
            late.push(bytes);
        }
    }
    load.over.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await.unwrap();
    }
    let mean = |of: &[u64]| of.iter().sum::<u64>() / of.len() as u64;
    let (early, late) = (mean(&early), mean(&late));
    let calls = load.calls.load(Ordering::Relaxed);
    println!("{calls} rounds of calls; {early} bytes after the beginning, {late} at the end");
    assert!(calls > 100, "the load hardly ran");
    assert!(late < early + early / 10, "{early} bytes have become {late}");
}
