//! Forced interleavings on PostgreSQL. A connection of the test holds the row that two writes need;
//! both begin and wait, so that neither's snapshot shows what the other does; then the row is
//! free. Whatever the pair, everybody must be told, and everything must be stored, as if the one
//! had come after the other.

use std::sync::Arc;
use std::time::{Duration, Instant};

use a2ad::contract::v1::TaskState;
use a2ad::domain::{Clock, LeaseToken, ManualClock, Scope, TaskId};
use a2ad::store::postgres::{Postgres, StatementMode};
use a2ad::store::{
    HeldLease, LeaseRequest, PageQuery, Reply, Report, Store as _, TurnEnd, Update, View,
};
use futures_util::future::join_all;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Transaction};

use crate::store::{
    LEASE, START_US, accepted, chunk, deduped, everything, message, more, new, scope, status,
};
use crate::support::{PATIENCE, Random, postgres, seed, torture};

/// How a task stands when the two writes begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stands {
    Queued,
    Running,
    /// Running, with a message that waits behind the turn.
    Behind,
    HiddenRunning,
    /// Running, and its cancel is requested.
    Canceling,
    /// Ended a turn with a question.
    Asked,
}

const STANDS: [Stands; 6] = [
    Stands::Queued,
    Stands::Running,
    Stands::Behind,
    Stands::HiddenRunning,
    Stands::Canceling,
    Stands::Asked,
];

/// A write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Write {
    Working,
    Artifact,
    Ask,
    Complete,
    HandBack,
    Fail,
    Reply,
    Renew,
    Show,
    Cancel,
    FinishCancel,
    Say,
    SayOnce,
}

const WRITES: [Write; 13] = [
    Write::Working,
    Write::Artifact,
    Write::Ask,
    Write::Complete,
    Write::HandBack,
    Write::Fail,
    Write::Reply,
    Write::Renew,
    Write::Show,
    Write::Cancel,
    Write::FinishCancel,
    Write::Say,
    Write::SayOnce,
];

/// Which row the test holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    Task,
    Turn,
}

impl Held {
    async fn by(self, holder: &mut Client, task: TaskId) -> Transaction<'_> {
        let lock = holder.transaction().await.unwrap();
        let sql = match self {
            Self::Task => "select from tasks where id = $1 for update",
            Self::Turn => "select from turns where task_id = $1 and turn = 1 for update",
        };
        assert_eq!(lock.query(sql, &[&task.uuid()]).await.unwrap().len(), 1);
        lock
    }
}

#[derive(Debug, Clone, Copy)]
struct Pair {
    stands: Stands,
    held: Held,
    first: Write,
    second: Write,
}

fn all_pairs() -> Vec<Pair> {
    let mut pairs = Vec::new();
    for stands in STANDS {
        for first in WRITES {
            for second in WRITES {
                pairs.push(Pair { stands, held: Held::Task, first, second });
                // A renewal knows nothing of the task's row.
                if first == Write::Renew || second == Write::Renew {
                    pairs.push(Pair { stands, held: Held::Turn, first, second });
                }
            }
        }
    }
    pairs
}

/// A task in a scope of its own.
#[derive(Clone)]
struct Case {
    store: Postgres,
    owner: Scope,
    task: TaskId,
    lease: LeaseToken,
}

impl Case {
    async fn new(store: &Postgres, stands: Stands, n: usize) -> Self {
        let owner = scope("acme", &format!("key:{n}"));
        let lease = LeaseToken::generate();
        let mut begin = new("c", stands != Stands::HiddenRunning);
        if stands != Stands::Queued {
            begin.lease = Some(LeaseRequest { token: lease, lease: LEASE });
        }
        let task = accepted(store.accept(&owner, &begin).await.unwrap()).task;
        let case = Self { store: store.clone(), owner, task, lease };
        match stands {
            Stands::Queued | Stands::Running | Stands::HiddenRunning => {}
            Stands::Behind => drop(case.write(Write::Say).await),
            Stands::Canceling => drop(case.write(Write::Cancel).await),
            Stands::Asked => drop(case.write(Write::Ask).await),
        }
        case
    }

