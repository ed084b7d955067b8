//! Reading tasks: one by one, and page by page.

use std::time::Duration;

use a2ad::contract::v1::{self, TaskState};
use a2ad::contract::wkt::Timestamp;
use a2ad::domain::Error;
use a2ad::service::{Call, Settings};
use prost::Message as _;

use crate::bench::{Bench, anybody, chunk, named, soon, state, still, task, text, texts};

const MIB: usize = 1 << 20;

fn ids(tasks: &[v1::Task]) -> Vec<String> {
    tasks.iter().map(|task| task.id.clone()).collect()
}

async fn page(
    bench: &Bench,
    call: &Call,
    request: v1::ListTasksRequest,
) -> Result<v1::ListTasksResponse, Error> {
    soon(bench.service.list_tasks(call, request)).await
}

/// Walks to the end of a listing, and holds each page to what every page must be.
async fn walk(bench: &Bench, call: &Call, request: v1::ListTasksRequest) -> Vec<v1::Task> {
    let mut tasks = Vec::new();
    let mut token = String::new();
    let mut total = None;
    loop {
        let request = v1::ListTasksRequest { page_token: token.clone(), ..request.clone() };
        let page = page(bench, call, request).await.unwrap();
        assert!(page.encoded_len() < 4 * MIB);
        assert_eq!(*total.get_or_insert(page.total_size), page.total_size);
        tasks.extend(page.tasks);
        if page.next_page_token.is_empty() {
            return tasks;
        }
        token = page.next_page_token;
    }
}

async fn get(bench: &Bench, id: &str, history_length: Option<i32>) -> Result<v1::Task, Error> {
    let request = v1::GetTaskRequest { id: id.to_owned(), history_length, ..Default::default() };
    soon(bench.service.get_task(&anybody(), request)).await
}

/// A completed task in a context.
async fn done(bench: &Bench, call: &Call, context: &str) -> v1::Task {
    let message = v1::Message { context_id: context.to_owned(), ..bench.message("x") };
    let sent = bench.sends(call, message);
    let puppet = bench.puppet().await;
    puppet.status(TaskState::Completed, "done").await.unwrap();
    puppet.returns(Ok(())).await;
    sent.task().await
}

fn at_us(task: &v1::Task) -> i64 {
    task.status.as_ref().unwrap().timestamp.unwrap().to_micros().unwrap()
}

#[tokio::test]
async fn every_page_size_walks_over_the_same_tasks_newest_first() {
    let bench = Bench::new(still()).await;
    let call = anybody();
    for _ in 0..23 {
        done(&bench, &call, "c").await;
    }
    let all = page(&bench, &call, v1::ListTasksRequest::default()).await.unwrap();
    assert_eq!((all.page_size, all.total_size, all.next_page_token.as_str()), (50, 23, ""));
    let keys: Vec<_> = all.tasks.iter().map(|task| (at_us(task), task.id.clone())).collect();
    assert!(keys.is_sorted_by(|a, b| a > b), "by status time, then by id, both descending");
    for size in [1, 7, 23, 100] {
        let request = v1::ListTasksRequest { page_size: Some(size), ..Default::default() };
        assert_eq!(walk(&bench, &call, request).await, all.tasks, "page size {size}");
    }
    let request = v1::ListTasksRequest { page_size: Some(23), ..Default::default() };
    let full = page(&bench, &call, request).await.unwrap();
    assert_eq!(full.next_page_token, "", "a walk never ends with an empty page");
}

