//! The pool that gives turns to the agent: claims what is due, keeps leases alive, and lets go.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, MissedTickBehavior, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::agent::{Agent, Limits, Wish};
use crate::domain::LeaseToken;
use crate::domain::error::chain;
use crate::metrics::Metrics;
use crate::service::runner::{self, Run};
use crate::service::settings::Settings;
use crate::store::{Backlog, HeldLease, LeaseRequest, Store, Turn};

/// The most turns of one claim.
const CLAIM_MAX: u32 = 16;

/// How often the work that waits is counted.
const BACKLOG_EVERY: Duration = Duration::from_secs(5);

/// The right to run one turn.
pub(super) type Slot = OwnedSemaphorePermit;

/// The pool.
pub(super) struct Runners {
    pub(super) store: Arc<dyn Store>,
    pub(super) agent: Arc<dyn Agent>,
    pub(super) settings: Settings,
    pub(super) metrics: Metrics,
    backlog: Mutex<Backlog>,
    slots: Arc<Semaphore>,
    running: Mutex<HashMap<LeaseToken, Running>>,
    tasks: TaskTracker,
    drain: CancellationToken,
    hand_back: CancellationToken,
    /// A turn has ended; one hint is kept if nobody waits.
    ended: Notify,
}

impl fmt::Debug for Runners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runners").finish_non_exhaustive()
    }
}

/// A turn that runs here, as the loop sees it that keeps leases alive.
struct Running {
    held: HeldLease,
    /// Until when the lease is certain.
    until: Instant,
    lost: CancellationToken,
    cancel: watch::Sender<Option<Wish>>,
}

impl Runners {
    /// Starts the loops that claim and that renew.
    pub(super) fn start(
        store: &Arc<dyn Store>,
        agent: Arc<dyn Agent>,
        settings: &Settings,
        metrics: &Metrics,
        (tasks, drain): (TaskTracker, CancellationToken),
    ) -> Arc<Self> {
        let pool = Arc::new(Self {
            store: Arc::clone(store),
            agent,
            settings: *settings,
            metrics: metrics.clone(),
            backlog: Mutex::default(),
            slots: Arc::new(Semaphore::new(settings.runners.max(1))),
            running: Mutex::default(),
            tasks,
            drain,
            hand_back: CancellationToken::new(),
            ended: Notify::new(),
        });
        pool.tasks.spawn(Arc::clone(&pool).claim_turns());
        pool.tasks.spawn(Arc::clone(&pool).renew_leases());
        pool.tasks.spawn(Arc::clone(&pool).watch_backlog());
        pool
    }

    /// How many turns run here.
    pub(super) fn running(&self) -> usize {
        self.table().len()
    }

