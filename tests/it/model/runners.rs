//! What runners do with turns.

use std::collections::BTreeMap;
use std::time::Duration;

use a2ad::contract::v1::TaskState;
use a2ad::domain::LeaseToken;
use a2ad::domain::task::ends_turn;
use a2ad::store::{HeldLease, Replied, Reply, Report, Reported, TurnEnd, Update};

use super::Model;
use super::task::{Of, Task, number, us};
use crate::store::{LEASE, chunk, message, status};

/// An update, and the status it sets if it sets one.
type Said = (Update, Option<(TaskState, Option<String>)>);

impl Model<'_> {
    pub(super) async fn claim(&mut self) {
        let now = self.now();
        let limit = 1 + self.random.below(3);
        let mut due: Vec<i64> = self
            .tasks
            .values()
            .filter(|task| task.is_due(now))
            .map(|task| task.turns[task.head().unwrap()].due_at)
            .collect();
        due.sort_unstable();
        due.truncate(limit);
        let limit = u32::try_from(limit).unwrap();
        let turns = self.bed.store.claim_turns_of_all(limit, LEASE).await.unwrap();
        let mut claimed_due = Vec::new();
        for claimed in turns {
            let task = self.tasks.get_mut(&claimed.task).unwrap();
            assert!(task.is_due(now), "a turn was not due: {claimed:?}");
            assert_eq!(claimed.scope, self.owners[task.owner]);
            let head = task.head().unwrap();
            task.touch(now);
            let turn = &mut task.turns[head];
            claimed_due.push(turn.due_at);
            let facts = (claimed.last_report, claimed.errors, claimed.interruptions);
            assert_eq!(facts, (turn.last_report, turn.errors, turn.interruptions));
            assert_eq!((claimed.turn, &claimed.message.message_id), (number(head), &turn.message));
            assert_ne!(Some(claimed.lease), turn.lease, "a lease is given once");
            turn.take(claimed.lease, now + us(LEASE));
            task.shown |= turn.errors + turn.interruptions > 0;
            assert_eq!((claimed.state, claimed.shown), (task.state, task.shown));
            assert_eq!(claimed.context.as_str(), task.context);
            assert_eq!(claimed.cancel.is_some(), task.cancel_at.is_some());
        }
        claimed_due.sort_unstable();
        assert_eq!(claimed_due, due, "the longest due go first");
    }

    /// Prolongs leases that are held, were held, and never were.
    pub(super) async fn renew(&mut self) {
        let now = self.now();
        let mut expected = BTreeMap::new();
        let mut held = Vec::new();
        for (id, task) in &mut self.tasks {
            for (place, turn) in task.turns.iter_mut().enumerate() {
                let Some(lease) = turn.lease.filter(|_| self.random.chance(2)) else { continue };
                let scope = self.owners[task.owner].clone();
                held.push(HeldLease { scope, task: *id, turn: number(place), lease });
                if turn.is == Of::Leased {
                    turn.lease_until = now + us(LEASE);
                    expected.insert(lease.uuid(), task.cancel_at.is_some());
                }
            }
        }
        if let Some(first) = held.first().cloned() {
            held.push(HeldLease { lease: LeaseToken::generate(), ..first.clone() });
            held.push(HeldLease { turn: first.turn + 1, ..first });
        }
        let renewed = self.bed.store.renew_leases_of_all(&held, LEASE).await.unwrap();
        let n = renewed.len();
        let renewed: BTreeMap<_, _> =
            renewed.iter().map(|r| (r.lease.uuid(), r.cancel.is_some())).collect();
        assert_eq!(n, renewed.len(), "each once");
        assert_eq!(renewed, expected);
    }

    fn some_updates(&mut self) -> Vec<Said> {
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
            if ends_turn(state) {
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
            .filter_map(|(place, turn)| Some((number(place), turn.lease?)))
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

    fn some_sequence(&mut self, task: &Task, turn: i64) -> i64 {
        let last = task.turns[usize::try_from(turn - 1).unwrap()].last_report;
        if self.random.chance(6) { last.max(1) } else { last + 1 }
    }

    pub(super) async fn report(&mut self) {
        let Some(id) = self.some_task() else { return };
        let now = self.now();
        let task = self.tasks[&id].clone();
        let by = self.some_scope(&task);
        let (turn, lease) = self.some_lease(&task);
        let sequence = self.some_sequence(&task, turn);
        let updates = self.some_updates();
        let mut states = updates.iter().filter_map(|(_, said)| said.as_ref());
        let ends = states.any(|(state, _)| ends_turn(*state));
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
        task.touch(now);
        task.turns[head].last_report = sequence;
        task.shown |= !updates.is_empty();
        for (update, said) in updates {
            match (update, said) {
                (_, Some((state, said))) => task.set_status(now, turn, state, said),
                (Update::Artifact { artifact, append, .. }, None) => {
                    let text = crate::rig::parts(&artifact);
                    task.add(turn, artifact.artifact_id, text, append);
                }
                (Update::Status { .. }, None) => unreachable!(),
            }
        }
        let landed = Reported::Landed {
            generation: task.generation(),
            cancel_requested: task.cancel_at.is_some(),
        };
        assert_eq!(answer, landed);
        if task.state.is_terminal() {
            return;
        }
        match end {
            Some(TurnEnd::Finished) => task.finish_head(now),
            Some(TurnEnd::Failed { retry_in }) => {
                task.turns[head].errors += 1;
                task.turns[head].rest(now + us(retry_in));
            }
            Some(TurnEnd::HandedBack) => task.turns[head].rest(now),
            None => {}
        }
    }

    pub(super) async fn reply(&mut self) {
        let Some(id) = self.some_task() else { return };
        let now = self.now();
        let task = self.tasks[&id].clone();
        let by = self.some_scope(&task);
        let (turn, lease) = self.some_lease(&task);
        let sequence = self.some_sequence(&task, turn);
        let said = self.fresh_id();
        let reply = Reply { lease, turn, sequence, message: message(&said, "direct") };
        let answer = self.bed.store.reply(&self.owners[by], id, &reply).await.unwrap();
        if let Some(refusal) = Self::refusal(&task, by, turn, lease, sequence) {
            let repeated = refusal == Reported::Repeated;
            let expected = if repeated { Replied::Repeated } else { Replied::Stale };
            return assert_eq!(answer, expected, "{reply:?} {task:?}");
        }
        let task = self.tasks.get_mut(&id).unwrap();
        let head = task.head().unwrap();
        task.touch(now);
        task.turns[head].last_report = sequence;
        if task.shown {
            assert_eq!(answer, Replied::Completed);
            task.set_status(now, turn, TaskState::Completed, Some(said));
        } else {
            assert_eq!(answer, Replied::Direct);
            task.reply = Some(said);
            task.finish_head(now);
        }
    }
}
