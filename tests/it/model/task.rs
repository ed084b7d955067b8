//! The model's idea of a task.

use std::collections::BTreeMap;
use std::time::Duration;

use a2ad::contract::v1::TaskState;
use a2ad::domain::LeaseToken;
use a2ad::store::Interrupted;

pub(super) fn us(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap()
}

pub(super) fn floor_ms(at: i64) -> i64 {
    at.div_euclid(1000) * 1000
}

/// A place in a list as the number of a turn.
pub(super) fn number(place: usize) -> i64 {
    i64::try_from(place).unwrap() + 1
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    Blocked,
    Queued,
    Leased,
    Over,
}

#[derive(Debug, Clone)]
pub(super) struct Turn {
    pub(super) is: Of,
    pub(super) message: String,
    pub(super) lease: Option<LeaseToken>,
    pub(super) last_report: i64,
    pub(super) lease_until: i64,
    pub(super) due_at: i64,
    pub(super) errors: i32,
    pub(super) interruptions: i32,
}

impl Turn {
    pub(super) fn new(is: Of, message: &str, now: i64) -> Self {
        Self {
            is,
            message: message.to_owned(),
            lease: None,
            last_report: 0,
            lease_until: 0,
            due_at: now,
            errors: 0,
            interruptions: 0,
        }
    }

    pub(super) fn take(&mut self, lease: LeaseToken, until: i64) {
        self.is = Of::Leased;
        self.lease = Some(lease);
        self.lease_until = until;
    }

    pub(super) fn rest(&mut self, until: i64) {
        self.is = Of::Queued;
        self.due_at = until;
    }
}

/// An entry of the log: its turn, and state and time of a status.
pub(super) type Entry = (i64, Option<(TaskState, i64)>);

#[derive(Debug, Clone)]
pub(super) struct Task {
    pub(super) owner: usize,
    pub(super) context: String,
    pub(super) shown: bool,
    pub(super) reply: Option<String>,
    pub(super) state: TaskState,
    pub(super) status_at: i64,
    pub(super) status: Option<(i64, String)>,
    pub(super) log: Vec<Entry>,
    pub(super) next_seq: i64,
    pub(super) history: BTreeMap<i64, String>,
    pub(super) artifacts: Vec<(String, Vec<String>)>,
    pub(super) turns: Vec<Turn>,
    pub(super) interrupted: Option<Interrupted>,
    pub(super) cancel_at: Option<i64>,
    pub(super) created_at: i64,
    pub(super) updated_at: i64,
}

impl Task {
    pub(super) fn new(owner: usize, context: &str, shown: bool, message: &str, now: i64) -> Self {
        Self {
            owner,
            context: context.to_owned(),
            shown,
            reply: None,
            state: TaskState::Submitted,
            status_at: floor_ms(now),
            status: None,
            log: vec![(1, Some((TaskState::Submitted, floor_ms(now))))],
            next_seq: 1,
            history: BTreeMap::from([(0, message.to_owned())]),
            artifacts: Vec::new(),
            turns: vec![Turn::new(Of::Queued, message, now)],
            interrupted: None,
            cancel_at: None,
            created_at: now,
            updated_at: now,
        }
    }

    pub(super) fn generation(&self) -> i64 {
        i64::try_from(self.log.len()).unwrap()
    }

    pub(super) fn head(&self) -> Option<usize> {
        self.turns.iter().position(|turn| turn.is != Of::Over)
    }

    pub(super) fn lease(&self) -> Option<LeaseToken> {
        let head = &self.turns[self.head()?];
        (head.is == Of::Leased).then_some(head.lease?)
    }

    pub(super) fn is_due(&self, now: i64) -> bool {
        let head = self.head().map(|head| &self.turns[head]);
        head.is_some_and(|head| head.is == Of::Queued && head.due_at <= now)
    }

    pub(super) fn touch(&mut self, now: i64) {
        self.updated_at = now.max(self.updated_at + 1);
    }

    pub(super) fn say(&mut self, id: &str) {
        self.history.insert(self.next_seq, id.to_owned());
        self.next_seq += 1;
    }

    pub(super) fn set_status(
        &mut self,
        now: i64,
        turn: i64,
        state: TaskState,
        said: Option<String>,
    ) {
        if let Some((seq, id)) = self.status.take() {
            self.history.insert(seq, id);
        }
        self.status = said.map(|id| {
            self.next_seq += 1;
            (self.next_seq - 1, id)
        });
        self.state = state;
        self.status_at = self.status_at.max(floor_ms(now));
        self.log.push((turn, Some((state, self.status_at))));
        if state.is_interrupted() {
            self.interrupted = Some(Interrupted { generation: self.generation(), turn });
        }
        if state.is_terminal() {
            for turn in &mut self.turns {
                turn.is = Of::Over;
            }
        }
    }

    pub(super) fn cancel(&mut self, now: i64) {
        let turn = self.head().map_or(0, number);
        self.touch(now);
        self.set_status(now, turn, TaskState::Canceled, None);
    }

    pub(super) fn add(&mut self, turn: i64, id: String, text: Vec<String>, append: bool) {
        self.log.push((turn, None));
        match self.artifacts.iter_mut().find(|(known, _)| *known == id) {
            Some((_, parts)) if append => parts.extend(text),
            Some((_, parts)) => *parts = text,
            None => self.artifacts.push((id, text)),
        }
    }

    pub(super) fn finish_head(&mut self, now: i64) {
        if let Some(head) = self.head() {
            self.turns[head].is = Of::Over;
            if let Some(next) = self.turns.get_mut(head + 1) {
                next.rest(now);
            }
        }
    }
}
