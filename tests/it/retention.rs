//! What callers see of what has ended, while it goes.

use std::collections::BTreeMap;
use std::time::Duration;

use a2ad::contract::v1::stream_response::Payload;
use a2ad::contract::v1::{self, TaskState};
use a2ad::contract::{CURSOR_EXTENSION, RETENTION_EXTENSION};
use a2ad::domain::{Error, Principal, Scope, Tenant};
use a2ad::service::retention::Rules;
use a2ad::service::{Call, EventStream, Settings, Streamed};
use a2ad::store::{Keep, Retention};
use futures_util::StreamExt as _;

use crate::bench::{Bench, anybody, chunk, soon, state, still, texts, until};
use crate::rig::{TestServer, eventually, raw, send, send_at_once, task_of};

const AT_ONCE: Option<Duration> = Some(Duration::ZERO);

async fn purge(bench: &Bench, keep: Keep) -> u64 {
    let retention = Retention::of_all(keep);
    let logs = bench.store.purge_events_of_all(&retention, 100).await.unwrap();
    bench.store.purge_ended_of_all(&retention, 100).await.unwrap().count() + u64::from(logs)
}

fn events() -> Keep {
    Keep { tasks: None, events: AT_ONCE }
}

fn tasks() -> Keep {
    Keep { tasks: AT_ONCE, events: None }
}

async fn both(settings: Settings) -> [Bench; 2] {
    [Bench::new(settings).await, Bench::on_postgres(settings).await]
}

async fn item(stream: &mut EventStream) -> Option<Result<Streamed, Error>> {
    soon(stream.next()).await
}

fn snapshot(item: Option<Result<Streamed, Error>>) -> (i64, v1::Task) {
    let item = item.unwrap().unwrap();
    match item.response.payload {
        Some(Payload::Task(task)) => (item.generation, task),
        other => panic!("not a task: {other:?}"),
    }
}

async fn follows(bench: &Bench, id: &str, after: Option<i64>) -> Result<EventStream, Error> {
    let call = Call { extensions: vec![CURSOR_EXTENSION.to_owned()], ..anybody() };
    let request = v1::SubscribeToTaskRequest { id: id.to_owned(), ..Default::default() };
    soon(bench.service.subscribe_to_task(&call, request, after)).await
}

#[tokio::test]
async fn a_stream_whose_events_are_gone_ends_with_the_task_as_it_ended() {
    for bench in both(still()).await {
        let (task, puppet) = bench.task("x").await;
        let mut behind = follows(&bench, &task.id, None).await.unwrap();
        assert_eq!(snapshot(item(&mut behind).await).0, 1);
        puppet.status(TaskState::Working, "on it").await.unwrap();
        puppet.chunk(chunk("a", "made"), false, true).await.unwrap();
        puppet.status(TaskState::Completed, "done").await.unwrap();
        until(|| async { (purge(&bench, events()).await == 1).then_some(()) }).await;

        // One that was open, one that is resumed, and one that missed nothing.
        let mut resumed = follows(&bench, &task.id, Some(2)).await.unwrap();
        let whole = bench.get(&anybody(), &task.id).await.unwrap();
        for stream in [&mut behind, &mut resumed] {
            let (generation, told) = snapshot(item(stream).await);
            assert_eq!((generation, &told), (4, &whole));
            assert_eq!(
                (state(&told), texts(&told.artifacts[0])),
                (TaskState::Completed, vec!["made".to_owned()])
            );
            assert!(item(stream).await.is_none());
        }
        let mut knows_all = follows(&bench, &task.id, Some(4)).await.unwrap();
        assert!(item(&mut knows_all).await.is_none());
        assert_eq!(bench.service.open_streams(), 0);
        drop((behind, resumed, knows_all));
        bench.close().await;
    }
}

#[tokio::test]
async fn a_stream_of_a_task_that_is_gone_ends_as_if_it_had_never_been() {
    for bench in both(still()).await {
        let (task, puppet) = bench.task("x").await;
        let mut behind = follows(&bench, &task.id, None).await.unwrap();
        snapshot(item(&mut behind).await);
        puppet.status(TaskState::Completed, "").await.unwrap();
        until(|| async { (purge(&bench, tasks()).await == 1).then_some(()) }).await;
        let last = item(&mut behind).await;
        assert!(matches!(last, Some(Err(Error::TaskNotFound))), "{last:?}");
        assert!(item(&mut behind).await.is_none());
        let late = follows(&bench, &task.id, Some(1)).await.err();
        assert!(matches!(late, Some(Error::TaskNotFound)));
        assert!(matches!(bench.get(&anybody(), &task.id).await, Err(Error::TaskNotFound)));
        bench.close().await;
    }
}

