//! What a2ad costs, beside what the same work costs with less around it.
//!
//! One run starts a private PostgreSQL that forgets nothing, fills databases of several sizes,
//! starts `a2ad serve` on each as a process of its own, and beside it:
//!
//! - the **floor**: the least gRPC server that does the same work, with the store's own
//!   statements, prepared, on pipelined connections ([`floor`]);
//! - the **driver**: those statements without gRPC, from this process ([`driver`]);
//! - **canned**: gRPC without any work behind it ([`canned`]).
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

mod calls;
mod canned;
mod cases;
mod drive;
mod driver;
mod fill;
mod floor;
mod goals;
mod lab;
mod partner;
mod picture;
mod process;
mod report;
mod round;
mod sends;
mod single;
mod sqlite;
mod support;

use std::path::Path;
use std::time::{Duration, Instant};

use cases::{Effort, Running};
use goals::Run;
use lab::Lab;

const USAGE: &str = "one of: run, large, smoke; `large` adds a database of 1,000,000 tasks. \
     With --docs, pictures go to docs/images";

/// What a run takes on.
struct Plan {
    /// By size; the partners run on the second.
    sizes: &'static [i64],
    effort: Effort,
    turns: usize,
}

fn main() {
    // Cargo adds its own.
    let mut arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let docs = arguments.iter().any(|argument| argument == "--docs");
    arguments.retain(|argument| argument != "--docs");
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let effort =
        |rounds, milliseconds| Effort { rounds, time: Duration::from_millis(milliseconds) };
    let plan = match words.as_slice() {
        ["smoke"] => Plan { sizes: &[1_000, 5_000], effort: effort(1, 100), turns: 5 },
        ["run"] => Plan { sizes: &[1_000, 100_000], effort: effort(3, 1_500), turns: 200 },
        ["large"] => {
            let sizes = &[1_000, 100_000, 1_000_000];
            Plan { sizes, effort: effort(3, 1_200), turns: 200 }
        }
        ["floor", address, url] => {
            return runtime().block_on(floor::serve(address.parse().unwrap(), url));
        }
        ["canned", address] => {
            return runtime().block_on(canned::serve(address.parse().unwrap()));
        }
        other => panic!("{other:?} is not {USAGE}"),
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // A run that is too short to tell anything must not replace one that does.
    let smoke = words.as_slice() == ["smoke"];
    let folder = root.join(if smoke { "target/bench/smoke" } else { "target/bench" });
    let pictures = if docs { root.join("docs/images") } else { folder.clone() };
    runtime().block_on(run(&plan, &folder, &pictures));
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap()
}

async fn run(plan: &Plan, folder: &Path, pictures: &Path) {
    let lab = Lab::start().await;
    let mut places = Vec::new();
    for size in plan.sizes {
        places.push(lab.place(*size).await);
    }
    let middle = &places[1];
    let running = Running::start(&lab, &places, middle);
    let begun = Instant::now();
    let (highest, given) = cases::measure(&lab, &running, &places, middle, plan.effort).await;
    let wal = single::wal(&lab, middle).await;
    let memory = running.servers.iter().map(|server| process::memory_of(server.pid)).collect();
    let handover = single::handover(&lab, plan.turns).await;
    println!("measured for {:.0} s", begun.elapsed().as_secs_f64());
    let (places, middle) = (places.as_slice(), &places[1]);
    let run = Run { places, middle, highest, given, wal, handover, memory };
    report::write(&run, folder, pictures);
    let mut rows = run.highest.rows.iter().chain(&run.given.rows);
    let failed = rows.find(|(_, seen)| !seen.failed.is_empty());
    assert!(failed.is_none(), "calls failed: {failed:?}");
}
