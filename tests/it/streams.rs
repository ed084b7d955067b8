//! Streams: what they begin with, what comes after, and when they end.

use std::sync::Arc;
use std::time::Duration;

use a2ad::agent::demo::Demo;
use a2ad::contract::CURSOR_EXTENSION;
use a2ad::contract::v1::stream_response::Payload;
use a2ad::contract::v1::{self, TaskState};
use a2ad::domain::Error;
use a2ad::service::{Call, EventStream, Settings, Streamed};
use a2ad::store::Store;
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::time::timeout;

use crate::bench::{
    A_WHILE, Bench, Puppet, anybody, chunk, named, soon, state, still, text, texts, until,
};
use crate::rig::flaky::Flaky;

/// A stream in a test's hands.
struct Watcher(EventStream);

impl Watcher {
    async fn item(&mut self) -> Streamed {
        soon(self.0.next()).await.expect("the stream goes on").expect("the stream is well")
    }

    async fn task(&mut self) -> v1::Task {
        match self.item().await.response.payload {
            Some(Payload::Task(task)) => task,
            other => panic!("not a task: {other:?}"),
        }
    }

    /// The next update in short: a state and what it says, or an artifact's text.
    async fn update(&mut self) -> String {
        short(&self.item().await)
    }

    async fn ends(&mut self) {
        let end = soon(self.0.next()).await;
        assert!(end.is_none(), "{end:?}");
    }

    async fn fails(&mut self) -> Error {
        let error = soon(self.0.next()).await.expect("an error").expect_err("an error");
        self.ends().await;
        error
    }

    async fn waits(&mut self) -> bool {
        timeout(A_WHILE, self.0.next()).await.is_err()
    }

    async fn rest(self) -> Vec<Streamed> {
        soon(self.0.map(Result::unwrap).collect()).await
    }
}

fn short(item: &Streamed) -> String {
    match item.response.payload.as_ref().unwrap() {
        Payload::Task(task) => format!("task {}", state(task).as_str_name()),
        Payload::Message(message) => format!("message {}", text(message)),
        Payload::StatusUpdate(update) => {
            assert!(!update.task_id.is_empty() && !update.context_id.is_empty(), "EVT-07");
            let status = update.status.as_ref().unwrap();
            let said = status.message.as_ref().map(text).unwrap_or_default();
            let state = status.state().as_str_name().trim_start_matches("TASK_STATE_");
            if said.is_empty() { state.to_owned() } else { format!("{state} {said}") }
        }
        Payload::ArtifactUpdate(update) => {
            assert!(!update.task_id.is_empty() && !update.context_id.is_empty(), "EVT-07");
            texts(update.artifact.as_ref().unwrap()).concat()
        }
    }
}

fn request(message: v1::Message) -> v1::SendMessageRequest {
    v1::SendMessageRequest { message: Some(message), ..Default::default() }
}

async fn streams(bench: &Bench, call: &Call, message: v1::Message) -> Result<Watcher, Error> {
    soon(bench.service.send_streaming_message(call, request(message))).await.map(Watcher)
}

async fn subscribes(bench: &Bench, call: &Call, id: &str) -> Result<Watcher, Error> {
    resumes(bench, call, id, None).await
}

async fn resumes(
    bench: &Bench,
    call: &Call,
    id: &str,
    after: Option<i64>,
) -> Result<Watcher, Error> {
    let request = v1::SubscribeToTaskRequest { id: id.to_owned(), ..Default::default() };
    soon(bench.service.subscribe_to_task(call, request, after)).await.map(Watcher)
}

/// Sends in the background: the first item may need something to happen first.
fn begins(
    bench: &Bench,
    call: &Call,
    message: v1::Message,
) -> tokio::task::JoinHandle<Result<Watcher, Error>> {
    let (bench, call) = (bench.clone(), call.clone());
    tokio::spawn(async move { streams(&bench, &call, message).await })
}

fn to(task: &str, message: v1::Message) -> v1::Message {
    v1::Message { task_id: task.to_owned(), ..message }
}

async fn both(settings: Settings) -> [Bench; 2] {
    [Bench::new(settings).await, Bench::on_postgres(settings).await]
}

