//! What a server counts, read from its admin listener, and the document that names it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use a2ad::agent::demo::Demo;
use a2ad::config::file::File;
use a2ad::contract::v1;
use a2ad::domain::page::KeyRing;
use a2ad::server::Server;
use a2ad::store::Store;
use serde_json::json;

use crate::bindings::JSON;
use crate::bindings::caller::Caller;
use crate::rig::flaky::Flaky;
use crate::rig::{ANN, TestServer, any_port, eventually, raw, send, task_of, to_task, two_callers};
use crate::support::postgres::{fresh_url, open};

const DOCUMENT: &str = include_str!("../../docs/operations.md");

/// The numbers by name and labels.
async fn numbers(admin: SocketAddr) -> BTreeMap<String, f64> {
    let answer = raw::get(admin, "/metrics", &[]).await;
    assert_eq!(answer.status(), 200);
    let kind = answer.headers()["content-type"].to_str().unwrap();
    assert!(kind.starts_with("application/openmetrics-text"), "{kind}");
    let text = std::str::from_utf8(answer.body()).unwrap();
    assert!(text.ends_with("# EOF\n"), "{text}");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        })
        .collect()
}

/// The names of numbers, as the document has them.
fn names(numbers: &BTreeMap<String, f64>) -> BTreeSet<String> {
    let bare = |name: &String| {
        let name = name.split('{').next().unwrap();
        let parts = ["_bucket", "_sum", "_count"];
        let part = parts.iter().find_map(|part| name.strip_suffix(part));
        part.unwrap_or(name).to_owned()
    };
    numbers.keys().map(bare).collect()
}

pub(crate) fn documented() -> BTreeSet<String> {
    let rows = DOCUMENT.lines().filter_map(|line| line.strip_prefix("| `a2ad_"));
    rows.map(|row| format!("a2ad_{}", row.split('`').next().unwrap())).collect()
}

const LIMITS: &str = "[limits.rates]\ncancel = { calls = 1, per = '1h', burst = 1 }";

/// A server over a store, with its numbers at a port of its own.
async fn server(store: Arc<dyn Store>) -> (TestServer, SocketAddr) {
    let limits = File::parse(LIMITS).unwrap().limits;
    let keys = KeyRing::parse(crate::crash::KEYS).unwrap();
    let builder = Server::builder(Demo).open_store(store).page_token_keys(keys);
    let builder = builder.auth(two_callers()).limits(limits).admin(Some(any_port()));
    let server = TestServer::of(builder).await;
    let admin = server.server().admin_address().unwrap();
    (server, admin)
}

/// Calls of every kind, good and bad. Returns how many items a stream had.
async fn something_happens(server: &TestServer) -> u32 {
    let addr = server.addr();
    let mut callers = Caller::all(addr, Some(ANN)).await;
    for caller in &mut callers {
        caller.ask(send("hello")).await.unwrap();
        caller
            .ask(v1::GetTaskRequest { id: "absent".to_owned(), ..Default::default() })
            .await
            .unwrap_err();
    }
    let mut ann = server.client_of(ANN).await;
    let asked = task_of(ann.send_message(send("ask which?")).await.unwrap());
    ann.send_message(to_task(send("red"), &asked.id)).await.unwrap();
    let twice = send("the same");
    for _ in 0..2 {
        ann.send_message(twice.clone()).await.unwrap();
    }
    let page = |token: &str| v1::ListTasksRequest {
        page_size: Some(3),
        page_token: token.to_owned(),
        ..Default::default()
    };
    let first = ann.list_tasks(page("")).await.unwrap().into_inner();
    let second = ann.list_tasks(page(&first.next_page_token)).await.unwrap().into_inner();
    assert_eq!(
        (first.tasks.len(), second.tasks.len(), second.next_page_token.as_str()),
        (3, 2, "")
    );
    ann.list_tasks(page("nonsense")).await.unwrap_err();
    let mut stream = ann.send_streaming_message(send("hello")).await.unwrap().into_inner();
    let mut items = 0;
    while stream.message().await.unwrap().is_some() {
        items += 1;
    }
    for _ in 0..2 {
        ann.cancel_task(v1::CancelTaskRequest { id: asked.id.clone(), ..Default::default() })
            .await
            .unwrap_err();
    }
    server.client().await.list_tasks(page("")).await.unwrap_err();
    items
}

