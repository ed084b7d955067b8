//! Both stores against a model of ordered maps: thousands of random operations, every answer
//! compared, every total compared with a plain count.

mod compare;
mod house;
mod runners;
mod senders;
mod task;

use std::collections::BTreeMap;
use std::time::Duration;

use a2ad::domain::{Clock as _, Scope, TaskId};
use a2ad::store::AcceptedTurn;
use a2ad::store::postgres::StatementMode;

use crate::store::{Bed, scope};
use crate::support::{Random, rounds, seed};
use task::Task;

/// What a message made that was sent.
#[derive(Debug, Clone)]
struct Sent {
    turn: AcceptedTurn,
    parts: usize,
    expires_at: i64,
}

struct Model<'a> {
    bed: &'a Bed,
    owners: Vec<Scope>,
    tasks: BTreeMap<TaskId, Task>,
    /// By owner, the task as it was sent, and the message's id.
    sent: BTreeMap<(usize, String, String), Sent>,
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
        match model.random.below(27) {
            0..=1 if model.tasks.len() < 25 => model.begin().await,
            0..=3 => model.go_on().await,
            4..=8 => model.claim().await,
            9..=15 => model.report().await,
            16 => model.reply().await,
            17..=19 => model.show_or_cancel().await,
            20 => model.keep_house().await,
            21 => model.renew().await,
            22 => bed.clock.advance_us(i64::try_from(model.random.below(3_000)).unwrap()),
            23 => bed.clock.advance(Duration::from_millis(model.random.next() % 5_000)),
            24 => bed.clock.advance_us(-i64::try_from(model.random.below(2_000)).unwrap()),
            25 => model.purge_ended().await,
            _ => model.purge().await,
        }
        if n % 100 == 99 {
            model.compare().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_answers_as_the_model_does() {
    for _ in 0..rounds(4, 100) {
        live(&Bed::sqlite().await, seed(), 1000).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_answers_as_the_model_does() {
    for n in 0..rounds(4, 100) {
        let mode = if n % 2 == 0 { StatementMode::Typed } else { StatementMode::Cached };
        live(&Bed::postgres_with(mode).await, seed(), 1000).await;
    }
}
