//! `kill -9` under load: what a client was told of is there afterwards, once, and gets done.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use a2ad::client::{Client, Connect};
use a2ad::contract::v1::part::Content;
use a2ad::contract::v1::send_message_response::Payload;
use a2ad::contract::v1::{
    GetTaskRequest, ListTasksRequest, Message, Part, Role, SendMessageConfiguration,
    SendMessageRequest, Task, TaskState,
};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::support::cluster::{Cluster, Durability};
use crate::support::postgres::empty_url;
use crate::support::program::{Program, free_address};
use crate::support::{Random, seed, torture};

const CONTEXT: &str = "crash";
const N_SENDERS: u32 = 4;
const DONE_WITHIN: Duration = Duration::from_secs(60);

/// What the clients of all rounds sent and were told.
#[derive(Debug, Default)]
struct Told {
    /// Message id to text, of every message that was sent at all.
    sent: BTreeMap<String, String>,
    /// Task id to message id, of every answer that a client got.
    tasks: BTreeMap<String, String>,
}

type Book = Arc<Mutex<Told>>;

fn connect(url: &str) -> Client {
    Connect::to(url).lazy().unwrap()
}

fn request(text: &str, return_immediately: bool) -> SendMessageRequest {
    let message = Message {
        message_id: Uuid::new_v4().to_string(),
        context_id: CONTEXT.to_owned(),
        role: Role::User.into(),
        parts: vec![Part { content: Some(Content::Text(text.to_owned())), ..Default::default() }],
        ..Default::default()
    };
    let configuration = SendMessageConfiguration { return_immediately, ..Default::default() };
    SendMessageRequest {
        message: Some(message),
        configuration: Some(configuration),
        ..Default::default()
    }
}

/// Sends until it is stopped or the server is gone; every answer goes into the book.
async fn send_until(stop: CancellationToken, mut client: Client, sender: u32, book: Book) {
    for n in 0_u32.. {
        // The first message of each sender works for two seconds, the others are done at once;
        // every second one waits for the result.
        let text = if n == 0 { "slow 2".to_owned() } else { format!("echo {sender} {n}") };
        let request = request(&text, n.is_multiple_of(2));
        let id = request.message.as_ref().unwrap().message_id.clone();
        book.lock().unwrap().sent.insert(id.clone(), text);
        let answer = tokio::select! {
            answer = client.send_message(request) => answer,
            () = stop.cancelled() => return,
        };
        // Nobody was told anything by an error: the message may have been taken or not.
        let Ok(answer) = answer else { return };
        match answer.into_inner().payload.unwrap() {
            Payload::Task(task) => {
                assert!(book.lock().unwrap().tasks.insert(task.id, id).is_none());
            }
            Payload::Message(message) => panic!("a reply to no question: {message:?}"),
        }
    }
}

/// A load that runs until its guard says stop.
struct Load {
    stop: CancellationToken,
    senders: JoinSet<()>,
}

impl Load {
    fn start(url: &str, book: &Book) -> Self {
        let stop = CancellationToken::new();
        let mut senders = JoinSet::new();
        for sender in 0..N_SENDERS {
            senders.spawn(send_until(stop.clone(), connect(url), sender, Arc::clone(book)));
        }
        Self { stop, senders }
    }

    async fn stop(self) {
        self.stop.cancel();
        self.senders.join_all().await;
    }
}

/// How long a round of load lasts, between 0.2 and 1.6 s.
fn length(random: &mut Random) -> Duration {
    Duration::from_millis(200 + random.next() % 1400)
}

async fn walk(client: &mut Client, state: TaskState, contents: bool) -> Vec<Task> {
    let mut tasks = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = ListTasksRequest {
            context_id: CONTEXT.to_owned(),
            status: state.into(),
            page_size: Some(100),
            page_token,
            history_length: contents.then_some(100),
            include_artifacts: contents.then_some(true),
            ..Default::default()
        };
        let page = client.list_tasks(request).await.unwrap().into_inner();
        tasks.extend(page.tasks);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return tasks;
        }
    }
}

/// Every task that a client was told of is there.
async fn assert_none_is_missing(client: &mut Client, book: &Book) {
    let listed = walk(client, TaskState::Unspecified, false).await;
    let listed: BTreeSet<_> = listed.into_iter().map(|task| task.id).collect();
    let told: Vec<_> = book.lock().unwrap().tasks.keys().cloned().collect();
    for id in told.into_iter().filter(|id| !listed.contains(id)) {
        // A task that moved to the front during the walk is not in it, but is there.
        let found = client.get_task(GetTaskRequest { id: id.clone(), ..Default::default() }).await;
        assert!(found.is_ok(), "task {id} is missing: {found:?}");
    }
}

