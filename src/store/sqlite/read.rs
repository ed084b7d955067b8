//! Reading one task and its log.

use rusqlite::{Connection, OptionalExtension as _, params};

use crate::contract::v1;
use crate::domain::{Error, TaskId};
use crate::store::EVENTS_BYTES;
use crate::store::change::join_artifact;
use crate::store::codec::{self, Head, Tail};
use crate::store::listing::live_sql;
use crate::store::sqlite::ScopeKey;
use crate::store::sqlite::scoped::scoped;
use crate::store::types::{Event, Owners, TaskRecord, View};

pub(super) fn task(
    connection: &Connection,
    key: ScopeKey,
    task: TaskId,
    view: View,
) -> Result<Option<TaskRecord>, Error> {
    let mut find = connection.prepare_cached(&scoped(
        connection,
        "select id, context_id, state, status_at, status_message, metadata, generation, shown,
           reply, interrupted_generation, interrupted_turn, cancel_requested_at is not null
         from tasks where tenant = ?1 and id = ?2 and owner = ?3 and (shown or ?4)",
    ))?;
    let found = find
        .query_row(params![key.tenant, task.uuid(), key.owner, view.hidden], |row| {
            let head = Head {
                id: row.get(0)?,
                context_id: row.get(1)?,
                state: row.get(2)?,
                status_at: row.get(3)?,
                status_message: row.get(4)?,
                metadata: row.get(5)?,
            };
            let tail = Tail {
                generation: row.get(6)?,
                shown: row.get(7)?,
                reply: row.get(8)?,
                interrupted_generation: row.get(9)?,
                interrupted_turn: row.get(10)?,
                cancel_requested: row.get(11)?,
            };
            Ok((head, tail))
        })
        .optional()?;
    let Some((head, tail)) = found else { return Ok(None) };
    let mut task = head.task()?;
    fill(connection, key, &mut task, view.history, view.artifacts)?;
    codec::record(task, tail).map(Some)
}

/// Reads history and artifacts into a task. Returns how many bytes they had.
pub(super) fn fill(
    connection: &Connection,
    key: ScopeKey,
    task: &mut v1::Task,
    history: u32,
    artifacts: bool,
) -> Result<usize, Error> {
    let Some(id) = TaskId::parse(&task.id) else { return Ok(0) };
    let mut bytes = 0;
    if history > 0 {
        let mut find = connection.prepare_cached(
            "select body from messages where tenant = ?1 and task_id = ?2
             order by seq desc limit ?3",
        )?;
        let mut rows = find.query(params![key.tenant, id.uuid(), history])?;
        while let Some(row) = rows.next()? {
            let body: Vec<u8> = row.get(0)?;
            bytes += body.len();
            task.history.push(codec::message(&body, &task.id, &task.context_id)?);
        }
        task.history.reverse();
    }
    if artifacts {
        let mut find = connection.prepare_cached(
            "select artifact_id, head, since from artifacts
             where tenant = ?1 and task_id = ?2 order by ordinal",
        )?;
        let mut rows = find.query(params![key.tenant, id.uuid()])?;
        while let Some(row) = rows.next()? {
            let artifact_id: String = row.get(0)?;
            let chunks = chunks(connection, key, id, &artifact_id, row.get(2)?)?;
            let head: Vec<u8> = row.get(1)?;
            bytes += head.len() + chunks.len();
            task.artifacts.push(join_artifact(head, &chunks)?);
        }
    }
    Ok(bytes)
}

fn chunks(
    connection: &Connection,
    key: ScopeKey,
    task: TaskId,
    artifact_id: &str,
    since: i64,
) -> Result<Vec<u8>, Error> {
    let mut find = connection.prepare_cached(
        "select parts from artifact_chunks
         where tenant = ?1 and task_id = ?2 and artifact_id = ?3 and seq >= ?4 order by seq",
    )?;
    let mut rows = find.query(params![key.tenant, task.uuid(), artifact_id, since])?;
    let mut bytes = Vec::new();
    while let Some(row) = rows.next()? {
        let parts: Vec<u8> = row.get(0)?;
        bytes.extend_from_slice(&parts);
    }
    Ok(bytes)
}

pub(super) fn events(
    connection: &Connection,
    key: ScopeKey,
    task: TaskId,
    after: i64,
    limit: u32,
) -> Result<Option<Vec<Event>>, Error> {
    let found: Option<(String, bool)> = connection
        .prepare_cached(&scoped(
            connection,
            "select context_id, terminal_at is not null and generation > ?4 from tasks
             where tenant = ?1 and id = ?2 and owner = ?3 and shown",
        ))?
        .query_row(params![key.tenant, task.uuid(), key.owner, after], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()?;
    let Some((context, has_more)) = found else { return Ok(None) };
    let id = task.to_string();
    let mut find = connection.prepare_cached(
        "select generation, turn, at, body from task_events
         where tenant = ?1 and task_id = ?2 and generation > ?3 order by generation limit ?4",
    )?;
    let mut rows = find.query(params![key.tenant, task.uuid(), after, limit])?;
    let (mut events, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        if bytes > EVENTS_BYTES as usize {
            break;
        }
        let body: Vec<u8> = row.get(3)?;
        bytes += body.len();
        events.push(codec::event(&id, &context, row.get(0)?, row.get(1)?, row.get(2)?, &body)?);
    }
    let is_gone = has_more && events.is_empty();
    Ok((!is_gone).then_some(events))
}

pub(super) fn live_tasks(
    connection: &Connection,
    key: ScopeKey,
    owners: Owners,
) -> Result<i64, Error> {
    let mut count = connection.prepare_cached(&scoped(connection, &live_sql('?', owners)))?;
    let n = match owners {
        Owners::One => count.query_row(params![key.tenant, key.owner], |row| row.get(0)),
        Owners::All => count.query_row(params![key.tenant], |row| row.get(0)),
    };
    Ok(n?)
}
