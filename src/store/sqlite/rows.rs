//! A task's row: reading it for a decision, and writing what was decided.

use rusqlite::{Connection, OptionalExtension as _, Row as SqlRow, params};

use crate::domain::{Error, LeaseToken, TaskId};
use crate::store::change::{Change, Row, TurnChange, turn_state};
use crate::store::codec;
use crate::store::sqlite::scoped::scoped;
use crate::store::sqlite::{ScopeKey, Wake};

/// The columns of [`row`], in its order.
pub(super) const DECISIVE: &str = "state, status_at, status_seq, generation, next_seq, shown, \
     reply is not null, lease, head_turn, next_turn, interrupted_generation, interrupted_turn, \
     cancel_requested_at, updated_at, terminal_at, context_id, owner";

/// A task's row under the writer's transaction, which is its lock.
pub(super) struct Locked {
    pub(super) row: Row,
    pub(super) context: String,
    pub(super) key: ScopeKey,
    pub(super) task: TaskId,
}

/// The task of this scope, if there is one.
pub(super) fn lock(
    connection: &Connection,
    key: ScopeKey,
    task: TaskId,
) -> Result<Option<Locked>, Error> {
    let sql = format!("select {DECISIVE} from tasks where tenant = ?1 and id = ?2 and owner = ?3");
    let mut statement = connection.prepare_cached(&scoped(connection, &sql))?;
    let found = statement
        .query_row(params![key.tenant, task.uuid(), key.owner], |sql| {
            Ok(locked(sql, key.tenant, task))
        })
        .optional()?;
    found.transpose()
}

/// The task by its key alone, for the loops that span tenants.
pub(super) fn lock_of_all(
    connection: &Connection,
    tenant: i64,
    task: TaskId,
) -> Result<Option<Locked>, Error> {
    let sql = format!("select {DECISIVE} from tasks where tenant = ?1 and id = ?2");
    let mut statement = connection.prepare_cached(&scoped(connection, &sql))?;
    let found = statement
        .query_row(params![tenant, task.uuid()], |sql| Ok(locked(sql, tenant, task)))
        .optional()?;
    found.transpose()
}

fn locked(sql: &SqlRow<'_>, tenant: i64, task: TaskId) -> Result<Locked, Error> {
    let lease: Option<uuid::Uuid> = sql.get(7)?;
    let generation: Option<i64> = sql.get(10)?;
    let row = Row {
        state: codec::state(sql.get(0)?)?,
        status_at: sql.get(1)?,
        status_seq: sql.get(2)?,
        generation: sql.get(3)?,
        next_seq: sql.get(4)?,
        shown: sql.get(5)?,
        replied: sql.get(6)?,
        lease: lease.map(LeaseToken::from),
        head_turn: sql.get(8)?,
        next_turn: sql.get(9)?,
        interrupted: generation.zip(sql.get(11)?),
        cancel_requested_at: sql.get(12)?,
        updated_at: sql.get(13)?,
        terminal_at: sql.get(14)?,
    };
    let key = ScopeKey { tenant, owner: sql.get(16)? };
    Ok(Locked { row, context: sql.get(15)?, key, task })
}

