//! Cases in turn, and the medians of their rounds.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use crate::drive::{self, Case, Load, Seen};
use crate::lab::Lab;
use crate::process;

/// The medians of each case, in the order of the cases.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) rows: Vec<(String, Seen)>,
    /// Runnable processes on the machine while this was measured.
    pub(crate) busy: f64,
}

/// The middle one, or the mean of the middle two; 0 of none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = |n: usize| values.get(n).copied().unwrap_or(0.0);
    let half = values.len() / 2;
    if values.len() % 2 == 1 { at(half) } else { f64::midpoint(at(half.wrapping_sub(1)), at(half)) }
}

fn medians(rounds: &[Seen]) -> Seen {
    let of = |value: fn(&Seen) -> f64| median(rounds.iter().map(value).collect());
    let mut failed = BTreeMap::new();
    for (status, n) in rounds.iter().flat_map(|seen| &seen.failed) {
        *failed.entry(status.clone()).or_insert(0) += n;
    }
    Seen {
        calls: rounds.iter().map(|seen| seen.calls).sum(),
        rate: of(|seen| seen.rate),
        p50: of(|seen| seen.p50),
        p95: of(|seen| seen.p95),
        p99: of(|seen| seen.p99),
        server_cpu: of(|seen| seen.server_cpu),
        database_cpu: of(|seen| seen.database_cpu),
        failed,
    }
}

/// Every case once in each of the rounds.
pub(crate) async fn robin(lab: &Lab, cases: &[Case], rounds: usize, time: Duration) -> Table {
    let mut seen: Vec<Vec<Seen>> = vec![Vec::new(); cases.len()];
    let mut busy = Vec::new();
    for _ in 0..rounds {
        for (case, seen) in cases.iter().zip(&mut seen) {
            seen.push(drive::round(lab, case, time).await);
        }
        busy.push(process::busy());
    }
    let named = |(case, rounds): (&Case, &Vec<Seen>)| {
        let rate = match case.load {
            Load::Closed => String::new(),
            Load::Open(rate) => format!(", {rate:.0} a second"),
        };
        (case.name.clone() + &rate, medians(rounds))
    };
    Table { rows: cases.iter().zip(&seen).map(named).collect(), busy: median(busy) }
}

impl Seen {
    /// Microseconds of server and PostgreSQL together.
    pub(crate) fn cpu(&self) -> f64 {
        self.server_cpu + self.database_cpu
    }
}

impl Table {
    /// The medians of a case.
    pub(crate) fn get(&self, name: &str) -> Option<&Seen> {
        self.rows.iter().find(|(known, _)| known == name).map(|(_, seen)| seen)
    }

    /// As Markdown.
    pub(crate) fn markdown(&self) -> String {
        let mut text = format!(
            "Load of the machine: {:.1}.\n\n\
             | | calls/s | p50 ms | p95 ms | p99 ms | server µs | PostgreSQL µs | sum µs | calls |\n\
             |---|--:|--:|--:|--:|--:|--:|--:|---|\n",
            self.busy
        );
        for (name, seen) in &self.rows {
            let mut calls = format!("{} answered", seen.calls);
            for (status, n) in &seen.failed {
                write!(calls, ", {n} {status}").unwrap();
            }
            writeln!(
                text,
                "| {name} | {:.0} | {:.2} | {:.2} | {:.2} | {:.0} | {:.0} | {:.0} | {calls} |",
                seen.rate,
                seen.p50,
                seen.p95,
                seen.p99,
                seen.server_cpu,
                seen.database_cpu,
                seen.cpu(),
            )
            .unwrap();
        }
        text
    }
}
