//! A task that may not be one: the direct reply, and showing.

use crate::domain::{Error, Scope, TaskId};
use crate::store::change::message_body;
use crate::store::postgres::pool::Call;
use crate::store::postgres::report::{self, Reporter};
use crate::store::postgres::{Inner, Wake};
use crate::store::types::{Replied, Reply, Reported, Shown};

/// A hidden task has one turn alone, so nothing waits behind this one.
const DIRECT: &str = "-- reply
with l as (
  select t.shown, t.next_turn, t.updated_at
  from tasks t join turns u on u.tenant = t.tenant and u.task_id = t.id
  where t.tenant = $2 and t.owner = $3 and t.id = $4 and t.lease = $5 and t.head_turn = $6
    and u.turn = $6 and u.lease = $5 and u.last_report < $7
  for update of t, u
), s as materialized (
  select l.*, coalesce($1, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now
  from l where not l.shown
), h as (
  update turns u set state = 3, last_report = $7
  from s where u.tenant = $2 and u.task_id = $4 and u.turn = $6
), w as (
  update tasks t set reply = $8, lease = null, head_turn = s.next_turn,
    updated_at = greatest(s.now, s.updated_at + 1)
  from s where t.tenant = $2 and t.id = $4
)
select exists (select from s) as direct from l";

const SHOW: &str = "-- show
with l as (
  select owner, state, shown, reply is not null as replied, updated_at
  from tasks where tenant = $2 and owner = $3 and id = $4
  for update
), s as materialized (
  select l.*, coalesce($1, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now
  from l where not l.shown and not l.replied
), w as (
  update tasks t set shown = true, updated_at = greatest(s.now, s.updated_at + 1)
  from s where t.tenant = $2 and t.id = $4
), c as (
  insert into task_count_deltas (tenant, owner, state, n) select $2, s.owner, s.state, 1 from s
)
select replied, exists (select from s) as changed from l";

pub(super) async fn reply(
    inner: &Inner,
    scope: &Scope,
    task: TaskId,
    reply: &Reply,
) -> Result<Replied, Error> {
    let Some(key) = inner.names.find(&inner.db, scope).await? else { return Ok(Replied::Stale) };
    let Reply { lease, turn, sequence, message } = reply;
    let from = Reporter { key, task, lease: *lease, turn: *turn, sequence: *sequence };
    let call = report::named(DIRECT, &from, inner.now()).with(message_body(message));
    let outcome = match inner.db.run(&call).await?.first() {
        Some(row) if row.get("direct") => {
            inner.wake(task, Wake::default());
            return Ok(Replied::Direct);
        }
        // It is shown, and stays so.
        Some(_) => report::complete(inner, &from, message).await?,
        None => report::refused(inner, &from).await?,
    };
    Ok(match outcome {
        Reported::Landed { .. } => Replied::Completed,
        Reported::Repeated => Replied::Repeated,
        Reported::Stale => Replied::Stale,
    })
}

pub(super) async fn show(inner: &Inner, scope: &Scope, task: TaskId) -> Result<Shown, Error> {
    let Some(key) = inner.names.find(&inner.db, scope).await? else { return Ok(Shown::NotFound) };
    let call = Call::new(SHOW).with(inner.now()).with(key.tenant).with(key.owner).with(task.uuid());
    let rows = inner.db.run(&call).await?;
    let Some(row) = rows.first() else { return Ok(Shown::NotFound) };
    if row.get("changed") {
        inner.wake(task, Wake::default());
    }
    Ok(if row.get("replied") { Shown::Replied } else { Shown::Yes })
}