    /// The same write is the same bytes, with the same report sequence.
    async fn write(&self, write: Write) -> String {
        let (store, owner, task) = (&self.store, &self.owner, self.task);
        let (state, end) = match write {
            Write::Working => (Some(TaskState::Working), None),
            Write::Ask => (Some(TaskState::InputRequired), Some(TurnEnd::Finished)),
            Write::Complete => (Some(TaskState::Completed), Some(TurnEnd::Finished)),
            Write::Artifact => (None, None),
            Write::HandBack => (None, Some(TurnEnd::HandedBack)),
            Write::Fail => (None, Some(TurnEnd::Failed { retry_in: Duration::ZERO })),
            Write::Reply => {
                let message = message("r", "direct");
                let reply = Reply { lease: self.lease, turn: 1, sequence: 1, message };
                return format!("{:?}", store.reply(owner, task, &reply).await);
            }
            Write::Renew => {
                let held = HeldLease { scope: owner.clone(), task, turn: 1, lease: self.lease };
                let renewed = store.renew_leases_of_all(&[held], LEASE * 2).await.unwrap();
                let cancels: Vec<_> = renewed.into_iter().map(|renewed| renewed.cancel).collect();
                return format!("{cancels:?}");
            }
            Write::Show => return format!("{:?}", store.show(owner, task).await),
            Write::Cancel => return format!("{:?}", store.request_cancel(owner, task, None).await),
            Write::FinishCancel => return format!("{:?}", store.finish_cancel(owner, task).await),
            Write::Say => return format!("{:?}", store.accept(owner, &more(task, "m-2")).await),
            Write::SayOnce => {
                return format!("{:?}", store.accept(owner, &deduped(more(task, "m-3"))).await);
            }
        };
        let mut updates: Vec<Update> = state.map(|s| status(s, "words")).into_iter().collect();
        if write == Write::Artifact {
            updates.push(chunk("a", "x", true));
        }
        let report = Report { lease: self.lease, turn: 1, sequence: 1, updates, end };
        format!("{:?}", store.report(owner, task, &report).await)
    }

    /// All that is stored of it, without what differs between two tasks of one story.
    async fn stored(&self, admin: &Client) -> String {
        let view = View { history: 100, artifacts: true, hidden: true };
        let record = self.store.task(&self.owner, self.task, view).await.unwrap().unwrap();
        let events = self.store.events_after(&self.owner, self.task, 0, 100).await.unwrap();
        let mut text = format!("{record:?} {events:?}");
        for state in [None, Some(TaskState::Submitted), Some(TaskState::Canceled)] {
            let query = PageQuery { state, ..everything() };
            let page = self.store.tasks_page(&self.owner, &query).await.unwrap();
            text += &format!(" {} {:?}", page.tasks.len(), page.total);
        }
        let turns = "select turn, state, last_report, lease is null, lease_until, due_at, errors,
                       interruptions
                     from turns where task_id = $1 order by turn";
        let row = "select head_turn, next_turn, lease is null, updated_at from tasks where id = $1";
        let id: &(dyn tokio_postgres::types::ToSql + Sync) = &self.task.uuid();
        for sql in [turns, row] {
            let sql = format!("select coalesce(string_agg(x::text, ' '), '') from ({sql}) x");
            text += &admin.query_one(&sql, &[id]).await.unwrap().get::<_, String>(0);
        }
        self.anonymous(&text)
    }

    fn anonymous(&self, text: &str) -> String {
        let task = self.task.to_string();
        text.replace(&task, "TASK").replace(&self.task.uuid().simple().to_string(), "TASK")
    }
}

/// What a story came to: what each was told, and what is stored.
type Outcome = (String, String, String);

/// One after the other, with nobody in the way.
async fn in_turn(case: &Case, admin: &Client, first: Write, second: Write) -> Outcome {
    let told = (case.write(first).await, case.write(second).await);
    (case.anonymous(&told.0), case.anonymous(&told.1), case.stored(admin).await)
}