#[tokio::test]
async fn an_erased_owner_has_no_turn_no_stream_and_no_answer_left() {
    for bench in both(still()).await {
        let waiting = bench.sends(&anybody(), bench.message("waits"));
        let first = bench.puppet().await;
        let (task, second) = bench.task("streams").await;
        let mut stream = follows(&bench, &task.id, None).await.unwrap();
        snapshot(item(&mut stream).await);
        let scope = Scope::new(Tenant::default_tenant(), Principal::anonymous());
        until(|| async { (!bench.store.erase(&scope, 1).await.unwrap().more).then_some(()) }).await;
        let last = item(&mut stream).await;
        assert!(matches!(last, Some(Err(Error::TaskNotFound))), "{last:?}");
        let answer = waiting.answer().await;
        assert!(matches!(answer, Err(Error::TaskNotFound)), "{answer:?}");
        for puppet in [first, second] {
            drop(puppet.status(TaskState::Completed, "too late").await);
            soon(puppet.stopped()).await;
        }
        assert_eq!(bench.list(&anybody()).await.total_size, 0);
        // Who comes back begins anew.
        let (task, puppet) = bench.task("again").await;
        puppet.status(TaskState::Completed, "").await.unwrap();
        until(|| async {
            let task = bench.get(&anybody(), &task.id).await.unwrap();
            (state(&task) == TaskState::Completed).then_some(())
        })
        .await;
        bench.close().await;
    }
}

fn rules(others: Keep, tenants: &[(&str, Keep)]) -> Rules {
    let named = |(name, keep): &(&str, Keep)| (Tenant::from_stored(name), *keep);
    let tenants: BTreeMap<_, _> = tenants.iter().map(named).collect();
    let every = Duration::from_millis(20);
    Rules { retention: Retention { others, tenants }, every, ..Rules::default() }
}

#[tokio::test]
async fn a_server_deletes_what_has_ended_and_nothing_that_has_not() {
    let server = TestServer::with(|server| server.retention(rules(tasks(), &[]))).await;
    let mut client = server.client().await;
    let waits = task_of(client.send_message(send_at_once("ask")).await.unwrap());
    let done = client.send_message(send_at_once("hello")).await.unwrap();
    let done = task_of(done);
    let get = |id: &str| v1::GetTaskRequest { id: id.to_owned(), ..Default::default() };
    let mut asks = client.clone();
    eventually("the task is gone", async || client.get_task(get(&done.id)).await.is_err()).await;
    let gone = asks.get_task(get(&done.id)).await.unwrap_err();
    let absent = a2ad::domain::TaskId::generate().to_string();
    let never = asks.get_task(get(&absent)).await.unwrap_err();
    assert_eq!((gone.code(), gone.message()), (never.code(), never.message()));
    assert_eq!(gone.details(), never.details(), "byte for byte");
    assert!(asks.get_task(get(&waits.id)).await.is_ok());
    let listed = asks.list_tasks(v1::ListTasksRequest::default()).await.unwrap().into_inner();
    assert_eq!((listed.tasks.len(), listed.total_size), (1, 1));
}

async fn told(rules: Rules) -> serde_json::Value {
    let server = TestServer::with(|server| server.retention(rules)).await;
    let card = raw::get(server.addr(), "/.well-known/agent-card.json", &[]).await;
    let card: serde_json::Value = serde_json::from_slice(card.body()).unwrap();
    let extensions = card["capabilities"]["extensions"].as_array().unwrap().clone();
    let ours = extensions.into_iter().find(|one| one["uri"] == RETENTION_EXTENSION);
    ours.map_or(serde_json::Value::Null, |one| one["params"].clone())
}

#[tokio::test]
async fn the_card_tells_how_long_what_has_ended_is_kept() {
    let seconds = |n| Some(Duration::from_secs(n));
    assert!(told(rules(Keep::default(), &[])).await.is_null(), "nothing ever goes");
    let both = Keep { tasks: seconds(86_400), events: seconds(60) };
    let expected = serde_json::json!({"taskSeconds": 86_400, "eventSeconds": 60});
    assert_eq!(told(rules(both, &[])).await, expected);
    let only_tasks = Keep { tasks: seconds(90), events: None };
    let expected = serde_json::json!({"taskSeconds": 90, "eventSeconds": 90});
    assert_eq!(told(rules(only_tasks, &[])).await, expected, "events go with their task");
    let late_events = Keep { tasks: seconds(90), events: seconds(100) };
    assert_eq!(told(rules(late_events, &[])).await, expected);
    // Names of tenants are nobody's business but theirs.
    let expected = serde_json::json!({"otherTenantsDiffer": true});
    assert_eq!(told(rules(Keep::default(), &[("blue", only_tasks)])).await, expected);
}

#[tokio::test]
async fn a_repeat_of_a_message_whose_task_is_gone_is_told_so_and_does_nothing() {
    let settings = Settings { dedupe: a2ad::service::Dedupe::On, ..still() };
    for bench in both(settings).await {
        let message = bench.message("once");
        let sent = bench.sends(&anybody(), message.clone());
        bench.puppet().await.status(TaskState::Completed, "").await.unwrap();
        soon(sent.task()).await;
        until(|| async { (purge(&bench, tasks()).await == 1).then_some(()) }).await;
        let again = bench.sends(&anybody(), message).answer().await;
        assert!(matches!(again, Err(Error::TaskNotFound)), "{again:?}");
        assert!(bench.idle().await, "the work is done once");
        bench.close().await;
    }
}

#[tokio::test]
async fn a_server_that_is_told_nothing_keeps_everything() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let done = task_of(client.send_message(send("hello")).await.unwrap());
    assert!(Rules::default().retention.is_off());
    let get = v1::GetTaskRequest { id: done.id, ..Default::default() };
    assert!(client.get_task(get).await.is_ok());
}
