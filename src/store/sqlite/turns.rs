//! Turns: claiming, renewing, reporting, replying, showing, canceling.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, Row as SqlRow, params};
use uuid::Uuid;

use crate::domain::clock::micros;
use crate::domain::{ContextId, Error, LeaseToken, Principal, Scope, TaskId, Tenant};
use crate::store::change::{self, Change, ReplyChange, turn_state};
use crate::store::codec;
use crate::store::sqlite::rows::{self, Locked};
use crate::store::sqlite::{Names, ScopeKey, Wake};
use crate::store::types::{
    CancelRequested, CancelWish, HeldLease, Renewed, Replied, Reply, Report, Reported, Shown, Turn,
};

/// What the lease of a report says.
enum Held {
    Yes(Locked),
    Repeated,
    Stale,
}

fn held(
    connection: &Connection,
    key: Option<ScopeKey>,
    task: TaskId,
    lease: LeaseToken,
    turn: i64,
    sequence: i64,
) -> Result<Held, Error> {
    let Some(key) = key else { return Ok(Held::Stale) };
    let Some(locked) = rows::lock(connection, key, task)? else { return Ok(Held::Stale) };
    let mut find = connection.prepare_cached(
        "select last_report from turns
         where tenant = ?1 and task_id = ?2 and turn = ?3 and lease = ?4",
    )?;
    let last: Option<i64> = find
        .query_row(params![key.tenant, task.uuid(), turn, lease.uuid()], |row| row.get(0))
        .optional()?;
    Ok(match last {
        None => Held::Stale,
        Some(last) if last >= sequence => Held::Repeated,
        Some(_) if locked.row.lease == Some(lease) => Held::Yes(locked),
        Some(_) => Held::Stale,
    })
}

pub(super) fn report(
    connection: &Connection,
    key: Option<ScopeKey>,
    task: TaskId,
    report: &Report,
    now: i64,
    wake: &mut Wake,
) -> Result<Reported, Error> {
    let locked = match held(connection, key, task, report.lease, report.turn, report.sequence)? {
        Held::Yes(locked) => locked,
        Held::Repeated => return Ok(Reported::Repeated),
        Held::Stale => return Ok(Reported::Stale),
    };
    let (change, turn) = change::report(&locked.row, report, now)?;
    // First, so that the others that fall away do not take this one with them.
    let queued = rows::turn(connection, &locked, report.turn, report.sequence, turn, now)?;
    rows::apply(connection, &locked, &change, wake)?;
    wake.turns |= queued;
    Ok(Reported::Landed {
        generation: change.row.generation,
        cancel_requested: change.row.cancel_requested_at.is_some(),
    })
}

pub(super) fn reply(
    connection: &Connection,
    key: Option<ScopeKey>,
    task: TaskId,
    reply: &Reply,
    now: i64,
    wake: &mut Wake,
) -> Result<Replied, Error> {
    let locked = match held(connection, key, task, reply.lease, reply.turn, reply.sequence)? {
        Held::Yes(locked) => locked,
        Held::Repeated => return Ok(Replied::Repeated),
        Held::Stale => return Ok(Replied::Stale),
    };
    let done = change::TurnChange::Done;
    rows::turn(connection, &locked, reply.turn, reply.sequence, done, now)?;
    match change::reply(&locked.row, reply.turn, &reply.message, now) {
        ReplyChange::Completed(change) => {
            rows::apply(connection, &locked, &change, wake)?;
            Ok(Replied::Completed)
        }
        ReplyChange::Direct(change, body) => {
            rows::apply(connection, &locked, &change, wake)?;
            connection
                .prepare_cached(
                    "update tasks set reply = ?3, updated_at = updated_at + 1
                     where tenant = ?1 and id = ?2",
                )?
                .execute(params![locked.key.tenant, task.uuid(), body])?;
            Ok(Replied::Direct)
        }
    }
}

pub(super) fn show(
    connection: &Connection,
    key: Option<ScopeKey>,
    task: TaskId,
    now: i64,
    wake: &mut Wake,
) -> Result<Shown, Error> {
    let Some(key) = key else { return Ok(Shown::NotFound) };
    let Some(locked) = rows::lock(connection, key, task)? else { return Ok(Shown::NotFound) };
    if let Some(change) = change::show(&locked.row, now) {
        rows::apply(connection, &locked, &change, wake)?;
    }
    Ok(if locked.row.replied { Shown::Replied } else { Shown::Yes })
}

pub(super) fn request_cancel(
    connection: &Connection,
    key: Option<ScopeKey>,
    task: TaskId,
    metadata: Option<Vec<u8>>,
    now: i64,
    wake: &mut Wake,
) -> Result<CancelRequested, Error> {
    let Some(key) = key else { return Ok(CancelRequested::NotFound) };
    let locked = match rows::lock(connection, key, task)? {
        Some(locked) if locked.row.shown => locked,
        Some(_) | None => return Ok(CancelRequested::NotFound),
    };
    if locked.row.state.is_terminal() {
        return Ok(CancelRequested::Ended(locked.row.state));
    }
    if locked.row.lease.is_none() {
        rows::apply(connection, &locked, &change::cancel(&locked.row, now), wake)?;
        return Ok(CancelRequested::Canceled);
    }
    if locked.row.cancel_requested_at.is_none() {
        let mut change = Change::begin(&locked.row, now);
        change.row.cancel_requested_at = Some(now);
        rows::apply(connection, &locked, &change, wake)?;
        connection
            .prepare_cached(
                "update tasks set cancel_metadata = ?3, updated_at = updated_at + 1
                 where tenant = ?1 and id = ?2",
            )?
            .execute(params![key.tenant, task.uuid(), metadata])?;
    }
    Ok(CancelRequested::Requested)
}

