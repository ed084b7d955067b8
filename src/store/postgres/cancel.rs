//! Canceling. Turns that wait behind the task's head fall with it, and one may have been accepted
//! a moment ago, so these statements run under a lock that was taken before them.

use std::time::Duration;

use uuid::Uuid;

use crate::contract::v1::TaskState;
use crate::contract::wkt::Struct;
use crate::domain::clock::micros;
use crate::domain::{Error, Scope, TaskId};
use crate::store::change::status_body;
use crate::store::codec;
use crate::store::postgres::names::ScopeKey;
use crate::store::postgres::pool::Call;
use crate::store::postgres::{Inner, Wake};
use crate::store::types::CancelRequested;

const LOCK: &str = "-- cancel: the lock
select from tasks where tenant = $1 and owner = $2 and id = $3 for update";

/// `$7` forces the end of a task whose cancel was requested, whoever holds its lease.
const CANCEL: &str = "-- cancel
with l as (
  select owner, state, status_at, status_message, status_seq, generation, lease, head_turn,
    next_turn, cancel_requested_at, updated_at, terminal_at
  from tasks
  where tenant = $2 and owner = $3 and id = $4 and shown
    and (not $7 or cancel_requested_at is not null)
  for update
), n as materialized (
  select l.*, coalesce($1, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now
  from l where terminal_at is null
), s as materialized (
  select n.*, greatest(n.status_at, n.now - n.now % 1000) as at from n
  where n.lease is null or $7
), e as (
  insert into task_events (tenant, task_id, generation, turn, state, at, body)
  select $2, $4, s.generation + 1, case when s.head_turn < s.next_turn then s.head_turn else 0 end,
    5, s.at, $6
  from s
), m as (
  insert into messages (tenant, task_id, seq, body)
  select $2, $4, s.status_seq, s.status_message from s where s.status_message is not null
), u as (
  update turns u set state = 4
  from s where u.tenant = $2 and u.task_id = $4 and u.turn >= s.head_turn and u.state < 3
), w as (
  update tasks t
  set state = 5, status_at = s.at, status_message = null, status_seq = null,
    generation = s.generation + 1, lease = null, head_turn = s.next_turn, terminal_at = s.at,
    updated_at = greatest(s.now, s.updated_at + 1)
  from s where t.tenant = $2 and t.id = $4
), r as (
  update tasks t
  set cancel_requested_at = n.now, cancel_metadata = $5,
    updated_at = greatest(n.now, n.updated_at + 1)
  from n
  where t.tenant = $2 and t.id = $4 and n.lease is not null and n.cancel_requested_at is null
    and not $7
  returning 1
), c as (
  insert into task_count_deltas (tenant, owner, state, n)
  select $2, s.owner, s.state, -1 from s union all select $2, s.owner, 5, 1 from s
)
select l.state, exists (select from s) as canceled, l.terminal_at is not null as ended,
  exists (select from r) as requested
from l";

const WANTED: &str = "-- cancel: those that took too long
select tenant, owner, id from tasks
where cancel_requested_at is not null and terminal_at is null
  and cancel_requested_at
    <= coalesce($1, (extract(epoch from clock_timestamp()) * 1000000)::bigint) - $2
order by cancel_requested_at limit $3";

async fn cancel(
    inner: &Inner,
    key: ScopeKey,
    task: TaskId,
    metadata: Option<Vec<u8>>,
    force: bool,
) -> Result<CancelRequested, Error> {
    let lock = Call::new(LOCK).with(key.tenant).with(key.owner).with(task.uuid());
    let call = Call::new(CANCEL)
        .with(inner.now())
        .with(key.tenant)
        .with(key.owner)
        .with(task.uuid())
        .with(metadata)
        .with(status_body(TaskState::Canceled, None, None))
        .with(force);
    let rows = inner.db.run_locked(&lock, &call).await?;
    let Some(row) = rows.first() else { return Ok(CancelRequested::NotFound) };
    let canceled: bool = row.get("canceled");
    if canceled || row.get("requested") {
        inner.wake(task, Wake::default());
    }
    if canceled {
        Ok(CancelRequested::Canceled)
    } else if row.get("ended") {
        Ok(CancelRequested::Ended(codec::state(row.get::<_, i16>("state").into())?))
    } else {
        Ok(CancelRequested::Requested)
    }
}

pub(super) async fn request_cancel(
    inner: &Inner,
    scope: &Scope,
    task: TaskId,
    metadata: Option<&Struct>,
) -> Result<CancelRequested, Error> {
    let metadata = metadata.map(prost::Message::encode_to_vec);
    match inner.names.find(&inner.db, scope).await? {
        Some(key) => cancel(inner, key, task, metadata, false).await,
        None => Ok(CancelRequested::NotFound),
    }
}

pub(super) async fn finish_cancel(
    inner: &Inner,
    scope: &Scope,
    task: TaskId,
) -> Result<bool, Error> {
    let Some(key) = inner.names.find(&inner.db, scope).await? else { return Ok(false) };
    Ok(cancel(inner, key, task, None, true).await? == CancelRequested::Canceled)
}

pub(super) async fn finish_cancels(
    inner: &Inner,
    grace: Duration,
    limit: u32,
) -> Result<u32, Error> {
    let call = Call::new(WANTED).with(inner.now()).with(micros(grace)).with(i64::from(limit));
    let mut ended = 0;
    for row in inner.db.run(&call).await? {
        let key = ScopeKey { tenant: row.get("tenant"), owner: row.get("owner") };
        let task = TaskId::from(row.get::<_, Uuid>("id"));
        if cancel(inner, key, task, None, true).await? == CancelRequested::Canceled {
            ended += 1;
        }
    }
    Ok(ended)
}
