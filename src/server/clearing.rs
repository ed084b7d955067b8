//! Deleting by command: what has ended long enough, or all that is one owner's.

use std::path::Path;
use std::time::Duration;

use tokio::time::sleep;

use crate::config::StoreKind;
use crate::domain::{Error, Scope};
use crate::server::open::{OpenError, Place};
use crate::service::retention::Rules;
use crate::store::{Erased, Store, Tally, add_up};

/// Why a command did not delete all that it was to.
#[derive(Debug, thiserror::Error)]
pub enum ClearError {
    /// The store cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// There is no such file, and none is made.
    #[error("there is no {0}")]
    NoFile(String),
    /// The store failed on the way. What it deleted before is gone.
    #[error("stopped on the way, after {tasks} tasks")]
    Stopped {
        /// How many tasks are gone.
        tasks: u64,
        /// Why.
        source: Error,
    },
}

/// How many tasks of an owner go in one transaction.
const ERASE_BATCH: u32 = 200;

/// What a purge found or did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cleared {
    /// Tasks by tenant and state.
    pub tasks: Vec<Tally>,
    /// Tasks that stay without their events. Not counted by a dry run.
    pub logs: u64,
}

/// Deletes what has ended as `rules` say, or counts it.
///
/// # Errors
/// See [`ClearError`].
pub async fn purge(place: &Place, rules: &Rules, dry_run: bool) -> Result<Cleared, ClearError> {
    let store = open(place).await?;
    let mut cleared = Cleared::default();
    let outcome = if dry_run {
        store.count_ended_of_all(&rules.retention).await.map(|tasks| cleared.tasks = tasks)
    } else {
        delete(&*store, rules, &mut cleared).await
    };
    store.close().await;
    cleared.tasks.sort();
    outcome.map_err(|source| ClearError::Stopped { tasks: count(&cleared.tasks), source })?;
    Ok(cleared)
}

async fn delete(store: &dyn Store, rules: &Rules, cleared: &mut Cleared) -> Result<(), Error> {
    loop {
        let purged = store.purge_ended_of_all(&rules.retention, rules.batch).await?;
        add_up(&mut cleared.tasks, purged.tasks);
        if !purged.more {
            break;
        }
        sleep(rules.pause).await;
    }
    loop {
        let logs = store.purge_events_of_all(&rules.retention, rules.batch).await?;
        cleared.logs += u64::from(logs);
        if logs < rules.batch {
            return Ok(());
        }
        sleep(rules.pause).await;
    }
}

/// Deletes all that is `scope`'s, or counts it. An SQLite file is written anew afterwards, so that
/// no deleted byte stays in it.
///
/// # Errors
/// See [`ClearError`].
pub async fn erase(place: &Place, scope: &Scope, dry_run: bool) -> Result<Erased, ClearError> {
    let store = open(place).await?;
    let mut all = Erased::default();
    let outcome = if dry_run {
        store.count_owned(scope).await.map(|owned| all = owned)
    } else {
        erase_all(&*store, scope, &mut all).await
    };
    store.close().await;
    drop(store);
    all.tasks.sort();
    outcome.map_err(|source| ClearError::Stopped { tasks: count(&all.tasks), source })?;
    if !dry_run {
        place.scrub().await?;
    }
    Ok(all)
}

async fn erase_all(store: &dyn Store, scope: &Scope, all: &mut Erased) -> Result<(), Error> {
    loop {
        let erased = store.erase(scope, ERASE_BATCH).await?;
        add_up(&mut all.tasks, erased.tasks);
        all.sent_messages += erased.sent_messages;
        all.name |= erased.name;
        if !erased.more {
            return Ok(());
        }
        sleep(Duration::from_millis(10)).await;
    }
}

async fn open(place: &Place) -> Result<std::sync::Arc<dyn Store>, ClearError> {
    if let Some(StoreKind::SqliteFile(path)) = place.url.kind()
        && !Path::new(path).exists()
    {
        return Err(ClearError::NoFile(path.to_owned()));
    }
    Ok(place.open(None).await?)
}

/// How many tasks these are.
#[must_use]
pub fn count(tallies: &[Tally]) -> u64 {
    tallies.iter().map(|tally| tally.tasks).sum()
}

/// A line for each tenant and state, and one above them.
#[must_use]
pub fn table(tallies: &[Tally]) -> Vec<String> {
    if tallies.is_empty() {
        return Vec::new();
    }
    let line =
        |tenant: &str, state: &str, tasks: &str| format!("{tenant:<24} {state:<16} {tasks:>9}");
    let rows = tallies.iter().map(|Tally { tenant, state, tasks }| {
        let state = state.as_str_name().trim_start_matches("TASK_STATE_");
        line(&format!("{:?}", tenant.as_str()), state, &tasks.to_string())
    });
    std::iter::once(line("tenant", "state", "tasks")).chain(rows).collect()
}
