//! Deleting what has ended, and what was an owner's.
//!
//! Rows are found first and deleted under locks that are taken before the deletion begins, so that
//! it sees all that belongs to them. What has ended is found along an index from where the last
//! search stopped, for a table that is purged leaves dead entries at its old end.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio_postgres::Row;
use uuid::Uuid;

use crate::domain::clock::micros;
use crate::domain::{Error, Scope, TaskId, Tenant};
use crate::store::codec;
use crate::store::postgres::pool::Call;
use crate::store::postgres::{Inner, Wake};
use crate::store::retention::{Erased, Keep, Purged, Retention, Tally};

/// How long a search goes on from where the last one stopped. Then it begins anew, for rows that
/// somebody else had locked.
const MARKS_FOR: Duration = Duration::from_secs(600);

/// Where the searches for what has ended go on, by tenant.
#[derive(Debug, Default)]
pub(super) struct Marks(Mutex<(Option<Instant>, HashMap<i32, i64>)>);

impl Marks {
    fn of(&self, tenants: &[i32]) -> Vec<i64> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, marks) = &mut *known;
        if since.get_or_insert_with(Instant::now).elapsed() > MARKS_FOR {
            *since = None;
            marks.clear();
        }
        tenants.iter().map(|tenant| marks.get(tenant).copied().unwrap_or(i64::MIN)).collect()
    }

    fn reached(&self, tenant: i32, at: i64) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mark = known.1.entry(tenant).or_insert(at);
        *mark = at.max(*mark);
    }
}

const TENANTS: &str = "-- tenants
select id, name from tenants order by id";

