//! What is measured in turn.

use std::time::Duration;

use crate::calls::{Call, Caller};
use crate::drive::{Case, Load};
use crate::driver::Driver;
use crate::lab::{self, Lab, Place, Served, TENANTS};
use crate::round::{self, Table};
use crate::sqlite;

/// Names of cases, each after who does it.
pub(crate) const FIRST: &str = "ListTasks, page 1 with its total";
pub(crate) const SECOND: &str = "ListTasks, page 2";
pub(crate) const GET: &str = "GetTask";
pub(crate) const ECHO: &str = "SendMessage, an echo";
pub(crate) const AT_ONCE: &str = "SendMessage, answered at once";
pub(crate) const SPREAD: &str = "SendMessage, an echo, for 1,000 owners";
pub(crate) const TWO_COMMITS: &str = "the two commits of an echo";
pub(crate) const ONE_COMMIT: &str = "the floor's one commit";

/// `ListTasks, from row 15,000`.
pub(crate) fn deep(row: i64) -> String {
    format!("ListTasks, from row {}", lab::thousands(row))
}

/// Rows of the measured owner that pages begin after, from the first page to the last ones.
pub(crate) fn depths(owned: i64) -> Vec<i64> {
    [25, 50, 75, 95].iter().map(|percent| owned * percent / 100 / 50 * 50).collect()
}

/// The row three quarters down.
pub(crate) fn three_quarters(owned: i64) -> i64 {
    owned * 75 / 100 / 50 * 50
}

/// What runs while cases are measured.
pub(crate) struct Running {
    /// A server for each size, in the order of the sizes.
    pub(crate) servers: Vec<Served>,
    typed: Served,
    floor: Served,
    canned: Served,
    sqlite: Served,
}

/// How long, and how often.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    pub(crate) rounds: usize,
    pub(crate) time: Duration,
}

impl Running {
    /// `places` by size; the partners run on `middle`.
    pub(crate) fn start(lab: &Lab, places: &[Place<'_>], middle: &Place<'_>) -> Self {
        let cached: &[&str] = &["--statement-mode", "cached"];
        Self {
            servers: places.iter().map(|place| place.server(cached)).collect(),
            typed: middle.server(&["--statement-mode", "typed"]),
            floor: middle.floor(),
            canned: lab::canned(),
            sqlite: sqlite::server(lab, middle.tasks),
        }
    }
}

/// Every call of a server that is compared.
fn all_calls(caller: &Caller, place: &Place<'_>, second: String) -> Vec<Case> {
    vec![
        caller.case(FIRST, Call::Page(String::new())),
        caller.case(SECOND, Call::Page(second)),
        caller.case(GET, Call::Task(place.ids())),
        caller.case(ECHO, Call::Send { at_once: false, owners: 1 }),
    ]
}

/// All closed cases.
async fn closed(
    lab: &Lab,
    running: &Running,
    places: &[Place<'_>],
    middle: &Place<'_>,
    driver: &Driver<'_>,
) -> Vec<Case> {
    let mut cases = Vec::new();
    for (place, server) in places.iter().zip(&running.servers) {
        let caller = Caller::new(&format!("a2ad, {}", place.name), server).await;
        // All depths where there is room for a picture, else the one that a goal speaks of.
        let is_largest = places.iter().all(|other| other.tasks <= place.tasks);
        let rows = match is_largest {
            true => depths(place.owned()),
            false => vec![three_quarters(place.owned())],
        };
        let walked: Vec<i64> = std::iter::once(50).chain(rows.iter().copied()).collect();
        let tokens = caller.tokens(&walked).await;
        cases.push(caller.case(FIRST, Call::Page(String::new())));
        cases.push(caller.case(SECOND, Call::Page(tokens[&50].clone())));
        for row in rows {
            cases.push(caller.case(&deep(row), Call::Page(tokens[&row].clone())));
        }
        cases.push(caller.case(GET, Call::Task(place.ids())));
        if place.tasks == middle.tasks {
            cases.push(caller.case(ECHO, Call::Send { at_once: false, owners: 1 }));
            cases.push(caller.case(AT_ONCE, Call::Send { at_once: true, owners: 1 }));
            cases.push(caller.case(SPREAD, Call::Send { at_once: false, owners: TENANTS }));
        }
    }
    for (who, server) in [
        (format!("a2ad, {}, typed", middle.name), &running.typed),
        (format!("floor, {}", middle.name), &running.floor),
        ("SQLite".to_owned(), &running.sqlite),
    ] {
        let caller = Caller::new(&who, server).await;
        let second = caller.tokens(&[50]).await.remove(&50).unwrap_or_default();
        cases.extend(all_calls(&caller, middle, second));
    }
    let canned = Caller::new("canned", &running.canned).await;
    cases.push(canned.case(SECOND, Call::Page(String::new())));
    cases.push(canned.case(GET, Call::Task(middle.ids())));
    cases.push(driver.page(SECOND, 50).await);
    cases.push(
        driver.page(&deep(three_quarters(middle.owned())), three_quarters(middle.owned())).await,
    );
    cases.push(driver.task());
    cases.push(driver.echo());
    cases.push(driver.insert().await);
    cases.push(sqlite::bare(lab));
    cases
}

/// Closed loads first; then open ones at a third of what the floor and a2ad reached.
pub(crate) async fn measure(
    lab: &Lab,
    running: &Running,
    places: &[Place<'_>],
    middle: &Place<'_>,
    effort: Effort,
) -> (Table, Table) {
    let driver = Driver::new(middle).await;
    let cases = closed(lab, running, places, middle, &driver).await;
    println!("{} cases in turn, {} rounds", cases.len(), effort.rounds);
    let highest = round::robin(lab, &cases, effort.rounds, effort.time).await;
    let mut open = Vec::new();
    for name in [SECOND, GET, ECHO] {
        let ours = format!("a2ad, {}: {name}", middle.name);
        let floor = format!("floor, {}: {name}", middle.name);
        let Some(reached) = highest.get(&ours) else { continue };
        // Round numbers are easier to read.
        let rate = (reached.rate / 3.0 / 50.0).ceil() * 50.0;
        for case in cases.iter().filter(|case| case.name == ours || case.name == floor) {
            open.push(Case { load: Load::Open(rate), ..case.clone() });
        }
    }
    let given = round::robin(lab, &open, effort.rounds, effort.time).await;
    (highest, given)
}
