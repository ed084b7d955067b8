//! How soon an update on one server reaches a subscriber of another, and what an idle subscriber
//! costs.
//!
//! Two servers in this process share a private PostgreSQL that forgets nothing and know each other
//! only through it. An agent on the first says the time; a gRPC client of the second compares. The
//! memory of idle streams is that of `a2ad serve` as a process of its own.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a measurement that cannot go on fails")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program for the terminal that spawns, reads the clock and rounds"
)]

#[path = "../load/process.rs"]
#[allow(dead_code, reason = "the other benchmark uses more of it")]
mod process;
#[path = "../load/support.rs"]
mod support;

use std::time::{Duration, Instant};

use a2ad::agent::demo::Demo;
use a2ad::agent::{Agent, AgentError, AgentTurn, TurnHandle, text_of, text_part};
use a2ad::async_trait;
use a2ad::client::{Client, Connect, text_message};
use a2ad::contract::v1;
use a2ad::contract::v1::send_message_response::Payload as Sent;
use a2ad::contract::v1::stream_response::Payload;
use a2ad::domain::page::KeyRing;
use a2ad::server::Server;
use futures_util::StreamExt as _;
use futures_util::stream;
use support::cluster::{Cluster, Durability};
use support::program::Program;
use tonic::Streaming;

const CONNECTIONS: usize = 50;

/// Says the microseconds since it was made, so many times a second, so often: `10 300`.
struct Clockwork(Instant);

#[async_trait]
impl Agent for Clockwork {
    fn card(&self) -> v1::AgentCard {
        Agent::card(&Demo)
    }

    async fn run(&self, turn: AgentTurn, handle: &mut TurnHandle) -> Result<(), AgentError> {
        let text = turn.text();
        let (rate, n) = text.split_once(' ').unwrap();
        let (rate, n): (f64, u32) = (rate.parse().unwrap(), n.parse().unwrap());
        // Time to subscribe.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let mut beat = tokio::time::interval(Duration::from_secs_f64(1.0 / rate));
        for n in 0..n {
            beat.tick().await;
            let now = self.0.elapsed().as_micros().to_string();
            let artifact = v1::Artifact {
                artifact_id: "times".to_owned(),
                parts: vec![text_part(now)],
                ..Default::default()
            };
            handle.chunk(artifact, n > 0, false).await?;
        }
        Ok(handle.complete().await?)
    }
}

fn request(text: &str, return_immediately: bool) -> v1::SendMessageRequest {
    let configuration = v1::SendMessageConfiguration { return_immediately, ..Default::default() };
    v1::SendMessageRequest {
        message: Some(text_message(text)),
        configuration: Some(configuration),
        ..Default::default()
    }
}

async fn task(client: &mut Client, text: &str) -> String {
    let at_once = !text.starts_with("ask");
    match client.send_message(request(text, at_once)).await.unwrap().into_inner().payload {
        Some(Sent::Task(task)) => task.id,
        other => panic!("{other:?}"),
    }
}

async fn subscribe(client: &mut Client, id: &str) -> Streaming<v1::StreamResponse> {
    let request = v1::SubscribeToTaskRequest { id: id.to_owned(), ..Default::default() };
    let mut stream = client.subscribe_to_task(request).await.unwrap().into_inner();
    stream.message().await.unwrap().unwrap();
    stream
}

async fn server(url: &str, began: Instant) -> Server {
    let keys = KeyRing::parse(&format!("k1:{}", "ab".repeat(32))).unwrap();
    let server = Server::builder(Clockwork(began)).store(url).page_token_keys(keys);
    server.start().await.unwrap()
}

async fn latency(url: &str, rate: u32, n: u32) {
    let began = Instant::now();
    let servers = [server(url, began).await, server(url, began).await];
    let to = |server: &Server| Connect::to(format!("http://{}", server.address()));
    let mut writer = to(&servers[0]).connect().await.unwrap();
    let mut reader = to(&servers[1]).connect().await.unwrap();
    let id = task(&mut writer, &format!("{rate} {n}")).await;
    let mut stream = subscribe(&mut reader, &id).await;
    let mut late = Vec::new();
    while let Some(item) = stream.message().await.unwrap() {
        let now = began.elapsed().as_micros();
        let Some(Payload::ArtifactUpdate(update)) = item.payload else { continue };
        let parts = update.artifact.unwrap().parts;
        let said: u128 = text_of(&v1::Message { parts, ..Default::default() }).parse().unwrap();
        late.push((now - said) as f64 / 1_000.0);
    }
    late.sort_by(f64::total_cmp);
    let at = |share: f64| late[((late.len() - 1) as f64 * share) as usize];
    let (median, p99, most) = (at(0.5), at(0.99), at(1.0));
    println!(
        "{rate:5}/s: {:6} updates, median {median:.1} ms, p99 {p99:.1} ms, most {most:.1} ms",
        late.len()
    );
    for server in servers {
        server.stop().await;
    }
}

async fn memory(url: &str, n: usize, tasks: usize) {
    let folder = tempfile::TempDir::new().unwrap();
    let keys = format!("k1:{}", "ab".repeat(32));
    let arguments = ["--store", url, "--page-token-keys", &keys];
    let program = Program::serve(folder.path(), &arguments);
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(Connect::to(program.url()).connect().await.unwrap());
    }
    let ids: Vec<String> = stream::iter(0..tasks)
        .map(|at| {
            let mut client = clients[at % CONNECTIONS].clone();
            async move { task(&mut client, "ask which one?").await }
        })
        .buffered(16)
        .collect()
        .await;
    // What every connection and the pool have taken by then is not the streams'.
    for at in 0..n {
        if at % 10 == 0 {
            drop(subscribe(&mut clients[at % CONNECTIONS], &ids[at % tasks]).await);
        }
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = process::memory_of(program.pid());
    let mut streams = Vec::new();
    for at in 0..n {
        streams.push(subscribe(&mut clients[at % CONNECTIONS], &ids[at % tasks]).await);
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let bytes = process::memory_of(program.pid()).saturating_sub(before);
    let cpu = process::cpu_of(program.pid());
    tokio::time::sleep(Duration::from_secs(20)).await;
    let idle = (process::cpu_of(program.pid()) - cpu) / 20.0 * 100.0;
    println!(
        "{n} idle streams of {tasks} tasks on {CONNECTIONS} connections: {} B each, {idle:.1} % of a CPU",
        bytes as usize / n
    );
    drop(streams);
}

fn main() {
    let smoke = std::env::args().any(|argument| argument == "smoke");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let cluster = Cluster::start(Durability::Full).await;
        let url = cluster.url_of("postgres");
        println!("load of the machine: {:.1}", process::busy());
        let (n, seconds) = if smoke { (100, 1) } else { (5_000, 15) };
        for rate in [10, 1_000] {
            latency(&url, rate, rate * seconds).await;
        }
        for tasks in [1, n] {
            memory(&url, n, tasks).await;
        }
        println!("load of the machine: {:.1}", process::busy());
    });
}
