//! Deleting what has ended, and what was an owner's.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension as _, params};
use uuid::Uuid;

use crate::domain::clock::micros;
use crate::domain::{Error, TaskId, Tenant};
use crate::store::codec;
use crate::store::retention::{Erased, Keep, Purged, Retention, Tally};
use crate::store::sqlite::ScopeKey;
use crate::store::sqlite::rows;
use crate::store::sqlite::scoped::scoped;
use crate::store::sqlite::upkeep::delete_task;

/// A tenant with the time before which what ended goes.
struct Due {
    number: i64,
    name: Tenant,
    before: i64,
}

/// The tenants that keep something for a time.
fn due(
    connection: &Connection,
    retention: &Retention,
    kept: fn(&Keep) -> Option<std::time::Duration>,
    now: i64,
) -> Result<Vec<Due>, Error> {
    let mut find = connection.prepare_cached("select id, name from tenants order by id")?;
    let mut rows = find.query(())?;
    let mut due = Vec::new();
    while let Some(row) = rows.next()? {
        let name = Tenant::from_stored(&row.get::<_, String>(1)?);
        if let Some(kept) = kept(&retention.of(&name)) {
            due.push(Due { number: row.get(0)?, name, before: now.saturating_sub(micros(kept)) });
        }
    }
    Ok(due)
}

/// Tasks by owner and state.
type Groups = BTreeMap<(i64, i64), i64>;

fn delete(
    connection: &Connection,
    tenant: i64,
    tasks: &[(Uuid, i64, i64, bool)],
) -> Result<Groups, Error> {
    let (mut all, mut shown): (Groups, Groups) = Default::default();
    for (id, owner, state, is_shown) in tasks {
        delete_task(connection, tenant, id)?;
        *all.entry((*owner, *state)).or_default() += 1;
        if *is_shown {
            *shown.entry((*owner, *state)).or_default() += 1;
        }
    }
    for ((owner, state), n) in shown {
        let state = i32::try_from(state).map_err(Error::internal)?;
        rows::count(connection, ScopeKey { tenant, owner }, state, -n)?;
    }
    Ok(all)
}

fn tallies(tenant: &Tenant, groups: Groups) -> Result<Vec<Tally>, Error> {
    let mut by_state: BTreeMap<i64, u64> = BTreeMap::new();
    for ((_, state), n) in groups {
        *by_state.entry(state).or_default() += u64::try_from(n).map_err(Error::internal)?;
    }
    let tally =
        |(state, tasks)| Ok(Tally { tenant: tenant.clone(), state: codec::state(state)?, tasks });
    by_state.into_iter().map(tally).collect()
}

type Found = rusqlite::Result<Vec<(Uuid, i64, i64, bool)>>;

pub(super) fn purge_ended(
    connection: &Connection,
    retention: &Retention,
    limit: u32,
    now: i64,
) -> Result<Purged, Error> {
    let mut purged = Purged::default();
    let mut left = limit;
    for tenant in due(connection, retention, |keep| keep.tasks, now)? {
        let mut find = connection.prepare_cached(
            "select id, owner, state, shown from tasks
             where tenant = ?1 and terminal_at <= ?2 order by terminal_at limit ?3",
        )?;
        let found: Found = find
            .query_map(params![tenant.number, tenant.before, left], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
            })?
            .collect();
        let found = found?;
        left = left.saturating_sub(u32::try_from(found.len()).unwrap_or(u32::MAX));
        let gone = delete(connection, tenant.number, &found)?;
        purged.tasks.extend(tallies(&tenant.name, gone)?);
        if left == 0 {
            purged.more = true;
            break;
        }
    }
    Ok(purged)
}

pub(super) fn purge_events(
    connection: &Connection,
    retention: &Retention,
    limit: u32,
    now: i64,
) -> Result<u32, Error> {
    let mut left = limit;
    for tenant in due(connection, retention, Keep::events_alone, now)? {
        let mut find = connection.prepare_cached(
            "select task_id from task_events
             where tenant = ?1 and state in (3, 4, 5, 7) and at <= ?2 order by at limit ?3",
        )?;
        let found = find
            .query_map(params![tenant.number, tenant.before, left], |row| row.get(0))?
            .collect::<rusqlite::Result<Vec<Uuid>>>()?;
        for id in &found {
            connection
                .prepare_cached("delete from task_events where tenant = ?1 and task_id = ?2")?
                .execute(params![tenant.number, id])?;
        }
        left = left.saturating_sub(u32::try_from(found.len()).unwrap_or(u32::MAX));
        if left == 0 {
            break;
        }
    }
    Ok(limit - left)
}

