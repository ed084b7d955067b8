//! Both stores against a model of ordered maps: thousands of random operations, every answer
//! compared, every total compared with a plain count.

use std::collections::BTreeMap;
use std::time::Duration;

use a2ad::contract::v1::TaskState;
use a2ad::domain::{Clock as _, LeaseToken, Scope, TaskId};
use a2ad::store::postgres::StatementMode;
use a2ad::store::{
    Accept, Accepted, CancelRequested, Interrupted, PageQuery, Replied, Reply, Report, Reported,
    Shown, TurnEnd, Update, interruption_backoff,
};

use crate::store::{
    Bed, LEASE, accepted, chunk, context, deduped, everything, message, more, new, scope, state_of,
    status, status_at,
};
use crate::support::{Random, rounds, seed};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Blocked,
    Queued,
    Leased,
    Over,
}

#[derive(Debug, Clone)]
struct Turn {
    is: Of,
    lease: Option<LeaseToken>,
    last_report: i64,
    lease_until: i64,
    due_at: i64,
    errors: i32,
    interruptions: i32,
}

#[derive(Debug, Clone)]
struct Task {
    owner: usize,
    context: String,
    shown: bool,
    reply: bool,
    state: TaskState,
    status_at: i64,
    status: Option<(i64, String)>,
    generation: i64,
    next_seq: i64,
    history: BTreeMap<i64, String>,
    artifacts: Vec<(String, Vec<String>)>,
    turns: Vec<Turn>,
    interrupted: Option<Interrupted>,
    cancel_at: Option<i64>,
}

impl Task {
    fn head(&self) -> Option<usize> {
        self.turns.iter().position(|turn| turn.is != Of::Over)
    }

    fn lease(&self) -> Option<LeaseToken> {
        let head = &self.turns[self.head()?];
        (head.is == Of::Leased).then_some(head.lease?)
    }

    fn set_status(&mut self, now: i64, turn: i64, state: TaskState, said: Option<String>) {
        self.generation += 1;
        if let Some((seq, id)) = self.status.take() {
            self.history.insert(seq, id);
        }
        self.status = said.map(|id| {
            self.next_seq += 1;
            (self.next_seq - 1, id)
        });
        self.state = state;
        self.status_at = self.status_at.max(now.div_euclid(1000) * 1000);
        if state.is_interrupted() {
            self.interrupted = Some(Interrupted { generation: self.generation, turn });
        }
        if state.is_terminal() {
            for turn in &mut self.turns {
                turn.is = Of::Over;
            }
        }
    }

    fn finish_head(&mut self, now: i64) {
        if let Some(head) = self.head() {
            self.turns[head].is = Of::Over;
            if let Some(next) = self.turns.get_mut(head + 1) {
                next.is = Of::Queued;
                next.due_at = now;
            }
        }
    }
}

struct Model<'a> {
    bed: &'a Bed,
    owners: Vec<Scope>,
    tasks: BTreeMap<TaskId, Task>,
    /// Message id and owner to what it made.
    sent: BTreeMap<(usize, String), (TaskId, u8)>,
    random: Random,
    next_message: u32,
}

