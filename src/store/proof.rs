//! A hook for one test, which no setting reaches and no release build has: it takes the scope out of
//! one statement, so that a test can show that another test would notice.
//!
//! What is a scope is read from the text of a statement: a column `tenant` or `owner` that is
//! compared with a parameter. Every statement that compares an owner is one of those to be stripped,
//! so a new one is in the test by itself.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

/// What is taken out of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Clause {
    /// Whose rows.
    Owner,
    /// Of which tenant.
    Tenant,
}

impl Clause {
    fn column(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Tenant => "tenant",
        }
    }
}

/// Which statements of a store have a scope, and which of them has lost it.
#[derive(Debug, Default)]
pub struct Proof {
    seen: Mutex<BTreeSet<(String, Clause)>>,
    stripped: Mutex<Option<(String, Clause)>>,
}

impl Proof {
    /// The statements with an owner that were run so far, with each clause that they have.
    #[must_use]
    pub fn seen(&self) -> BTreeSet<(String, Clause)> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on, this statement has no such clause.
    pub fn strip(&self, statement: &str, clause: Clause) {
        *self.stripped.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((statement.to_owned(), clause));
    }

    /// The text to run instead of `sql`, if it is the one.
    pub(super) fn instead_of(&self, sql: &str) -> Option<String> {
        without(sql, Clause::Owner)?;
        let name = name(sql);
        let stripped = self.stripped.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((statement, clause)) = &*stripped {
            return if *statement == name { without(sql, *clause) } else { None };
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for clause in [Clause::Owner, Clause::Tenant] {
            if without(sql, clause).is_some() {
                seen.insert((name.clone(), clause));
            }
        }
        None
    }
}

/// By its first line, where that is a comment, or else by its text.
fn name(sql: &str) -> String {
    match sql.strip_prefix("-- ") {
        Some(rest) => rest.lines().next().unwrap_or_default().to_owned(),
        None => sql.split_whitespace().collect::<Vec<_>>().join(" "),
    }
}

/// `sql` with each comparison of a column with a parameter made one of the parameter with itself;
/// `None` if there is none.
fn without(sql: &str, clause: Clause) -> Option<String> {
    let column = clause.column();
    let mut text = String::new();
    let mut rest = sql;
    let mut found = false;
    while let Some(at) = rest.find(column) {
        let (before, after) = rest.split_at(at);
        let after = after.strip_prefix(column)?;
        let parameter = after.strip_prefix(" = ").and_then(parameter);
        let whole_word = !before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        match parameter.filter(|_| whole_word) {
            Some(parameter) => {
                let qualifier = before.len() - qualifier(before);
                text.push_str(before.get(..qualifier)?);
                write!(text, "{parameter}").ok()?;
                found = true;
            }
            None => {
                text.push_str(before);
                text.push_str(column);
            }
        }
        rest = after;
    }
    text.push_str(rest);
    found.then_some(text)
}

/// The parameter that `text` begins with.
fn parameter(text: &str) -> Option<&str> {
    let digits = text.get(1..)?.bytes().take_while(u8::is_ascii_digit).count();
    (text.starts_with(['$', '?']) && digits > 0).then(|| text.get(..=digits)).flatten()
}

/// How many bytes at the end of `text` name the table of a column: `t.`.
fn qualifier(text: &str) -> usize {
    let Some(head) = text.strip_suffix('.') else { return 0 };
    1 + head.bytes().rev().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clause_is_taken_out_and_the_parameters_stay() {
        let sql = "-- task\nselect owner from tasks t where t.tenant = $1 and t.owner = $12";
        assert_eq!(
            without(sql, Clause::Owner).unwrap(),
            "-- task\nselect owner from tasks t where t.tenant = $1 and $12 = $12"
        );
        assert_eq!(
            without(sql, Clause::Tenant).unwrap(),
            "-- task\nselect owner from tasks t where $1 = $1 and t.owner = $12"
        );
        assert_eq!(name(sql), "task");
        for bound in ["m.tenant = t.tenant", "co_owner = ?1", "owner, n", "owner = excluded.owner"]
        {
            assert_eq!(without(bound, Clause::Owner), None);
            assert_eq!(without(bound, Clause::Tenant), None);
        }
    }
}
