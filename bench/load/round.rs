//! Cases in turn, and the medians of their rounds.

use std::fmt::Write as _;
use std::time::Duration;

use crate::drive::{Case, Seen, closed};
use crate::lab::Lab;
use crate::process;

/// The middle one, or the mean of the middle two.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len() % 2 == 1 { values[half] } else { f64::midpoint(values[half - 1], values[half]) }
}

fn quantile(seen: &Seen, q: f64) -> f64 {
    let last = seen.times.len().saturating_sub(1);
    seen.times.get((last as f64 * q) as usize).copied().unwrap_or(0.0)
}

/// Every case in each of the rounds; a table of medians.
pub(crate) async fn robin(lab: &Lab, cases: Vec<Case>, rounds: usize, time: Duration) -> String {
    let mut seen: Vec<Vec<Seen>> = vec![Vec::new(); cases.len()];
    for _ in 0..rounds {
        for (case, seen) in cases.iter().zip(&mut seen) {
            seen.push(closed(lab, case, time / 4, time).await);
        }
    }
    let mut table = format!(
        "load {:.1}\n{:<28} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}  failed\n",
        process::load(),
        "",
        "calls/s",
        "p50 ms",
        "p99 ms",
        "srv us",
        "pg us",
        "sum us"
    );
    for (case, rounds) in cases.iter().zip(&seen) {
        let of = |value: &dyn Fn(&Seen) -> f64| median(rounds.iter().map(value).collect());
        writeln!(
            table,
            "{:<28} {:>8.0} {:>8.2} {:>8.2} {:>8.0} {:>8.0} {:>8.0}  {:?}",
            case.name,
            of(&|seen| seen.rate),
            of(&|seen| quantile(seen, 0.5) * 1e3),
            of(&|seen| quantile(seen, 0.99) * 1e3),
            of(&|seen| seen.server_cpu),
            of(&|seen| seen.database_cpu),
            of(&|seen| seen.server_cpu + seen.database_cpu),
            rounds.last().map(|seen| &seen.failed),
        )
        .unwrap();
    }
    table
}