async fn says(puppet: &Puppet, state: TaskState, text: &str) {
    puppet.status(state, text).await.unwrap();
}

#[tokio::test]
async fn a_stream_of_a_new_task_tells_all_that_happens_from_the_start() {
    for bench in both(still()).await {
        let sent = begins(&bench, &anybody(), bench.message("hello"));
        let puppet = bench.puppet().await;
        says(&puppet, TaskState::Working, "on it").await;
        let mut stream = soon(sent).await.unwrap().unwrap();
        assert_eq!(bench.service.open_streams(), 1);
        let first = stream.task().await;
        assert_eq!(first.id, puppet.turn.task.to_string());
        assert_eq!(state(&first), TaskState::Submitted);
        assert_eq!(first.history.iter().map(text).collect::<Vec<_>>(), ["hello"]);
        assert_eq!(first.history[0].task_id, first.id);
        assert_eq!(stream.update().await, "WORKING on it");
        puppet.chunk(chunk("a", "1"), false, false).await.unwrap();
        assert_eq!(stream.update().await, "1");
        says(&puppet, TaskState::AuthRequired, "").await;
        assert_eq!(stream.update().await, "AUTH_REQUIRED");
        assert!(stream.waits().await, "STR-06");
        puppet.chunk(chunk("a", "2"), true, true).await.unwrap();
        says(&puppet, TaskState::Completed, "done").await;
        assert_eq!(stream.update().await, "2");
        assert_eq!(stream.update().await, "COMPLETED done");
        stream.ends().await;
        drop(stream);
        assert_eq!(bench.service.open_streams(), 0);
        bench.close().await;
    }
}

#[tokio::test]
async fn a_direct_reply_is_the_one_item_and_is_streamed_to_a_repeat_too() {
    for bench in both(still()).await {
        let (ann, message) = (named("ann"), bench.message("hi"));
        let sent = begins(&bench, &ann, message.clone());
        let puppet = bench.puppet().await;
        tokio::time::sleep(A_WHILE).await;
        assert!(!sent.is_finished(), "the first item waits for the decision");
        puppet.reply("good day").await.unwrap();
        for mut stream in
            [soon(sent).await.unwrap().unwrap(), streams(&bench, &ann, message).await.unwrap()]
        {
            assert_eq!(stream.update().await, "message good day");
            stream.ends().await;
        }
        assert_eq!(bench.list(&ann).await.total_size, 0);
        assert_eq!(bench.service.open_streams(), 0);
        bench.close().await;
    }
}

#[tokio::test]
async fn a_send_stream_ends_at_its_own_question_and_a_subscription_at_the_end_alone() {
    for bench in both(still()).await {
        let sent = begins(&bench, &anybody(), bench.message("x"));
        let puppet = bench.puppet().await;
        says(&puppet, TaskState::Working, "").await;
        let mut stream = soon(sent).await.unwrap().unwrap();
        let id = stream.task().await.id;
        let mut subscribed = subscribes(&bench, &anybody(), &id).await.unwrap();
        assert_eq!(state(&subscribed.task().await), TaskState::Working);
        // Queued behind the turn that runs: that turn's question is not its end.
        let mut later = streams(&bench, &anybody(), to(&id, bench.message("more"))).await.unwrap();
        assert_eq!(later.update().await, "task TASK_STATE_WORKING");
        says(&puppet, TaskState::InputRequired, "which?").await;
        assert_eq!(stream.update().await, "WORKING");
        assert_eq!(stream.update().await, "INPUT_REQUIRED which?");
        stream.ends().await;
        let second = bench.puppet().await;
        says(&second, TaskState::InputRequired, "and?").await;
        for watcher in [&mut subscribed, &mut later] {
            assert_eq!(watcher.update().await, "INPUT_REQUIRED which?");
            assert_eq!(watcher.update().await, "INPUT_REQUIRED and?");
        }
        later.ends().await;
        assert!(subscribed.waits().await, "AMB-04");
        // Subscribed while it asks (SUB-07).
        let mut asked = subscribes(&bench, &anybody(), &id).await.unwrap();
        assert_eq!(state(&asked.task().await), TaskState::InputRequired);
        let answer = begins(&bench, &anybody(), to(&id, bench.message("this")));
        let third = bench.puppet().await;
        says(&third, TaskState::Completed, "").await;
        for watcher in [&mut subscribed, &mut asked] {
            assert_eq!(watcher.update().await, "COMPLETED");
            watcher.ends().await;
        }
        let mut answer = soon(answer).await.unwrap().unwrap();
        while let Some(item) = answer.0.next().await {
            item.unwrap();
        }
        bench.close().await;
    }
}

