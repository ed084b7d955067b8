//! Everything a reader can see, compared.

use a2ad::contract::v1::stream_response::Payload;
use a2ad::contract::v1::{self, TaskState};
use a2ad::domain::TaskId;
use a2ad::store::{Event, PageQuery, View};

use super::Model;
use super::task::{Entry, Task};
use crate::store::{context, everything, state_of, status_at};

fn entry(event: &Event) -> Entry {
    match event.response.payload.as_ref().unwrap() {
        Payload::StatusUpdate(update) => {
            let status = update.status.as_ref().unwrap();
            let at = status.timestamp.as_ref().unwrap().to_micros().unwrap();
            (event.turn, Some((status.state(), at)))
        }
        Payload::ArtifactUpdate(_) => (event.turn, None),
        other => panic!("no update: {other:?}"),
    }
}

impl Model<'_> {
    pub(super) async fn compare(&mut self) {
        for (id, task) in &self.tasks {
            self.compare_task(*id, task).await;
        }
        for owner in 0..self.owners.len() {
            self.compare_listing(owner).await;
        }
    }

    async fn compare_task(&self, id: TaskId, task: &Task) {
        let owner = &self.owners[task.owner];
        let record = self.bed.get(owner, id).await;
        assert_eq!(state_of(&record.task), task.state);
        assert_eq!(status_at(&record.task), task.status_at);
        assert_eq!((record.generation, record.shown), (task.generation(), task.shown));
        assert_eq!(record.reply.as_ref().map(|m| &m.message_id), task.reply.as_ref());
        assert_eq!(record.interrupted, task.interrupted);
        assert_eq!(record.cancel_requested, task.cancel_at.is_some());
        let history: Vec<_> = record.task.history.iter().map(|m| &m.message_id).collect();
        assert_eq!(history, task.history.values().collect::<Vec<_>>());
        let said = record.task.status.as_ref().unwrap().message.as_ref();
        assert_eq!(said.map(|m| &m.message_id), task.status.as_ref().map(|(_, id)| id));
        let parts = |a: &v1::Artifact| (a.artifact_id.clone(), crate::rig::parts(a));
        let artifacts: Vec<_> = record.task.artifacts.iter().map(parts).collect();
        assert_eq!(artifacts, task.artifacts);
        let plain = self.bed.store.task(owner, id, View::default()).await.unwrap();
        assert_eq!(plain.is_some(), task.shown);
        let events = self.bed.store.events_after(owner, id, 0, 10_000).await.unwrap();
        assert_eq!(events.is_some(), task.shown);
        if let Some(events) = events {
            let numbers: Vec<_> = events.iter().map(|event| event.generation).collect();
            assert_eq!(numbers, (1..=task.generation()).collect::<Vec<_>>());
            assert_eq!(events.iter().map(entry).collect::<Vec<_>>(), task.log);
        }
        for (n, other) in self.owners.iter().enumerate().filter(|(n, _)| *n != task.owner) {
            assert_eq!(self.bed.find(other, id).await, None, "{n}");
            assert_eq!(self.bed.store.events_after(other, id, 0, 9).await.unwrap(), None);
        }
    }

    async fn compare_listing(&mut self, owner: usize) {
        let name = self.random.chance(2).then(|| format!("c-{}", self.random.below(3)));
        let states = [TaskState::Submitted, TaskState::Completed, TaskState::Working];
        let state = self.random.chance(2).then(|| *self.random.pick(&states));
        let times: Vec<_> = self.tasks.values().map(|task| task.status_at).collect();
        let since_us =
            (!times.is_empty() && self.random.chance(3)).then(|| *self.random.pick(&times));
        let mut expected: Vec<_> = self
            .tasks
            .iter()
            .filter(|(_, t)| t.owner == owner && t.shown)
            .filter(|(_, t)| name.as_ref().is_none_or(|name| *name == t.context))
            .filter(|(_, t)| state.is_none_or(|state| state == t.state))
            .filter(|(_, t)| since_us.is_none_or(|since| t.status_at >= since))
            .map(|(id, t)| (t.status_at, *id))
            .collect();
        expected.sort_unstable();
        expected.reverse();
        let context = name.as_deref().map(context);
        let query = PageQuery { context, state, since_us, ..everything() };
        let limit = u32::try_from(1 + self.random.below(9)).unwrap();
        let (tasks, total) = self.bed.walk(&self.owners[owner], &query, limit).await;
        let found: Vec<_> =
            tasks.iter().map(|t| (status_at(t), TaskId::parse(&t.id).unwrap())).collect();
        assert_eq!(found, expected, "{query:?}");
        assert_eq!(total, i64::try_from(expected.len()).unwrap(), "{query:?}");
    }
}