#[tokio::test]
async fn filters_choose_and_totals_count_what_they_choose() {
    let bench = Bench::new(still()).await;
    let call = anybody();
    let a = done(&bench, &call, "a").await;
    bench.clock.advance(Duration::from_secs(1));
    let b = done(&bench, &call, "b").await;
    let (running, puppet) = bench.task("still at it").await;
    puppet.status(TaskState::Working, "").await.unwrap();
    let since = |us: i64| Some(Timestamp::from_micros(us));
    let any = v1::ListTasksRequest::default();
    let completed = TaskState::Completed as i32;
    for (request, expected) in [
        (any.clone(), vec![&running.id, &b.id, &a.id]),
        (v1::ListTasksRequest { context_id: "a".to_owned(), ..any.clone() }, vec![&a.id]),
        (v1::ListTasksRequest { context_id: "none".to_owned(), ..any.clone() }, vec![]),
        (v1::ListTasksRequest { status: completed, ..any.clone() }, vec![&b.id, &a.id]),
        (
            v1::ListTasksRequest { status: completed, context_id: "b".to_owned(), ..any.clone() },
            vec![&b.id],
        ),
        // At or after, at the precision of milliseconds (AMB-02).
        (
            v1::ListTasksRequest { status_timestamp_after: since(at_us(&b)), ..any.clone() },
            vec![&running.id, &b.id],
        ),
        (
            v1::ListTasksRequest { status_timestamp_after: since(at_us(&b) + 999), ..any.clone() },
            vec![&running.id, &b.id],
        ),
    ] {
        let page = page(&bench, &call, request.clone()).await.unwrap();
        assert_eq!(ids(&page.tasks).iter().collect::<Vec<_>>(), expected, "{request:?}");
        assert_eq!(usize::try_from(page.total_size).unwrap(), expected.len(), "{request:?}");
    }
}

#[tokio::test]
async fn a_token_carries_the_total_and_works_for_its_own_listing_alone() {
    let bench = Bench::new(still()).await;
    let ada = named("ada");
    for _ in 0..3 {
        done(&bench, &ada, "c").await;
    }
    let first = v1::ListTasksRequest { page_size: Some(1), ..Default::default() };
    let token = page(&bench, &ada, first.clone()).await.unwrap().next_page_token;
    done(&bench, &ada, "c").await;
    let next = v1::ListTasksRequest { page_token: token.clone(), ..first.clone() };
    assert_eq!(page(&bench, &ada, next.clone()).await.unwrap().total_size, 3);
    let larger = v1::ListTasksRequest { page_size: Some(100), ..next.clone() };
    assert_eq!(page(&bench, &ada, larger).await.unwrap().tasks.len(), 2);
    // Defaults that are spelt out are the same listing.
    let spelt = v1::ListTasksRequest {
        history_length: Some(0),
        include_artifacts: Some(false),
        ..next.clone()
    };
    assert!(page(&bench, &ada, spelt).await.is_ok());

    let change = |(n, c)| {
        if n == 10 && c == 'A' {
            'B'
        } else if n == 10 {
            'A'
        } else {
            c
        }
    };
    let changed = token.chars().enumerate().map(change).collect();
    for (call, request) in [
        (named("bob"), next.clone()),
        (ada.clone(), v1::ListTasksRequest { tenant: "t".to_owned(), ..next.clone() }),
        (ada.clone(), v1::ListTasksRequest { context_id: "c".to_owned(), ..next.clone() }),
        (ada.clone(), v1::ListTasksRequest { status: 3, ..next.clone() }),
        (ada.clone(), v1::ListTasksRequest { history_length: Some(1), ..next.clone() }),
        (ada.clone(), v1::ListTasksRequest { include_artifacts: Some(true), ..next.clone() }),
        (ada.clone(), v1::ListTasksRequest { page_token: changed, ..next.clone() }),
        (ada.clone(), v1::ListTasksRequest { page_token: "50".to_owned(), ..next.clone() }),
    ] {
        let refused = page(&bench, &call, request).await;
        assert!(matches!(refused, Err(Error::PageTokenInvalid)), "{refused:?}");
    }
    bench.clock.advance(Duration::from_secs(601));
    assert!(matches!(page(&bench, &ada, next).await, Err(Error::PageTokenExpired)));
}

