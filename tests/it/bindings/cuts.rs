//! Connections that are cut in the middle of a stream: what was read and what comes after are the
//! whole, without a gap and without a repeat, also on another server.

use std::time::Duration;

use a2ad::agent::demo::Demo;
use a2ad::agent::{Agent, AgentError, AgentTurn, TurnHandle, text_part};
use a2ad::contract::CURSOR_EXTENSION;
use a2ad::contract::v1;
use a2ad::contract::v1::stream_response::Payload;
use a2ad::domain::page::KeyRing;
use a2ad::server::Server;
use async_trait::async_trait;
use serde_json::json;

use crate::bindings::caller::exactly;
use crate::bindings::events::{BOTH, Over};
use crate::bindings::{asked, message, parsed, rest};
use crate::crash::KEYS;
use crate::rig::sse::Event;
use crate::rig::{TestServer, parts};
use crate::support::postgres::empty_url;
use crate::support::torture;

/// Asks, and then tells so many pieces, each an event of its own.
struct Many(usize);

#[async_trait]
impl Agent for Many {
    fn card(&self) -> v1::AgentCard {
        Demo.card()
    }

    async fn run(&self, turn: AgentTurn, handle: &mut TurnHandle) -> Result<(), AgentError> {
        if turn.turn == 1 {
            return Ok(handle.ask("begin?").await?);
        }
        for n in 0..self.0 {
            let artifact = v1::Artifact {
                artifact_id: "pieces".to_owned(),
                parts: vec![text_part(n.to_string())],
                ..Default::default()
            };
            handle.chunk(artifact, n > 0, n + 1 == self.0).await?;
            handle.flush().await?;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(handle.complete().await?)
    }
}

/// The pieces that a response shows.
fn pieces(response: &v1::StreamResponse) -> Vec<String> {
    match response.payload.as_ref().unwrap() {
        Payload::Task(task) => task.artifacts.iter().flat_map(parts).collect(),
        Payload::ArtifactUpdate(update) => parts(update.artifact.as_ref().unwrap()),
        Payload::StatusUpdate(_) | Payload::Message(_) => Vec::new(),
    }
}

/// What somebody knows who subscribes now and reads to the end.
async fn from_now(over: Over, server: &TestServer, task: &str) -> Vec<String> {
    let mut events = over.subscribe(server.addr(), task, &[]).await;
    if events.response().headers()["content-type"] == "text/event-stream" {
        let all = events.rest().await;
        return all.iter().flat_map(|event| pieces(&over.response(event))).collect();
    }
    // It ended meanwhile, so there is no stream any more; it is all in the task.
    let read = parsed(&rest(server.addr(), "GET", &format!("/tasks/{task}"), "").await);
    exactly::<v1::Task>(read).artifacts.iter().flat_map(parts).collect()
}

/// Cuts a stream of a task with `n_pieces` after `cut` events, and goes on at another server.
async fn cut_at(over: Over, servers: &[TestServer], n_pieces: usize, cut: usize) {
    let extension = ("a2a-extensions", CURSOR_EXTENSION);
    let first = &servers[cut % servers.len()];
    let second = &servers[(cut + 1) % servers.len()];
    let task = asked(first.addr()).await;
    let mut stream = over.subscribe(first.addr(), &task, &[extension]).await;
    let mut events: Vec<Event> = vec![stream.next().await.unwrap()];
    let mut go = message("go");
    go["taskId"] = task.as_str().into();
    let go = json!({"message": go, "configuration": {"returnImmediately": true}}).to_string();
    assert_eq!(rest(second.addr(), "POST", "/message:send", &go).await.status(), 200);
    while events.len() < cut {
        events.push(stream.next().await.unwrap());
    }
    drop(stream);

    let place = events.last().unwrap().id.unwrap().to_string();
    let resumed = async {
        let headers = [extension, ("last-event-id", place.as_str())];
        over.subscribe(second.addr(), &task, &headers).await.rest().await
    };
    let (resumed, anew) = tokio::join!(resumed, from_now(over, second, &task));
    events.extend(resumed);
    let ids: Vec<_> = events.iter().map(|event| event.id.unwrap()).collect();
    assert!(ids.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{over:?} cut at {cut}: {ids:?}");
    let expected: Vec<_> = (0..n_pieces).map(|n| n.to_string()).collect();
    let told: Vec<_> = events.iter().flat_map(|event| pieces(&over.response(event))).collect();
    assert_eq!(told, expected, "{over:?} cut at {cut}, resumed");
    assert_eq!(anew, expected, "{over:?} cut at {cut}, from a new snapshot");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_cut_anywhere_is_whole_in_the_end() {
    let n_pieces = 30;
    let servers = [TestServer::of(Server::builder(Many(n_pieces))).await];
    for over in BOTH {
        for cut in [1, 2, 17, n_pieces + 1] {
            cut_at(over, &servers, n_pieces, cut).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_cut_goes_on_at_another_server() {
    let (n_pieces, cuts) = if torture() { (197, 20) } else { (20, 1) };
    let url = empty_url().await;
    let start = || {
        let keys = KeyRing::parse(KEYS).unwrap();
        TestServer::of(Server::builder(Many(n_pieces)).store(url.as_str()).page_token_keys(keys))
    };
    let servers = [start().await, start().await];
    for over in BOTH {
        for n in 0..cuts {
            cut_at(over, &servers, n_pieces, 1 + n * n_pieces / cuts + n % 3).await;
        }
    }
}
