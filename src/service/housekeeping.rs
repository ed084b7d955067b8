//! Loops that keep the store true and small.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::domain::Error;
use crate::domain::error::chain;
use crate::metrics::Metrics;
use crate::service::quotas::Meter;
use crate::service::settings::Settings;
use crate::store::Store;

/// Rows of one round.
const BATCH: u32 = 1000;

/// Starts a loop for each duty, until `drain`.
pub(super) fn start(
    store: &Arc<dyn Store>,
    settings: &Settings,
    (meter, metrics): (&Arc<Meter>, &Metrics),
    tasks: &TaskTracker,
    drain: &CancellationToken,
) {
    // A lease that ran out should be noticed soon after, without asking all the time.
    let lease_round =
        (settings.lease / 10).clamp(Duration::from_millis(50), Duration::from_secs(1));
    let grace_round = (settings.grace / 5).clamp(Duration::from_millis(50), Duration::from_secs(1));
    tasks.spawn(tidied(Arc::clone(meter), drain.clone()));
    let settings = *settings;
    let duty = |name, every, work: Work| {
        let store = (Arc::clone(store), metrics.clone());
        tasks.spawn(rounds(name, every, work, store, settings, drain.clone()));
    };
    duty("release expired leases", lease_round, |store, _| {
        Box::pin(async move { store.release_expired_of_all(BATCH).await })
    });
    // Two graces, for the server that was asked to cancel should be the one to finish.
    duty("finish cancels", grace_round, |store, settings| {
        Box::pin(async move { store.finish_cancels_of_all(settings.grace * 2, BATCH).await })
    });
    duty("fold counts", Duration::from_secs(1), |store, _| {
        Box::pin(async move { store.fold_counts_of_all(BATCH).await })
    });
    duty("purge what expired", Duration::from_secs(60), |store, settings| {
        Box::pin(async move { store.purge_expired_of_all(settings.dedupe_window, BATCH).await })
    });
}

/// Forgets callers that have been away.
async fn tidied(meter: Arc<Meter>, drain: CancellationToken) {
    let mut clock = tokio::time::interval(Duration::from_secs(60));
    while drain.run_until_cancelled(clock.tick()).await.is_some() {
        meter.tidy();
    }
}

type Round = std::pin::Pin<Box<dyn Future<Output = Result<u32, Error>> + Send>>;
type Work = fn(Arc<dyn Store>, Settings) -> Round;

async fn rounds(
    name: &'static str,
    every: Duration,
    work: Work,
    (store, metrics): (Arc<dyn Store>, Metrics),
    settings: Settings,
    drain: CancellationToken,
) {
    let mut clock = tokio::time::interval(every);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_behind = false;
    loop {
        tokio::select! {
            biased;
            () = drain.cancelled() => return,
            _ = clock.tick(), if !is_behind => {}
            // Others may write in between.
            () = tokio::task::yield_now(), if is_behind => {}
        }
        let done = work(Arc::clone(&store), settings).await;
        is_behind = done.as_ref().is_ok_and(|rows| *rows >= BATCH);
        match done {
            Ok(0) => {}
            Ok(rows) => {
                metrics.upkeep_rows.add([("duty", name)], rows.into());
                tracing::debug!(duty = name, rows, "kept house");
            }
            Err(error) => {
                metrics.upkeep_failures.one([("duty", name)]);
                tracing::warn!(duty = name, error.chain = chain(&error), "could not keep house")
            }
        }
    }
}