#[tokio::test]
async fn a_repeat_of_a_streaming_send_attaches_to_the_same_task() {
    for bench in both(still()).await {
        let (ann, message) = (named("ann"), bench.message("x"));
        let sent = begins(&bench, &ann, message.clone());
        let puppet = bench.puppet().await;
        says(&puppet, TaskState::Working, "").await;
        let mut first = soon(sent).await.unwrap().unwrap();
        let id = first.task().await.id;
        assert_eq!(first.update().await, "WORKING");
        let mut second = streams(&bench, &ann, message.clone()).await.unwrap();
        let snapshot = second.task().await;
        assert_eq!((snapshot.id.as_str(), state(&snapshot)), (id.as_str(), TaskState::Working));
        says(&puppet, TaskState::InputRequired, "which?").await;
        for stream in [&mut first, &mut second] {
            assert_eq!(stream.update().await, "INPUT_REQUIRED which?");
            stream.ends().await;
        }
        // Once its turn has asked, and also once the task works again, there is nothing to wait for.
        let mut third = streams(&bench, &ann, message.clone()).await.unwrap();
        assert_eq!(third.update().await, "task TASK_STATE_INPUT_REQUIRED");
        third.ends().await;
        let _later = begins(&bench, &ann, to(&id, bench.message("this")));
        says(&bench.puppet().await, TaskState::Working, "").await;
        let mut fourth = streams(&bench, &ann, message.clone()).await.unwrap();
        assert_eq!(fourth.update().await, "task TASK_STATE_WORKING");
        fourth.ends().await;
        assert!(bench.idle().await, "a repeat starts nothing");
        bench.close().await;
    }
}

#[tokio::test]
async fn a_subscription_is_refused_where_there_is_nothing_to_come_or_to_see() {
    for bench in both(still()).await {
        let (task, puppet) = bench.task("x").await;
        for (call, id) in [(named("bob"), task.id.as_str()), (anybody(), "no task")] {
            let refused = subscribes(&bench, &call, id).await.err();
            assert!(matches!(refused, Some(Error::TaskNotFound)), "{refused:?}");
        }
        let unnamed = subscribes(&bench, &anybody(), "").await.err();
        assert!(matches!(unnamed, Some(Error::Invalid(_))));
        let hidden = begins(&bench, &anybody(), bench.message("y"));
        let second = bench.puppet().await;
        let unseen = subscribes(&bench, &anybody(), &second.turn.task.to_string()).await.err();
        assert!(matches!(unseen, Some(Error::TaskNotFound)));
        says(&puppet, TaskState::Failed, "").await;
        let ended = subscribes(&bench, &anybody(), &task.id).await.err();
        assert!(matches!(&ended, Some(Error::Unsupported(text)) if text.contains("FAILED")));
        says(&second, TaskState::Completed, "").await;
        drop(hidden.await);
        assert_eq!(bench.service.open_streams(), 0);
        bench.close().await;
    }
}

