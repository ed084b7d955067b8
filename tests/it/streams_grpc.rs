//! Streams over gRPC: deadlines, drains, clients that leave and clients that do not read.

use std::sync::Arc;
use std::time::{Duration, Instant};

use a2ad::agent::{Agent, AgentError, AgentTurn, TurnHandle};
use a2ad::async_trait;
use a2ad::client::{Client, Connect};
use a2ad::contract::v1::stream_response::Payload;
use a2ad::contract::v1::{self, TaskState};
use a2ad::store::Store;
use futures_util::StreamExt as _;
use futures_util::stream;
use tempfile::TempDir;
use tonic::{Code, Streaming};

use crate::bench::{chunk, soon, texts};
use crate::rig::flaky::Flaky;
use crate::rig::{TestServer, eventually, raw, send, send_at_once, state, task_of};
use crate::support::program::Program;
use crate::support::rounds;

/// A task that stays as it is.
async fn idle_task(client: &mut Client) -> String {
    let task = task_of(client.send_message(send("ask which one?")).await.unwrap());
    assert_eq!(state(&task), TaskState::InputRequired);
    task.id
}

fn subscription(id: &str) -> v1::SubscribeToTaskRequest {
    v1::SubscribeToTaskRequest { id: id.to_owned(), ..Default::default() }
}

async fn subscribe(client: &mut Client, id: &str) -> Streaming<v1::StreamResponse> {
    let mut stream = client.subscribe_to_task(subscription(id)).await.unwrap().into_inner();
    let first = stream.message().await.unwrap().unwrap();
    assert!(matches!(first.payload, Some(Payload::Task(_))), "{first:?}");
    stream
}

#[tokio::test]
async fn the_deadline_of_a_call_bounds_its_stream() {
    let server = TestServer::start().await;
    let id = idle_task(&mut server.client().await).await;
    let (path, body) = ("/lf.a2a.v1.A2AService/SubscribeToTask", raw::frame(&subscription(&id)));
    let began = Instant::now();
    let timeout = [("grpc-timeout", "300m")];
    let trailers = soon(raw::grpc_trailers(server.addr(), path, &timeout, body)).await;
    assert_eq!(trailers["grpc-status"], "4", "DEADLINE_EXCEEDED");
    assert!(began.elapsed() >= Duration::from_millis(300));
    eventually("the stream is given back", async || server.server().service().open_streams() == 0)
        .await;
}

#[tokio::test]
async fn a_server_that_ends_tells_its_streams_to_come_back() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let id = idle_task(&mut client).await;
    let mut streams = Vec::new();
    for _ in 0..50 {
        streams.push(subscribe(&mut client, &id).await);
    }
    let service = server.server().service().clone();
    assert_eq!(service.open_streams(), 50);
    let stopping = tokio::spawn(server.into_server().stop());
    for mut stream in streams {
        let status = soon(stream.message()).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    }
    assert!(soon(stopping).await.unwrap(), "streams do not use up the grace period");
    assert_eq!(service.open_streams(), 0);
}

/// Subscribes and leaves, again and again, some at a time.
async fn come_and_go(client: &Client, id: &str, times: u64) {
    let one = |_| async {
        drop(subscribe(&mut client.clone(), id).await);
    };
    stream::iter(0..times).for_each_concurrent(20, one).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_whose_clients_leave_are_given_back() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let id = idle_task(&mut client).await;
    let mut stays = subscribe(&mut client, &id).await;
    come_and_go(&client, &id, rounds(1_000, 10_000)).await;
    let service = server.server().service();
    eventually("the others are gone", async || service.open_streams() == 1).await;
    let answer = crate::rig::to_task(send("the blue one"), &id);
    task_of(client.send_message(answer).await.unwrap());
    let mut last = None;
    while let Some(item) = soon(stays.message()).await.unwrap() {
        last = Some(item);
    }
    let Some(Payload::StatusUpdate(update)) = last.unwrap().payload else { panic!("no status") };
    assert_eq!(update.status.unwrap().state(), TaskState::Completed, "EVT-05");
    eventually("and so is this one", async || service.open_streams() == 0).await;
}

fn memory_of(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_come_and_go_leave_no_memory_behind() {
    let folder = TempDir::new().unwrap();
    let program = Program::serve(folder.path(), &["--store", "sqlite::memory:"]);
    let mut client = Connect::to(program.url()).connect().await.unwrap();
    let id = idle_task(&mut client).await;
    come_and_go(&client, &id, 300).await;
    let before = memory_of(program.pid());
    come_and_go(&client, &id, rounds(1_000, 10_000)).await;
    let after = memory_of(program.pid());
    assert!(after < before + (6 << 20), "{before} bytes before, {after} after");
}

/// Says 200 chunks of 64 KiB as fast as they are taken.
struct Loud;

const CHUNKS: usize = 200;

#[async_trait]
impl Agent for Loud {
    fn card(&self) -> v1::AgentCard {
        Agent::card(&a2ad::agent::demo::Demo)
    }

    async fn run(&self, _: AgentTurn, handle: &mut TurnHandle) -> Result<(), AgentError> {
        let text = "x".repeat(64 << 10);
        for n in 0..CHUNKS {
            let name = format!("{n} {text}");
            handle.chunk(chunk("a", &name), n > 0, n + 1 == CHUNKS).await?;
        }
        Ok(handle.complete().await?)
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_back_its_own_stream_alone() {
    let store = Flaky::open().await;
    let shared = Arc::clone(&store) as Arc<dyn Store>;
    let server = a2ad::server::Server::builder(Loud).open_store(shared).start().await.unwrap();
    let mut client = Connect::to(format!("http://{}", server.address())).connect().await.unwrap();
    let mut slow = client.send_streaming_message(send("x")).await.unwrap().into_inner();
    let Some(Payload::Task(task)) = slow.message().await.unwrap().unwrap().payload else {
        panic!("no task")
    };
    // The writer and everybody else go on.
    let other = task_of(client.send_message(send_at_once("y")).await.unwrap());
    for id in [&task.id, &other.id] {
        eventually("the task ends", async || {
            let request = v1::GetTaskRequest { id: id.clone(), ..Default::default() };
            let mut client = client.clone();
            let task = client.get_task(request).await.unwrap().into_inner();
            state(&task) == TaskState::Completed
        })
        .await;
    }
    let held = store.log_reads();
    let mut told = 0;
    while let Some(item) = soon(slow.message()).await.unwrap() {
        if let Some(Payload::ArtifactUpdate(update)) = item.payload {
            let text = texts(&update.artifact.unwrap()).concat();
            assert!(text.starts_with(&format!("{told} ")));
            told += 1;
        }
    }
    assert_eq!(told, CHUNKS);
    let rest = store.log_reads() - held;
    // 12.5 MiB in reads of half a MiB and one event.
    assert!(held <= 8 && rest >= 15, "{held} reads before, {rest} once it was read");
}
