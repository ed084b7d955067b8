//! What the server's loops do to the database.

use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::domain::Error;
use crate::store::postgres::Wake;
use crate::store::postgres::db::{CLOCK, Db, Param, us};

/// One server folds at a time: two would wait for each other's counts.
const FOLD: &str = "
with mine as materialized (select pg_try_advisory_xact_lock(7202260219) as ok), gone as (
  delete from task_count_deltas
  where ctid = any (array(select ctid from task_count_deltas where (select ok from mine) limit $1))
  returning tenant, owner, state, n
), summed as (
  insert into task_counts as c (tenant, owner, state, n)
  select tenant, owner, state, sum(n) from gone group by tenant, owner, state
  on conflict (tenant, owner, state) do update set n = c.n + excluded.n
)
select count(*) from gone";

pub(super) async fn fold_counts(db: &Db, limit: u32) -> Result<(u32, Wake), Error> {
    let client = db.client().await?;
    let limit = i64::from(limit);
    let params: [Param<'_>; 1] = [(&limit, Type::INT8)];
    let rows = db.rows(&client, FOLD, &params).await?;
    Ok((first_count(&rows), Wake::default()))
}

pub(super) async fn purge_expired(
    db: &Db,
    hidden_for: Duration,
    limit: u32,
) -> Result<(u32, Wake), Error> {
    let client = db.client().await?;
    let sql = format!(
        "with clock as (select {CLOCK} as now), sent as (
           delete from sent_messages where ctid = any (array(
             select ctid from sent_messages where expires_at <= (select now from clock)
             order by expires_at limit $2))
           returning 1
         ), hidden as (
           select tenant, id from tasks
           where not shown and lease is null
             and created_at <= (select now from clock) - $3
             and updated_at <= (select now from clock) - $3
           order by created_at limit $2
           for update skip locked
         ), old_messages as (
           delete from messages x using hidden h where x.tenant = h.tenant and x.task_id = h.id
         ), old_artifacts as (
           delete from artifacts x using hidden h where x.tenant = h.tenant and x.task_id = h.id
         ), old_chunks as (
           delete from artifact_chunks x using hidden h
           where x.tenant = h.tenant and x.task_id = h.id
         ), old_events as (
           delete from task_events x using hidden h where x.tenant = h.tenant and x.task_id = h.id
         ), old_turns as (
           delete from turns x using hidden h where x.tenant = h.tenant and x.task_id = h.id
         ), old_tasks as (
           delete from tasks x using hidden h where x.tenant = h.tenant and x.id = h.id
           returning 1
         )
         select (select count(*) from sent) + (select count(*) from old_tasks)"
    );
    let (now, limit, hidden_for) = (db.now(), i64::from(limit), us(hidden_for));
    let params: [Param<'_>; 3] =
        [(&now, Type::INT8), (&limit, Type::INT8), (&hidden_for, Type::INT8)];
    let rows = db.rows(&client, &sql, &params).await?;
    Ok((first_count(&rows), Wake::default()))
}

fn first_count(rows: &[Row]) -> u32 {
    rows.first().and_then(|row| u32::try_from(row.get::<_, i64>(0)).ok()).unwrap_or(0)
}
