//! Everybody at once on one task: runners, senders, cancels, lost leases. Whatever the order in
//! which they meet, what each was told is what is stored.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use a2ad::contract::v1::TaskState;
use a2ad::contract::v1::stream_response::Payload;
use a2ad::domain::{Clock, ManualClock, Scope, TaskId};
use a2ad::store::postgres::StatementMode;
use a2ad::store::sqlite::{Location, Settings, Sqlite};
use a2ad::store::{
    Accepted, CancelRequested, Event, HeldLease, PageQuery, Replied, Reply, Report, Reported,
    Store, Turn, TurnEnd, View,
};
use futures_util::future::join_all;

use crate::store::{
    LEASE, START_US, accepted, chunk, everything, message, more, new, scope, state_of, status,
};
use crate::support::{Random, postgres, rounds, seed};

/// What an actor was told.
#[derive(Debug, Default)]
struct Told {
    /// Chunks whose report landed.
    landed: Vec<String>,
    /// Chunks whose report was refused.
    refused: Vec<String>,
    /// Messages that were accepted.
    said: Vec<String>,
    /// Messages that were not.
    unsaid: Vec<String>,
    /// Ends that were reported and landed, and cancels that took effect.
    ends: Vec<TaskState>,
}

impl Told {
    fn and(mut self, other: Self) -> Self {
        self.landed.extend(other.landed);
        self.refused.extend(other.refused);
        self.said.extend(other.said);
        self.unsaid.extend(other.unsaid);
        self.ends.extend(other.ends);
        self
    }
}

/// One actor on one store of the database.
struct Actor {
    store: Arc<dyn Store>,
    clock: Arc<ManualClock>,
    owner: Scope,
    task: TaskId,
    name: String,
    random: Random,
    reports: u32,
    told: Told,
}

impl Actor {
    /// Claims whatever is due and reports a few times, with or without an end.
    async fn run(&mut self) {
        for turn in self.store.claim_turns_of_all(2, LEASE).await.unwrap() {
            let mut sequence = turn.last_report;
            for _ in 0..=self.random.below(3) {
                let lost = self.random.chance(3) && !self.renew(&turn).await;
                sequence += 1;
                let landed_before = self.told.landed.len();
                let goes_on = self.report(&turn, sequence).await;
                let landed = self.told.landed.len() > landed_before;
                assert!(!(lost && landed), "a report landed after its lease was lost");
                if !goes_on {
                    break;
                }
            }
        }
    }

    /// Whether the lease is still held.
    async fn renew(&self, turn: &Turn) -> bool {
        let held = HeldLease {
            scope: turn.scope.clone(),
            task: turn.task,
            turn: turn.turn,
            lease: turn.lease,
        };
        let renewed = self.store.renew_leases_of_all(&[held], LEASE).await.unwrap();
        assert!(renewed.iter().all(|renewed| renewed.lease == turn.lease));
        renewed.len() == 1
    }

    /// Returns whether the turn goes on.
    async fn report(&mut self, turn: &Turn, sequence: i64) -> bool {
        self.reports += 1;
        // Its first two words say by which lease of which turn it came.
        let lease = turn.lease.uuid().simple();
        let text = format!("{} {lease} {}-{sequence}-{}", turn.turn, self.name, self.reports);
        if self.random.chance(12) {
            let reply = Reply {
                lease: turn.lease,
                turn: turn.turn,
                sequence,
                message: message(&text, "direct"),
            };
            let replied = self.store.reply(&turn.scope, turn.task, &reply).await.unwrap();
            if replied == Replied::Completed {
                self.told.ends.push(TaskState::Completed);
            }
            return false;
        }
        let mut updates = vec![chunk("a", &text, true)];
        let end = match self.random.below(8) {
            0 => Some((Some(TaskState::Completed), TurnEnd::Finished)),
            1 => Some((Some(TaskState::Failed), TurnEnd::Finished)),
            2 => Some((Some(TaskState::InputRequired), TurnEnd::Finished)),
            3 => Some((None, TurnEnd::HandedBack)),
            4 => Some((None, TurnEnd::Failed { retry_in: Duration::ZERO })),
            _ => None,
        };
        let state = end.as_ref().and_then(|(state, _)| *state);
        updates.extend(state.map(|state| status(state, &text)));
        let report = Report {
            lease: turn.lease,
            turn: turn.turn,
            sequence,
            updates,
            end: end.as_ref().map(|(_, end)| end.clone()),
        };
        let send = || self.store.report(&turn.scope, turn.task, &report);
        // Sometimes the answer is lost and the report comes again, even at the same time.
        let (first, second) = if self.random.chance(4) {
            let (a, b) = futures_util::future::join(send(), send()).await;
            (a.unwrap(), Some(b.unwrap()))
        } else {
            (send().await.unwrap(), None)
        };
        let answers: Vec<_> = [Some(first), second].into_iter().flatten().collect();
        let landed =
            answers.iter().filter(|answer| matches!(answer, Reported::Landed { .. })).count();
        // The other answer may be stale: the turn may have had its next runner in between.
        assert!(landed <= 1, "one report landed twice: {answers:?}");
        if landed == 1 {
            self.told.landed.push(text);
            self.told.ends.extend(state.filter(|state| state.is_terminal()));
        } else {
            assert_eq!(answers, vec![Reported::Stale; answers.len()]);
            self.told.refused.push(text);
        }
        landed == 1 && end.is_none()
    }

