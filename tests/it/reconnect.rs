//! Streams on two servers of one PostgreSQL: cut anywhere, and side by side.

use a2ad::agent::demo::Demo;
use a2ad::client::{Client, Connect};
use a2ad::contract::v1::stream_response::Payload;
use a2ad::contract::v1::{self, TaskState};
use a2ad::domain::page::KeyRing;
use a2ad::server::Server;
use futures_util::StreamExt as _;
use futures_util::stream;
use prost::Message as _;
use tonic::Code;

use crate::bench::{anybody, soon, task, texts};
use crate::rig::proxy::Proxy;
use crate::rig::{send, send_at_once, state};
use crate::support::{postgres, torture};

/// Chunks of the demo agent's stream.
const N: usize = 200;

async fn two_servers() -> [Server; 2] {
    let url = postgres::fresh_url().await;
    let server = async || {
        let keys = KeyRing::parse(&format!("k1:{}", "ab".repeat(32))).unwrap();
        let server = Server::builder(Demo).store(url.as_str()).page_token_keys(keys);
        server.start().await.unwrap()
    };
    [server().await, server().await]
}

async fn connect(url: &str) -> Client {
    Connect::to(url).connect().await.unwrap()
}

fn expected() -> Vec<String> {
    (1..=N).map(|n| format!("chunk {n} of {N}")).collect()
}

fn chunks(task: &v1::Task) -> Vec<String> {
    task.artifacts.iter().flat_map(texts).collect()
}

/// What a client knows of a task.
#[derive(Default)]
struct Known {
    id: String,
    chunks: Vec<String>,
    ended: bool,
}

impl Known {
    fn take(&mut self, item: v1::StreamResponse) {
        match item.payload.unwrap() {
            Payload::Task(task) => {
                let chunks = chunks(&task);
                assert!(chunks.starts_with(&self.chunks), "what was told is not taken back");
                (self.id, self.chunks) = (task.id, chunks);
            }
            Payload::ArtifactUpdate(update) => {
                self.chunks.extend(texts(update.artifact.as_ref().unwrap()));
            }
            Payload::StatusUpdate(update) => {
                self.ended = update.status.unwrap().state() == TaskState::Completed;
            }
            Payload::Message(message) => panic!("{message:?}"),
        }
    }
}

/// Follows a stream of the demo agent, is cut after `items`, and goes on at the other server.
async fn cut_after(items: usize, servers: &[Server; 2]) {
    let proxy = Proxy::before(servers.iter().map(Server::address).collect()).await;
    let mut known = Known::default();
    let mut client = connect(&proxy.url()).await;
    let stream = client.send_streaming_message(send(&format!("stream {N} 2"))).await;
    let mut stream = stream.unwrap().into_inner();
    for _ in 0..items {
        known.take(stream.message().await.unwrap().unwrap());
    }
    proxy.cut();
    // What was on its way may still come; then it fails, unless it had all come.
    let mut read = loop {
        match stream.message().await {
            Ok(Some(item)) => known.take(item),
            Ok(None) => break true,
            Err(_) => break false,
        }
    };
    if items == 0 && known.id.is_empty() {
        // Nothing came, so the client does not know its task; it would send again.
        return;
    }
    if !read {
        let mut client = connect(&proxy.url()).await;
        let request = v1::SubscribeToTaskRequest { id: known.id.clone(), ..Default::default() };
        match client.subscribe_to_task(request).await {
            Ok(stream) => {
                let mut stream = stream.into_inner();
                while let Some(item) = stream.message().await.unwrap() {
                    known.take(item);
                }
            }
            Err(status) => {
                assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
                let request = v1::GetTaskRequest { id: known.id.clone(), ..Default::default() };
                let task = client.get_task(request).await.unwrap().into_inner();
                assert_eq!(state(&task), TaskState::Completed);
                known.take(v1::StreamResponse { payload: Some(Payload::Task(task)) });
                known.ended = true;
            }
        }
        read = known.ended;
    }
    assert!(read && known.ended, "cut after {items}");
    assert_eq!(known.chunks, expected(), "cut after {items}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_cut_anywhere_goes_on_at_the_other_server() {
    let servers = two_servers().await;
    let last = N + 3;
    let every = if torture() { 1 } else { 19 };
    let cuts = (0..=last).step_by(every);
    stream::iter(cuts).for_each_concurrent(8, |items| soon(cut_after(items, &servers))).await;
    for server in &servers {
        assert_eq!(server.service().open_streams(), 0);
    }
    for server in servers {
        assert!(server.stop().await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscribers_of_two_servers_receive_the_same_bytes_while_a_writer_runs_at_full_speed() {
    let servers = two_servers().await;
    for pause in [0, 1] {
        let words = format!("stream 3000 {pause}");
        let sent = servers[0].service().send_message(&anybody(), send_at_once(&words)).await;
        let id = task(sent.unwrap()).id;
        let subscribe = async |server: &Server| {
            let request = v1::SubscribeToTaskRequest { id: id.clone(), ..Default::default() };
            server.service().subscribe_to_task(&anybody(), request, None).await
        };
        let mut streams = Vec::new();
        for server in servers.iter().chain(&servers) {
            streams.extend(subscribe(server).await.ok());
        }
        // At full speed the task may be over before anybody subscribes; paced it is not.
        assert!(pause == 0 || streams.len() == 4);
        let sequences = streams.into_iter().map(|stream| async {
            let items = soon(stream.collect::<Vec<_>>()).await;
            let item = |item: Result<a2ad::service::Streamed, _>| {
                let item = item.unwrap();
                (item.generation, item.response.encode_to_vec())
            };
            items.into_iter().map(item).collect::<Vec<_>>()
        });
        let sequences = futures_util::future::join_all(sequences).await;
        let common = sequences.iter().map(|items| items[0].0).max().unwrap_or_default();
        let from = |items: &[(i64, Vec<u8>)]| -> Vec<(i64, Vec<u8>)> {
            let rest = items.iter().skip(1).filter(|(generation, _)| *generation > common);
            rest.cloned().collect()
        };
        for items in &sequences {
            assert_eq!(from(items), from(&sequences[0]));
            let generations: Vec<_> = items.iter().map(|item| item.0).collect();
            let whole: Vec<_> = (items[0].0..=3003).collect();
            assert_eq!(generations, whole, "no gap and no repeat");
        }
    }
    for server in servers {
        assert!(server.stop().await);
    }
}
