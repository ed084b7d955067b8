//! Walks over listings while others write: no task that stays where it is is missed, none comes
//! twice, and no total changes on the way. On both stores, and through PgBouncer in transaction
//! mode with two servers that take turns serving the pages.

use std::collections::{BTreeMap, BTreeSet};

use a2ad::client::Client;
use a2ad::config::StatementMode;
use a2ad::contract::v1::{self, TaskState};
use a2ad::contract::wkt::Timestamp;
use a2ad::domain::page::KeyRing;
use a2ad::server::Place;
use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;

use crate::crash::KEYS;
use crate::rig::{TestServer, send, state, task_of, to_task};
use crate::support::{Random, pgbouncer, postgres, rounds, seed, torture};

const CONTEXTS: usize = 3;
const WALKERS: usize = 3;
/// How many clients fill the store at a time.
const FILLERS: usize = 8;

fn context(n: usize) -> String {
    format!("context {}", n % CONTEXTS)
}

fn in_context(text: &str, context: String) -> v1::SendMessageRequest {
    let mut request = send(text);
    if let Some(message) = &mut request.message {
        message.context_id = context;
    }
    request
}

/// What a listing is ordered by.
fn place(task: &v1::Task) -> (i64, String) {
    let at = task.status.as_ref().unwrap().timestamp.as_ref().unwrap();
    (at.to_micros().unwrap(), task.id.clone())
}

/// Sends each of these and returns the tasks.
async fn fill(clients: &[Client], requests: Vec<v1::SendMessageRequest>) -> Vec<v1::Task> {
    let mut shares = vec![Vec::new(); FILLERS];
    for (n, request) in requests.into_iter().enumerate() {
        shares[n % FILLERS].push(request);
    }
    let work = shares.into_iter().enumerate().map(|(n, share)| {
        let mut client = clients[n % clients.len()].clone();
        async move {
            let mut tasks = Vec::new();
            for request in share {
                tasks.push(task_of(client.send_message(request).await.unwrap()));
            }
            tasks
        }
    });
    join_all(work).await.concat()
}

/// One filter, and which of the tasks that stay match it.
fn filtered(random: &mut Random, still: &[v1::Task]) -> (v1::ListTasksRequest, BTreeSet<String>) {
    let mut filter = v1::ListTasksRequest::default();
    if random.chance(2) {
        filter.context_id = context(random.below(CONTEXTS));
    }
    if random.chance(3) {
        filter.status = TaskState::Completed as i32;
    }
    let since = random.chance(4).then(|| place(random.pick(still)).0);
    filter.status_timestamp_after = since.map(Timestamp::from_micros);
    let matching = still
        .iter()
        .filter(|task| filter.context_id.is_empty() || task.context_id == filter.context_id)
        .filter(|task| since.is_none_or(|since| place(task).0 >= since))
        .map(|task| task.id.clone())
        .collect();
    (filter, matching)
}

/// All pages of one listing, in turn from each server; holds each page to what it must be.
async fn walk(clients: &mut [Client], filter: &v1::ListTasksRequest, about: &str) -> Walked {
    let (mut tasks, mut total, mut page_token) = (Vec::new(), None, String::new());
    for n in 0.. {
        let request = v1::ListTasksRequest { page_token, ..filter.clone() };
        let servers = clients.len();
        let page = clients[n % servers].list_tasks(request).await.unwrap().into_inner();
        assert_eq!(*total.get_or_insert(page.total_size), page.total_size, "page {n}: {about}");
        assert_eq!(Some(page.page_size), filter.page_size, "{about}");
        let size = usize::try_from(page.page_size).unwrap();
        let is_last = page.next_page_token.is_empty();
        assert!(page.tasks.len() == size || (is_last && page.tasks.len() <= size), "{about}");
        assert!(!page.tasks.is_empty() || n == 0, "a walk ends with an empty page: {about}");
        tasks.extend(page.tasks);
        page_token = page.next_page_token;
        if is_last {
            break;
        }
    }
    let places: Vec<_> = tasks.iter().map(place).collect();
    assert!(places.is_sorted_by(|a, b| a > b), "out of order: {about}");
    let ids: BTreeSet<_> = tasks.iter().map(|task| task.id.clone()).collect();
    assert_eq!(ids.len(), tasks.len(), "a task came twice: {about}");
    Walked { tasks, ids, total: total.unwrap_or_default() }
}

struct Walked {
    tasks: Vec<v1::Task>,
    ids: BTreeSet<String>,
    total: i32,
}