    async fn say(&mut self, n: usize) {
        let id = format!("{}-m{n}", self.name);
        match self.store.accept(&self.owner, &more(self.task, &id)).await.unwrap() {
            Accepted::New(_) => self.told.said.push(id),
            Accepted::Ended(_) | Accepted::NotFound => self.told.unsaid.push(id),
            other => panic!("{other:?}"),
        }
    }

    async fn cancel(&mut self) {
        let canceled = match self.store.request_cancel(&self.owner, self.task, None).await.unwrap()
        {
            CancelRequested::Canceled => true,
            CancelRequested::Requested if self.random.chance(2) => {
                self.store.finish_cancel(&self.owner, self.task).await.unwrap()
            }
            CancelRequested::Requested | CancelRequested::Ended(_) | CancelRequested::NotFound => {
                false
            }
        };
        if canceled {
            self.told.ends.push(TaskState::Canceled);
        }
    }

    async fn lose_leases(&mut self) {
        self.clock.advance(LEASE + Duration::from_millis(1));
        self.store.release_expired_of_all(9).await.unwrap();
    }

    async fn renew_nothing(&mut self) {
        let (scope, lease) = (self.owner.clone(), crate::store::no_lease());
        let forged = HeldLease { scope, task: self.task, turn: 1, lease };
        let renewed = self.store.renew_leases_of_all(&[forged], LEASE).await.unwrap();
        assert!(renewed.is_empty());
    }

    async fn act(mut self) -> Told {
        for n in 0..4 {
            match self.random.below(16) {
                0..=8 => self.run().await,
                9..=10 => self.say(n).await,
                11 => self.cancel().await,
                12 => self.lose_leases().await,
                13 => drop(self.store.show(&self.owner, self.task).await.unwrap()),
                14 => drop(self.store.fold_counts_of_all(3).await.unwrap()),
                _ => self.renew_nothing().await,
            }
        }
        self.told
    }
}

/// A listing is walked after each race, so an owner has no more tasks than make a few pages of it:
/// with one owner for all, what a race costs grew with the number of races.
const RACES_OF_AN_OWNER: u64 = 150;

/// One task, eight actors on two stores of one database.
async fn race(stores: &[Arc<dyn Store>; 2], clock: &Arc<ManualClock>, owner: &Scope, seed: u64) {
    let mut random = Random(seed);
    let begun = stores[0].accept(owner, &new("c", random.chance(2))).await.unwrap();
    let task = accepted(begun).task;
    let actors = (0..8).map(|n| {
        let actor = Actor {
            store: Arc::clone(&stores[n % 2]),
            clock: Arc::clone(clock),
            owner: owner.clone(),
            task,
            name: format!("{seed}-{n}"),
            random: Random(random.next()),
            reports: 0,
            told: Told::default(),
        };
        tokio::spawn(actor.act())
    });
    let told = join_all(actors).await.into_iter().map(Result::unwrap);
    let told = told.fold(Told::default(), Told::and);
    check(stores, owner, task, &told, seed).await;
    // Nothing of this task may be due in the next round.
    let mut left = stores[1].task(owner, task, whole()).await.unwrap().unwrap();
    while !state_of(&left.task).is_terminal() && left.reply.is_none() {
        stores[0].show(owner, task).await.unwrap();
        stores[0].request_cancel(owner, task, None).await.unwrap();
        stores[0].finish_cancel(owner, task).await.unwrap();
        left = stores[0].task(owner, task, whole()).await.unwrap().unwrap();
    }
}

fn whole() -> View {
    View { history: 1000, artifacts: true, hidden: true }
}

/// Reports of one lease at a time landed: once another one's did, none of the first did again, and
/// no turn went on after the next one had begun.
fn check_epochs(stored: &[String], context: &str) {
    let mut epochs: Vec<(i64, &str)> = stored
        .iter()
        .map(|text| {
            let (turn, rest) = text.split_once(' ').unwrap();
            (turn.parse().unwrap(), rest.split_once(' ').unwrap().0)
        })
        .collect();
    epochs.dedup();
    let distinct: BTreeSet<_> = epochs.iter().collect();
    assert_eq!(distinct.len(), epochs.len(), "two runners at once: {context}");
    assert!(epochs.is_sorted_by_key(|(turn, _)| *turn), "turns out of order: {context}");
}