pub(super) fn finish_cancel(
    connection: &Connection,
    key: Option<ScopeKey>,
    task: TaskId,
    now: i64,
    wake: &mut Wake,
) -> Result<bool, Error> {
    let Some(key) = key else { return Ok(false) };
    let Some(locked) = rows::lock(connection, key, task)? else { return Ok(false) };
    if locked.row.state.is_terminal() || locked.row.cancel_requested_at.is_none() {
        return Ok(false);
    }
    rows::apply(connection, &locked, &change::cancel(&locked.row, now), wake)?;
    Ok(true)
}

const CLAIMABLE: &str = "
    select u.tenant, u.task_id, u.turn, u.last_report, u.request, u.trace, u.errors,
      u.interruptions, m.body, k.state, k.shown, k.context_id, k.cancel_requested_at is not null,
      k.cancel_metadata, n.name, o.name
    from turns u
    join tasks k on k.tenant = u.tenant and k.id = u.task_id
    join messages m on m.tenant = u.tenant and m.task_id = u.task_id and m.seq = u.message_seq
    join tenants n on n.id = u.tenant
    join owners o on o.id = k.owner
    where u.state = 1 and u.due_at <= ?1
    order by u.due_at limit ?2";

pub(super) fn claim(
    connection: &Connection,
    limit: u32,
    lease: Duration,
    now: i64,
) -> Result<Vec<Turn>, Error> {
    let mut due = connection.prepare_cached(CLAIMABLE)?;
    let mut found = due.query(params![now, limit])?;
    let mut turns = Vec::new();
    while let Some(row) = found.next()? {
        turns.push((row.get(0)?, turn(row)?));
    }
    for (tenant, turn) in &mut turns {
        let id = turn.task.uuid();
        connection
            .prepare_cached(
                "update turns set state = ?4, lease = ?5, lease_until = ?6
                 where tenant = ?1 and task_id = ?2 and turn = ?3",
            )?
            .execute(params![
                *tenant,
                id,
                turn.turn,
                turn_state::LEASED,
                turn.lease.uuid(),
                now.saturating_add(micros(lease))
            ])?;
        let Some(locked) = rows::lock_of_all(connection, *tenant, turn.task)? else { continue };
        let second = turn.errors + turn.interruptions > 0;
        let shows = if second { change::show(&locked.row, now) } else { None };
        let mut change = shows.unwrap_or_else(|| Change::begin(&locked.row, now));
        change.row.lease = Some(turn.lease);
        turn.shown = change.row.shown;
        rows::apply(connection, &locked, &change, &mut Wake::default())?;
    }
    Ok(turns.into_iter().map(|(_, turn): (i64, Turn)| turn).collect())
}

fn turn(row: &SqlRow<'_>) -> Result<Turn, Error> {
    let task = TaskId::from(row.get::<_, Uuid>(1)?);
    let context: String = row.get(11)?;
    let tenant: String = row.get(14)?;
    let owner: String = row.get(15)?;
    let body: Vec<u8> = row.get(8)?;
    let request: Vec<u8> = row.get(4)?;
    let cancel = if row.get(12)? {
        let metadata: Option<Vec<u8>> = row.get(13)?;
        Some(CancelWish { metadata: codec::metadata(metadata.as_deref())? })
    } else {
        None
    };
    Ok(Turn {
        scope: Scope::new(Tenant::from_stored(&tenant), Principal::from_stored(&owner)),
        message: codec::message(&body, &task.to_string(), &context)?,
        context: ContextId::from_stored(&context),
        task,
        turn: row.get(2)?,
        lease: LeaseToken::generate(),
        last_report: row.get(3)?,
        state: codec::state(row.get(9)?)?,
        shown: row.get(10)?,
        request: codec::request(&request, row.get(5)?)?,
        errors: row.get(6)?,
        interruptions: row.get(7)?,
        cancel,
    })
}

pub(super) fn renew(
    connection: &Connection,
    names: &Names,
    leases: &[HeldLease],
    lease: Duration,
    now: i64,
) -> Result<Vec<Renewed>, Error> {
    let mut renewed = Vec::new();
    for held in leases {
        let Some(key) = names.look(connection, &held.scope)? else { continue };
        let id = held.task.uuid();
        let prolonged = connection
            .prepare_cached(
                "update turns set lease_until = ?5
                 where tenant = ?1 and task_id = ?2 and turn = ?3 and state = 2 and lease = ?4",
            )?
            .execute(params![
                key.tenant,
                id,
                held.turn,
                held.lease.uuid(),
                now.saturating_add(micros(lease))
            ])?;
        if prolonged == 0 {
            continue;
        }
        let metadata: Option<Option<Vec<u8>>> = connection
            .prepare_cached(
                "select cancel_metadata from tasks
                 where tenant = ?1 and id = ?2 and cancel_requested_at is not null",
            )?
            .query_row(params![key.tenant, id], |row| row.get(0))
            .optional()?;
        let cancel = match metadata {
            Some(metadata) => Some(CancelWish { metadata: codec::metadata(metadata.as_deref())? }),
            None => None,
        };
        renewed.push(Renewed { lease: held.lease, cancel });
    }
    Ok(renewed)
}