#[tokio::test]
async fn every_number_is_in_the_document_and_moves_when_something_happens() {
    let postgres: Arc<dyn Store> = Arc::new(open(&fresh_url().await, None).await);
    let (of_postgres, its_admin) = server(postgres).await;
    let flaky = Flaky::open().await;
    let (server, admin) = server(Arc::clone(&flaky) as Arc<dyn Store>).await;

    let items = something_happens(&server).await;

    let found = numbers(admin).await;
    let number = |name: &str| found.get(name).copied().unwrap_or_default();
    for (name, value) in [
        (r#"a2ad_requests_total{binding="grpc",operation="SendMessage",code="OK"}"#, 5.0),
        (r#"a2ad_requests_total{binding="jsonrpc",operation="SendMessage",code="OK"}"#, 1.0),
        (r#"a2ad_requests_total{binding="http",operation="SendMessage",code="OK"}"#, 1.0),
        (r#"a2ad_requests_total{binding="grpc",operation="GetTask",code="NOT_FOUND"}"#, 1.0),
        (r#"a2ad_requests_total{binding="jsonrpc",operation="GetTask",code="NOT_FOUND"}"#, 1.0),
        (r#"a2ad_requests_total{binding="http",operation="GetTask",code="NOT_FOUND"}"#, 1.0),
        (
            r#"a2ad_requests_total{binding="grpc",operation="CancelTask",code="RESOURCE_EXHAUSTED"}"#,
            1.0,
        ),
        (
            r#"a2ad_requests_total{binding="grpc",operation="ListTasks",code="UNAUTHENTICATED"}"#,
            1.0,
        ),
        (r#"a2ad_request_duration_seconds_count{binding="grpc",operation="SendMessage"}"#, 5.0),
        (r#"a2ad_unauthenticated_total{mode="none",reason="missing"}"#, 1.0),
        (r#"a2ad_limited_total{limit="rate"}"#, 1.0),
        (r#"a2ad_messages_total{became="task"}"#, 6.0),
        (r#"a2ad_messages_total{became="follow_up"}"#, 1.0),
        (r#"a2ad_messages_total{became="repeat"}"#, 1.0),
        (r#"a2ad_list_walks_begun_total{caller="key",kind="whole"}"#, 1.0),
        (r#"a2ad_list_walks_finished_total{caller="key",kind="whole"}"#, 1.0),
        (r#"a2ad_list_pages_total{caller="key",kind="whole"}"#, 2.0),
        (r#"a2ad_list_rows_total{caller="key",kind="whole"}"#, 5.0),
        (r#"a2ad_page_token_errors_total{caller="key",kind="invalid"}"#, 1.0),
        ("a2ad_stream_events_total", f64::from(items)),
        (r#"a2ad_streams_ended_total{how="done"}"#, 1.0),
        ("a2ad_open_streams", 0.0),
        (r#"a2ad_statuses_total{state="TASK_STATE_INPUT_REQUIRED"}"#, 1.0),
    ] {
        assert_eq!(number(name), value, "{name} of {found:#?}");
    }
    assert!(number("a2ad_process_resident_memory_bytes") > 1e6);

    // The store's own loops fail while it is out of reach, and find work that waits.
    flaky.set_down(true);
    eventually("a loop has failed", async || {
        names(&numbers(admin).await).contains("a2ad_upkeep_failures_total")
    })
    .await;
    flaky.set_down(false);
    // What a listing's numbers are of is folded.
    eventually("a loop has worked", async || {
        names(&numbers(admin).await).contains("a2ad_upkeep_rows_total")
    })
    .await;
    let mut seen = names(&numbers(admin).await);
    seen.extend(names(&numbers(its_admin).await));
    assert_eq!(seen, documented(), "docs/operations.md against /metrics");
    drop(of_postgres);
}

#[tokio::test]
async fn nothing_that_a_caller_makes_up_becomes_a_label() {
    let (server, admin) = server(Flaky::open().await).await;
    let addr = server.addr();
    let bearer = format!("Bearer {ANN}");
    let headers = [JSON, ("a2a-version", "1.0"), ("authorization", bearer.as_str())];
    for n in 0..20 {
        let made_up = format!("MadeUp{n}");
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": made_up}).to_string();
        raw::http(addr, "POST", "/", &headers, body).await;
        raw::http(addr, "GET", &format!("/{made_up}/tasks"), &headers, "").await;
        raw::http(addr, "GET", &format!("/{made_up}"), &headers, "").await;
        raw::grpc(addr, &format!("/lf.a2a.v1.A2AService/{made_up}"), &[], bytes::Bytes::new())
            .await;
    }
    let found = numbers(admin).await;
    assert!(found.keys().all(|name| !name.contains("MadeUp")), "{found:#?}");
    let requests = found.keys().filter(|name| name.starts_with("a2ad_requests_total")).count();
    assert!(requests <= 6, "{found:#?}");
}
