//! Accepting a message: one statement in which everything hangs on the de-duplication row, so
//! that a repeat does nothing at all. Only when it did nothing is it asked why.

use tokio_postgres::Row;

use crate::contract::v1::TaskState;
use crate::domain::clock::micros;
use crate::domain::{Error, Scope, TaskId};
use crate::store::change::{message_body, status_body};
use crate::store::codec;
use crate::store::postgres::names::ScopeKey;
use crate::store::postgres::pool::Call;
use crate::store::postgres::{Inner, Wake};
use crate::store::types::{Accept, Accepted, AcceptedTurn, Target};

/// How often a message is tried whose first copy vanished between two looks.
const TRIES: usize = 3;

/// Does nothing for an owner whose number is out of date.
const NEW: &str = "-- accept: a new task
with n as materialized (
  select coalesce($1, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now
  where exists (select from owners where id = $3)
), d as (
  insert into sent_messages (tenant, owner, context_id, sent_task, message_id, digest, task_id,
    turn, generation, expires_at)
  select $2, $3, $8, $9, $10, $11, $4, 1, 1, now + $12 from n where $7
  on conflict (tenant, owner, context_id, sent_task, message_id) do update
    set digest = excluded.digest, task_id = excluded.task_id, turn = excluded.turn,
      generation = excluded.generation, expires_at = excluded.expires_at
    where sent_messages.expires_at <= (select now from n)
  returning 1
), g as materialized (
  select now, now - now % 1000 as at from n where not $7 or exists (select from d)
), t as (
  insert into tasks (tenant, id, owner, context_id, state, status_at, generation, next_seq, shown,
    lease, head_turn, next_turn, created_at, updated_at)
  select $2, $4, $3, $5, 1, at, 1, 1, $6, $13, 1, 2, now, now from g
), e as (
  insert into task_events (tenant, task_id, generation, turn, state, at, body)
  select $2, $4, 1, 1, 1, at, $16 from g
), m as (
  insert into messages (tenant, task_id, seq, body) select $2, $4, 0, $15 from g
), u as (
  insert into turns (tenant, task_id, turn, state, message_seq, request, trace, last_report, lease,
    lease_until, due_at, errors, interruptions)
  select $2, $4, 1, case when $13 is null then 1 else 2 end, 0, $17, $18, 0, $13, now + $14, now,
    0, 0
  from g
), c as (
  insert into task_count_deltas (tenant, owner, state, n) select $2, $3, 1, 1 from g where $6
)
select 1::bigint as turn, 1::bigint as generation, true as head from g";

const MORE: &str = "-- accept: a message more
with t as (
  select generation, next_seq, head_turn, next_turn, head_turn = next_turn as head, updated_at
  from tasks
  where tenant = $2 and owner = $3 and id = $4 and shown and terminal_at is null
    and ($5 is null or context_id = $5)
  for update
), n as materialized (
  select coalesce($1, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now from t
), d as (
  insert into sent_messages (tenant, owner, context_id, sent_task, message_id, digest, task_id,
    turn, generation, expires_at)
  select $2, $3, $8, $9, $10, $11, $4, t.next_turn, t.generation, n.now + $12 from t, n where $7
  on conflict (tenant, owner, context_id, sent_task, message_id) do update
    set digest = excluded.digest, task_id = excluded.task_id, turn = excluded.turn,
      generation = excluded.generation, expires_at = excluded.expires_at
    where sent_messages.expires_at <= (select now from n)
  returning 1
), g as materialized (
  select t.*, n.now from t, n where not $7 or exists (select from d)
), m as (
  insert into messages (tenant, task_id, seq, body) select $2, $4, g.next_seq, $15 from g
), u as (
  insert into turns (tenant, task_id, turn, state, message_seq, request, trace, last_report, lease,
    lease_until, due_at, errors, interruptions)
  select $2, $4, g.next_turn, case when not g.head then 0 when $13 is null then 1 else 2 end,
    g.next_seq, $17, $18, 0, case when g.head then $13 end,
    case when g.head then g.now + $14 end, g.now, 0, 0
  from g
), w as (
  update tasks set next_seq = g.next_seq + 1, next_turn = g.next_turn + 1,
    lease = case when g.head then $13 else tasks.lease end,
    updated_at = greatest(g.now, g.updated_at + 1)
  from g where tasks.tenant = $2 and tasks.id = $4
)
select next_turn as turn, generation, head from g";

const WHY: &str = "-- accept: why it did nothing
select s.digest, s.task_id, s.turn, s.generation, t.context_id, t.state, t.terminal_at is not null
from (select coalesce($1, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now) n
left join sent_messages s on $5 and s.tenant = $2 and s.owner = $3 and s.context_id = $6
  and s.sent_task = $7 and s.message_id = $8 and s.expires_at > n.now
left join tasks t on t.tenant = $2 and t.owner = $3 and t.id = $4 and t.shown";

pub(super) fn statement(key: ScopeKey, accept: &Accept, now: Option<i64>) -> Call {
    let (sql, context, shown) = match &accept.target {
        Target::New { context, shown, .. } => (NEW, Some(context), *shown),
        Target::Existing { context, .. } => (MORE, context.as_ref(), false),
    };
    let dedupe = accept.dedupe.as_ref();
    let trace = accept.request.trace.clone();
    Call::new(sql)
        .with(now)
        .with(key.tenant)
        .with(key.owner)
        .with(accept.target.task().uuid())
        .with(context.map(|context| context.as_str().to_owned()))
        .with(shown)
        .with(dedupe.is_some())
        .with(dedupe.map_or_else(String::new, |dedupe| dedupe.context.clone()))
        .with(dedupe.map_or_else(String::new, |dedupe| dedupe.task.clone()))
        .with(accept.message.message_id.clone())
        .with(dedupe.map_or_else(Vec::new, |dedupe| dedupe.digest.to_vec()))
        .with(dedupe.map_or(0, |dedupe| micros(dedupe.window)))
        .with(accept.lease.map(|lease| lease.token.uuid()))
        .with(accept.lease.map(|lease| micros(lease.lease)))
        .with(message_body(&accept.message))
        .with(status_body(TaskState::Submitted, None, None))
        .with(codec::request_body(&accept.request))
        .with(trace)
}

fn why(key: ScopeKey, accept: &Accept, now: Option<i64>) -> Call {
    let dedupe = accept.dedupe.as_ref();
    Call::new(WHY)
        .with(now)
        .with(key.tenant)
        .with(key.owner)
        .with(accept.target.task().uuid())
        .with(dedupe.is_some())
        .with(dedupe.map_or_else(String::new, |dedupe| dedupe.context.clone()))
        .with(dedupe.map_or_else(String::new, |dedupe| dedupe.task.clone()))
        .with(accept.message.message_id.clone())
}

/// Why nothing was written; `None` if the reason is gone.
fn reason(row: &Row, accept: &Accept) -> Result<Option<Accepted>, Error> {
    if let Some(digest) = row.get::<_, Option<&[u8]>>(0) {
        let same = accept.dedupe.as_ref().is_some_and(|dedupe| *digest == dedupe.digest);
        return Ok(Some(if same {
            Accepted::Repeat(AcceptedTurn {
                task: TaskId::from(row.get::<_, uuid::Uuid>(1)),
                turn: row.get(2),
                generation: row.get(3),
                leased: false,
            })
        } else {
            Accepted::OtherContent
        }));
    }
    let Target::Existing { context, .. } = &accept.target else { return Ok(None) };
    let Some(theirs) = row.get::<_, Option<&str>>(4) else { return Ok(Some(Accepted::NotFound)) };
    if context.as_ref().is_some_and(|context| context.as_str() != theirs) {
        return Ok(Some(Accepted::OtherContext));
    }
    if row.get(6) {
        return Ok(Some(Accepted::Ended(codec::state(row.get::<_, i16>(5).into())?)));
    }
    Ok(None)
}

pub(super) async fn accept(
    inner: &Inner,
    scope: &Scope,
    accept: &Accept,
) -> Result<Accepted, Error> {
    let mut key = match accept.target {
        Target::New { .. } => inner.names.intern(&inner.db, scope).await?,
        Target::Existing { .. } => match inner.names.find(&inner.db, scope).await? {
            Some(key) => key,
            None => return Ok(Accepted::NotFound),
        },
    };
    for _ in 0..TRIES {
        let rows = inner.db.run(&statement(key, accept, inner.now())).await?;
        if let Some(row) = rows.first() {
            let head: bool = row.get("head");
            let accepted = AcceptedTurn {
                task: accept.target.task(),
                turn: row.get("turn"),
                generation: row.get("generation"),
                leased: head && accept.lease.is_some(),
            };
            inner.wake(accepted.task, Wake { turns: head && !accepted.leased });
            return Ok(Accepted::New(accepted));
        }
        let rows = inner.db.run(&why(key, accept, inner.now())).await?;
        if let Some(reason) = rows.first().map(|row| reason(row, accept)).transpose()?.flatten() {
            return Ok(reason);
        }
        if matches!(accept.target, Target::New { .. }) {
            inner.names.forget(scope);
            key = inner.names.intern(&inner.db, scope).await?;
        }
    }
    Err(Error::unavailable("a message was neither taken nor refused"))
}