async fn wait_until_all_are_done(client: &mut Client, deadline: Instant) {
    for state in [TaskState::Submitted, TaskState::Working] {
        loop {
            let open = walk(client, state, false).await;
            if open.is_empty() {
                break;
            }
            assert!(Instant::now() < deadline, "still {state:?}: {open:#?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

fn texts(parts: &[Part]) -> Vec<&str> {
    let text = |part| match part {
        &Part { content: Some(Content::Text(ref text)), .. } => text.as_str(),
        other => panic!("{other:?} is no text"),
    };
    parts.iter().map(text).collect()
}

/// Each task holds what its message asked for, once; no message is in two places.
async fn assert_each_is_whole(client: &mut Client, book: &Book) {
    let tasks = walk(client, TaskState::Unspecified, true).await;
    let told = book.lock().unwrap();
    let mut seen = BTreeSet::new();
    for task in &tasks {
        let state = task.status.as_ref().unwrap().state();
        assert_eq!(state, TaskState::Completed, "{task:#?}");
        let [message] = task.history.as_slice() else { panic!("not one message: {task:#?}") };
        assert!(seen.insert(&message.message_id), "a message made two tasks: {task:#?}");
        let text = told.sent.get(&message.message_id).expect("somebody sent it");
        assert_eq!(texts(&message.parts), [text]);
        let [artifact] = task.artifacts.as_slice() else { panic!("not one artifact: {task:#?}") };
        let expected: &[&str] =
            if text == "slow 2" { &["chunk 1 of 2", "chunk 2 of 2"] } else { &[text] };
        assert_eq!(texts(&artifact.parts), expected, "{task:#?}");
        if let Some(id) = told.tasks.get(&task.id) {
            assert_eq!(*id, message.message_id, "a client was told of the wrong task");
        }
    }
    let ids: BTreeSet<_> = tasks.iter().map(|task| &task.id).collect();
    assert!(told.tasks.keys().all(|id| ids.contains(id)), "a task is missing at the end");
    println!("{} messages, {} answers, {} tasks", told.sent.len(), told.tasks.len(), tasks.len());
    assert!(told.tasks.len() > told.sent.len() / 2, "the load hardly ran");
}

/// Rounds of load, each ended by `kill -9` of the server.
async fn kill_and_start(folder: &Path, arguments: &[&str]) {
    let n_rounds = if torture() { 100 } else { 4 };
    let seed = seed();
    println!("A2AD_SEED={seed}");
    let mut random = Random(seed);
    let address = free_address();
    let book = Book::default();
    let mut server = Program::serve_at(address, folder, arguments);
    let mut client = connect(&server.url());
    let mut started = Instant::now();
    for _ in 0..n_rounds {
        let load = Load::start(&server.url(), &book);
        tokio::time::sleep(length(&mut random)).await;
        server.kill();
        load.stop().await;
        started = Instant::now();
        server = Program::serve_at(address, folder, arguments);
        // The first call after a cut connection may fail with it.
        client = connect(&server.url());
        assert_none_is_missing(&mut client, &book).await;
    }
    wait_until_all_are_done(&mut client, started + DONE_WITHIN).await;
    assert_each_is_whole(&mut client, &book).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_loses_nothing_in_sqlite() {
    let folder = TempDir::new().unwrap();
    kill_and_start(folder.path(), &["--store", "sqlite:crash.db"]).await;
}

/// What every server on PostgreSQL needs, with leases short enough for a test.
pub(crate) const KEYS: &str = "k1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_loses_nothing_in_postgres() {
    let folder = TempDir::new().unwrap();
    let url = empty_url().await;
    let arguments = ["--store", &url, "--page-token-keys", KEYS, "--lease", "2s"];
    kill_and_start(folder.path(), &arguments).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_postgres_loses_nothing() {
    let folder = TempDir::new().unwrap();
    let mut cluster = Cluster::start(Durability::Full).await;
    let url = cluster.url();
    let arguments = ["--store", &url, "--page-token-keys", KEYS, "--lease", "2s"];
    let server = Program::serve(folder.path(), &arguments);
    let book = Book::default();
    let load = Load::start(&server.url(), &book);
    tokio::time::sleep(Duration::from_millis(1500)).await;
    cluster.kill();
    load.stop().await;
    cluster.start_again().await;
    let started = Instant::now();
    // The server was not started again: it finds its database by itself.
    let mut client = connect(&server.url());
    while let Err(status) = client.list_tasks(ListTasksRequest::default()).await {
        assert_eq!(status.code(), tonic::Code::Unavailable, "{status}");
        assert!(started.elapsed() < DONE_WITHIN, "the server does not recover: {status}");
    }
    assert_none_is_missing(&mut client, &book).await;
    wait_until_all_are_done(&mut client, started + DONE_WITHIN).await;
    assert_each_is_whole(&mut client, &book).await;
}
