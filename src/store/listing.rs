//! The statements of a listing: one text for each combination of filters.
//!
//! A statement that serves every combination (`$3 is null or ...`) cannot use an index well under
//! a generic plan, and an offset reads what it skips. Each of these texts is one ordered range
//! scan of the index that ends in `(status_at desc, id desc)`; the cursor is a row comparison,
//! which both databases turn into the start of that range.

use std::fmt::Write as _;

use crate::store::types::{Owners, PageQuery};

/// Which filters a listing has. Parameters come in the order of these fields, after tenant and
/// owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub(crate) context: bool,
    pub(crate) state: bool,
    pub(crate) since: bool,
    pub(crate) cursor: bool,
}

impl Shape {
    pub(crate) fn of(query: &PageQuery) -> Self {
        Self {
            context: query.context.is_some(),
            state: query.state.is_some(),
            since: query.since_us.is_some(),
            cursor: query.after.is_some(),
        }
    }

    /// Whether the folded counts know the total.
    pub(crate) fn counted(self) -> bool {
        !self.context && !self.since
    }

    /// The filters as conditions, and how many parameters they took.
    fn conditions(self, mark: char) -> (String, u32) {
        let mut sql = format!("tenant = {mark}1 and owner = {mark}2");
        let mut n = 2;
        let columns =
            [(self.context, "context_id ="), (self.state, "state ="), (self.since, "status_at >=")];
        for (wanted, column) in columns {
            if wanted {
                n += 1;
                write!(sql, " and {column} {mark}{n}").expect("a String takes all text");
            }
        }
        (sql, n)
    }

    /// The table. SQLite is told which index serves the filters: left alone, it takes a range on
    /// the time over two equal columns.
    fn table(self, mark: char) -> &'static str {
        match (mark, self.context, self.state) {
            ('?', false, false) => "tasks indexed by tasks_by_owner",
            ('?', false, true) => "tasks indexed by tasks_by_state",
            ('?', true, false) => "tasks indexed by tasks_by_context",
            ('?', true, true) => "tasks indexed by tasks_by_context_and_state",
            _ => "tasks",
        }
    }

    /// The page: at most one task more than its size, which tells whether another page follows.
    pub(crate) fn page_sql(self, mark: char) -> String {
        let (mut sql, mut n) = self.conditions(mark);
        if self.cursor {
            write!(sql, " and (status_at, id) < ({mark}{}, {mark}{})", n + 1, n + 2)
                .expect("a String takes all text");
            n += 2;
        }
        let limit = n + 1;
        let table = self.table(mark);
        format!(
            "select id, context_id, state, status_at, status_message, metadata from {table} \
             where shown and {sql} order by status_at desc, id desc limit {mark}{limit}"
        )
    }

    /// The total by counting: an index range, without the heap where the database can.
    pub(crate) fn count_sql(self, mark: char) -> String {
        let (sql, _) = self.conditions(mark);
        let table = self.table(mark);
        format!("select count(*) from {table} where shown and {sql}")
    }

    /// The total by the counts: the folded ones and what is not folded yet.
    pub(crate) fn counts_sql(self, mark: char) -> String {
        let (sql, _) = self.conditions(mark);
        format!(
            "select coalesce((select sum(n) from task_counts where {sql}), 0) \
             + coalesce((select sum(n) from task_count_deltas where {sql}), 0)"
        )
    }
}

/// How many shown tasks have not ended, by the counts.
pub(crate) fn live_sql(mark: char, owners: Owners) -> String {
    const LIVE: &str = "state in (1, 2, 6, 8)";
    let sql = match owners {
        Owners::One => format!("tenant = {mark}1 and owner = {mark}2 and {LIVE}"),
        Owners::All => format!("tenant = {mark}1 and {LIVE}"),
    };
    format!(
        "select coalesce((select sum(n) from task_counts where {sql}), 0) \
         + coalesce((select sum(n) from task_count_deltas where {sql}), 0)"
    )
}

/// Drops the row beyond the page, if there is one, and says so.
pub(crate) fn truncate<T>(rows: &mut Vec<T>, limit: u32) -> bool {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let more = rows.len() > limit;
    rows.truncate(limit);
    more
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::v1::TaskState;

    #[test]
    fn live_tasks_are_those_of_every_state_that_is_not_terminal() {
        let live = (1..16).filter_map(|n| TaskState::try_from(n).ok());
        let live: Vec<_> =
            live.filter(|s| !s.is_terminal()).map(|s| (s as i32).to_string()).collect();
        let wanted = format!("state in ({})", live.join(", "));
        assert!(live_sql('$', Owners::All).contains(&wanted), "{wanted}");
    }
}
