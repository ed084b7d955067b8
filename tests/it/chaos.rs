//! PostgreSQL is stopped, killed and cut while two servers work: callers are told to try again in
//! words that hold nothing of the database, and nothing that was acknowledged is lost or left lying.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use a2ad::agent::demo::Demo;
use a2ad::client::{Client, Connect};
use a2ad::contract::v1::{self, TaskState, send_message_response};
use a2ad::domain::page::KeyRing;
use a2ad::server::Server;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tonic::{Code, Status};

use crate::bindings::JSON;
use crate::crash::KEYS;
use crate::rig::{ANN, TestServer, eventually, raw, send, send_at_once, state, two_callers};
use crate::support::cluster::{Cluster, Durability};
use crate::support::{Random, postgres, rounds, seed};

/// What the callers were told.
#[derive(Default)]
struct Book {
    over: AtomicBool,
    /// Messages by their ids, with the tasks that were acknowledged.
    tasks: Mutex<BTreeMap<String, String>>,
    calls: AtomicU64,
    refused: AtomicU64,
}

impl Book {
    fn goes_on(&self) -> bool {
        self.calls.fetch_add(1, Ordering::Relaxed);
        !self.over.load(Ordering::Relaxed)
    }

    fn acknowledged(&self, message: &str, task: &str) {
        let mut tasks = self.tasks.lock().unwrap();
        let first = tasks.entry(message.to_owned()).or_insert_with(|| task.to_owned());
        assert_eq!(first, task, "a message that was sent again made another task");
    }

    /// An error that a caller may be told: to try again, with nothing of the database in it.
    fn refused(&self, status: &Status) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        let retryable = matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded);
        assert!(retryable, "{status:?}");
        is_discreet(&format!("{status:?}"));
    }
}

fn is_discreet(text: &str) {
    let lower = text.to_lowercase();
    for word in ["postgres", "sql", "select", "insert", "relation", "57p01", "server closed"] {
        assert!(!lower.contains(word), "{word} in {text}");
    }
}

/// A caller on two servers: what one cannot do for the moment is asked of the other.
struct Asker {
    clients: [Client; 2],
    book: Arc<Book>,
    turn: usize,
}

impl Asker {
    async fn new(servers: &[TestServer; 2], book: &Arc<Book>) -> Self {
        let client = async |n: usize| {
            let connect = Connect::to(servers[n].url()).bearer(ANN).unwrap();
            connect.connect().await.unwrap()
        };
        Self { clients: [client(0).await, client(1).await], book: Arc::clone(book), turn: 0 }
    }

    fn next(&mut self) -> &mut Client {
        self.turn += 1;
        &mut self.clients[self.turn % 2]
    }

    /// Sends until somebody answers; a repeat finds its first task.
    async fn sends(mut self, requests: fn() -> v1::SendMessageRequest) {
        while self.book.goes_on() {
            let request = requests();
            let id = request.message.as_ref().unwrap().message_id.clone();
            loop {
                let book = Arc::clone(&self.book);
                match self.next().send_message(request.clone()).await {
                    Ok(answer) => {
                        let Some(send_message_response::Payload::Task(task)) =
                            answer.into_inner().payload
                        else {
                            panic!("no task")
                        };
                        book.acknowledged(&id, &task.id);
                        break;
                    }
                    Err(status) => book.refused(&status),
                }
            }
        }
    }

    /// Streams, which may be cut at any item.
    async fn streams(mut self) {
        while self.book.goes_on() {
            let request = send("stream 10 20");
            let id = request.message.as_ref().unwrap().message_id.clone();
            let book = Arc::clone(&self.book);
            let mut stream = match self.next().send_streaming_message(request).await {
                Ok(stream) => stream.into_inner(),
                Err(status) => {
                    book.refused(&status);
                    continue;
                }
            };
            loop {
                match stream.message().await {
                    Ok(Some(item)) => {
                        if let Some(v1::stream_response::Payload::Task(task)) = item.payload {
                            book.acknowledged(&id, &task.id);
                        }
                    }
                    Ok(None) => break,
                    Err(status) => {
                        book.refused(&status);
                        break;
                    }
                }
            }
        }
    }

    /// Lists, reads and cancels what others began.
    async fn reads(mut self) {
        while self.book.goes_on() {
            let book = Arc::clone(&self.book);
            let page = match self.next().list_tasks(v1::ListTasksRequest::default()).await {
                Ok(page) => page.into_inner(),
                Err(status) => {
                    book.refused(&status);
                    continue;
                }
            };
            let Some(task) = page.tasks.iter().find(|task| !state(task).is_terminal()) else {
                continue;
            };
            let get = v1::GetTaskRequest { id: task.id.clone(), ..Default::default() };
            if let Err(status) = self.next().get_task(get).await {
                book.refused(&status);
            }
            let cancel = v1::CancelTaskRequest { id: task.id.clone(), ..Default::default() };
            match self.next().cancel_task(cancel).await {
                Ok(task) => assert!(state(task.get_ref()).is_terminal()),
                // It ended by itself.
                Err(status) if status.code() == Code::FailedPrecondition => {}
                Err(status) => book.refused(&status),
            }
        }
    }
}

