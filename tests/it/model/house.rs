//! What the server's loops do.

use std::time::Duration;

use a2ad::store::{Keep, Retention, interruption_backoff};

use super::Model;
use super::task::{Of, us};

const GRACE: Duration = Duration::from_secs(5);
const HIDDEN_FOR: Duration = Duration::from_secs(30);
const ENDED_FOR: Duration = Duration::from_secs(20);

impl Model<'_> {
    pub(super) async fn keep_house(&mut self) {
        match self.random.below(4) {
            0 => drop(self.bed.store.fold_counts_of_all(7).await.unwrap()),
            1 => self.finish_cancels().await,
            _ => self.release_expired().await,
        }
    }

    async fn finish_cancels(&mut self) {
        let now = self.now();
        let mut ended = 0;
        for task in self.tasks.values_mut() {
            let is_over = task.cancel_at.is_some_and(|at| at <= now - us(GRACE));
            if is_over && !task.state.is_terminal() {
                task.cancel(now);
                ended += 1;
            }
        }
        let n = self.bed.store.finish_cancels_of_all(GRACE, 1000).await.unwrap();
        assert_eq!(n, ended);
    }

    async fn release_expired(&mut self) {
        let now = self.now();
        let mut released = 0;
        for task in self.tasks.values_mut() {
            let Some(head) = task.head() else { continue };
            let turn = &mut task.turns[head];
            if turn.is == Of::Leased && turn.lease_until < now {
                turn.interruptions += 1;
                turn.rest(now + us(interruption_backoff(turn.interruptions)));
                task.touch(now);
                released += 1;
            }
        }
        assert_eq!(self.bed.store.release_expired_of_all(1000).await.unwrap(), released);
    }

    /// What ended long enough ago goes, and nothing else; what was sent is still remembered.
    pub(super) async fn purge_ended(&mut self) {
        let before = self.now() - us(ENDED_FOR);
        let tasks = self.tasks.len();
        self.tasks.retain(|_, task| !task.state.is_terminal() || task.status_at > before);
        let gone = tasks - self.tasks.len();
        let keep = Keep { tasks: Some(ENDED_FOR), events: None };
        let purged = self.bed.store.purge_ended_of_all(&Retention::of_all(keep), 1000).await;
        assert_eq!(purged.unwrap().count(), u64::try_from(gone).unwrap());
    }

    /// What expired goes, and nothing else.
    pub(super) async fn purge(&mut self) {
        let now = self.now();
        let over = now - us(HIDDEN_FOR);
        let hidden = || self.tasks.values().filter(|task| !task.shown);
        // A change may move a row by a few microseconds more than its clock did; stores differ
        // there, and may.
        if hidden().any(|task| (over - 100..=over).contains(&task.updated_at)) {
            return;
        }
        let tasks = self.tasks.len();
        self.tasks.retain(|_, task| {
            task.shown || task.lease().is_some() || task.created_at > over || task.updated_at > over
        });
        let sent = self.sent.len();
        self.sent.retain(|_, sent| sent.expires_at > now);
        let gone = tasks - self.tasks.len() + sent - self.sent.len();
        let purged = self.bed.store.purge_expired_of_all(HIDDEN_FOR, 1000).await.unwrap();
        assert_eq!(purged, u32::try_from(gone).unwrap());
    }
}
