//! Load of two kinds. Closed: each lane sends its next call when the last was answered, which
//! shows the highest rate. Open: calls are sent at times fixed beforehand whether or not answers
//! come, and waiting counts from there, which shows what callers meet at a given rate.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use a2ad::async_trait;
use tokio::task::JoinSet;

use crate::lab::Lab;
use crate::process;

/// Connections of a load.
pub(crate) const CONNECTIONS: usize = 4;
/// Calls in flight on each, when the load is closed.
pub(crate) const IN_FLIGHT: usize = 4;

/// One kind of call.
#[async_trait]
pub(crate) trait Work: Send + Sync {
    /// The `n`th call, made by a lane; what went wrong as a status.
    async fn once(&self, lane: usize, n: usize) -> Result<(), String>;
}

/// How calls come.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Load {
    Closed,
    /// So many a second.
    Open(f64),
}

/// What is measured.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) name: String,
    /// The process whose CPU counts.
    pub(crate) pid: u32,
    pub(crate) work: Arc<dyn Work>,
    pub(crate) load: Load,
}

/// What one round showed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    /// Answered calls, and those a second.
    pub(crate) calls: usize,
    pub(crate) rate: f64,
    /// Milliseconds.
    pub(crate) p50: f64,
    pub(crate) p95: f64,
    pub(crate) p99: f64,
    /// Microseconds of each call, of the server and of PostgreSQL.
    pub(crate) server_cpu: f64,
    pub(crate) database_cpu: f64,
    pub(crate) failed: BTreeMap<String, usize>,
}

/// What lanes have met.
#[derive(Default)]
struct Met {
    seconds: Vec<f64>,
    failed: BTreeMap<String, usize>,
}

impl Met {
    fn count(&mut self, done: Result<(), String>, since: Instant) {
        match done {
            Ok(()) => self.seconds.push(since.elapsed().as_secs_f64()),
            Err(status) => *self.failed.entry(status).or_insert(0) += 1,
        }
    }

    fn add(&mut self, other: Self) {
        self.seconds.extend(other.seconds);
        for (status, n) in other.failed {
            *self.failed.entry(status).or_insert(0) += n;
        }
    }
}

/// CPU seconds at a moment.
struct Meter(Instant, f64, f64);

impl Meter {
    fn read(lab: &Lab, case: &Case) -> Self {
        Self(Instant::now(), process::cpu_of(case.pid), lab.database_cpu())
    }

    fn seen(&self, end: &Self, mut met: Met) -> Seen {
        met.seconds.sort_by(f64::total_cmp);
        let last = met.seconds.len().saturating_sub(1);
        let quantile = |q: f64| {
            met.seconds.get((last as f64 * q).round() as usize).map_or(0.0, |seconds| seconds * 1e3)
        };
        let calls = met.seconds.len();
        let each = |cpu: f64| cpu * 1e6 / calls.max(1) as f64;
        Seen {
            calls,
            rate: calls as f64 / (end.0 - self.0).as_secs_f64(),
            p50: quantile(0.5),
            p95: quantile(0.95),
            p99: quantile(0.99),
            server_cpu: each(end.1 - self.1),
            database_cpu: each(end.2 - self.2),
            failed: met.failed,
        }
    }
}

/// One round of a case.
pub(crate) async fn round(lab: &Lab, case: &Case, time: Duration) -> Seen {
    match case.load {
        Load::Closed => closed(lab, case, time / 4, time).await,
        Load::Open(rate) => open(lab, case, rate, time).await,
    }
}

async fn closed(lab: &Lab, case: &Case, warm: Duration, time: Duration) -> Seen {
    let measuring = Arc::new(AtomicBool::new(false));
    let stop = Arc::new(AtomicBool::new(false));
    let next = Arc::new(AtomicUsize::new(0));
    let mut lanes = JoinSet::new();
    for lane in 0..CONNECTIONS * IN_FLIGHT {
        let work = Arc::clone(&case.work);
        let (measuring, stop) = (Arc::clone(&measuring), Arc::clone(&stop));
        let next = Arc::clone(&next);
        lanes.spawn(async move {
            let mut met = Met::default();
            while !stop.load(Ordering::Relaxed) {
                let begun = Instant::now();
                let done = work.once(lane, next.fetch_add(1, Ordering::Relaxed)).await;
                if measuring.load(Ordering::Relaxed) {
                    met.count(done, begun);
                }
            }
            met
        });
    }
    tokio::time::sleep(warm).await;
    let begin = Meter::read(lab, case);
    measuring.store(true, Ordering::Relaxed);
    tokio::time::sleep(time).await;
    measuring.store(false, Ordering::Relaxed);
    let end = Meter::read(lab, case);
    stop.store(true, Ordering::Relaxed);
    let mut met = Met::default();
    while let Some(lane) = lanes.join_next().await {
        met.add(lane.unwrap());
    }
    begin.seen(&end, met)
}

async fn open(lab: &Lab, case: &Case, rate: f64, time: Duration) -> Seen {
    let mut calls = JoinSet::new();
    let mut met = Met::default();
    let begin = Meter::read(lab, case);
    for n in 0..(rate * time.as_secs_f64()) as usize {
        let due = begin.0 + Duration::from_secs_f64(n as f64 / rate);
        // The timer has milliseconds: what has become due meanwhile goes out in one go.
        if due > Instant::now() {
            tokio::time::sleep_until(due.into()).await;
        }
        let work = Arc::clone(&case.work);
        calls.spawn(async move { (work.once(n, n).await, due, Instant::now()) });
        while let Some(call) = calls.try_join_next() {
            count(&mut met, call.unwrap());
        }
    }
    while let Some(call) = calls.join_next().await {
        count(&mut met, call.unwrap());
    }
    let end = Meter::read(lab, case);
    begin.seen(&end, met)
}

fn count(met: &mut Met, (done, due, ended): (Result<(), String>, Instant, Instant)) {
    match done {
        Ok(()) => met.seconds.push((ended - due).as_secs_f64()),
        Err(status) => *met.failed.entry(status).or_insert(0) += 1,
    }
}