#[tokio::test]
async fn a_cursor_resumes_after_its_event_also_once_the_task_has_ended() {
    let asks = Call { extensions: vec![CURSOR_EXTENSION.to_owned()], ..anybody() };
    for bench in both(still()).await {
        let (task, puppet) = bench.task("x").await;
        says(&puppet, TaskState::Working, "a").await;
        says(&puppet, TaskState::Working, "b").await;
        let mut live = subscribes(&bench, &asks, &task.id).await.unwrap();
        let first = live.item().await;
        assert_eq!((first.generation, short(&first).as_str()), (3, "task TASK_STATE_WORKING"));
        let mut resumed = resumes(&bench, &asks, &task.id, Some(2)).await.unwrap();
        let item = resumed.item().await;
        assert_eq!((item.generation, short(&item).as_str()), (3, "WORKING b"));
        let mut at_end = resumes(&bench, &asks, &task.id, Some(3)).await.unwrap();
        assert!(at_end.waits().await);
        let others = resumes(&bench, &anybody(), &task.id, Some(2)).await.unwrap();
        says(&puppet, TaskState::Completed, "").await;
        for watcher in [&mut live, &mut resumed, &mut at_end] {
            let item = watcher.item().await;
            assert_eq!((item.generation, short(&item).as_str()), (4, "COMPLETED"));
            watcher.ends().await;
        }
        let others: Vec<_> = others.rest().await.iter().map(short).collect();
        assert_eq!(others, ["task TASK_STATE_WORKING", "COMPLETED"], "who does not ask, gets none");
        for after in 0..=4 {
            let rest = resumes(&bench, &asks, &task.id, Some(after)).await.unwrap().rest().await;
            let generations: Vec<_> = rest.iter().map(|item| item.generation).collect();
            assert_eq!(generations, (after + 1..=4).collect::<Vec<_>>());
        }
        for after in [-1, 5, i64::MAX] {
            let refused = resumes(&bench, &asks, &task.id, Some(after)).await.err();
            assert!(matches!(refused, Some(Error::Invalid(_))), "{after}");
        }
        let ann = Call { extensions: asks.extensions.clone(), ..named("ann") };
        let foreign = resumes(&bench, &ann, &task.id, Some(1)).await.err();
        assert!(matches!(foreign, Some(Error::TaskNotFound)));
        bench.close().await;
    }
}

#[tokio::test]
async fn streams_end_as_unavailable_when_the_service_drains() {
    for bench in both(still()).await {
        let (task, puppet) = bench.task("x").await;
        let mut behind = subscribes(&bench, &anybody(), &task.id).await.unwrap();
        let undecided = begins(&bench, &anybody(), bench.message("y"));
        let second = bench.puppet().await;
        says(&puppet, TaskState::Working, "").await;
        bench.service.drain();
        assert_eq!(behind.update().await, "task TASK_STATE_SUBMITTED");
        assert!(matches!(behind.fails().await, Error::ShuttingDown));
        assert!(matches!(soon(undecided).await.unwrap().err(), Some(Error::ShuttingDown)));
        let late = subscribes(&bench, &anybody(), &task.id).await.err();
        assert!(matches!(late, Some(Error::ShuttingDown)));
        drop((puppet, second));
        bench.close().await;
    }
}

#[tokio::test]
async fn an_idle_stream_hears_of_a_drain_at_once() {
    let bench = Bench::new(still()).await;
    let (task, _puppet) = bench.task("x").await;
    let mut stream = subscribes(&bench, &anybody(), &task.id).await.unwrap();
    stream.task().await;
    let waiter = tokio::spawn(async move { stream.fails().await });
    tokio::time::sleep(A_WHILE).await;
    bench.service.drain();
    assert!(matches!(soon(waiter).await.unwrap(), Error::ShuttingDown));
}

#[tokio::test]
async fn a_short_outage_is_waited_for_and_a_long_one_ends_the_stream() {
    for (patience, outlasts) in [(Duration::from_secs(600), true), (A_WHILE, false)] {
        let store = Flaky::open().await;
        let settings = Settings { stream_patience: patience, ..still() };
        let bench = Bench::over(Arc::clone(&store) as Arc<dyn Store>, None, settings);
        let (task, puppet) = bench.task("x").await;
        let mut stream = subscribes(&bench, &anybody(), &task.id).await.unwrap();
        stream.task().await;
        store.set_down(true);
        store.hints().wake_all();
        if outlasts {
            assert!(stream.waits().await);
            store.set_down(false);
            says(&puppet, TaskState::Completed, "").await;
            assert_eq!(stream.update().await, "COMPLETED");
            stream.ends().await;
        } else {
            let waiter = tokio::spawn(async move { stream.fails().await });
            until(|| async {
                store.hints().wake_all();
                waiter.is_finished().then_some(())
            })
            .await;
            assert!(matches!(waiter.await.unwrap(), Error::Unavailable(_)));
        }
    }
}