/// Writes a change: history, events, artifacts, counts, the row, and turns that wait or fall away.
pub(super) fn apply(
    connection: &Connection,
    locked: &Locked,
    change: &Change,
    wake: &mut Wake,
) -> Result<(), Error> {
    let (tenant, id) = (locked.key.tenant, locked.task.uuid());
    if change.new_status {
        connection
            .prepare_cached(
                "insert into messages (tenant, task_id, seq, body)
                 select tenant, id, status_seq, status_message from tasks
                 where tenant = ?1 and id = ?2 and status_seq is not null",
            )?
            .execute(params![tenant, id])?;
    }
    for (seq, body) in &change.messages {
        insert_message(connection, locked, *seq, body)?;
    }
    for event in &change.events {
        connection
            .prepare_cached(
                "insert into task_events (tenant, task_id, generation, turn, state, at, body)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?
            .execute(params![
                tenant,
                id,
                event.generation,
                event.turn,
                event.state.map(|state| state as i32),
                change.at,
                event.body
            ])?;
    }
    apply_chunks(connection, locked, change)?;
    for (state, n) in &change.counts {
        count(connection, locked.key, *state as i32, *n)?;
    }
    if change.drops_turns {
        connection
            .prepare_cached(
                "update turns set state = ?3 where tenant = ?1 and task_id = ?2 and state < ?4",
            )?
            .execute(params![tenant, id, turn_state::DROPPED, turn_state::DONE])?;
    }
    if let Some(turn) = change.unblocks {
        connection
            .prepare_cached(
                "update turns set state = ?4, due_at = ?5
                 where tenant = ?1 and task_id = ?2 and turn = ?3 and state = ?6",
            )?
            .execute(params![
                tenant,
                id,
                turn,
                turn_state::QUEUED,
                change.now,
                turn_state::BLOCKED
            ])?;
        wake.turns = true;
    }
    update_row(connection, locked, change)?;
    wake.task = true;
    Ok(())
}

/// Leaves the columns of the status alone where it did not move, and with them every index.
fn update_row(connection: &Connection, locked: &Locked, change: &Change) -> Result<(), Error> {
    let row = &change.row;
    let (tenant, id) = (locked.key.tenant, locked.task.uuid());
    let lease = row.lease.map(|lease| lease.uuid());
    if !change.new_status {
        connection
            .prepare_cached(
                "update tasks set generation = ?3, next_seq = ?4, shown = ?5, lease = ?6,
                   head_turn = ?7, next_turn = ?8, cancel_requested_at = ?9, updated_at = ?10
                 where tenant = ?1 and id = ?2",
            )?
            .execute(params![
                tenant,
                id,
                row.generation,
                row.next_seq,
                row.shown,
                lease,
                row.head_turn,
                row.next_turn,
                row.cancel_requested_at,
                row.updated_at,
            ])?;
        return Ok(());
    }
    connection
        .prepare_cached(
            "update tasks set generation = ?3, next_seq = ?4, shown = ?5, lease = ?6,
               head_turn = ?7, next_turn = ?8, cancel_requested_at = ?9, updated_at = ?10,
               state = ?11, status_at = ?12, status_message = ?13, status_seq = ?14,
               interrupted_generation = ?15, interrupted_turn = ?16, terminal_at = ?17
             where tenant = ?1 and id = ?2",
        )?
        .execute(params![
            tenant,
            id,
            row.generation,
            row.next_seq,
            row.shown,
            lease,
            row.head_turn,
            row.next_turn,
            row.cancel_requested_at,
            row.updated_at,
            row.state as i32,
            row.status_at,
            change.status_message,
            row.status_seq,
            row.interrupted.map(|(generation, _)| generation),
            row.interrupted.map(|(_, turn)| turn),
            row.terminal_at,
        ])?;
    Ok(())
}

fn apply_chunks(connection: &Connection, locked: &Locked, change: &Change) -> Result<(), Error> {
    let (tenant, id) = (locked.key.tenant, locked.task.uuid());
    for chunk in &change.chunks {
        let sql = if chunk.append {
            "insert into artifacts (tenant, task_id, artifact_id, ordinal, since, head)
             values (?1, ?2, ?3, ?4, ?4, ?5) on conflict do nothing"
        } else {
            "insert into artifacts (tenant, task_id, artifact_id, ordinal, since, head)
             values (?1, ?2, ?3, ?4, ?4, ?5) on conflict do update set since = ?4, head = ?5"
        };
        connection.prepare_cached(sql)?.execute(params![
            tenant,
            id,
            chunk.artifact_id,
            chunk.generation,
            chunk.head
        ])?;
        if !chunk.append {
            connection
                .prepare_cached(
                    "delete from artifact_chunks
                     where tenant = ?1 and task_id = ?2 and artifact_id = ?3",
                )?
                .execute(params![tenant, id, chunk.artifact_id])?;
        }
        connection
            .prepare_cached(
                "insert into artifact_chunks (tenant, task_id, artifact_id, seq, parts)
                 values (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![tenant, id, chunk.artifact_id, chunk.generation, chunk.parts])?;
    }
    Ok(())
}

/// Appends to the history.
pub(super) fn insert_message(
    connection: &Connection,
    locked: &Locked,
    seq: i64,
    body: &[u8],
) -> Result<(), Error> {
    connection
        .prepare_cached(
            "insert into messages (tenant, task_id, seq, body) values (?1, ?2, ?3, ?4)",
        )?
        .execute(params![locked.key.tenant, locked.task.uuid(), seq, body])?;
    Ok(())
}

/// Appends a difference to what listings count.
pub(super) fn count(
    connection: &Connection,
    key: ScopeKey,
    state: i32,
    n: i64,
) -> Result<(), Error> {
    connection
        .prepare_cached(
            "insert into task_count_deltas (tenant, owner, state, n) values (?1, ?2, ?3, ?4)",
        )?
        .execute(params![key.tenant, key.owner, state, n])?;
    Ok(())
}

/// Writes what becomes of the turn that reported.
pub(super) fn turn(
    connection: &Connection,
    locked: &Locked,
    turn: i64,
    sequence: i64,
    change: TurnChange,
    now: i64,
) -> Result<bool, Error> {
    let (state, due_at, errors) = match change {
        TurnChange::Goes => (turn_state::LEASED, None, 0),
        TurnChange::Done => (turn_state::DONE, None, 0),
        TurnChange::Failed { due_at } => (turn_state::QUEUED, Some(due_at), 1),
        TurnChange::HandedBack => (turn_state::QUEUED, Some(now), 0),
    };
    connection
        .prepare_cached(
            "update turns set state = ?4, last_report = ?5, due_at = coalesce(?6, due_at),
               errors = errors + ?7
             where tenant = ?1 and task_id = ?2 and turn = ?3",
        )?
        .execute(params![
            locked.key.tenant,
            locked.task.uuid(),
            turn,
            state,
            sequence,
            due_at,
            errors
        ])?;
    Ok(state == turn_state::QUEUED)
}