/// Sends over HTTP+JSON.
async fn sends_json(server: std::net::SocketAddr, book: Arc<Book>) {
    let bearer = format!("Bearer {ANN}");
    let headers = [JSON, ("a2a-version", "1.0"), ("authorization", bearer.as_str())];
    while book.goes_on() {
        let id = uuid::Uuid::new_v4().to_string();
        let message = json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": "hi"}]});
        let body = json!({ "message": message }).to_string();
        let answer = raw::http(server, "POST", "/message:send", &headers, body).await;
        let body: Value = serde_json::from_slice(answer.body()).unwrap();
        match answer.status().as_u16() {
            200 => book.acknowledged(&id, body["task"]["id"].as_str().unwrap()),
            503 | 504 => {
                book.refused.fetch_add(1, Ordering::Relaxed);
                is_discreet(&body.to_string());
            }
            other => panic!("{other}: {body}"),
        }
    }
}

async fn server(url: &str) -> TestServer {
    let keys = KeyRing::parse(KEYS).unwrap();
    let settings = a2ad::service::Settings {
        lease: Duration::from_secs(2),
        renew: Duration::from_millis(600),
        ..Default::default()
    };
    let builder = Server::builder(Demo).store(url).page_token_keys(keys).settings(settings);
    TestServer::of(builder.auth(two_callers())).await
}

/// One fault of the database, and its end.
async fn fault(cluster: &mut Cluster, random: &mut Random) -> &'static str {
    match random.below(3) {
        0 => {
            cluster.kill();
            tokio::time::sleep(Duration::from_millis(random.next() % 500)).await;
            cluster.start_again().await;
            "killed"
        }
        1 => {
            cluster.stop(if random.chance(2) { "INT" } else { "QUIT" });
            tokio::time::sleep(Duration::from_millis(random.next() % 500)).await;
            cluster.start_again().await;
            "stopped"
        }
        _ => {
            let admin = postgres::admin(&cluster.url()).await;
            let cut = "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()";
            for _ in 0..5 {
                drop(admin.batch_execute(cut).await);
            }
            "cut"
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_comes_and_goes_costs_nothing_that_was_acknowledged() {
    let seed = seed();
    println!("A2AD_SEED={seed}");
    let mut random = Random(seed);
    let mut cluster = Cluster::start(Durability::Full).await;
    let servers = [server(&cluster.url()).await, server(&cluster.url()).await];
    let book = Arc::new(Book::default());
    let mut callers: Vec<JoinHandle<()>> = Vec::new();
    for requests in [|| send("hello"), || send_at_once("stream 5 20"), || send("slow 1")] {
        callers.push(tokio::spawn(Asker::new(&servers, &book).await.sends(requests)));
    }
    callers.push(tokio::spawn(Asker::new(&servers, &book).await.streams()));
    callers.push(tokio::spawn(Asker::new(&servers, &book).await.reads()));
    callers.push(tokio::spawn(sends_json(servers[1].addr(), Arc::clone(&book))));

    let mut told = Vec::new();
    for _ in 0..rounds(3, 10) {
        let before = book.tasks.lock().unwrap().len();
        told.push(fault(&mut cluster, &mut random).await);
        eventually("work goes on", async || book.tasks.lock().unwrap().len() > before + 40).await;
    }
    book.over.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await.unwrap();
    }
    let (calls, refused) = (&book.calls, &book.refused);
    println!(
        "{told:?}: {} calls, {} refused, {} tasks",
        calls.load(Ordering::Relaxed),
        refused.load(Ordering::Relaxed),
        book.tasks.lock().unwrap().len()
    );

    // No stream and no turn is left lying, and everything that was acknowledged is there.
    for server in &servers {
        eventually("streams end", async || server.server().service().open_streams() == 0).await;
    }
    let mut client = servers[0].client_of(ANN).await;
    let acknowledged: Vec<String> = book.tasks.lock().unwrap().values().cloned().collect();
    for id in acknowledged {
        eventually("every task ends", async || {
            let get = v1::GetTaskRequest { id: id.clone(), ..Default::default() };
            let task = client.get_task(get).await.expect("an acknowledged task is missing");
            let ended = state(task.get_ref());
            assert_ne!(ended, TaskState::Failed, "{task:?}");
            ended.is_terminal()
        })
        .await;
    }
    for unfinished in [TaskState::Submitted, TaskState::Working] {
        eventually("nothing is left lying", async || {
            let list = v1::ListTasksRequest { status: unfinished.into(), ..Default::default() };
            client.list_tasks(list).await.unwrap().into_inner().total_size == 0
        })
        .await;
    }
}