impl Model<'_> {
    fn now(&self) -> i64 {
        self.bed.clock.now_us()
    }

    fn some_task(&mut self) -> Option<TaskId> {
        let ids: Vec<_> = self.tasks.keys().copied().collect();
        (!ids.is_empty()).then(|| *self.random.pick(&ids))
    }

    /// Mostly the owner of a task, sometimes another.
    fn some_scope(&mut self, task: &Task) -> usize {
        if self.random.chance(8) { self.random.below(self.owners.len()) } else { task.owner }
    }

    fn fresh_id(&mut self) -> String {
        self.next_message += 1;
        format!("m-{}", self.next_message)
    }

    async fn begin(&mut self) {
        let owner = self.random.below(self.owners.len());
        let repeats: Vec<_> =
            self.sent.keys().filter(|(by, _)| *by == owner).map(|(_, id)| id.clone()).collect();
        let repeat = !repeats.is_empty() && self.random.chance(4);
        let id = if repeat { self.random.pick(&repeats).clone() } else { self.fresh_id() };
        let name = format!("c-{}", self.random.below(3));
        let shown = self.random.chance(2);
        let mut accept = Accept { message: message(&id, "x"), ..new(&name, shown) };
        if self.random.chance(5) {
            accept.message.parts.push(a2ad::agent::text_part("more"));
        }
        let parts = u8::try_from(accept.message.parts.len()).unwrap();
        let accept = deduped(accept);
        let task = accept.target.task();
        let answer = self.bed.accept(&self.owners[owner], accept).await;
        if let Some((first, content)) = self.sent.get(&(owner, id.clone())) {
            match answer {
                Accepted::Repeat(turn) => assert_eq!((turn.task, parts), (*first, *content)),
                Accepted::OtherContent => assert_ne!(parts, *content),
                other => panic!("a repeat: {other:?}"),
            }
            return;
        }
        let turn = accepted(answer);
        assert_eq!((turn.turn, turn.generation), (1, 1));
        self.sent.insert((owner, id.clone()), (task, parts));
        let now = self.now();
        let turn = Turn {
            is: Of::Queued,
            lease: None,
            last_report: 0,
            lease_until: 0,
            due_at: now,
            errors: 0,
            interruptions: 0,
        };
        self.tasks.insert(
            task,
            Task {
                owner,
                context: name,
                shown,
                reply: false,
                state: TaskState::Submitted,
                status_at: now.div_euclid(1000) * 1000,
                status: None,
                generation: 1,
                next_seq: 1,
                history: BTreeMap::from([(0, id)]),
                artifacts: Vec::new(),
                turns: vec![turn],
                interrupted: None,
                cancel_at: None,
            },
        );
    }

    async fn go_on(&mut self) {
        let Some(id) = self.some_task() else { return };
        let now = self.now();
        let said = self.fresh_id();
        let task = self.tasks[&id].clone();
        let by = self.some_scope(&task);
        let mut accept = more(id, &said);
        let elsewhere = self.random.chance(6);
        if elsewhere {
            let target = Some(context("elsewhere"));
            accept.target = a2ad::store::Target::Existing { task: id, context: target };
        }
        let answer = self.bed.accept(&self.owners[by], accept).await;
        if by != task.owner || !task.shown {
            return assert_eq!(answer, Accepted::NotFound);
        }
        if elsewhere {
            return assert_eq!(answer, Accepted::OtherContext);
        }
        if task.state.is_terminal() {
            return assert_eq!(answer, Accepted::Ended(task.state));
        }
        let turn = accepted(answer);
        let number = i64::try_from(task.turns.len()).unwrap() + 1;
        assert_eq!((turn.turn, turn.generation), (number, task.generation));
        let is = if task.head().is_none() { Of::Queued } else { Of::Blocked };
        let task = self.tasks.get_mut(&id).unwrap();
        task.history.insert(task.next_seq, said);
        task.next_seq += 1;
        task.turns.push(Turn {
            is,
            lease: None,
            last_report: 0,
            lease_until: 0,
            due_at: now,
            errors: 0,
            interruptions: 0,
        });
    }

    async fn claim(&mut self) {
        let now = self.now();
        let limit = 1 + self.random.below(3);
        let due = |task: &Task| {
            task.head()
                .is_some_and(|h| task.turns[h].is == Of::Queued && task.turns[h].due_at <= now)
        };
        let n_due = self.tasks.values().filter(|task| due(task)).count();
        let turns =
            self.bed.store.claim_turns_of_all(u32::try_from(limit).unwrap(), LEASE).await.unwrap();
        assert_eq!(turns.len(), n_due.min(limit));
        for claimed in turns {
            let task = self.tasks.get_mut(&claimed.task).unwrap();
            assert!(due(task), "a turn was not due: {claimed:?}");
            let head = task.head().unwrap();
            let turn = &mut task.turns[head];
            let facts = (claimed.last_report, claimed.errors, claimed.interruptions);
            assert_eq!(facts, (turn.last_report, turn.errors, turn.interruptions));
            assert_eq!(claimed.turn, i64::try_from(head).unwrap() + 1);
            turn.is = Of::Leased;
            turn.lease = Some(claimed.lease);
            turn.lease_until = now + i64::try_from(LEASE.as_micros()).unwrap();
            task.shown |= turn.errors + turn.interruptions > 0;
            assert_eq!((claimed.state, claimed.shown), (task.state, task.shown));
            assert_eq!(claimed.cancel.is_some(), task.cancel_at.is_some());
        }
    }

    fn some_updates(&mut self) -> Vec<(Update, Option<(TaskState, Option<String>)>)> {
        let states = [
            TaskState::Working,
            TaskState::Working,
            TaskState::AuthRequired,
            TaskState::InputRequired,
            TaskState::Completed,
            TaskState::Failed,
        ];
        let mut updates = Vec::new();
        for _ in 0..self.random.below(4) {
            if self.random.chance(2) {
                let id = *self.random.pick(&["a", "b"]);
                let text = self.fresh_id();
                updates.push((chunk(id, &text, self.random.chance(2)), None));
                continue;
            }
            let state = *self.random.pick(&states);
            let said = if self.random.chance(2) { self.fresh_id() } else { String::new() };
            let id = (!said.is_empty()).then(|| format!("says {said}"));
            updates.push((status(state, &said), Some((state, id))));
            if a2ad::domain::task::ends_turn(state) {
                break;
            }
        }
        updates
    }

    fn some_end(&mut self, ends: bool) -> Option<TurnEnd> {
        match self.random.below(6) {
            _ if ends => Some(TurnEnd::Finished),
            0 => Some(TurnEnd::Finished),
            1 => Some(TurnEnd::Failed { retry_in: Duration::from_millis(700) }),
            2 => Some(TurnEnd::HandedBack),
            _ => None,
        }
    }

    /// A lease that some turn has or had, or nobody's.
    fn some_lease(&mut self, task: &Task) -> (i64, LeaseToken) {
        let known: Vec<_> = task
            .turns
            .iter()
            .enumerate()
            .filter_map(|(n, turn)| Some((i64::try_from(n).unwrap() + 1, turn.lease?)))
            .collect();
        if known.is_empty() || self.random.chance(10) {
            return (1, LeaseToken::generate());
        }
        // Mostly the newest: the others ended long ago.
        if self.random.chance(4) { *self.random.pick(&known) } else { known[known.len() - 1] }
    }

    /// What a report of this lease and sequence is answered with, if it does not land.
    fn refusal(
        task: &Task,
        by: usize,
        turn: i64,
        lease: LeaseToken,
        sequence: i64,
    ) -> Option<Reported> {
        let of = &task.turns[usize::try_from(turn - 1).unwrap()];
        if by != task.owner || of.lease != Some(lease) {
            Some(Reported::Stale)
        } else if of.last_report >= sequence {
            Some(Reported::Repeated)
        } else if task.lease() == Some(lease) {
            None
        } else {
            Some(Reported::Stale)
        }
    }

    async fn report(&mut self) {
        let Some(id) = self.some_task() else { return };
        let now = self.now();
        let task = self.tasks[&id].clone();
        let by = self.some_scope(&task);
        let (turn, lease) = self.some_lease(&task);
        let last = task.turns[usize::try_from(turn - 1).unwrap()].last_report;
        let sequence = if self.random.chance(6) { last.max(1) } else { last + 1 };
        let updates = self.some_updates();
        let ends = updates
            .iter()
            .filter_map(|(_, s)| s.as_ref())
            .any(|(s, _)| a2ad::domain::task::ends_turn(*s));
        let end = self.some_end(ends);
        let report = Report {
            lease,
            turn,
            sequence,
            updates: updates.iter().map(|(update, _)| update.clone()).collect(),
            end: end.clone(),
        };
        let answer = self.bed.store.report(&self.owners[by], id, &report).await.unwrap();
        if let Some(refusal) = Self::refusal(&task, by, turn, lease, sequence) {
            return assert_eq!(answer, refusal, "{report:?} {task:?}");
        }
        let task = self.tasks.get_mut(&id).unwrap();
        let head = task.head().unwrap();
        task.turns[head].last_report = sequence;
        task.shown |= !updates.is_empty();
        for (update, new_status) in updates {
            match (update, new_status) {
                (_, Some((state, said))) => task.set_status(now, turn, state, said),
                (Update::Artifact { artifact, append, .. }, None) => {
                    task.generation += 1;
                    let text = crate::rig::parts(&artifact);
                    match task.artifacts.iter_mut().find(|(id, _)| *id == artifact.artifact_id) {
                        Some((_, parts)) if append => parts.extend(text),
                        Some((_, parts)) => *parts = text,
                        None => task.artifacts.push((artifact.artifact_id, text)),
                    }
                }
                (Update::Status { .. }, None) => unreachable!(),
            }
        }
        let landed = Reported::Landed {
            generation: task.generation,
            cancel_requested: task.cancel_at.is_some(),
        };
        assert_eq!(answer, landed);
        if task.state.is_terminal() {
            return;
        }
        match end {
            Some(TurnEnd::Finished) => task.finish_head(now),
            Some(TurnEnd::Failed { retry_in }) => {
                task.turns[head].is = Of::Queued;
                task.turns[head].errors += 1;
                task.turns[head].due_at = now + i64::try_from(retry_in.as_micros()).unwrap();
            }
            Some(TurnEnd::HandedBack) => {
                task.turns[head].is = Of::Queued;
                task.turns[head].due_at = now;
            }
            None => {}
        }
    }

    async fn reply(&mut self) {
        let Some(id) = self.some_task() else { return };
        let now = self.now();
        let task = self.tasks[&id].clone();
        let (turn, lease) = self.some_lease(&task);
        let sequence = task.turns[usize::try_from(turn - 1).unwrap()].last_report + 1;
        let said = self.fresh_id();
        let reply = Reply { lease, turn, sequence, message: message(&said, "direct") };
        let answer = self.bed.store.reply(&self.owners[task.owner], id, &reply).await.unwrap();
        if let Some(refusal) = Self::refusal(&task, task.owner, turn, lease, sequence) {
            assert_eq!(refusal, Reported::Stale);
            return assert_eq!(answer, Replied::Stale);
        }
        let task = self.tasks.get_mut(&id).unwrap();
        let head = task.head().unwrap();
        task.turns[head].last_report = sequence;
        if task.shown {
            assert_eq!(answer, Replied::Completed);
            task.set_status(now, turn, TaskState::Completed, Some(said));
        } else {
            assert_eq!(answer, Replied::Direct);
            task.reply = true;
            task.finish_head(now);
        }
    }

    async fn show_or_cancel(&mut self) {
        let Some(id) = self.some_task() else { return };
        let now = self.now();
        let task = self.tasks[&id].clone();
        let by = self.some_scope(&task);
        let (mine, who) = (by == task.owner, self.owners[by].clone());
        let live = self.tasks.get_mut(&id).unwrap();
        match self.random.below(3) {
            0 => {
                let answer = self.bed.store.show(&who, id).await.unwrap();
                let expected = match (mine, task.reply) {
                    (false, _) => Shown::NotFound,
                    (true, true) => Shown::Replied,
                    (true, false) => Shown::Yes,
                };
                assert_eq!(answer, expected);
                live.shown |= answer == Shown::Yes;
            }
            1 => {
                let answer = self.bed.store.request_cancel(&who, id, None).await.unwrap();
                let expected = if !mine || !task.shown {
                    CancelRequested::NotFound
                } else if task.state.is_terminal() {
                    CancelRequested::Ended(task.state)
                } else if task.lease().is_some() {
                    live.cancel_at.get_or_insert(now);
                    CancelRequested::Requested
                } else {
                    let turn = task.head().map_or(0, |head| i64::try_from(head).unwrap() + 1);
                    live.set_status(now, turn, TaskState::Canceled, None);
                    CancelRequested::Canceled
                };
                assert_eq!(answer, expected);
            }
            _ => {
                let answer = self.bed.store.finish_cancel(&who, id).await.unwrap();
                let expected = mine && task.cancel_at.is_some() && !task.state.is_terminal();
                assert_eq!(answer, expected);
                if expected {
                    live.set_status(now, 0, TaskState::Canceled, None);
                }
            }
        }
    }

    async fn keep_house(&mut self) {
        let now = self.now();
        match self.random.below(4) {
            0 => drop(self.bed.store.fold_counts_of_all(7).await.unwrap()),
            1 => {
                let grace = Duration::from_secs(5);
                let over = now - i64::try_from(grace.as_micros()).unwrap();
                let mut ended = 0;
                for task in self.tasks.values_mut() {
                    if task.cancel_at.is_some_and(|at| at <= over) && !task.state.is_terminal() {
                        task.set_status(now, 0, TaskState::Canceled, None);
                        ended += 1;
                    }
                }
                let n = self.bed.store.finish_cancels_of_all(grace, 1000).await.unwrap();
                assert_eq!(n, ended);
            }
            _ => {
                let mut released = 0;
                for task in self.tasks.values_mut() {
                    for turn in &mut task.turns {
                        if turn.is == Of::Leased && turn.lease_until < now {
                            turn.is = Of::Queued;
                            turn.interruptions += 1;
                            let pause = interruption_backoff(turn.interruptions);
                            turn.due_at = now + i64::try_from(pause.as_micros()).unwrap();
                            released += 1;
                        }
                    }
                }
                assert_eq!(self.bed.store.release_expired_of_all(1000).await.unwrap(), released);
            }
        }
    }

    /// Everything a reader can see, compared.
    async fn compare(&mut self) {
        for (id, task) in &self.tasks {
            let record = self.bed.get(&self.owners[task.owner], *id).await;
            assert_eq!(state_of(&record.task), task.state);
            assert_eq!(status_at(&record.task), task.status_at);
            let facts = (record.generation, record.shown, record.reply.is_some());
            assert_eq!(facts, (task.generation, task.shown, task.reply));
            assert_eq!(record.interrupted, task.interrupted);
            assert_eq!(record.cancel_requested, task.cancel_at.is_some());
            let history: Vec<_> = record.task.history.iter().map(|m| &m.message_id).collect();
            assert_eq!(history, task.history.values().collect::<Vec<_>>());
            let said = record.task.status.as_ref().unwrap().message.as_ref();
            assert_eq!(said.map(|m| &m.message_id), task.status.as_ref().map(|(_, id)| id));
            let parts =
                |a: &a2ad::contract::v1::Artifact| (a.artifact_id.clone(), crate::rig::parts(a));
            let artifacts: Vec<_> = record.task.artifacts.iter().map(parts).collect();
            assert_eq!(artifacts, task.artifacts);
            if task.shown {
                let events = self.bed.events(&self.owners[task.owner], *id).await;
                let numbers: Vec<_> = events.iter().map(|event| event.generation).collect();
                assert_eq!(numbers, (1..=task.generation).collect::<Vec<_>>());
            }
        }
        for (owner, who) in self.owners.clone().iter().enumerate() {
            let name = self.random.chance(2).then(|| format!("c-{}", self.random.below(3)));
            let states = [TaskState::Submitted, TaskState::Completed, TaskState::Working];
            let state = if self.random.chance(2) { Some(*self.random.pick(&states)) } else { None };
            let mut expected: Vec<_> = self
                .tasks
                .iter()
                .filter(|(_, t)| t.owner == owner && t.shown)
                .filter(|(_, t)| name.as_ref().is_none_or(|name| *name == t.context))
                .filter(|(_, t)| state.is_none_or(|state| state == t.state))
                .map(|(id, t)| (t.status_at, *id))
                .collect();
            expected.sort_unstable();
            expected.reverse();
            let query = PageQuery { context: name.as_deref().map(context), state, ..everything() };
            let limit = u32::try_from(1 + self.random.below(9)).unwrap();
            let (tasks, total) = self.bed.walk(who, &query, limit).await;
            let found: Vec<_> =
                tasks.iter().map(|t| (status_at(t), TaskId::parse(&t.id).unwrap())).collect();
            assert_eq!(found, expected);
            assert_eq!(total, i64::try_from(expected.len()).unwrap());
        }
    }
}