    /// How much work waited when it was looked at last, some seconds ago at most.
    pub(super) fn backlog(&self) -> Backlog {
        *self.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn watch_backlog(self: Arc<Self>) {
        let mut clock = tokio::time::interval(BACKLOG_EVERY);
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while self.drain.run_until_cancelled(clock.tick()).await.is_some() {
            // A store that does not answer is told of by whoever needs it more.
            if let Ok(backlog) = self.store.backlog_of_all().await {
                *self.backlog.lock().unwrap_or_else(PoisonError::into_inner) = backlog;
            }
        }
    }

    /// A slot, if one is free and the server takes new work.
    pub(super) fn reserve(&self) -> Option<Slot> {
        if self.drain.is_cancelled() {
            return None;
        }
        Arc::clone(&self.slots).try_acquire_owned().ok()
    }

    /// A fresh lease to ask for.
    pub(super) fn lease(&self) -> LeaseRequest {
        LeaseRequest { token: LeaseToken::generate(), lease: self.settings.lease }
    }

    /// Runs a turn to its end whose lease was asked for at `asked_at`.
    /// `from` says where it came from, for the numbers.
    pub(super) fn run(
        self: &Arc<Self>,
        slot: Slot,
        turn: Turn,
        asked_at: Instant,
        from: &'static str,
    ) {
        self.metrics.turns_begun.one([("from", from)]);
        let (cancel, canceled) =
            watch::channel(turn.cancel.clone().map(|wish| Wish(wish.metadata)));
        let lost = CancellationToken::new();
        let lease = turn.lease;
        let held = HeldLease { scope: turn.scope.clone(), task: turn.task, turn: turn.turn, lease };
        let until = asked_at + self.certain(self.settings.lease);
        let running = Running { held: held.clone(), until, lost: lost.clone(), cancel };
        self.table().insert(lease, running);
        let hand_back = self.hand_back.child_token();
        if self.drain.is_cancelled() {
            // Taken while the drain began: another server can start with it at once.
            hand_back.cancel();
        }
        let run = Run { pool: Arc::clone(self), held, lost, canceled, hand_back };
        let pool = Arc::clone(self);
        self.tasks.spawn(async move {
            let began = Instant::now();
            let ended = runner::run(run, turn).await;
            pool.metrics.turn_seconds.took([], began.elapsed());
            pool.metrics.turns_ended.one([("how", ended)]);
            pool.table().remove(&lease);
            pool.ended.notify_one();
            drop(slot);
        });
    }

    /// How long after it was asked for a lease is certain on this side. The store's term begins
    /// later, when it gives the lease; the rest is for the agent to be stopped in.
    fn certain(&self, lease: Duration) -> Duration {
        lease - (lease / 4).min(Duration::from_millis(500))
    }

    /// Until when a lease is certain; now, if it is not held any more.
    pub(super) fn certain_until(&self, lease: LeaseToken) -> Instant {
        self.table().get(&lease).map_or_else(Instant::now, |running| running.until)
    }

    /// What agents may report.
    pub(super) fn limits(&self) -> Limits {
        let limits = &self.settings.limits;
        Limits {
            status_bytes: limits.status_bytes,
            chunk_bytes: limits.chunk_bytes,
            nesting: limits.nesting,
        }
    }

    /// Makes every turn that still runs go back to the queue.
    pub(super) fn hand_back(&self) {
        self.hand_back.cancel();
    }

    fn table(&self) -> std::sync::MutexGuard<'_, HashMap<LeaseToken, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn claim_turns(self: Arc<Self>) {
        loop {
            // Made before the claim: a turn that becomes due meanwhile is not slept over.
            let due = self.store.hints().turn_due();
            match self.claim().await {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(error.chain = chain(&error), "could not claim turns");
                    sleep(Duration::from_millis(200)).await;
                }
            }
            tokio::select! {
                biased;
                () = self.drain.cancelled() => return,
                () = due => {}
                () = sleep(self.settings.poll) => {}
            }
        }
    }

    /// Claims up to the number of free slots. Returns whether more may be due.
    async fn claim(self: &Arc<Self>) -> Result<bool, crate::domain::Error> {
        let first = tokio::select! {
            biased;
            () = self.drain.cancelled() => return Ok(false),
            slot = Arc::clone(&self.slots).acquire_owned() => slot,
        };
        let Ok(first) = first else { return Ok(false) };
        let mut slots = vec![first];
        while slots.len() < CLAIM_MAX as usize
            && let Some(slot) = self.reserve()
        {
            slots.push(slot);
        }
        let limit = u32::try_from(slots.len()).unwrap_or(CLAIM_MAX);
        let asked_at = Instant::now();
        let turns = self.store.claim_turns_of_all(limit, self.settings.lease).await?;
        let full = turns.len() == slots.len();
        for (slot, turn) in slots.into_iter().zip(turns) {
            self.run(slot, turn, asked_at, "claimed");
        }
        Ok(full)
    }

    async fn renew_leases(self: Arc<Self>) {
        let mut clock = tokio::time::interval(self.settings.renew);
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // Leases are kept until the last turn has ended, also while the server drains.
            tokio::select! {
                biased;
                () = self.hand_back.cancelled() => return,
                () = self.drained() => return,
                _ = clock.tick() => {}
            }
            let held: Vec<HeldLease> = {
                let table = self.table();
                table.values().map(|running| running.held.clone()).collect()
            };
            if !held.is_empty() {
                self.renew(&held).await;
            }
        }
    }

    /// Waits for a drain and then for the last turn.
    async fn drained(&self) {
        self.drain.cancelled().await;
        while !self.table().is_empty() {
            self.ended.notified().await;
        }
    }

    /// Renews leases, tells their runners of cancels, and stops those that have lost theirs.
    pub(super) async fn renew(&self, held: &[HeldLease]) {
        let asked_at = Instant::now();
        let renewed = self.store.renew_leases_of_all(held, self.settings.lease).await;
        if let Err(error) = &renewed {
            tracing::warn!(error.chain = chain(error), "could not renew leases");
        }
        let mut table = self.table();
        for lease in held {
            let Some(running) = table.get_mut(&lease.lease) else { continue };
            match &renewed {
                Ok(renewed) => match renewed.iter().find(|r| r.lease == lease.lease) {
                    Some(renewed) => {
                        running.until = asked_at + self.certain(self.settings.lease);
                        if let Some(wish) = &renewed.cancel
                            && running.cancel.borrow().is_none()
                        {
                            running.cancel.send_replace(Some(Wish(wish.metadata.clone())));
                        }
                    }
                    None => running.lost.cancel(),
                },
                Err(_) if running.until <= Instant::now() => running.lost.cancel(),
                Err(_) => {}
            }
        }
    }
}