#[tokio::test]
async fn all_that_is_wrong_with_a_listing_is_told_together() {
    let bench = Bench::new(still()).await;
    let request = v1::ListTasksRequest {
        context_id: "x".repeat(257),
        status: 77,
        page_size: Some(101),
        history_length: Some(-1),
        status_timestamp_after: Some(Timestamp { seconds: i64::MAX, nanos: 0 }),
        page_token: "50".to_owned(),
        ..Default::default()
    };
    let refused = page(&bench, &anybody(), request).await;
    let Err(Error::Invalid(violations)) = refused else { panic!("{refused:?}") };
    let mut fields: Vec<_> = violations.iter().map(|v| v.field.as_str()).collect();
    fields.sort_unstable();
    let expected =
        ["context_id", "history_length", "page_size", "status", "status_timestamp_after"];
    assert_eq!(fields, expected);
    for size in [-1, 101, i32::MAX] {
        let request = v1::ListTasksRequest { page_size: Some(size), ..Default::default() };
        assert!(matches!(page(&bench, &anybody(), request).await, Err(Error::Invalid(_))));
    }
    let zero = v1::ListTasksRequest { page_size: Some(0), ..Default::default() };
    assert_eq!(page(&bench, &anybody(), zero).await.unwrap().page_size, 50);
}

#[tokio::test]
async fn a_listing_has_history_and_artifacts_only_when_asked() {
    let bench = Bench::new(still()).await;
    let (_, puppet) = bench.task("hello").await;
    puppet.status(TaskState::Working, "on it").await.unwrap();
    puppet.chunk(chunk("a", "1"), false, true).await.unwrap();
    puppet.status(TaskState::Completed, "done").await.unwrap();
    let lean = page(&bench, &anybody(), v1::ListTasksRequest::default()).await.unwrap();
    assert!(lean.tasks[0].history.is_empty() && lean.tasks[0].artifacts.is_empty());
    let request = v1::ListTasksRequest {
        history_length: Some(1),
        include_artifacts: Some(true),
        ..Default::default()
    };
    let rich = page(&bench, &anybody(), request).await.unwrap();
    assert_eq!(rich.tasks[0].history.iter().map(text).collect::<Vec<_>>(), ["on it"]);
    assert_eq!(texts(&rich.tasks[0].artifacts[0]), ["1"]);
}

#[tokio::test]
async fn history_is_cut_to_the_newest_messages_oldest_first() {
    let bench = Bench::new(Settings { history_default: 3, ..still() }).await;
    let (made, puppet) = bench.task("hello").await;
    for n in 0..5 {
        puppet.status(TaskState::Working, &n.to_string()).await.unwrap();
    }
    puppet.status(TaskState::Completed, "done").await.unwrap();
    for (asked, expected) in [
        (Some(0), vec![]),
        (Some(2), vec!["3", "4"]),
        (None, vec!["2", "3", "4"]),
        (Some(100), vec!["hello", "0", "1", "2", "3", "4"]),
        (Some(i32::MAX), vec!["hello", "0", "1", "2", "3", "4"]),
    ] {
        let read = get(&bench, &made.id, asked).await.unwrap();
        assert_eq!(read.history.iter().map(text).collect::<Vec<_>>(), expected, "{asked:?}");
        for message in &read.history {
            assert_eq!((&message.task_id, &message.context_id), (&made.id, &made.context_id));
        }
    }
    let refused = get(&bench, &made.id, Some(-1)).await;
    assert!(matches!(refused, Err(Error::Invalid(v)) if v[0].field == "history_length"));
}

