//! Clients that ask and do not read: what they cost is bounded, and others are served meanwhile.

use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use a2ad::client::{Client, Connect};
use a2ad::contract::v1;
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::rig::raw::frame;
use crate::rig::{send, task_of};
use crate::support::program::Program;

const MIB: u64 = 1 << 20;

/// What all answers may have, and those of one connection.
const LIMITS: &str = "[limits]\nunsent_bytes = 33554432\nunsent_bytes_per_connection = 16777216\n";

fn get(task: &str) -> v1::GetTaskRequest {
    v1::GetTaskRequest { id: task.to_owned(), ..Default::default() }
}

/// A call of a task, over gRPC or HTTP+JSON.
fn call_of(server: SocketAddr, task: &str, grpc: bool) -> Request<Full<Bytes>> {
    let request = if grpc {
        Request::post(format!("http://{server}/lf.a2a.v1.A2AService/GetTask"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
    } else {
        Request::get(format!("http://{server}/tasks/{task}"))
    };
    let body = if grpc { frame(&get(task)) } else { Bytes::new() };
    request.header("a2a-version", "1.0").body(Full::new(body)).unwrap()
}

/// How a client asks and does not read.
#[derive(Clone, Copy)]
struct Manner {
    grpc: bool,
    /// How many bytes it invites, per call and in all.
    window: u32,
    /// Whether it reads its socket, without asking for the bodies.
    reads: bool,
}

/// Asks for `task` a hundred times on one connection and reads no answer.
fn ask(server: SocketAddr, task: &str, manner: Manner) -> JoinHandle<()> {
    let Manner { grpc, window, reads } = manner;
    let call = call_of(server, task, grpc);
    tokio::spawn(async move {
        let stream = TcpStream::connect(server).await.unwrap();
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(window)
            .initial_connection_window_size(window)
            .handshake::<_, Full<Bytes>>(TokioIo::new(stream))
            .await
            .unwrap();
        let mut connection = std::pin::pin!(connection);
        let asked: Vec<_> = (0..100).map(|_| sender.clone().send_request(call.clone())).collect();
        let mut answers = std::pin::pin!(futures_util::future::join_all(asked));
        // Long enough for all to have been sent.
        let asking = async {
            tokio::select! {
                _ = connection.as_mut() => {}
                _ = answers.as_mut() => {}
            }
        };
        let _ = tokio::time::timeout(Duration::from_millis(500), asking).await;
        if reads {
            // Headers, pings and windows go on; bodies are not asked for.
            drop(connection.await);
        }
        std::future::pending::<()>().await;
    })
}

async fn large_task(client: &mut Client) -> String {
    let text = "x".repeat(2_900_000);
    task_of(client.send_message(send(&text)).await.unwrap()).id
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_nobody_reads_are_bounded_and_others_are_served() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a2ad.toml"), LIMITS).unwrap();
    let program = Program::serve(folder.path(), &["--config", "a2ad.toml"]);
    let server = program.address();
    let connect = || Connect::to(program.url()).connect();
    let mut client = connect().await.unwrap().max_decoding_message_size(64 << 20);
    let large = large_task(&mut client).await;
    let small = task_of(client.send_message(send("hello")).await.unwrap()).id;
    let bytes = client.get_task(get(&large)).await.unwrap().into_inner();
    assert!(prost::Message::encoded_len(&bytes) > 5 << 20);
    let before = program.resident_bytes();

    // 300 answers of 6 MB. Some clients leave no room for a byte, others invite all at once and
    // read nothing from their sockets.
    let asking: Vec<_> =
        [(true, 65_535, true), (false, 65_535, true), (true, (1 << 31) - 1, false)]
            .map(|(grpc, window, reads)| ask(server, &large, Manner { grpc, window, reads }))
            .into();
    let mut most = 0;
    let until = Instant::now() + Duration::from_secs(6);
    let mut slowest = Duration::ZERO;
    while Instant::now() < until {
        most = most.max(program.resident_bytes());
        let asked = Instant::now();
        client.get_task(get(&small)).await.unwrap();
        slowest = slowest.max(asked.elapsed());
        client.list_tasks(v1::ListTasksRequest::default()).await.unwrap();
    }
    println!(
        "{} MiB before, at most {} MiB; the slowest small answer took {slowest:?}",
        before / MIB,
        most / MIB
    );
    assert!(slowest < Duration::from_secs(20), "small answers wait for none of these: {slowest:?}");
    let grown = most.saturating_sub(before) / MIB;
    assert!(grown < 160, "{grown} MiB for 32 MiB of answers and what is being loaded");

    // A large answer finds room: who holds it and takes nothing is cut.
    let mut other = connect().await.unwrap().max_decoding_message_size(64 << 20);
    let mut answer = other.get_task(get(&large)).await;
    let until = Instant::now() + Duration::from_secs(60);
    while answer.is_err() && Instant::now() < until {
        answer = other.get_task(get(&large)).await;
    }
    answer.unwrap();
    assert!(program.output().contains("does not read its answers is cut"), "{}", program.output());
    asking.into_iter().for_each(|asking| asking.abort());
}

#[tokio::test(flavor = "multi_thread")]
async fn many_large_answers_reach_whoever_reads_them() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a2ad.toml"), LIMITS).unwrap();
    let program = Program::serve(folder.path(), &["--config", "a2ad.toml"]);
    let mut client = Client::connect(&program.url()).await.unwrap();
    let large = large_task(&mut client).await;
    let calls = (0..12).map(|_| {
        let mut client = client.clone().max_decoding_message_size(64 << 20);
        let request = get(&large);
        async move { client.get_task(request).await.map(|task| task.into_inner().id) }
    });
    for answer in futures_util::future::join_all(calls).await {
        assert_eq!(answer.unwrap(), large, "more than fit at a time, and all come");
    }
}