/// Waits until a write has ended, or so many wait for a lock.
async fn begun(write: &JoinHandle<String>, waiting: i64, watcher: &Client) {
    let sql = "select count(*) from pg_stat_activity
               where datname = current_database() and wait_event_type = 'Lock'";
    let until = Instant::now() + PATIENCE;
    while !write.is_finished()
        && watcher.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) < waiting
    {
        assert!(Instant::now() < until, "a write neither waits nor ends");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// A database, and who looks at it from outside.
struct World {
    store: Postgres,
    clock: Arc<ManualClock>,
    holder: Client,
    watcher: Client,
    cases: usize,
}

impl World {
    async fn new(mode: StatementMode) -> Self {
        let url = postgres::fresh_url().await;
        let clock = Arc::new(ManualClock::at_us(START_US));
        let now = Some(Arc::clone(&clock) as Arc<dyn Clock>);
        let store = postgres::open_with(&url, now, mode).await;
        let (holder, watcher) = (postgres::admin(&url).await, postgres::admin(&url).await);
        Self { store, clock, holder, watcher, cases: 0 }
    }

    async fn case(&mut self, stands: Stands) -> Case {
        self.cases += 1;
        Case::new(&self.store, stands, self.cases).await
    }

    async fn run(&mut self, pair: Pair, about: &str) {
        let Pair { stands, held, first, second } = pair;
        let case = self.case(stands).await;
        let lock = held.by(&mut self.holder, case.task).await;
        let spawn = |write| {
            let case = case.clone();
            tokio::spawn(async move { case.write(write).await })
        };
        let one = spawn(first);
        begun(&one, 1, &self.watcher).await;
        let first_waits = i64::from(!one.is_finished());
        let two = spawn(second);
        begun(&two, first_waits + 1, &self.watcher).await;
        lock.commit().await.unwrap();
        let told = (one.await.unwrap(), two.await.unwrap());
        let forced =
            (case.anonymous(&told.0), case.anonymous(&told.1), case.stored(&self.watcher).await);

        // Mostly the first is first. Not where the second needs nothing of the row, and not where
        // the first lets go of the row to take it again, for what it could not see at first.
        let same = self.case(stands).await;
        let one_two = in_turn(&same, &self.watcher, first, second).await;
        let same = self.case(stands).await;
        let (two, one, stored) = in_turn(&same, &self.watcher, second, first).await;
        let two_one = (one, two, stored);
        assert!(
            forced == one_two || forced == two_one,
            "{about}: {pair:?}: together they made\n{forced:#?}\none after the other\n\
             {one_two:#?}\nor\n{two_one:#?}"
        );
    }
}

/// How many databases work at a time.
const WORLDS: usize = 4;
/// How many pairs the short form takes.
const SOME: usize = 240;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_writes_that_meet_at_a_row_the_second_decides_on_what_the_first_left() {
    let seed = seed();
    println!("A2AD_SEED={seed}");
    let about = format!("A2AD_SEED={seed}");
    let mut pairs = all_pairs();
    let mut random = Random(seed);
    if !torture() {
        pairs = (0..SOME).map(|_| *random.pick(&pairs)).collect();
    }
    let shares = (0..WORLDS).map(|n| {
        let mode = if n % 2 == 0 { StatementMode::Typed } else { StatementMode::Cached };
        // All of them in both modes: each half of the worlds takes every pair.
        let step = WORLDS / 2;
        let share: Vec<_> = pairs.iter().skip(n / 2).step_by(step).copied().collect();
        let about = about.clone();
        tokio::spawn(async move {
            let mut world = World::new(mode).await;
            for pair in share {
                world.run(pair, &about).await;
            }
            world.store.close().await;
        })
    });
    for share in join_all(shares.collect::<Vec<_>>()).await {
        share.unwrap();
    }
}

/// Nobody waits for long: a claim that did would hold up every turn behind it.
async fn at_once<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("it waits for a row")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_and_a_release_pass_over_what_somebody_holds_and_find_it_later() {
    let mut world = World::new(StatementMode::Typed).await;
    for held in [Held::Task, Held::Turn] {
        let case = world.case(Stands::Queued).await;
        let (store, clock) = (world.store.clone(), Arc::clone(&world.clock));
        let claim = || at_once(store.claim_turns_of_all(9, LEASE));
        let release = || at_once(store.release_expired_of_all(9));
        let lock = held.by(&mut world.holder, case.task).await;
        assert!(claim().await.unwrap().is_empty(), "{held:?}");
        lock.commit().await.unwrap();
        assert_eq!(claim().await.unwrap().len(), 1, "{held:?}");
        clock.advance(LEASE + Duration::from_millis(1));
        let lock = held.by(&mut world.holder, case.task).await;
        assert_eq!(release().await.unwrap(), 0, "{held:?}");
        lock.commit().await.unwrap();
        assert_eq!(release().await.unwrap(), 1, "{held:?}");
        let again = claim().await.unwrap();
        assert_eq!(again.len(), 1, "{held:?}");
        assert_eq!((again[0].task, again[0].interruptions), (case.task, 1));
        case.write(Write::Cancel).await;
        case.write(Write::FinishCancel).await;
    }
}

/// The database's own clock, read before the wait for the row, would put a change before what it
/// waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stamp_is_read_after_the_wait_for_the_row() {
    let url = postgres::fresh_url().await;
    let store = postgres::open(&url, None).await;
    let (mut holder, watcher) = (postgres::admin(&url).await, postgres::admin(&url).await);
    let now = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint";
    for (n, (stands, write)) in [
        (Stands::Running, Write::Working),
        (Stands::Running, Write::Artifact),
        (Stands::Behind, Write::Complete),
        (Stands::Behind, Write::Ask),
        (Stands::HiddenRunning, Write::Reply),
        (Stands::HiddenRunning, Write::Show),
        (Stands::Running, Write::Cancel),
        (Stands::Canceling, Write::FinishCancel),
        (Stands::Asked, Write::Cancel),
        (Stands::Asked, Write::Say),
    ]
    .into_iter()
    .enumerate()
    {
        let case = Case::new(&store, stands, n).await;
        let lock = Held::Task.by(&mut holder, case.task).await;
        let writing = {
            let case = case.clone();
            tokio::spawn(async move { case.write(write).await })
        };
        begun(&writing, 1, &watcher).await;
        let free_at: i64 = lock.query_one(now, &[]).await.unwrap().get(0);
        lock.commit().await.unwrap();
        writing.await.unwrap();
        let sql = "select status_at, updated_at, state from tasks where id = $1";
        let row = watcher.query_one(sql, &[&case.task.uuid()]).await.unwrap();
        let (status_at, updated_at): (i64, i64) = (row.get(0), row.get(1));
        assert!(updated_at >= free_at, "{stands:?} {write:?}: {updated_at} < {free_at}");
        let is_status = matches!(
            (stands, write),
            (_, Write::Working | Write::Complete | Write::Ask | Write::FinishCancel)
                | (Stands::Asked, Write::Cancel)
        );
        let floor = free_at - free_at % 1000;
        assert_eq!(status_at >= floor, is_status, "{stands:?} {write:?}: {status_at} {free_at}");
    }
}