#[tokio::test]
async fn a_page_stays_small_by_history_first_and_then_by_tasks() {
    let bench = Bench::new(still()).await;
    for n in 0..4 {
        let (made, puppet) = bench.task(&"h".repeat(2 * MIB)).await;
        puppet.chunk(chunk("a", &n.to_string().repeat(MIB)), false, true).await.unwrap();
        puppet.status(TaskState::Completed, "").await.unwrap();
        puppet.returns(Ok(())).await;
        assert_eq!(state(&made), TaskState::Submitted);
    }
    let any = v1::ListTasksRequest::default();
    let lean = walk(&bench, &anybody(), any.clone()).await;
    assert_eq!(lean.len(), 4);
    let with_history = v1::ListTasksRequest { history_length: Some(5), ..any.clone() };
    assert_eq!(ids(&walk(&bench, &anybody(), with_history).await), ids(&lean));
    let all = v1::ListTasksRequest {
        history_length: Some(5),
        include_artifacts: Some(true),
        ..any.clone()
    };
    let walked = walk(&bench, &anybody(), all).await;
    assert_eq!(ids(&walked), ids(&lean));
    assert!(walked.iter().all(|task| task.artifacts[0].encoded_len() > MIB), "never cut");

    let (large, puppet) = bench.task("x").await;
    for n in 0..3 {
        let part = chunk("a", &"p".repeat(2 * MIB));
        puppet.chunk(part, n > 0, n == 2).await.unwrap();
    }
    puppet.status(TaskState::Completed, "").await.unwrap();
    let with_artifacts = v1::ListTasksRequest { include_artifacts: Some(true), ..any };
    let refused = page(&bench, &anybody(), with_artifacts).await.unwrap_err();
    let Error::Unsupported(text) = refused else { panic!("{refused:?}") };
    assert!(text.contains(&large.id) && text.contains("include_artifacts"), "{text}");
    assert_eq!(get(&bench, &large.id, None).await.unwrap().artifacts[0].parts.len(), 3);
}

#[tokio::test]
async fn a_task_that_no_answer_can_hold_is_named_with_its_size() {
    let mut settings = still();
    settings.limits.task_bytes = 10_000;
    let bench = Bench::new(settings).await;
    let (made, puppet) = bench.task(&"h".repeat(8_000)).await;
    puppet.chunk(chunk("a", &"a".repeat(5_000)), false, false).await.unwrap();
    let read = get(&bench, &made.id, None).await.unwrap();
    assert!(read.history.is_empty(), "history is cut first");
    puppet.chunk(chunk("a", &"a".repeat(5_000)), true, true).await.unwrap();
    puppet.status(TaskState::Completed, "").await.unwrap();
    let refused = get(&bench, &made.id, Some(0)).await.unwrap_err();
    let Error::Unsupported(text) = refused else { panic!("{refused:?}") };
    assert!(text.contains(&made.id) && text.contains("10000"), "{text}");
}

#[tokio::test]
async fn every_caller_and_every_tenant_has_a_listing_of_its_own() {
    let bench = Bench::new(still()).await;
    let (ada, bob) = (named("ada"), named("bob"));
    let of_ada = task(bench.posts(&ada, bench.message("x")).await.unwrap());
    let of_bob = task(bench.posts(&bob, bench.message("x")).await.unwrap());
    let request = v1::SendMessageRequest {
        tenant: "acme".to_owned(),
        message: Some(bench.message("x")),
        configuration: Some(v1::SendMessageConfiguration {
            return_immediately: true,
            ..Default::default()
        }),
        ..Default::default()
    };
    let elsewhere = bench.requests(&ada, request).task().await;
    let acme = v1::ListTasksRequest { tenant: "acme".to_owned(), ..Default::default() };
    for (call, request, expected) in [
        (&ada, v1::ListTasksRequest::default(), vec![of_ada.id.clone()]),
        (&bob, v1::ListTasksRequest::default(), vec![of_bob.id.clone()]),
        (&ada, acme.clone(), vec![elsewhere.id.clone()]),
        (&bob, acme, vec![]),
        (&named("eve"), v1::ListTasksRequest::default(), vec![]),
    ] {
        let page = page(&bench, call, request).await.unwrap();
        assert_eq!(ids(&page.tasks), expected);
        assert_eq!(usize::try_from(page.total_size).unwrap(), expected.len());
    }
    // The task of one tenant is not there in another.
    assert!(matches!(bench.get(&ada, &elsewhere.id).await, Err(Error::TaskNotFound)));
}
