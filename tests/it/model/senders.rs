//! Messages, and what else callers ask for.

use std::time::Duration;

use a2ad::contract::v1::TaskState;
use a2ad::domain::TaskId;
use a2ad::store::{Accept, Accepted, CancelRequested, LeaseRequest, Shown, Target};

use super::task::{Of, Task, Turn, us};
use super::{Model, Sent};
use crate::store::{LEASE, accepted, context, deduped, message, more, new, no_lease};

const WINDOW: Duration = Duration::from_secs(40);

impl Model<'_> {
    /// A message id that is new or was sent like this before, and perhaps other content.
    fn with_some_message(&mut self, owner: usize, accept: Accept) -> Accept {
        let sent_to = match &accept.target {
            Target::New { .. } => String::new(),
            Target::Existing { task, .. } => task.to_string(),
        };
        let before = self.sent.keys().filter(|(by, to, _)| (*by, to) == (owner, &sent_to));
        let before: Vec<_> = before.map(|(_, _, id)| id.clone()).collect();
        let is_repeat = !before.is_empty() && self.random.chance(4);
        let id = if is_repeat { self.random.pick(&before).clone() } else { self.fresh_id() };
        let mut accept = Accept { message: message(&id, "x"), ..accept };
        if self.random.chance(5) {
            accept.message.parts.push(a2ad::agent::text_part("more"));
        }
        if self.random.chance(3) {
            accept.lease = Some(LeaseRequest { token: no_lease(), lease: LEASE });
        }
        if self.random.chance(5) {
            return accept;
        }
        let mut accept = deduped(accept);
        accept.dedupe.as_mut().unwrap().window = WINDOW;
        accept
    }

    fn key(owner: usize, accept: &Accept) -> Option<(usize, String, String)> {
        let dedupe = accept.dedupe.as_ref()?;
        Some((owner, dedupe.task.clone(), accept.message.message_id.clone()))
    }

    /// What a message is answered with that came before.
    fn earlier(&self, owner: usize, accept: &Accept) -> Option<Accepted> {
        let sent = self.sent.get(&Self::key(owner, accept)?)?;
        if sent.expires_at <= self.now() {
            return None;
        }
        let is_same = sent.parts == accept.message.parts.len();
        Some(if is_same { Accepted::Repeat(sent.turn) } else { Accepted::OtherContent })
    }

    /// Keeps what a message made, and leases its turn if that was asked for and given.
    fn remember(&mut self, owner: usize, accept: &Accept, answer: Accepted) {
        let turn = accepted(answer);
        let now = self.now();
        if let Some(key) = Self::key(owner, accept) {
            let parts = accept.message.parts.len();
            let told = a2ad::store::AcceptedTurn { leased: false, ..turn };
            self.sent.insert(key, Sent { turn: told, parts, expires_at: now + us(WINDOW) });
        }
        let task = self.tasks.get_mut(&turn.task).unwrap();
        let place = usize::try_from(turn.turn).unwrap() - 1;
        assert_eq!(task.turns.len(), place + 1);
        let is_head = task.turns[place].is == Of::Queued;
        assert_eq!(turn.leased, is_head && accept.lease.is_some());
        if let (true, Some(lease)) = (turn.leased, accept.lease) {
            task.turns[place].take(lease.token, now + us(LEASE));
        }
    }

    pub(super) async fn begin(&mut self) {
        let owner = self.random.below(self.owners.len());
        let name = format!("c-{}", self.random.below(3));
        let shown = self.random.chance(2);
        let accept = self.with_some_message(owner, new(&name, shown));
        let answer = self.bed.accept(&self.owners[owner], accept.clone()).await;
        if let Some(earlier) = self.earlier(owner, &accept) {
            return assert_eq!(answer, earlier, "{accept:?}");
        }
        let turn = accepted(answer.clone());
        assert_eq!((turn.task, turn.turn, turn.generation), (accept.target.task(), 1, 1));
        let task = Task::new(owner, &name, shown, &accept.message.message_id, self.now());
        self.tasks.insert(turn.task, task);
        self.remember(owner, &accept, answer);
    }

    pub(super) async fn go_on(&mut self) {
        let Some(id) = self.some_task() else { return };
        let now = self.now();
        let task = self.tasks[&id].clone();
        let by = self.some_scope(&task);
        let mut accept = self.with_some_message(by, more(id, ""));
        let elsewhere = self.random.chance(6);
        if elsewhere {
            let target = Some(context("elsewhere"));
            accept.target = Target::Existing { task: id, context: target };
        }
        let answer = self.bed.accept(&self.owners[by], accept.clone()).await;
        if let Some(earlier) = self.earlier(by, &accept) {
            return assert_eq!(answer, earlier, "{accept:?}");
        }
        if by != task.owner || !task.shown {
            return assert_eq!(answer, Accepted::NotFound);
        }
        if elsewhere {
            return assert_eq!(answer, Accepted::OtherContext);
        }
        if task.state.is_terminal() {
            return assert_eq!(answer, Accepted::Ended(task.state));
        }
        let turn = accepted(answer.clone());
        assert_eq!(turn.generation, task.generation());
        let is = if task.head().is_none() { Of::Queued } else { Of::Blocked };
        let task = self.tasks.get_mut(&id).unwrap();
        task.touch(now);
        task.say(&accept.message.message_id);
        task.turns.push(Turn::new(is, &accept.message.message_id, now));
        self.remember(by, &accept, answer);
    }

    pub(super) async fn show_or_cancel(&mut self) {
        let Some(id) = self.some_task() else { return };
        let task = self.tasks[&id].clone();
        let by = self.some_scope(&task);
        match self.random.below(3) {
            0 => self.show(id, by).await,
            1 => self.request_cancel(id, by).await,
            _ => self.finish_cancel(id, by).await,
        }
    }

    async fn show(&mut self, id: TaskId, by: usize) {
        let now = self.now();
        let answer = self.bed.store.show(&self.owners[by], id).await.unwrap();
        let task = self.tasks.get_mut(&id).unwrap();
        let expected = match (by == task.owner, task.reply.is_some()) {
            (false, _) => Shown::NotFound,
            (true, true) => Shown::Replied,
            (true, false) => Shown::Yes,
        };
        assert_eq!(answer, expected);
        if answer == Shown::Yes && !task.shown {
            task.shown = true;
            task.touch(now);
        }
    }

    async fn request_cancel(&mut self, id: TaskId, by: usize) {
        let now = self.now();
        let answer = self.bed.store.request_cancel(&self.owners[by], id, None).await.unwrap();
        let task = self.tasks.get_mut(&id).unwrap();
        let expected = if by != task.owner || !task.shown {
            CancelRequested::NotFound
        } else if task.state.is_terminal() {
            CancelRequested::Ended(task.state)
        } else if task.lease().is_some() {
            task.cancel_at.get_or_insert(now);
            CancelRequested::Requested
        } else {
            task.cancel(now);
            assert_eq!(task.state, TaskState::Canceled);
            CancelRequested::Canceled
        };
        assert_eq!(answer, expected);
    }

    async fn finish_cancel(&mut self, id: TaskId, by: usize) {
        let now = self.now();
        let answer = self.bed.store.finish_cancel(&self.owners[by], id).await.unwrap();
        let task = self.tasks.get_mut(&id).unwrap();
        let is_wanted = task.cancel_at.is_some() && !task.state.is_terminal();
        assert_eq!(answer, by == task.owner && is_wanted);
        if answer {
            task.cancel(now);
        }
    }
}