/// Walks with filters and page sizes of its own choice.
async fn walk_about(
    mut clients: Vec<Client>,
    still: &[v1::Task],
    mut random: Random,
    n_walks: u64,
    about: &str,
) {
    let sizes: &[i32] = if torture() { &[7, 50, 99, 100] } else { &[1, 7, 50, 100] };
    for _ in 0..n_walks {
        let (mut filter, expected) = filtered(&mut random, still);
        filter.page_size = Some(*random.pick(sizes));
        let about = format!("{about}: {filter:?}");
        let walked = walk(&mut clients, &filter, &about).await;
        let missed: Vec<_> = expected.difference(&walked.ids).collect();
        assert!(missed.is_empty(), "missed {missed:?}: {about}");
        assert!(walked.total >= i32::try_from(expected.len()).unwrap(), "{about}");
        for task in &walked.tasks {
            assert!(filter.context_id.is_empty() || task.context_id == filter.context_id);
            assert!(filter.status == 0 || state(task) as i32 == filter.status, "{about}");
        }
    }
}

/// New tasks, and answers to those that wait for one, until it is stopped. Returns how many.
async fn write(
    mut client: Client,
    mut waiting: Vec<v1::Task>,
    mut random: Random,
    stop: CancellationToken,
) -> usize {
    let mut n = 0;
    while !stop.is_cancelled() {
        let request = if random.chance(3)
            && let Some(asked) = waiting.pop()
        {
            to_task(send("an answer"), &asked.id)
        } else {
            let text = if random.chance(4) { "ask what?" } else { "new" };
            in_context(text, context(random.below(CONTEXTS)))
        };
        let task = task_of(client.send_message(request).await.unwrap());
        if state(&task) == TaskState::InputRequired {
            waiting.push(task);
        }
        n += 1;
    }
    n
}

/// When nobody writes any more, what a listing holds and what it counts are the same, whatever the
/// page size and whichever server is asked.
async fn quiet(clients: &mut [Client], about: &str) {
    let mut by_filter: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for size in [33, 100] {
        for n in 0..=CONTEXTS {
            for status in [TaskState::Unspecified, TaskState::Completed, TaskState::InputRequired] {
                let filter = v1::ListTasksRequest {
                    context_id: if n == CONTEXTS { String::new() } else { context(n) },
                    status: status as i32,
                    page_size: Some(size),
                    ..Default::default()
                };
                let walked = walk(clients, &filter, about).await;
                let count = usize::try_from(walked.total).unwrap();
                assert_eq!(count, walked.tasks.len(), "{filter:?}: {about}");
                let key = format!("{} {status:?}", filter.context_id);
                let same = by_filter.entry(key).or_insert_with(|| walked.ids.clone());
                assert_eq!(*same, walked.ids, "{filter:?}: {about}");
            }
        }
    }
}

async fn walks_while_others_write(servers: &[TestServer]) {
    let seed = seed();
    println!("A2AD_SEED={seed}");
    let about = format!("A2AD_SEED={seed}");
    let mut random = Random(seed);
    let mut clients = Vec::new();
    for server in servers {
        clients.push(server.client().await);
    }
    let n_tasks = if torture() { 2_000 } else { 120 };
    let requests = (0..n_tasks).map(|n| in_context("still", context(n)));
    let still = fill(&clients, requests.collect()).await;
    let requests = (0..n_tasks / 2).map(|n| in_context("ask what?", context(n)));
    let waiting = fill(&clients, requests.collect()).await;

    let stop = CancellationToken::new();
    let half = waiting.len() / 2;
    let writers: Vec<_> = [waiting[..half].to_vec(), waiting[half..].to_vec()]
        .into_iter()
        .enumerate()
        .map(|(n, waiting)| {
            let (client, random) = (clients[n % clients.len()].clone(), Random(random.next()));
            tokio::spawn(write(client, waiting, random, stop.clone()))
        })
        .collect();
    let walkers = (0..WALKERS).map(|_| {
        let random = Random(random.next());
        walk_about(clients.clone(), &still, random, rounds(6, 60), &about)
    });
    join_all(walkers).await;
    stop.cancel();
    let written: usize = join_all(writers).await.into_iter().map(Result::unwrap).sum();
    assert!(written > 0, "nobody wrote");
    println!("{written} messages were taken meanwhile");
    quiet(&mut clients, &about).await;
}

fn keys() -> KeyRing {
    KeyRing::parse(KEYS).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_sqlite_a_walk_meets_every_task_that_stays_once() {
    walks_while_others_write(&[TestServer::start().await]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgres_a_walk_over_two_servers_meets_every_task_that_stays_once() {
    let url = postgres::fresh_url().await;
    let start = || TestServer::with(|builder| builder.store(&*url).page_token_keys(keys()));
    walks_while_others_write(&[start().await, start().await]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_pgbouncer_a_walk_over_two_servers_meets_every_task_that_stays_once() {
    let url = postgres::fresh_url().await;
    let through = pgbouncer::through(&url).await;
    // As an operator would have it: statements through the pooler, LISTEN past it.
    let place = Place {
        direct: Some(url.as_str().into()),
        statement_mode: StatementMode::Typed,
        ..Place::new(through.as_str())
    };
    let start = || TestServer::with(|builder| builder.place(place.clone()).page_token_keys(keys()));
    walks_while_others_write(&[start().await, start().await]).await;
}
