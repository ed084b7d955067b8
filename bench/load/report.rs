//! What a run says in the end: tables, goals and pictures.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::cases::{FIRST, GET, SECOND, deep, depths};
use crate::goals::{Bound, Goal, Run};
use crate::lab::{Place, thousands};
use crate::picture::{Line, Picture};
use crate::round::Table;

fn goal_rows(goals: &[Goal]) -> String {
    let mut text = "| goal | bound | measured | |\n|---|--:|--:|---|\n".to_owned();
    for goal in goals {
        let unit = goal.unit;
        let bound = match goal.bound {
            Bound::AtMost(bound) => format!("≤ {bound}{unit}"),
            Bound::AtLeast(bound) => format!("≥ {bound}{unit}"),
        };
        let digits = if unit == "x" { 2 } else { 1 };
        let (measured, reached) = match (goal.measured, goal.reached()) {
            (Some(measured), Some(true)) => (format!("{measured:.digits$}{unit}"), "reached"),
            (Some(measured), _) => (format!("{measured:.digits$}{unit}"), "**not reached**"),
            (None, _) => ("".to_owned(), "not measured in this run"),
        };
        writeln!(text, "| {} | {bound} | {measured} | {reached} |", goal.text).unwrap();
    }
    text
}

/// The whole report as Markdown.
pub(crate) fn markdown(run: &Run<'_>) -> String {
    let at = &run.middle.name;
    let mut goals = run.against_partners(&format!("a2ad, {at}"));
    goals.extend(run.against_itself());
    let typed = run.against_partners(&format!("a2ad, {at}, typed"));
    format!(
        "## Goals\n\n{}\nThe same against the partners with `--statement-mode typed`:\n\n{}\n\
         ## The highest rate\n\n{}\n## At a given rate\n\n{}\n## Read once\n\n\
         - WAL without images of pages, bytes: {:.0} for a status change with its event; an echo \
         takes {:.0} to accept and {:.0} for the report that ends it.\n\
         - A turn that its own server has no runner for was claimed by the other one after {:.2} \
         ms, and its caller had the finished task after {:.2} ms (medians).\n\
         - Memory of the servers after the rounds: {}.\n",
        goal_rows(&goals),
        goal_rows(&typed),
        run.highest.markdown(),
        run.given.markdown(),
        run.wal.status,
        run.wal.accept,
        run.wal.report,
        run.handover.claimed,
        run.handover.answered,
        memory(run),
    )
}

fn memory(run: &Run<'_>) -> String {
    let each = run.places.iter().zip(&run.memory);
    let each =
        each.map(|(place, bytes)| format!("{:.1} MB on {} tasks", *bytes as f64 / 1e6, place.name));
    each.collect::<Vec<_>>().join(", ")
}

fn table(table: &Table) -> Value {
    let rows = table.rows.iter().map(|(name, seen)| {
        json!({
            "case": name, "rate": seen.rate, "p50_ms": seen.p50, "p95_ms": seen.p95,
            "p99_ms": seen.p99, "server_us": seen.server_cpu, "postgres_us": seen.database_cpu,
            "answered": seen.calls, "failed": seen.failed,
        })
    });
    json!({ "load": table.busy, "rows": rows.collect::<Vec<_>>() })
}

/// The same for programs.
pub(crate) fn json(run: &Run<'_>) -> Value {
    let mut goals = run.against_partners(&format!("a2ad, {}", run.middle.name));
    goals.extend(run.against_itself());
    let goals = goals.iter().map(
        |goal| json!({ "goal": goal.text, "measured": goal.measured, "reached": goal.reached() }),
    );
    json!({
        "goals": goals.collect::<Vec<_>>(),
        "highest": table(&run.highest),
        "given": table(&run.given),
        "wal_bytes": { "status": run.wal.status, "accept": run.wal.accept, "report": run.wal.report },
        "handover_ms": { "claimed": run.handover.claimed, "answered": run.handover.answered },
        "memory_bytes": run.memory,
    })
}

fn cpu(run: &Run<'_>, case: &str) -> Option<f64> {
    run.highest.get(case).map(|seen| seen.cpu())
}

/// What a page costs by its depth, in the largest database.
fn by_depth(run: &Run<'_>, largest: &Place<'_>) -> Picture {
    let mut calls = vec![SECOND.to_owned()];
    calls.extend(depths(largest.owned()).into_iter().map(deep));
    let mut marks = vec!["50".to_owned()];
    marks.extend(depths(largest.owned()).into_iter().map(thousands));
    let line = |name: &str, part: fn(&crate::drive::Seen) -> f64| Line {
        name: name.to_owned(),
        values: calls
            .iter()
            .map(|call| run.highest.get(&format!("a2ad, {}: {call}", largest.name)).map(part))
            .collect(),
    };
    Picture {
        title: format!(
            "A page of 50 by its depth, {} tasks of {}",
            thousands(largest.owned()),
            largest.name
        ),
        across: "rows before the page".to_owned(),
        up: "CPU of a call in µs".to_owned(),
        marks,
        lines: vec![
            line("a2ad and PostgreSQL", crate::drive::Seen::cpu),
            line("a2ad", |seen| seen.server_cpu),
            line("PostgreSQL", |seen| seen.database_cpu),
        ],
    }
}

/// What calls cost by the number of tasks.
fn by_size(run: &Run<'_>) -> Picture {
    let line = |name: &str, call: &str| Line {
        name: name.to_owned(),
        values: run
            .places
            .iter()
            .map(|place| cpu(run, &format!("a2ad, {}: {call}", place.name)))
            .collect(),
    };
    Picture {
        title: "Calls by the size of the database, a fifth of it the caller's".to_owned(),
        across: "tasks in the database".to_owned(),
        up: "CPU of a call in µs, a2ad and PostgreSQL".to_owned(),
        marks: run.places.iter().map(|place| place.name.clone()).collect(),
        lines: vec![
            line("page 1 with its total", FIRST),
            line("page 2", SECOND),
            line("GetTask", GET),
        ],
    }
}

/// Writes everything into a folder, and pictures into another.
pub(crate) fn write(run: &Run<'_>, folder: &Path, pictures: &Path) {
    fs::create_dir_all(folder).unwrap();
    fs::create_dir_all(pictures).unwrap();
    let text = markdown(run);
    println!("\n{text}");
    fs::write(folder.join("report.md"), text).unwrap();
    let json = serde_json::to_string_pretty(&json(run)).unwrap();
    fs::write(folder.join("report.json"), json).unwrap();
    if let Some(largest) = run.places.last() {
        fs::write(pictures.join("cost-by-depth.svg"), by_depth(run, largest).svg()).unwrap();
    }
    fs::write(pictures.join("cost-by-size.svg"), by_size(run).svg()).unwrap();
    println!("written to {} and {}", folder.display(), pictures.display());
}
