//! What a2ad costs, beside what the same work costs with less around it.
//!
//! One run starts a private PostgreSQL that forgets nothing, fills databases of several sizes,
//! starts `a2ad serve` on each as a process of its own, and beside it:
//!
//! - the **floor**: the least gRPC server that does the same work, with the store's own
//!   statements, prepared, on pipelined connections ([`floor`]);
//! - the **driver**: those statements without gRPC, from this process ([`driver`]).
//!
//! Cases take turns, so that what else goes on falls on all alike, and each has the median of its
//! rounds. CPU is read from the process table: of the server, and of all of PostgreSQL.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a measurement that cannot go on fails")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program for the terminal that spawns, reads the clock and rounds"
)]

mod drive;
mod driver;
mod fill;
mod floor;
mod lab;
mod partner;
mod process;
mod round;
mod sends;
mod support;
mod works;

use std::time::Duration;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        match words.as_slice() {
            ["floor", address, url] => floor::serve(address.parse().unwrap(), url).await,
            ["quick"] => quick(100_000, 3, Duration::from_secs(2)).await,
            ["smoke"] => quick(1_000, 1, Duration::from_millis(200)).await,
            other => panic!("what to do with {other:?}?"),
        }
    });
}

/// The server beside the floor and the driver, on one size: for whoever looks for what costs.
async fn quick(tasks: i64, rounds: usize, time: Duration) {
    let lab = lab::Lab::start().await;
    let place = lab.place(tasks).await;
    let server = place.server("cached");
    let typed = place.server("typed");
    let floor = place.floor();
    let mut cases = Vec::new();
    for (name, served) in [("typed", &typed), ("cached", &server), ("floor", &floor)] {
        cases.extend(works::basic(name, &place, served).await);
    }
    cases.extend(driver::basic(&place).await);
    let table = round::robin(&lab, cases, rounds, time).await;
    println!("{table}");
}
