//! What the server's loops do to the tables.

use std::time::Duration;

use crate::domain::Error;
use crate::domain::clock::micros;
use crate::store::postgres::Inner;
use crate::store::postgres::pool::Call;
use crate::store::types::{BACKLOG_MAX, Backlog};

/// Whoever reads the counts sees the deltas before, or the sum after. Two servers that fold at
/// once take different deltas, and add to the counts in one order.
const FOLD: &str = "-- fold_counts_of_all
with d as (
  delete from task_count_deltas where ctid = any (array(
    select ctid from task_count_deltas limit $1 for update skip locked))
  returning tenant, owner, state, n
), s as (
  select tenant, owner, state, sum(n)::bigint as n, count(*) as folded
  from d group by tenant, owner, state
), f as (
  insert into task_counts (tenant, owner, state, n)
  select tenant, owner, state, n from s order by tenant, owner, state
  on conflict (tenant, owner, state) do update set n = task_counts.n + excluded.n
)
select coalesce(sum(folded), 0)::bigint from s";

const PURGE_SENT: &str = "-- purge_expired_of_all: messages that were sent
with n as materialized (
  select coalesce($1, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now
), d as (
  delete from sent_messages where ctid = any (array(
    select ctid from sent_messages where expires_at <= (select now from n)
    order by expires_at limit $2 for update skip locked))
  returning 1
)
select count(*) from d";

/// Nothing but its turn can write a hidden task, so its rows are all there to be seen.
const PURGE_HIDDEN: &str = "-- purge_expired_of_all: tasks that were never shown
with n as materialized (
  select coalesce($1, (extract(epoch from clock_timestamp()) * 1000000)::bigint) - $3 as until
), l as materialized (
  select tenant, id from tasks
  where not shown and created_at <= (select until from n) and updated_at <= (select until from n)
    and lease is null
  order by created_at limit $2
  for update skip locked
), m as (
  delete from messages x using l where x.tenant = l.tenant and x.task_id = l.id
), a as (
  delete from artifacts x using l where x.tenant = l.tenant and x.task_id = l.id
), c as (
  delete from artifact_chunks x using l where x.tenant = l.tenant and x.task_id = l.id
), e as (
  delete from task_events x using l where x.tenant = l.tenant and x.task_id = l.id
), u as (
  delete from turns x using l where x.tenant = l.tenant and x.task_id = l.id
), t as (
  delete from tasks x using l where x.tenant = l.tenant and x.id = l.id
)
select count(*) from l";

async fn count(inner: &Inner, call: &Call) -> Result<u32, Error> {
    let rows = inner.db.run(call).await?;
    let count: i64 = rows.first().map_or(0, |row| row.get(0));
    Ok(u32::try_from(count).unwrap_or(u32::MAX))
}

pub(super) async fn fold_counts(inner: &Inner, limit: u32) -> Result<u32, Error> {
    count(inner, &Call::new(FOLD).with(i64::from(limit))).await
}

pub(super) async fn purge_expired(
    inner: &Inner,
    hidden_for: Duration,
    limit: u32,
) -> Result<u32, Error> {
    let limit = i64::from(limit);
    let sent = count(inner, &Call::new(PURGE_SENT).with(inner.now()).with(limit)).await?;
    let hidden = Call::new(PURGE_HIDDEN).with(inner.now()).with(limit).with(micros(hidden_for));
    Ok(sent.saturating_add(count(inner, &hidden).await?))
}

const BACKLOG: &str = "-- backlog_of_all
with n as materialized (
  select coalesce($1, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now
), d as (
  select due_at from turns where state = 1 and due_at <= (select now from n)
  order by due_at limit $2
)
select count(*) as due, coalesce(max(n.now - d.due_at), 0)::bigint as longest from d, n";

pub(super) async fn backlog(inner: &Inner) -> Result<Backlog, Error> {
    let call = Call::new(BACKLOG).with(inner.now()).with(i64::from(BACKLOG_MAX));
    let rows = inner.db.run(&call).await?;
    let Some(row) = rows.first() else { return Ok(Backlog::default()) };
    let longest = u64::try_from(row.get::<_, i64>("longest")).unwrap_or_default();
    let due = u32::try_from(row.get::<_, i64>("due")).unwrap_or_default();
    Ok(Backlog { due, longest: Duration::from_micros(longest) })
}
