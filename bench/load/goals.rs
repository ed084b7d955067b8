//! What a2ad is held to, as ratios within one run.

use crate::cases::{ECHO, FIRST, GET, SECOND, SPREAD, TWO_COMMITS, deep, three_quarters};
use crate::lab::{Place, thousands};
use crate::round::Table;
use crate::single::{Handover, Wal};

/// A bound, and what was measured.
#[derive(Debug)]
pub(crate) struct Goal {
    pub(crate) text: String,
    pub(crate) bound: Bound,
    /// `None` if this run did not measure it.
    pub(crate) measured: Option<f64>,
    pub(crate) unit: &'static str,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl Goal {
    pub(crate) fn reached(&self) -> Option<bool> {
        let measured = self.measured?;
        Some(match self.bound {
            Bound::AtMost(bound) => measured <= bound,
            Bound::AtLeast(bound) => measured >= bound,
        })
    }
}

/// All that was measured.
pub(crate) struct Run<'a> {
    pub(crate) places: &'a [Place<'a>],
    pub(crate) middle: &'a Place<'a>,
    pub(crate) highest: Table,
    pub(crate) given: Table,
    pub(crate) wal: Wal,
    pub(crate) handover: Handover,
    /// Resident bytes of the server of each place, after the rounds.
    pub(crate) memory: Vec<u64>,
}

impl Run<'_> {
    fn cpu(&self, case: &str) -> Option<f64> {
        self.highest.get(case).map(|seen| seen.cpu())
    }

    fn rate(&self, case: &str) -> Option<f64> {
        self.highest.get(case).map(|seen| seen.rate)
    }

    fn cpu_ratio(&self, case: &str, beside: &str) -> Option<f64> {
        Some(self.cpu(case)? / self.cpu(beside)?)
    }

    fn rate_ratio(&self, case: &str, beside: &str) -> Option<f64> {
        Some(self.rate(case)? / self.rate(beside)?)
    }

    /// Those that hold a server in one statement mode against its partners.
    pub(crate) fn against_partners(&self, who: &str) -> Vec<Goal> {
        let at = &self.middle.name;
        let ours = |call: &str| format!("{who}: {call}");
        let floor = |call: &str| format!("floor, {at}: {call}");
        let driver = |call: &str| format!("driver, {at}: {call}");
        let goal = |text: &str, bound, measured| Goal {
            text: text.to_owned(),
            bound,
            measured,
            unit: "x",
        };
        vec![
            goal(
                "ListTasks, page 2: CPU against the driver's",
                Bound::AtMost(2.0),
                self.cpu_ratio(&ours(SECOND), &driver(SECOND)),
            ),
            goal(
                "ListTasks, page 2: rate against the floor's",
                Bound::AtLeast(0.6),
                self.rate_ratio(&ours(SECOND), &floor(SECOND)),
            ),
            goal(
                "GetTask: rate against the floor's",
                Bound::AtLeast(0.6),
                self.rate_ratio(&ours(GET), &floor(GET)),
            ),
            goal(
                "GetTask: CPU against the floor's",
                Bound::AtMost(2.0),
                self.cpu_ratio(&ours(GET), &floor(GET)),
            ),
            goal(
                "SendMessage, an echo: rate against the floor's single commit",
                Bound::AtLeast(0.35),
                self.rate_ratio(&ours(ECHO), &floor(ECHO)),
            ),
            goal(
                "SendMessage, an echo: rate against the bare SQL of its two commits",
                Bound::AtLeast(0.6),
                self.rate_ratio(&ours(ECHO), &driver(TWO_COMMITS)),
            ),
        ]
    }

    /// Those that hold a2ad against itself or a number.
    pub(crate) fn against_itself(&self) -> Vec<Goal> {
        let mut goals = Vec::new();
        let mut goal = |text: String, bound, measured, unit| {
            goals.push(Goal { text, bound, measured, unit });
        };
        for place in self.places {
            let ours = |call: &str| format!("a2ad, {}: {call}", place.name);
            let (owned, row) = (thousands(place.owned()), three_quarters(place.owned()));
            let with_total = self.cpu_ratio(&ours(FIRST), &ours(SECOND));
            let text = format!("page 1 with its total, of {owned}: CPU against page 2");
            goal(text, Bound::AtMost(1.5), with_total, "x");
            let below = self.cpu_ratio(&ours(&deep(row)), &ours(SECOND));
            let text = format!("the page from row {}: CPU against page 2", thousands(row));
            goal(text, Bound::AtMost(1.25), below, "x");
        }
        if let [smallest, .., largest] = self.places {
            let of = |place: &Place<'_>| format!("a2ad, {}: {SECOND}", place.name);
            let grown = self.cpu_ratio(&of(largest), &of(smallest));
            let text = format!("from {} to {} tasks, page 2: CPU", smallest.name, largest.name);
            goal(text, Bound::AtMost(1.3), grown, "x");
        }
        let ours = |call: &str| format!("a2ad, {}: {call}", self.middle.name);
        let hot = self.rate_ratio(&ours(ECHO), &ours(SPREAD));
        let text = "writes to one owner: rate against 1,000 owners".to_owned();
        goal(text, Bound::AtLeast(0.8), hot, "x");
        let bare = format!("SQLite: {}", crate::sqlite::BARE);
        let sqlite = self.rate_ratio(&format!("SQLite: {ECHO}"), &bare);
        let text = "SQLite, an echo: rate against bare group commits".to_owned();
        goal(text, Bound::AtLeast(0.5), sqlite, "x");
        let text = "an accepted turn reaches an idle runner of another server: median".to_owned();
        goal(text, Bound::AtMost(5.0), Some(self.handover.claimed), " ms");
        let text = "WAL of a status change with its event".to_owned();
        goal(text, Bound::AtMost(3000.0), Some(self.wal.status), " bytes");
        for (place, bytes) in self.places.iter().zip(&self.memory) {
            let text = format!("memory of the server after the run, {} tasks", place.name);
            goal(text, Bound::AtMost(50.0), Some(*bytes as f64 / 1e6), " MB");
        }
        goals
    }
}
