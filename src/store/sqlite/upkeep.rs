//! What the server's loops do to the file.

use std::time::Duration;

use rusqlite::{Connection, params};
use uuid::Uuid;

use crate::domain::clock::micros;
use crate::domain::{Error, TaskId};
use crate::store::change::{self, Change, turn_state};
use crate::store::interruption_backoff;
use crate::store::sqlite::Wake;
use crate::store::sqlite::rows;
use crate::store::types::{BACKLOG_MAX, Backlog};

pub(super) fn release_expired(connection: &Connection, limit: u32, now: i64) -> Result<u32, Error> {
    let mut find = connection.prepare_cached(
        "select tenant, task_id, turn, interruptions from turns
         where state = 2 and lease_until < ?1 order by lease_until limit ?2",
    )?;
    let expired = find
        .query_map(params![now, limit], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })?
        .collect::<rusqlite::Result<Vec<(i64, Uuid, i64, i32)>>>()?;
    for (tenant, id, turn, interruptions) in &expired {
        let count = interruptions + 1;
        let due_at = now.saturating_add(micros(interruption_backoff(count)));
        connection
            .prepare_cached(
                "update turns set state = ?4, interruptions = ?5, due_at = ?6
                 where tenant = ?1 and task_id = ?2 and turn = ?3",
            )?
            .execute(params![tenant, id, turn, turn_state::QUEUED, count, due_at])?;
        let task = TaskId::from(*id);
        let Some(locked) = rows::lock_of_all(connection, *tenant, task)? else { continue };
        let mut change = Change::begin(&locked.row, now);
        change.row.lease = None;
        rows::apply(connection, &locked, &change, &mut Wake::default())?;
    }
    Ok(u32::try_from(expired.len()).unwrap_or(u32::MAX))
}

pub(super) fn finish_cancels(
    connection: &Connection,
    grace: Duration,
    limit: u32,
    now: i64,
) -> Result<Vec<TaskId>, Error> {
    let mut find = connection.prepare_cached(
        "select tenant, id from tasks
         where cancel_requested_at is not null and terminal_at is null
           and cancel_requested_at <= ?1
         order by cancel_requested_at limit ?2",
    )?;
    let wanted = find
        .query_map(params![now.saturating_sub(micros(grace)), limit], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?
        .collect::<rusqlite::Result<Vec<(i64, Uuid)>>>()?;
    let mut ended = Vec::new();
    for (tenant, id) in wanted {
        let task = TaskId::from(id);
        let Some(locked) = rows::lock_of_all(connection, tenant, task)? else { continue };
        let cancel = change::cancel(&locked.row, now);
        rows::apply(connection, &locked, &cancel, &mut Wake::default())?;
        ended.push(task);
    }
    Ok(ended)
}

pub(super) fn fold_counts(connection: &Connection, limit: u32) -> Result<u32, Error> {
    let last: Option<i64> = connection
        .prepare_cached(
            "select max(rowid) from
               (select rowid from task_count_deltas order by rowid limit ?1)",
        )?
        .query_row([limit], |row| row.get(0))?;
    let Some(last) = last else { return Ok(0) };
    // By the row id, which reads what is folded; the index would read all that is not folded yet.
    connection
        .prepare_cached(
            "insert into task_counts (tenant, owner, state, n)
             select tenant, owner, state, sum(n) from task_count_deltas not indexed
             where rowid <= ?1
             group by tenant, owner, state
             on conflict do update set n = n + excluded.n",
        )?
        .execute([last])?;
    let folded = connection
        .prepare_cached("delete from task_count_deltas where rowid <= ?1")?
        .execute([last])?;
    Ok(u32::try_from(folded).unwrap_or(u32::MAX))
}

/// The tables that hold rows of a task beside `tasks`.
const TABLES: [&str; 5] = ["messages", "artifacts", "artifact_chunks", "task_events", "turns"];

pub(super) fn purge_expired(
    connection: &Connection,
    hidden_for: Duration,
    limit: u32,
    now: i64,
) -> Result<u32, Error> {
    let sent = connection
        .prepare_cached(
            "delete from sent_messages where rowid in
               (select rowid from sent_messages where expires_at <= ?1
                order by expires_at limit ?2)",
        )?
        .execute(params![now, limit])?;
    let mut find = connection.prepare_cached(
        "select tenant, id from tasks
         where not shown and created_at <= ?1 and updated_at <= ?1 and lease is null
         order by created_at limit ?2",
    )?;
    let old = find
        .query_map(params![now.saturating_sub(micros(hidden_for)), limit], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?
        .collect::<rusqlite::Result<Vec<(i64, Uuid)>>>()?;
    for (tenant, id) in &old {
        delete_task(connection, *tenant, id)?;
    }
    Ok(u32::try_from(sent + old.len()).unwrap_or(u32::MAX))
}

/// Deletes a task with all that belongs to it.
pub(super) fn delete_task(connection: &Connection, tenant: i64, id: &Uuid) -> Result<(), Error> {
    for table in TABLES {
        let sql = format!("delete from {table} where tenant = ?1 and task_id = ?2");
        connection.prepare_cached(&sql)?.execute(params![tenant, id])?;
    }
    connection
        .prepare_cached("delete from tasks where tenant = ?1 and id = ?2")?
        .execute(params![tenant, id])?;
    Ok(())
}

pub(super) fn backlog(connection: &Connection, now: i64) -> Result<Backlog, Error> {
    let mut find = connection.prepare_cached(
        "select count(*), coalesce(max(?1 - due_at), 0) from (
           select due_at from turns where state = 1 and due_at <= ?1 order by due_at limit ?2)",
    )?;
    let (due, longest): (i64, i64) =
        find.query_row(params![now, BACKLOG_MAX], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let longest = Duration::from_micros(u64::try_from(longest).unwrap_or_default());
    Ok(Backlog { due: u32::try_from(due).unwrap_or_default(), longest })
}
