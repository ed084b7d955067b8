//! The queue of turns: claiming, renewing, releasing. Each is one statement, and none waits.

use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::domain::{ContextId, Error, LeaseToken, Principal, Scope, TaskId, Tenant};
use crate::store::codec;
use crate::store::postgres::Wake;
use crate::store::postgres::db::{CLOCK, Db, Param, us};
use crate::store::types::{CancelWish, HeldLease, Renewed, Turn};

/// Turn and task are locked together, both or neither; what somebody else holds is passed over.
/// A hidden task whose turn had an attempt before becomes shown, and counts from here on.
fn claim_sql() -> String {
    format!(
        "with clock as (select {CLOCK} as now), due as (
  select u.tenant, u.task_id, u.turn, k.owner, k.state,
    not k.shown and k.reply is null and u.errors + u.interruptions > 0 as shows
  from turns u join tasks k on k.tenant = u.tenant and k.id = u.task_id
  where u.state = 1 and u.due_at <= (select now from clock)
  order by u.due_at limit $2
  for update of k, u skip locked
), leased as (
  update turns u set state = 2, lease = gen_random_uuid(), lease_until = now + $3
  from due, clock
  where u.tenant = due.tenant and u.task_id = due.task_id and u.turn = due.turn and u.state = 1
  returning u.*
), held as (
  update tasks k set lease = leased.lease, shown = k.shown or due.shows,
    updated_at = greatest(k.updated_at + 1, now)
  from leased join due on due.tenant = leased.tenant and due.task_id = leased.task_id, clock
  where k.tenant = leased.tenant and k.id = leased.task_id
  returning k.*
), counted as (
  insert into task_count_deltas (tenant, owner, state, n)
  select tenant, owner, state, 1 from due where shows
)
select u.task_id, u.turn, u.last_report, u.request, u.trace, u.errors, u.interruptions, u.lease,
  m.body, k.state, k.shown, k.context_id, k.cancel_requested_at is not null, k.cancel_metadata,
  n.name, o.name
from leased u
join held k on k.tenant = u.tenant and k.id = u.task_id
join messages m on m.tenant = u.tenant and m.task_id = u.task_id and m.seq = u.message_seq
join tenants n on n.id = u.tenant
join owners o on o.id = k.owner"
    )
}