const FIND: &str = "-- purge_ended_of_all: which
select t.tenant, t.id, t.terminal_at
from (select coalesce($1, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now) n
cross join unnest($2, $3, $4) r (tenant, age, mark)
cross join lateral (
  select tenant, id, terminal_at from tasks
  where tenant = r.tenant and terminal_at >= r.mark and terminal_at <= n.now - r.age
  order by terminal_at limit $5
) t
limit $5";

const LOCK: &str = "-- purge_ended_of_all: the locks
select from unnest($1, $2) d (tenant, id) join tasks t on t.tenant = d.tenant and t.id = d.id
where t.terminal_at is not null
for update of t skip locked";

/// Deletes the tasks of two columns of keys, with all that belongs to them, and counts them.
macro_rules! delete {
    ($name:literal, $which:literal) => {
        concat!(
            $name,
            "
with l as materialized (
  select t.tenant, t.id, t.owner, t.state, t.shown
  from unnest($1, $2) d (tenant, id) join tasks t on t.tenant = d.tenant and t.id = d.id
  ",
            $which,
            "
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
), s as (
  insert into task_count_deltas (tenant, owner, state, n)
  select tenant, owner, state, -count(*) from l where shown group by tenant, owner, state
)
select te.name, l.state, count(*) from l join tenants te on te.id = l.tenant
group by te.name, l.state"
        )
    };
}

const DELETE: &str =
    delete!("-- purge_ended_of_all", "where t.terminal_at is not null for update of t skip locked");

const COUNT: &str = "-- count_ended_of_all
select te.name, t.state, count(*)
from (select coalesce($1, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now) n
cross join unnest($2, $3) r (tenant, age)
join tenants te on te.id = r.tenant
join tasks t on t.tenant = r.tenant and t.terminal_at <= n.now - r.age
group by te.name, t.state";

/// The events of a task that has ended are written by nobody any more.
const LOGS: &str = "-- purge_events_of_all
with l as materialized (
  select t.tenant, t.task_id, t.at
  from (select coalesce($1, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now) n
  cross join unnest($2, $3, $4) r (tenant, age, mark)
  cross join lateral (
    select tenant, task_id, at from task_events
    where tenant = r.tenant and state in (3, 4, 5, 7) and at >= r.mark and at <= n.now - r.age
    order by at limit $5
    for update skip locked
  ) t
  limit $5
), d as (
  delete from task_events x using l where x.tenant = l.tenant and x.task_id = l.task_id
)
select tenant, max(at), count(*) from l group by tenant";

/// The columns of the tenants that keep something for a time.
struct Due {
    tenants: Vec<i32>,
    ages: Vec<i64>,
}

async fn due(
    inner: &Inner,
    retention: &Retention,
    kept: fn(&Keep) -> Option<Duration>,
) -> Result<Due, Error> {
    let mut due = Due { tenants: Vec::new(), ages: Vec::new() };
    for row in inner.db.run(&Call::new(TENANTS)).await? {
        let keep = retention.of(&Tenant::from_stored(row.get(1)));
        if let Some(kept) = kept(&keep) {
            due.tenants.push(row.get(0));
            due.ages.push(micros(kept));
        }
    }
    Ok(due)
}

fn tally(row: &Row) -> Result<Tally, Error> {
    Ok(Tally {
        tenant: Tenant::from_stored(row.get(0)),
        state: codec::state(row.get::<_, i16>(1).into())?,
        tasks: u64::try_from(row.get::<_, i64>(2)).map_err(Error::internal)?,
    })
}

fn tallies(rows: &[Row]) -> Result<Vec<Tally>, Error> {
    rows.iter().map(tally).collect()
}

/// A clock that tests move may go back, and a mark with it would hide what has ended.
fn marks(inner: &Inner, marks: &Marks, tenants: &[i32]) -> Vec<i64> {
    match inner.now() {
        Some(_) => vec![i64::MIN; tenants.len()],
        None => marks.of(tenants),
    }
}

pub(super) async fn purge_ended(
    inner: &Inner,
    retention: &Retention,
    limit: u32,
) -> Result<Purged, Error> {
    let Due { tenants, ages } = due(inner, retention, |keep| keep.tasks).await?;
    let marks = marks(inner, &inner.ended, &tenants);
    let find = Call::new(FIND)
        .with(inner.now())
        .with(tenants)
        .with(ages)
        .with(marks)
        .with(i64::from(limit));
    let found = inner.db.run(&find).await?;
    if found.is_empty() {
        return Ok(Purged::default());
    }
    let keys: (Vec<i32>, Vec<Uuid>) =
        found.iter().map(|row| (row.get::<_, i32>(0), row.get::<_, Uuid>(1))).unzip();
    let rows = delete(inner, keys, (LOCK, DELETE)).await?;
    for row in &found {
        inner.ended.reached(row.get(0), row.get(2));
    }
    let more = found.len() >= usize::try_from(limit).unwrap_or(usize::MAX);
    Ok(Purged { tasks: tallies(&rows)?, more })
}

async fn delete(
    inner: &Inner,
    (tenants, ids): (Vec<i32>, Vec<Uuid>),
    (lock, delete): (&'static str, &'static str),
) -> Result<Vec<Row>, Error> {
    let lock = Call::new(lock).with(tenants.clone()).with(ids.clone());
    inner.db.run_locked(&lock, &Call::new(delete).with(tenants).with(ids)).await
}

pub(super) async fn purge_events(
    inner: &Inner,
    retention: &Retention,
    limit: u32,
) -> Result<u32, Error> {
    let Due { tenants, ages } = due(inner, retention, Keep::events_alone).await?;
    if tenants.is_empty() {
        return Ok(0);
    }
    let marks = marks(inner, &inner.ended_logs, &tenants);
    let call = Call::new(LOGS)
        .with(inner.now())
        .with(tenants)
        .with(ages)
        .with(marks)
        .with(i64::from(limit));
    let mut purged = 0_i64;
    for row in inner.db.run(&call).await? {
        inner.ended_logs.reached(row.get(0), row.get(1));
        purged += row.get::<_, i64>(2);
    }
    Ok(u32::try_from(purged).unwrap_or(u32::MAX))
}

pub(super) async fn count_ended(inner: &Inner, retention: &Retention) -> Result<Vec<Tally>, Error> {
    let Due { tenants, ages } = due(inner, retention, |keep| keep.tasks).await?;
    let call = Call::new(COUNT).with(inner.now()).with(tenants).with(ages);
    tallies(&inner.db.run(&call).await?)
}

/// The hidden ones stand in no index by owner; theirs holds no others and is short.
const FIND_OWNED: &str = "-- erase: which
(select id from tasks where tenant = $1 and owner = $2 and shown limit $3)
union all
(select id from tasks where tenant = $1 and owner = $2 and not shown limit $3)
limit $3";

/// Live ones too, so whoever writes one is waited for.
const LOCK_OWNED: &str = "-- erase: the locks
select from unnest($1, $2) d (tenant, id) join tasks t on t.tenant = d.tenant and t.id = d.id
order by t.id
for update of t";

const DELETE_OWNED: &str = delete!("-- erase", "for update of t");

const DELETE_SENT: &str = "-- erase: messages that were sent
with d as (
  delete from sent_messages where ctid = any (array(
    select ctid from sent_messages where tenant = $1 and owner = $2 limit $3))
  returning 1
)
select count(*) from d";

/// Whoever accepts a message that begins a task has read the owner's name in the same statement.
/// So this lock waits for those, and who comes later finds no name and makes one anew. A dump
/// holds it up, and then nobody else is made to wait for long.
const LOCK_NAMES: &str = "-- erase: the lock of names
do $$ begin
  set local lock_timeout = '2s';
  lock table owners in access exclusive mode;
end $$";

const DELETE_NAME: &str = "-- erase: the name
with h as materialized (
  select exists (select from tasks where tenant = $1 and owner = $2 and shown)
    or exists (select from sent_messages where tenant = $1 and owner = $2)
    or exists (select from tasks where tenant = $1 and owner = $2 and not shown) as here
), e as materialized (
  select exists (
      select from tenants t
      where exists (select from tasks where tenant = t.id and owner = $2 and shown)
        or exists (select from sent_messages where tenant = t.id and owner = $2)
    ) or exists (select from tasks where owner = $2 and not shown) as anywhere
), o as (
  delete from owners where id = $2 and not (select anywhere from e) returning 1
), c as (
  delete from task_counts where owner = $2 and exists (select from o)
), d as (
  delete from task_count_deltas where owner = $2 and exists (select from o)
)
select here, exists (select from o) as gone from h";

pub(super) async fn erase(inner: &Inner, scope: &Scope, limit: u32) -> Result<Erased, Error> {
    let Some(key) = inner.names.fresh(&inner.db, scope).await? else {
        return Ok(Erased::default());
    };
    let owned = |sql| Call::new(sql).with(key.tenant).with(key.owner);
    let limit = i64::from(limit);
    let found = inner.db.run(&owned(FIND_OWNED).with(limit)).await?;
    let ids: Vec<Uuid> = found.iter().map(|row| row.get(0)).collect();
    let mut erased = Erased::default();
    if !ids.is_empty() {
        let keys = (vec![key.tenant; ids.len()], ids.clone());
        erased.tasks = tallies(&delete(inner, keys, (LOCK_OWNED, DELETE_OWNED)).await?)?;
        for id in &ids {
            inner.wake(TaskId::from(*id), Wake::default());
        }
    }
    let sent = inner.db.run(&owned(DELETE_SENT).with(limit)).await?;
    let sent: i64 = sent.first().map_or(0, |row| row.get(0));
    erased.sent_messages = u64::try_from(sent).map_err(Error::internal)?;
    erased.more = !ids.is_empty() || sent > 0;
    if !erased.more {
        let rows = inner.db.run_locked(&Call::new(LOCK_NAMES), &owned(DELETE_NAME)).await?;
        erased.more = rows.first().is_some_and(|row| row.get(0));
        erased.name = rows.first().is_some_and(|row| row.get(1));
        inner.names.forget(scope);
    }
    Ok(erased)
}

const COUNT_OWNED: &str = "-- count_owned
select te.name, t.state, count(*) from tasks t join tenants te on te.id = t.tenant
where t.tenant = $1 and t.owner = $2 group by te.name, t.state";

const COUNT_SENT: &str = "-- count_owned: messages that were sent
select count(*) from sent_messages where tenant = $1 and owner = $2";

pub(super) async fn count_owned(inner: &Inner, scope: &Scope) -> Result<Erased, Error> {
    let Some(key) = inner.names.fresh(&inner.db, scope).await? else {
        return Ok(Erased::default());
    };
    let owned = |sql| Call::new(sql).with(key.tenant).with(key.owner);
    let tasks = tallies(&inner.db.run(&owned(COUNT_OWNED)).await?)?;
    let sent = inner.db.run(&owned(COUNT_SENT)).await?;
    let sent: i64 = sent.first().map_or(0, |row| row.get(0));
    let sent_messages = u64::try_from(sent).map_err(Error::internal)?;
    Ok(Erased { tasks, sent_messages, ..Erased::default() })
}
