//! Reading one task and its log: one statement each, so one snapshot each.

use std::sync::LazyLock;

use tokio_postgres::Row;
use uuid::Uuid;

use crate::contract::v1;
use crate::domain::{Error, Scope, TaskId};
use crate::store::EVENTS_BYTES;
use crate::store::codec::{self, Head, Tail};
use crate::store::listing::live_sql;
use crate::store::postgres::Inner;
use crate::store::postgres::names::ScopeKey;
use crate::store::postgres::pool::Call;
use crate::store::types::{Event, Owners, TaskRecord, View};

/// History comes newest first, as the index gives it.
const TASK: &str = "-- task
select t.id, t.context_id, t.state, t.status_at, t.status_message, t.metadata, t.generation,
  t.shown, t.reply, t.interrupted_generation, t.interrupted_turn,
  t.cancel_requested_at is not null as cancel_requested,
  array(
    select m.body from messages m where m.tenant = t.tenant and m.task_id = t.id
    order by m.seq desc limit $5
  ) as history,
  case when $6 then array(
    select a.head || coalesce((
      select string_agg(c.parts, ''::bytea order by c.seq) from artifact_chunks c
      where c.tenant = a.tenant and c.task_id = a.task_id and c.artifact_id = a.artifact_id
        and c.seq >= a.since
    ), ''::bytea)
    from artifacts a where a.tenant = t.tenant and a.task_id = t.id order by a.ordinal
  ) end as artifacts
from tasks t
where t.tenant = $1 and t.owner = $2 and t.id = $3 and (t.shown or $4)";

/// The lengths are read from the rows' headers, so what is not sent is not unpacked.
const EVENTS: &str = "-- events_after
select t.context_id, e.generation, e.turn, e.at, e.body
from tasks t
left join lateral (
  select generation, turn, at, body from (
    select x.*, sum(octet_length(body)) over (order by generation) - octet_length(body) as before
    from (
      select generation, turn, at, body from task_events
      where tenant = t.tenant and task_id = t.id and generation > $4
      order by generation limit $5
    ) x
  ) y
  where before <= $6
  order by generation
) e on true
where t.tenant = $1 and t.owner = $2 and t.id = $3 and t.shown
  and (e.generation is not null or t.terminal_at is null or t.generation <= $4)";

/// The columns that a listing shows, which come first in every statement that has them. By place:
/// a page would look up three hundred names.
pub(super) fn head(row: &Row) -> Head {
    Head {
        id: row.get(0),
        context_id: row.get(1),
        state: row.get::<_, i16>(2).into(),
        status_at: row.get(3),
        status_message: row.get(4),
        metadata: row.get(5),
    }
}

/// Puts what the columns `history` and `artifacts` hold into a task.
pub(super) fn fill(task: &mut v1::Task, row: &Row) -> Result<(), Error> {
    let history: Vec<&[u8]> = row.get("history");
    for body in history.into_iter().rev() {
        task.history.push(codec::message(body, &task.id, &task.context_id)?);
    }
    let artifacts: Option<Vec<&[u8]>> = row.get("artifacts");
    for artifact in artifacts.unwrap_or_default() {
        task.artifacts.push(codec::decode(artifact)?);
    }
    Ok(())
}

pub(super) fn statement(key: ScopeKey, task: TaskId, view: View) -> Call {
    Call::new(TASK)
        .with(key.tenant)
        .with(key.owner)
        .with(task.uuid())
        .with(view.hidden)
        .with(i64::from(view.history))
        .with(view.artifacts)
}

pub(super) async fn task(
    inner: &Inner,
    scope: &Scope,
    task: TaskId,
    view: View,
) -> Result<Option<TaskRecord>, Error> {
    let Some(key) = inner.names.find(&inner.db, scope).await? else { return Ok(None) };
    let rows = inner.db.run(&statement(key, task, view)).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let mut task = head(row).task()?;
    fill(&mut task, row)?;
    let tail = Tail {
        generation: row.get("generation"),
        shown: row.get("shown"),
        reply: row.get("reply"),
        interrupted_generation: row.get("interrupted_generation"),
        interrupted_turn: row.get("interrupted_turn"),
        cancel_requested: row.get("cancel_requested"),
    };
    codec::record(task, tail).map(Some)
}

pub(super) async fn events_after(
    inner: &Inner,
    scope: &Scope,
    task: TaskId,
    after: i64,
    limit: u32,
) -> Result<Option<Vec<Event>>, Error> {
    let Some(key) = inner.names.find(&inner.db, scope).await? else { return Ok(None) };
    let id: Uuid = task.uuid();
    let call = Call::new(EVENTS)
        .with(key.tenant)
        .with(key.owner)
        .with(id)
        .with(after)
        .with(i64::from(limit))
        .with(i64::from(EVENTS_BYTES));
    let rows = inner.db.run(&call).await?;
    if rows.is_empty() {
        return Ok(None);
    }
    let id = task.to_string();
    let mut events = Vec::with_capacity(rows.len());
    for row in &rows {
        // A task without events above `after` is one row of nothing.
        let Some(generation) = row.get("generation") else { continue };
        let (turn, at) = (row.get("turn"), row.get("at"));
        events.push(codec::event(
            &id,
            row.get("context_id"),
            generation,
            turn,
            at,
            row.get("body"),
        )?);
    }
    Ok(Some(events))
}

static LIVE: LazyLock<[String; 2]> = LazyLock::new(|| {
    [Owners::One, Owners::All]
        .map(|owners| format!("-- live_tasks\nselect ({})::bigint as n", live_sql('$', owners)))
});

pub(super) async fn live_tasks(inner: &Inner, scope: &Scope, owners: Owners) -> Result<i64, Error> {
    let Some(key) = inner.names.find(&inner.db, scope).await? else { return Ok(0) };
    let [one, all] = &*LIVE;
    let call = match owners {
        Owners::One => Call::new(one).with(key.tenant).with(key.owner),
        Owners::All => Call::new(all).with(key.tenant),
    };
    let rows = inner.db.run(&call).await?;
    Ok(rows.first().map_or(0, |row| row.get("n")))
}