#[tokio::test]
async fn a_lost_hint_delays_a_stream_and_loses_nothing() {
    let settings = Settings { stream_poll: A_WHILE, ..still() };
    let url = crate::support::postgres::fresh_url().await;
    let store = Arc::new(crate::support::postgres::open(&url, None).await);
    let bench = Bench::over(store, None, settings);
    let (task, puppet) = bench.task("x").await;
    let mut stream = subscribes(&bench, &anybody(), &task.id).await.unwrap();
    stream.task().await;
    // A change that nobody is told of, as by a server whose notice is lost.
    let database = crate::support::postgres::admin(&url).await;
    let sql = "insert into task_events (tenant, task_id, generation, turn, state, at, body)
               select tenant, task_id, 2, turn, state, at, body from task_events";
    database.batch_execute(sql).await.unwrap();
    assert_eq!(stream.update().await, "SUBMITTED");
    drop(puppet);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_streams_of_one_task_share_their_reads() {
    const N: usize = 500;
    let store = Flaky::open().await;
    let bench = Bench::over(Arc::clone(&store) as Arc<dyn Store>, None, still());
    let (task, puppet) = bench.task("x").await;
    let mut watchers = Vec::new();
    for _ in 0..N {
        let mut watcher = subscribes(&bench, &anybody(), &task.id).await.unwrap();
        watcher.task().await;
        watchers.push(tokio::spawn(watcher.rest()));
    }
    assert_eq!(bench.service.open_streams(), N);
    let before = store.log_reads();
    for n in 0..10 {
        puppet.chunk(chunk("a", &n.to_string()), n > 0, false).await.unwrap();
    }
    says(&puppet, TaskState::Completed, "").await;
    let mut all = Vec::new();
    for watcher in watchers {
        all.push(soon(watcher).await.unwrap());
    }
    assert_eq!(all[0].iter().map(short).collect::<String>(), "0123456789COMPLETED");
    assert!(all.iter().all(|items| *items == all[0]), "EVT-04");
    let reads = store.log_reads() - before;
    assert!(reads <= 100, "{reads} reads for 11 events and {N} streams");
    assert_eq!(bench.service.open_streams(), 0);
}

#[tokio::test]
async fn a_slow_reader_holds_one_read_of_the_log_and_gets_all_of_it_late() {
    const N: usize = 1_000;
    let store = Flaky::open().await;
    let bench = Bench::over(Arc::clone(&store) as Arc<dyn Store>, Some(Arc::new(Demo)), still());
    let message = bench.message(&format!("stream {N} 1"));
    let mut slow = streams(&bench, &anybody(), message).await.unwrap();
    let id = slow.task().await.id;
    let fast = subscribes(&bench, &anybody(), &id).await.unwrap();
    let fast = fast.rest().await;
    assert_eq!(short(fast.last().unwrap()), "COMPLETED");
    let before = store.log_reads();
    assert!(slow.0.next().now_or_never().is_some());
    let slow = slow.rest().await;
    let reads = store.log_reads() - before;
    let expected = (N as u32 + 2) / 64 + 2;
    assert!((1..=expected).contains(&reads), "it reads when it is asked: {reads}");
    assert_eq!(slow.iter().filter(|item| short(item).starts_with("chunk")).count(), N);
    assert_eq!(slow[slow.len() - 10..], fast[fast.len() - 10..]);
}

#[tokio::test]
async fn a_card_without_streaming_refuses_both_calls_before_it_looks_at_the_task() {
    let card = v1::AgentCard {
        capabilities: Some(v1::AgentCapabilities { streaming: Some(false), ..Default::default() }),
        ..a2ad::agent::Agent::card(&Demo)
    };
    let cards = a2ad::config::Cards { public: Some(card), ..Default::default() };
    let server = crate::rig::TestServer::with(|server| server.cards(cards)).await;
    let mut client = server.client().await;
    // From the call itself and not from the stream: GRPC-07.
    for status in [
        client.send_streaming_message(crate::rig::send("hello")).await.unwrap_err(),
        client.subscribe_to_task(v1::SubscribeToTaskRequest::default()).await.unwrap_err(),
    ] {
        assert_eq!(status.code(), tonic::Code::FailedPrecondition);
        assert!(status.message().contains("streaming is not supported"), "{status:?}");
    }
}