pub(super) async fn claim(
    db: &Db,
    limit: u32,
    lease: Duration,
) -> Result<(Vec<Turn>, Wake), Error> {
    let client = db.client().await?;
    let (now, limit, lease) = (db.now(), i64::from(limit), us(lease));
    let params: [Param<'_>; 3] = [(&now, Type::INT8), (&limit, Type::INT8), (&lease, Type::INT8)];
    let rows = db.rows(&client, &claim_sql(), &params).await?;
    let turns = rows.iter().map(turn).collect::<Result<Vec<_>, _>>()?;
    // Waiting callers care only if a task became visible to them by this.
    let second = turns.iter().filter(|turn| turn.errors + turn.interruptions > 0);
    let tasks = second.map(|turn| turn.task).collect();
    Ok((turns, Wake { tasks, turns: false }))
}

fn turn(row: &Row) -> Result<Turn, Error> {
    let task = TaskId::from(row.get::<_, Uuid>(0));
    let context: &str = row.get(11);
    let cancel = if row.get(12) {
        Some(CancelWish { metadata: codec::metadata(row.get(13))? })
    } else {
        None
    };
    Ok(Turn {
        scope: Scope::new(Tenant::from_stored(row.get(14)), Principal::from_stored(row.get(15))),
        task,
        context: ContextId::from_stored(context),
        turn: row.get(1),
        lease: LeaseToken::from(row.get::<_, Uuid>(7)),
        last_report: row.get(2),
        state: codec::state(i64::from(row.get::<_, i16>(9)))?,
        shown: row.get(10),
        message: codec::message(row.get(8), &task.to_string(), context)?,
        request: codec::request(row.get(3), row.get(4))?,
        errors: row.get(5),
        interruptions: row.get(6),
        cancel,
    })
}

pub(super) async fn renew(
    db: &Db,
    leases: &[HeldLease],
    lease: Duration,
) -> Result<Vec<Renewed>, Error> {
    let client = db.client().await?;
    let mut tenants = Vec::with_capacity(leases.len());
    for held in leases {
        let key = db.find(&client, &held.scope).await?;
        tenants.push(key.map_or(-1, |key| key.tenant));
    }
    let tasks: Vec<Uuid> = leases.iter().map(|held| held.task.uuid()).collect();
    let turns: Vec<i64> = leases.iter().map(|held| held.turn).collect();
    let tokens: Vec<Uuid> = leases.iter().map(|held| held.lease.uuid()).collect();
    let sql = format!(
        "with clock as (select {CLOCK} as now), renewed as (
           update turns u set lease_until = now + $6
           from clock, unnest($2::int[], $3::uuid[], $4::bigint[], $5::uuid[])
             as h (tenant, task_id, turn, lease)
           where u.tenant = h.tenant and u.task_id = h.task_id and u.turn = h.turn
             and u.state = 2 and u.lease = h.lease
           returning u.tenant, u.task_id, u.lease
         )
         select r.lease, k.cancel_requested_at is not null, k.cancel_metadata
         from renewed r join tasks k on k.tenant = r.tenant and k.id = r.task_id"
    );
    let (now, lease) = (db.now(), us(lease));
    let params: [Param<'_>; 6] = [
        (&now, Type::INT8),
        (&tenants, Type::INT4_ARRAY),
        (&tasks, Type::UUID_ARRAY),
        (&turns, Type::INT8_ARRAY),
        (&tokens, Type::UUID_ARRAY),
        (&lease, Type::INT8),
    ];
    let rows = db.rows(&client, &sql, &params).await?;
    rows.iter()
        .map(|row| {
            let cancel = if row.get(1) {
                Some(CancelWish { metadata: codec::metadata(row.get(2))? })
            } else {
                None
            };
            Ok(Renewed { lease: LeaseToken::from(row.get::<_, Uuid>(0)), cancel })
        })
        .collect()
}

/// The pause after an interruption is that of [`interruption_backoff`], in SQL.
///
/// [`interruption_backoff`]: crate::store::interruption_backoff
pub(super) async fn release_expired(db: &Db, limit: u32) -> Result<(u32, Wake), Error> {
    let client = db.client().await?;
    let sql = format!(
        "with clock as (select {CLOCK} as now), expired as (
           select u.tenant, u.task_id, u.turn from turns u
           join tasks k on k.tenant = u.tenant and k.id = u.task_id
           where u.state = 2 and u.lease_until < (select now from clock)
           order by u.lease_until limit $2
           for update of k, u skip locked
         ), released as (
           update turns u set state = 1, interruptions = interruptions + 1,
             due_at = now + case when interruptions >= 1
               then least(30000000, 200000 * (1 << least(interruptions - 1, 8))) else 0 end
           from expired e, clock
           where u.tenant = e.tenant and u.task_id = e.task_id and u.turn = e.turn and u.state = 2
             and u.lease_until < now
           returning u.tenant, u.task_id
         )
         update tasks k set lease = null, updated_at = greatest(k.updated_at + 1, now)
         from released r, clock
         where k.tenant = r.tenant and k.id = r.task_id
         returning k.id"
    );
    let (now, limit) = (db.now(), i64::from(limit));
    let params: [Param<'_>; 2] = [(&now, Type::INT8), (&limit, Type::INT8)];
    let released = db.rows(&client, &sql, &params).await?.len();
    let wake = Wake { tasks: Vec::new(), turns: released > 0 };
    Ok((u32::try_from(released).unwrap_or(u32::MAX), wake))
}