async fn live(bed: &Bed, seed: u64, operations: u32) {
    println!("A2AD_SEED={seed}");
    let mut model = Model {
        bed,
        owners: vec![scope("t", "ann"), scope("t", "bob"), scope("u", "ann")],
        tasks: BTreeMap::new(),
        sent: BTreeMap::new(),
        random: Random(seed),
        next_message: 0,
    };
    for n in 0..operations {
        match model.random.below(24) {
            0..=1 if model.tasks.len() < 25 => model.begin().await,
            0..=3 => model.go_on().await,
            4..=8 => model.claim().await,
            9..=15 => model.report().await,
            16 => model.reply().await,
            17..=19 => model.show_or_cancel().await,
            20 => model.keep_house().await,
            21 => bed.clock.advance_us(i64::try_from(model.random.below(3_000)).unwrap()),
            22 => bed.clock.advance(Duration::from_millis(model.random.next() % 5_000)),
            _ => bed.clock.advance_us(-i64::try_from(model.random.below(2_000)).unwrap()),
        }
        if n % 100 == 99 {
            model.compare().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_answers_as_the_model_does() {
    for _ in 0..rounds(3, 300) {
        live(&Bed::sqlite().await, seed(), 1000).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_answers_as_the_model_does() {
    for n in 0..rounds(4, 300) {
        let mode = if n % 2 == 0 { StatementMode::Typed } else { StatementMode::Cached };
        live(&Bed::postgres_with(mode).await, seed(), 1000).await;
    }
}