async fn check(stores: &[Arc<dyn Store>; 2], owner: &Scope, task: TaskId, told: &Told, seed: u64) {
    let record = stores[1].task(owner, task, whole()).await.unwrap().unwrap();
    let context = format!("A2AD_SEED={seed}: {told:?} {record:?}");
    let state = state_of(&record.task);
    assert!(told.ends.len() <= 1, "two winners: {context}");
    assert_eq!(state.is_terminal(), !told.ends.is_empty(), "{context}");
    if let Some(end) = told.ends.first() {
        assert_eq!(state, *end, "{context}");
    }
    let stored: Vec<_> = record.task.artifacts.iter().flat_map(crate::rig::parts).collect();
    let distinct: BTreeSet<_> = stored.iter().collect();
    assert_eq!(distinct.len(), stored.len(), "a chunk is there twice: {context}");
    assert_eq!(distinct, told.landed.iter().collect(), "{context}");
    assert!(told.refused.iter().all(|text| !distinct.contains(text)), "{context}");
    check_epochs(&stored, &context);
    let history: Vec<_> = record.task.history.iter().map(|m| m.message_id.clone()).collect();
    let distinct: BTreeSet<_> = history.iter().collect();
    assert_eq!(distinct.len(), history.len(), "a message is there twice: {context}");
    assert!(told.said.iter().all(|id| distinct.contains(id)), "{context}");
    assert!(told.unsaid.iter().all(|id| !distinct.contains(id)), "{context}");
    let query = PageQuery { limit: 100, ..everything() };
    if record.shown {
        let events = stores[0].events_after(owner, task, 0, 10_000).await.unwrap().unwrap();
        let numbers: Vec<_> = events.iter().map(|event| event.generation).collect();
        assert_eq!(numbers, (1..=record.generation).collect::<Vec<_>>(), "{context}");
        let is_artifact =
            |event: &&Event| matches!(event.response.payload, Some(Payload::ArtifactUpdate(_)));
        let artifacts = events.iter().filter(is_artifact).count();
        assert_eq!(artifacts, told.landed.len(), "an event for each: {context}");
        let times: Vec<_> = events
            .iter()
            .filter_map(|event| match event.response.payload.as_ref()? {
                Payload::StatusUpdate(update) => {
                    let status = update.status.as_ref()?;
                    Some((status.timestamp.as_ref()?.to_micros()?, status.state()))
                }
                _ => None,
            })
            .collect();
        assert!(times.windows(2).all(|pair| pair[0].0 <= pair[1].0), "{context}");
        let ends = times.iter().filter(|(_, state)| state.is_terminal()).count();
        assert_eq!(ends, told.ends.len(), "{context}");
        if ends == 1 {
            let last = events.last().unwrap();
            let is_status = matches!(last.response.payload, Some(Payload::StatusUpdate(_)));
            assert!(is_status, "something after the end: {context}");
        }
    }
    for state in [None, Some(state)] {
        let query = PageQuery { state, ..query.clone() };
        let page = stores[0].tasks_page(owner, &query).await.unwrap();
        let mut counted = page.tasks.len();
        let mut next = page.next;
        while next.is_some() {
            let query = PageQuery { after: next, total: false, ..query.clone() };
            let page = stores[0].tasks_page(owner, &query).await.unwrap();
            counted += page.tasks.len();
            next = page.next;
        }
        assert_eq!(page.total, Some(i64::try_from(counted).unwrap()), "{context}");
    }
}

async fn races(stores: [Arc<dyn Store>; 2], clock: Arc<ManualClock>) {
    let first = seed();
    println!("A2AD_SEED={first}");
    for n in 0..rounds(150, 10_000) {
        let owner = scope("acme", &format!("key:{}", n / RACES_OF_AN_OWNER));
        race(&stores, &clock, &owner, first.wrapping_add(n)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_sqlite_what_each_was_told_is_what_is_stored() {
    let clock = Arc::new(ManualClock::at_us(START_US));
    let settings = Settings::new(Location::Memory, Arc::clone(&clock) as Arc<dyn Clock>);
    let store: Arc<dyn Store> = Arc::new(Sqlite::open(settings).await.unwrap());
    races([Arc::clone(&store), store], clock).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgres_what_each_was_told_is_what_is_stored() {
    let clock = Arc::new(ManualClock::at_us(START_US));
    let url = postgres::fresh_url().await;
    let open = |mode| postgres::open_with(&url, Some(Arc::clone(&clock) as Arc<dyn Clock>), mode);
    let (typed, cached) = (open(StatementMode::Typed).await, open(StatementMode::Cached).await);
    let stores: [Arc<dyn Store>; 2] = [Arc::new(typed), Arc::new(cached)];
    races(stores, clock).await;
}