pub(super) fn count_ended(
    connection: &Connection,
    retention: &Retention,
    now: i64,
) -> Result<Vec<Tally>, Error> {
    let mut counted = Vec::new();
    for tenant in due(connection, retention, |keep| keep.tasks, now)? {
        let mut count = connection.prepare_cached(
            "select 0, state, count(*) from tasks
             where tenant = ?1 and terminal_at <= ?2 group by state",
        )?;
        let groups = count
            .query_map(params![tenant.number, tenant.before], |row| {
                Ok(((row.get(0)?, row.get(1)?), row.get(2)?))
            })?
            .collect::<rusqlite::Result<Groups>>()?;
        counted.extend(tallies(&tenant.name, groups)?);
    }
    Ok(counted)
}

/// One batch of an owner's rows, with the tasks that are gone.
pub(super) fn erase(
    connection: &Connection,
    key: ScopeKey,
    tenant: &Tenant,
    limit: u32,
) -> Result<(Erased, Vec<TaskId>), Error> {
    // The hidden ones stand in no index by owner; theirs holds no others and is short.
    let mut find = connection.prepare_cached(&scoped(
        connection,
        "select * from (select id, owner, state, shown from tasks
           where tenant = ?1 and owner = ?2 and shown limit ?3)
         union all
         select * from (select id, owner, state, shown from tasks
           where tenant = ?1 and owner = ?2 and not shown limit ?3)
         limit ?3",
    ))?;
    let found: Found = find
        .query_map(params![key.tenant, key.owner, limit], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })?
        .collect();
    let found = found?;
    let gone = delete(connection, key.tenant, &found)?;
    let sent = connection
        .prepare_cached(&scoped(
            connection,
            "delete from sent_messages where rowid in
               (select rowid from sent_messages where tenant = ?1 and owner = ?2 limit ?3)",
        ))?
        .execute(params![key.tenant, key.owner, limit])?;
    let mut erased = Erased {
        tasks: tallies(tenant, gone)?,
        sent_messages: u64::try_from(sent).map_err(Error::internal)?,
        more: !found.is_empty() || sent > 0,
        name: false,
    };
    if !erased.more {
        erased.name = forget(connection, key.owner)?;
    }
    Ok((erased, found.into_iter().map(|(id, ..)| TaskId::from(id)).collect()))
}

/// Takes an owner's name away, unless some tenant has tasks of it.
fn forget(connection: &Connection, owner: i64) -> Result<bool, Error> {
    let is_used: bool = connection
        .prepare_cached(&scoped(
            connection,
            "select exists (
               select 1 from tenants t
               where exists (select 1 from tasks where tenant = t.id and owner = ?1 and shown)
                 or exists (select 1 from sent_messages where tenant = t.id and owner = ?1)
             ) or exists (select 1 from tasks where owner = ?1 and not shown)",
        ))?
        .query_row([owner], |row| row.get(0))?;
    if is_used {
        return Ok(false);
    }
    for table in ["task_counts", "task_count_deltas"] {
        let sql = format!("delete from {table} where owner = ?1");
        connection.prepare_cached(&scoped(connection, &sql))?.execute([owner])?;
    }
    // The number stays, so that nobody else ever gets it: SQLite would give the highest again. No
    // principal has a control character in its name.
    connection
        .prepare_cached("update owners set name = char(1) || id where id = ?1")?
        .execute([owner])?;
    Ok(true)
}

pub(super) fn count_owned(
    connection: &Connection,
    key: ScopeKey,
    tenant: &Tenant,
) -> Result<Erased, Error> {
    let groups = connection
        .prepare_cached(&scoped(
            connection,
            "select owner, state, count(*) from tasks where tenant = ?1 and owner = ?2
             group by state",
        ))?
        .query_map(params![key.tenant, key.owner], |row| {
            Ok(((row.get(0)?, row.get(1)?), row.get(2)?))
        })?
        .collect::<rusqlite::Result<Groups>>()?;
    let sent: Option<i64> = connection
        .prepare_cached(&scoped(
            connection,
            "select count(*) from sent_messages where tenant = ?1 and owner = ?2",
        ))?
        .query_row(params![key.tenant, key.owner], |row| row.get(0))
        .optional()?;
    Ok(Erased {
        tasks: tallies(tenant, groups)?,
        sent_messages: u64::try_from(sent.unwrap_or(0)).map_err(Error::internal)?,
        ..Erased::default()
    })
}
