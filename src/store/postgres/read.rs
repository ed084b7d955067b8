//! Reading one task and its log.

use tokio_postgres::types::Type;

use crate::domain::{Error, Scope, TaskId};
use crate::store::change::join_artifact;
use crate::store::codec::{self, Head, Tail};
use crate::store::postgres::db::{Db, Param};
use crate::store::types::{Event, TaskRecord, View};

/// One statement and so one snapshot: the row, the newest messages, and each artifact's head and
/// joined chunks.
const TASK: &str = "
select id, context_id, state, status_at, status_message, metadata, generation, shown, reply,
  interrupted_generation, interrupted_turn, cancel_requested_at is not null,
  array(select body from (
    select seq, body from messages m
    where m.tenant = $1 and m.task_id = $2 order by seq desc limit $4) newest order by seq),
  array(select head from artifacts a
    where $5 and a.tenant = $1 and a.task_id = $2 order by ordinal),
  array(select coalesce((
      select string_agg(parts, '' order by seq) from artifact_chunks c
      where c.tenant = $1 and c.task_id = $2 and c.artifact_id = a.artifact_id
        and c.seq >= a.since), '')
    from artifacts a where $5 and a.tenant = $1 and a.task_id = $2 order by ordinal)
from tasks where tenant = $1 and id = $2 and owner = $3 and (shown or $6)";

pub(super) async fn task(
    db: &Db,
    scope: &Scope,
    task: TaskId,
    view: View,
) -> Result<Option<TaskRecord>, Error> {
    let client = db.client().await?;
    let Some(key) = db.find(&client, scope).await? else { return Ok(None) };
    let (id, history) = (task.uuid(), i64::from(view.history));
    let params: [Param<'_>; 6] = [
        (&key.tenant, Type::INT4),
        (&id, Type::UUID),
        (&key.owner, Type::INT4),
        (&history, Type::INT8),
        (&view.artifacts, Type::BOOL),
        (&view.hidden, Type::BOOL),
    ];
    let rows = db.rows(&client, TASK, &params).await?;
    drop(client);
    let Some(row) = rows.first() else { return Ok(None) };
    let head = Head {
        id: row.get(0),
        context_id: row.get(1),
        state: i64::from(row.get::<_, i16>(2)),
        status_at: row.get(3),
        status_message: row.get(4),
        metadata: row.get(5),
    };
    let tail = Tail {
        generation: row.get(6),
        shown: row.get(7),
        reply: row.get(8),
        interrupted_generation: row.get(9),
        interrupted_turn: row.get(10),
        cancel_requested: row.get(11),
    };
    let mut task = head.task()?;
    for body in row.get::<_, Vec<&[u8]>>(12) {
        task.history.push(codec::message(body, &task.id, &task.context_id)?);
    }
    let heads: Vec<Vec<u8>> = row.get(13);
    let chunks: Vec<&[u8]> = row.get(14);
    for (head, chunks) in heads.into_iter().zip(chunks) {
        task.artifacts.push(join_artifact(head, chunks)?);
    }
    codec::record(task, tail).map(Some)
}

const EVENTS: &str = "
select k.context_id, e.generation, e.turn, e.at, e.body
from tasks k left join lateral (
  select generation, turn, at, body from task_events
  where tenant = $1 and task_id = $2 and generation > $4 order by generation limit $5) e on true
where k.tenant = $1 and k.id = $2 and k.owner = $3 and k.shown
order by e.generation";

pub(super) async fn events(
    db: &Db,
    scope: &Scope,
    task: TaskId,
    after: i64,
    limit: u32,
) -> Result<Option<Vec<Event>>, Error> {
    let client = db.client().await?;
    let Some(key) = db.find(&client, scope).await? else { return Ok(None) };
    let (id, limit) = (task.uuid(), i64::from(limit));
    let params: [Param<'_>; 5] = [
        (&key.tenant, Type::INT4),
        (&id, Type::UUID),
        (&key.owner, Type::INT4),
        (&after, Type::INT8),
        (&limit, Type::INT8),
    ];
    let rows = db.rows(&client, EVENTS, &params).await?;
    if rows.is_empty() {
        return Ok(None);
    }
    let task = task.to_string();
    let mut events = Vec::new();
    for row in &rows {
        // A task whose log has nothing more is one row without an event.
        let Some(generation) = row.get(1) else { break };
        let (context, body): (&str, &[u8]) = (row.get(0), row.get(4));
        events.push(codec::event(&task, context, generation, row.get(2), row.get(3), body)?);
    }
    Ok(Some(events))
}
