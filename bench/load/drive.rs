//! Load: closed, where each lane sends its next call when the last was answered.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use a2ad::async_trait;

use crate::lab::Lab;
use crate::process;

/// Connections of a closed load.
pub(crate) const CONNECTIONS: usize = 4;
/// Calls in flight on each.
const IN_FLIGHT: usize = 4;

/// One kind of call.
#[async_trait]
pub(crate) trait Work: Send + Sync {
    /// The `n`th call, made by a lane; what went wrong as a status.
    async fn once(&self, lane: usize, n: usize) -> Result<(), String>;
}

/// What is measured.
pub(crate) struct Case {
    pub(crate) name: String,
    /// The process whose CPU counts.
    pub(crate) pid: u32,
    pub(crate) work: Arc<dyn Work>,
}

/// What one round showed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    pub(crate) rate: f64,
    /// Seconds, sorted.
    pub(crate) times: Vec<f64>,
    /// Microseconds of each call, of the server and of PostgreSQL.
    pub(crate) server_cpu: f64,
    pub(crate) database_cpu: f64,
    pub(crate) failed: BTreeMap<String, usize>,
}

/// Calls are made as fast as they are answered, after a time to warm up.
pub(crate) async fn closed(lab: &Lab, case: &Case, warm: Duration, time: Duration) -> Seen {
    const WARMING: u8 = 0;
    const MEASURING: u8 = 1;
    let phase = Arc::new(AtomicU8::new(WARMING));
    let stop = Arc::new(AtomicBool::new(false));
    let next = Arc::new(AtomicUsize::new(0));
    let mut lanes = Vec::new();
    for lane in 0..CONNECTIONS * IN_FLIGHT {
        let work = Arc::clone(&case.work);
        let (phase, stop, next) = (Arc::clone(&phase), Arc::clone(&stop), Arc::clone(&next));
        lanes.push(tokio::spawn(async move {
            let (mut times, mut failed) = (Vec::new(), BTreeMap::new());
            while !stop.load(Ordering::Relaxed) {
                let started = Instant::now();
                let done = work.once(lane, next.fetch_add(1, Ordering::Relaxed)).await;
                if phase.load(Ordering::Relaxed) != MEASURING {
                    continue;
                }
                match done {
                    Ok(()) => times.push(started.elapsed().as_secs_f64()),
                    Err(status) => *failed.entry(status).or_insert(0) += 1,
                }
            }
            (times, failed)
        }));
    }
    tokio::time::sleep(warm).await;
    let before = (process::cpu_of(case.pid), lab.database_cpu());
    let started = Instant::now();
    phase.store(MEASURING, Ordering::Relaxed);
    tokio::time::sleep(time).await;
    phase.store(WARMING, Ordering::Relaxed);
    let elapsed = started.elapsed().as_secs_f64();
    let after = (process::cpu_of(case.pid), lab.database_cpu());
    stop.store(true, Ordering::Relaxed);
    let mut seen = Seen::default();
    for lane in lanes {
        let (times, failed) = lane.await.unwrap();
        seen.times.extend(times);
        for (status, n) in failed {
            *seen.failed.entry(status).or_insert(0) += n;
        }
    }
    seen.times.sort_by(f64::total_cmp);
    let calls = seen.times.len() as f64;
    seen.rate = calls / elapsed;
    seen.server_cpu = (after.0 - before.0) * 1e6 / calls;
    seen.database_cpu = (after.1 - before.1) * 1e6 / calls;
    seen
}
