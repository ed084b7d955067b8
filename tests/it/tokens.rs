//! Page tokens over the wire: what is refused, in which words, and what goes on working.

use std::sync::Arc;
use std::time::Duration;

use a2ad::client::Client;
use a2ad::contract::v1::{self, TaskState};
use a2ad::domain::page::KeyRing;
use a2ad::domain::{Clock, ManualClock};
use a2ad::service::Settings;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::rig::{ANN, BOB, TestServer, send_at_once, two_callers};
use crate::store::START_US;

const OLD: &str = "old:0101010101010101010101010101010101010101010101010101010101010101";
const NEW: &str = "new:0202020202020202020202020202020202020202020202020202020202020202";

fn keys(text: &str) -> KeyRing {
    KeyRing::parse(text).unwrap()
}

fn first(size: i32) -> v1::ListTasksRequest {
    v1::ListTasksRequest { page_size: Some(size), ..Default::default() }
}

async fn token_of(client: &mut Client, request: v1::ListTasksRequest) -> String {
    client.list_tasks(request).await.unwrap().into_inner().next_page_token
}

/// What a caller sees of a refusal: everything.
fn seen(status: &Status) -> (Code, String, Vec<u8>) {
    (status.code(), status.message().to_owned(), status.details().to_vec())
}

async fn refusal(client: &mut Client, request: v1::ListTasksRequest) -> Status {
    client.list_tasks(request).await.expect_err("the token is refused")
}

async fn fill(client: &mut Client, tenant: &str, n: usize) {
    for _ in 0..n {
        let request = v1::SendMessageRequest { tenant: tenant.to_owned(), ..send_at_once("auth") };
        client.send_message(request).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_token_that_was_not_made_for_this_listing_is_refused_in_the_same_bytes() {
    let with_keys = || TestServer::with(|b| b.auth(two_callers()).page_token_keys(keys(OLD)));
    let (full, empty) = (with_keys().await, with_keys().await);
    let (mut ann, mut bob) = (full.client_of(ANN).await, full.client_of(BOB).await);
    fill(&mut ann, "", 4).await;
    fill(&mut ann, "blue", 2).await;
    fill(&mut bob, "", 3).await;
    let token = token_of(&mut ann, first(2)).await;
    assert!(!token.is_empty() && token.len() <= 256);

    let asks = |token: &str| v1::ListTasksRequest { page_token: token.to_owned(), ..first(2) };
    let model = seen(&refusal(&mut ann, asks("0")).await);
    assert_eq!(model.0, Code::InvalidArgument);
    let mut refused = Vec::new();
    // Another caller, another tenant, other filters.
    refused.push(refusal(&mut bob, asks(&token)).await);
    let blue = v1::ListTasksRequest { tenant: "blue".to_owned(), ..asks(&token) };
    refused.push(refusal(&mut ann, blue).await);
    let others = [
        v1::ListTasksRequest { context_id: "c".to_owned(), ..asks(&token) },
        v1::ListTasksRequest { status: TaskState::Working as i32, ..asks(&token) },
        v1::ListTasksRequest { history_length: Some(1), ..asks(&token) },
        v1::ListTasksRequest { include_artifacts: Some(true), ..asks(&token) },
        v1::ListTasksRequest {
            status_timestamp_after: Some(a2ad::contract::wkt::Timestamp::from_micros(0)),
            ..asks(&token)
        },
    ];
    for other in others {
        refused.push(refusal(&mut ann, other).await);
    }
    // Numbers of other servers, rubbish, and every single character changed.
    let mut texts = vec!["0".to_owned(), "50".to_owned(), "x".repeat(10_000), format!("{token}A")];
    for at in 0..token.len() {
        let (before, rest) = token.split_at(at);
        let (here, after) = rest.split_at(1);
        let other = if here == "A" { "B" } else { "A" };
        texts.push(format!("{before}{other}{after}"));
    }
    for text in &texts {
        refused.push(refusal(&mut ann, asks(text)).await);
    }
    // Nothing of it depends on what the store holds, or on who asks.
    let mut nobody_yet = empty.client_of(BOB).await;
    for text in texts.iter().take(8).chain([&token]) {
        refused.push(refusal(&mut nobody_yet, asks(text)).await);
    }
    for status in &refused {
        assert_eq!(seen(status), model);
    }
    let violations = refused[0].get_details_bad_request().unwrap().field_violations;
    assert_eq!(violations[0].field, "page_token");
    let info = refused[0].get_details_error_info().unwrap();
    assert_eq!((info.reason.as_str(), &*info.metadata["pageToken"]), ("INVALID_PARAMS", "invalid"));

    // The token itself works, with another page size, and on an empty store of the same scope.
    let rest = v1::ListTasksRequest { page_size: Some(100), ..asks(&token) };
    assert_eq!(ann.list_tasks(rest).await.unwrap().into_inner().tasks.len(), 2);
    let mut ann_elsewhere = empty.client_of(ANN).await;
    let page = ann_elsewhere.list_tasks(asks(&token)).await.unwrap().into_inner();
    assert_eq!((page.tasks.len(), page.next_page_token.as_str()), (0, ""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_token_says_so_in_the_same_bytes_and_rotation_keeps_tokens_for_their_life() {
    let clock = Arc::new(ManualClock::at_us(START_US));
    let url = crate::support::postgres::fresh_url().await;
    let with_keys = |ring: &str| {
        let ring = keys(ring);
        let clock = Arc::clone(&clock) as Arc<dyn Clock>;
        // The clock stands still, so leases must not depend on it here.
        let settings = Settings { poll: Duration::from_millis(100), ..Settings::default() };
        let url = url.as_str();
        TestServer::with(move |builder| {
            builder.store(url).page_token_keys(ring).clock(clock).settings(settings)
        })
    };
    let before = with_keys(OLD).await;
    let mut on_before = before.client().await;
    fill(&mut on_before, "", 5).await;
    let token = token_of(&mut on_before, first(2)).await;
    let asks = || v1::ListTasksRequest { page_token: token.clone(), ..first(2) };

    // Another process with the same keys, and one whose ring was rotated, go on with it.
    for ring in [OLD.to_owned(), format!("{NEW},{OLD}"), format!("{OLD},{NEW}")] {
        let server = with_keys(&ring).await;
        let page = server.client().await.list_tasks(asks()).await.unwrap().into_inner();
        assert_eq!((page.tasks.len(), page.total_size), (2, 5), "{ring}");
    }
    let dropped = with_keys(NEW).await;
    let status = refusal(&mut dropped.client().await, asks()).await;
    assert_eq!(status.get_details_error_info().unwrap().metadata["pageToken"], "invalid");

    clock.advance(Duration::from_secs(600));
    assert!(on_before.list_tasks(asks()).await.is_ok(), "ten minutes are its life");
    let younger = token_of(&mut on_before, asks()).await;
    clock.advance(Duration::from_secs(1));
    let rotated = with_keys(&format!("{NEW},{OLD}")).await;
    let mut model = None;
    for server in [&before, &rotated] {
        let status = refusal(&mut server.client().await, asks()).await;
        assert_eq!(status.get_details_error_info().unwrap().metadata["pageToken"], "expired");
        let bytes = seen(&status);
        assert_eq!(*model.get_or_insert(bytes.clone()), bytes);
    }
    // Each page has a token with a life of its own.
    let rest = v1::ListTasksRequest { page_token: younger, ..first(2) };
    let page = on_before.list_tasks(rest).await.unwrap().into_inner();
    assert_eq!((page.tasks.len(), page.next_page_token.as_str()), (1, ""));
}
