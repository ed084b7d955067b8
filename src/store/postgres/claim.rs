//! The turn queue: claiming, renewing, releasing.
//!
//! Each takes turn and task together, in this order of locks never waiting: a row that somebody
//! else has is left for the next call.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio_postgres::Row;
use uuid::Uuid;

use crate::domain::clock::micros;
use crate::domain::{ContextId, Error, LeaseToken, Principal, Scope, TaskId, Tenant};
use crate::store::codec;
use crate::store::interruption_backoff;
use crate::store::postgres::pool::Call;
use crate::store::postgres::{Inner, Wake};
use crate::store::types::{CancelWish, HeldLease, Renewed, Turn};

/// How far below the last turn that was claimed the next search begins while there is a backlog.
const MARK_BEHIND_US: i64 = 60_000_000;

/// Where the search for due turns begins. A backlog leaves dead index entries at its old end,
/// which no search needs to pass again; a turn that appears behind the mark is found as soon as
/// the backlog is gone.
#[derive(Debug)]
pub(super) struct Mark(AtomicI64);

impl Default for Mark {
    fn default() -> Self {
        Self(AtomicI64::new(i64::MIN))
    }
}

/// A join with what was locked, for a row of keys from a subquery is looked up by a scan of all.
/// Whatever decides stands on the two locked rows.
const CLAIM: &str = "-- claim_turns_of_all
with n as materialized (
  select coalesce($1, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now
), l as materialized (
  select u.tenant, u.task_id, u.turn, u.message_seq, u.request, u.trace, u.last_report, u.errors,
    u.interruptions, u.due_at, t.owner, t.context_id, t.state, t.shown, t.updated_at,
    t.cancel_requested_at, t.cancel_metadata, gen_random_uuid() as lease
  from turns u join tasks t on t.tenant = u.tenant and t.id = u.task_id
  where u.state = 1 and u.due_at >= $2 and u.due_at <= (select now from n)
    and t.head_turn = u.turn and t.lease is null and t.terminal_at is null
  order by u.due_at limit $3
  for update of u, t skip locked
), s as materialized (
  select l.*, l.shown or l.errors + l.interruptions > 0 as shown_after, n.now from l, n
), u as (
  update turns u set state = 2, lease = s.lease, lease_until = s.now + $4
  from s where u.tenant = s.tenant and u.task_id = s.task_id and u.turn = s.turn
), w as (
  update tasks t
  set lease = s.lease, shown = s.shown_after, updated_at = greatest(s.now, s.updated_at + 1)
  from s where t.tenant = s.tenant and t.id = s.task_id
), c as (
  insert into task_count_deltas (tenant, owner, state, n)
  select s.tenant, s.owner, s.state, 1 from s where s.shown_after and not s.shown
)
select te.name as tenant, ow.name as owner, s.task_id, s.context_id, s.turn, s.lease,
  s.last_report, s.state, s.shown_after as shown, s.shown_after and not s.shown as appears,
  m.body, s.request, s.trace, s.errors, s.interruptions,
  s.cancel_requested_at is not null as cancel, s.cancel_metadata, s.due_at
from s
join tenants te on te.id = s.tenant
join owners ow on ow.id = s.owner
join messages m on m.tenant = s.tenant and m.task_id = s.task_id and m.seq = s.message_seq
order by s.due_at";

const RENEW: &str = "-- renew_leases_of_all
with n as materialized (
  select coalesce($1, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now
), l as materialized (
  select u.tenant, u.task_id, u.turn, u.lease
  from unnest($2, $3, $4) h (task_id, turn, lease)
  join turns u on u.tenant = $6 and u.task_id = h.task_id and u.turn = h.turn
    and u.lease = h.lease
  where u.state = 2
  order by u.task_id, u.turn
  for update of u
), u as (
  update turns u set lease_until = n.now + $5
  from l, n where u.tenant = l.tenant and u.task_id = l.task_id and u.turn = l.turn
)
select l.lease, t.cancel_requested_at is not null as cancel, t.cancel_metadata
from l join tasks t on t.tenant = l.tenant and t.id = l.task_id";

const RELEASE: &str = "-- release_expired_of_all
with n as materialized (
  select coalesce($1, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now
), l as materialized (
  select u.tenant, u.task_id, u.turn, u.interruptions + 1 as interruptions, t.updated_at
  from turns u join tasks t on t.tenant = u.tenant and t.id = u.task_id
  where u.state = 2 and u.lease_until < (select now from n) and t.lease = u.lease
  order by u.lease_until limit $2
  for update of u, t skip locked
), u as (
  update turns u
  set state = 1, interruptions = l.interruptions,
    due_at = n.now + ($3::bigint[])[least(l.interruptions, cardinality($3))]
  from l, n where u.tenant = l.tenant and u.task_id = l.task_id and u.turn = l.turn
), w as (
  update tasks t set lease = null, updated_at = greatest(n.now, l.updated_at + 1)
  from l, n where t.tenant = l.tenant and t.id = l.task_id
)
select l.task_id from l";

pub(super) async fn claim(inner: &Inner, limit: u32, lease: Duration) -> Result<Vec<Turn>, Error> {
    // A clock that tests move may go back, and the mark with it would hide what is due.
    let mark = match inner.now() {
        Some(_) => i64::MIN,
        None => inner.mark.0.load(Ordering::Relaxed),
    };
    let full = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut rows = inner.db.run(&statement(inner, mark, limit, lease)).await?;
    if rows.len() < full && mark > i64::MIN {
        let left = limit.saturating_sub(u32::try_from(rows.len()).unwrap_or(limit));
        rows.extend(inner.db.run(&statement(inner, i64::MIN, left, lease)).await?);
    }
    let next = match rows.iter().map(|row| row.get::<_, i64>("due_at")).min() {
        Some(due_at) if rows.len() == full => due_at.saturating_sub(MARK_BEHIND_US),
        _ => i64::MIN,
    };
    inner.mark.0.store(next, Ordering::Relaxed);
    let mut turns = Vec::with_capacity(rows.len());
    for row in &rows {
        match turn(row) {
            Ok(turn) => {
                if row.get("appears") {
                    inner.wake(turn.task, Wake::default());
                }
                turns.push(turn);
            }
            // The others must run; this one comes again when its lease has expired.
            Err(error) => {
                let id = TaskId::from(row.get::<_, Uuid>("task_id"));
                tracing::error!(task.id = %id, error = ?error, "a turn cannot be read");
            }
        }
    }
    Ok(turns)
}

fn statement(inner: &Inner, mark: i64, limit: u32, lease: Duration) -> Call {
    Call::new(CLAIM).with(inner.now()).with(mark).with(i64::from(limit)).with(micros(lease))
}

fn wish(row: &Row) -> Result<Option<CancelWish>, Error> {
    if !row.get::<_, bool>("cancel") {
        return Ok(None);
    }
    Ok(Some(CancelWish { metadata: codec::metadata(row.get("cancel_metadata"))? }))
}

fn turn(row: &Row) -> Result<Turn, Error> {
    let tenant: &str = row.get("tenant");
    let owner: &str = row.get("owner");
    let context: &str = row.get("context_id");
    let task = TaskId::from(row.get::<_, Uuid>("task_id"));
    Ok(Turn {
        scope: Scope::new(Tenant::from_stored(tenant), Principal::from_stored(owner)),
        context: ContextId::from_stored(context),
        turn: row.get("turn"),
        lease: LeaseToken::from(row.get::<_, Uuid>("lease")),
        last_report: row.get("last_report"),
        state: codec::state(row.get::<_, i16>("state").into())?,
        shown: row.get("shown"),
        message: codec::message(row.get("body"), &task.to_string(), context)?,
        request: codec::request(row.get("request"), row.get("trace"))?,
        errors: row.get("errors"),
        interruptions: row.get("interruptions"),
        cancel: wish(row)?,
        task,
    })
}

/// The leases of one tenant, as columns.
#[derive(Default)]
struct Held {
    ids: Vec<Uuid>,
    turns: Vec<i64>,
    tokens: Vec<Uuid>,
}

pub(super) async fn renew(
    inner: &Inner,
    leases: &[HeldLease],
    lease: Duration,
) -> Result<Vec<Renewed>, Error> {
    // By tenant: every statement on the request path names one.
    let mut by_tenant: BTreeMap<i32, Held> = BTreeMap::new();
    for held in leases {
        let Some(key) = inner.names.find(&inner.db, &held.scope).await? else { continue };
        let of_tenant = by_tenant.entry(key.tenant).or_default();
        of_tenant.ids.push(held.task.uuid());
        of_tenant.turns.push(held.turn);
        of_tenant.tokens.push(held.lease.uuid());
    }
    let mut renewed = Vec::with_capacity(leases.len());
    for (tenant, Held { ids, turns, tokens }) in by_tenant {
        let call = Call::new(RENEW)
            .with(inner.now())
            .with(ids)
            .with(turns)
            .with(tokens)
            .with(micros(lease))
            .with(tenant);
        for row in inner.db.run(&call).await? {
            let lease = LeaseToken::from(row.get::<_, Uuid>("lease"));
            renewed.push(Renewed { lease, cancel: wish(&row)? });
        }
    }
    Ok(renewed)
}

/// The waits after 1, 2, 3, ... interruptions, up to where they no longer grow.
fn backoffs() -> Vec<i64> {
    let mut waits: Vec<i64> = Vec::new();
    for n in 1.. {
        let wait = micros(interruption_backoff(n));
        if n > 2 && waits.last() == Some(&wait) {
            break;
        }
        waits.push(wait);
    }
    waits
}

pub(super) async fn release_expired(inner: &Inner, limit: u32) -> Result<u32, Error> {
    let call = Call::new(RELEASE).with(inner.now()).with(i64::from(limit)).with(backoffs());
    let released = inner.db.run(&call).await?.len();
    if released > 0 {
        inner.wake_turns();
    }
    Ok(u32::try_from(released).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_waits_end_where_they_no_longer_grow() {
        let waits = backoffs();
        assert_eq!(waits.first(), Some(&0));
        assert_eq!(waits.last(), Some(&micros(interruption_backoff(i32::MAX))));
        for (at, wait) in waits.iter().enumerate() {
            let n = i32::try_from(at + 1).unwrap();
            assert_eq!(*wait, micros(interruption_backoff(n)), "{n}");
        }
    }
}
