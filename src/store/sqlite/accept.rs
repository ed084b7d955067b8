//! Accepting a message.

use rusqlite::{Connection, OptionalExtension as _, params};
use uuid::Uuid;

use crate::contract::v1::TaskState;
use crate::domain::clock::micros;
use crate::domain::{Error, Scope, TaskId};
use crate::store::change::{Change, floor_ms, message_body, status_body, turn_state};
use crate::store::codec;
use crate::store::sqlite::rows::{self, Locked};
use crate::store::sqlite::scoped::scoped;
use crate::store::sqlite::{Names, ScopeKey, Wake};
use crate::store::types::{Accept, Accepted, AcceptedTurn, Dedupe, Target};

/// Everything is read and decided before the first row is written.
pub(super) fn accept(
    connection: &Connection,
    names: &Names,
    scope: &Scope,
    accept: &Accept,
    now: i64,
    wake: &mut Wake,
) -> Result<Accepted, Error> {
    let known = names.look(connection, scope)?;
    if let (Some(key), Some(dedupe)) = (known, &accept.dedupe)
        && let Some(earlier) = earlier(connection, key, accept, dedupe, now)?
    {
        return Ok(earlier);
    }
    let accepted = match &accept.target {
        Target::New { task, context, shown } => {
            let key = names.intern(connection, scope)?;
            let context = context.as_str();
            begin_task(connection, key, accept, *task, context, *shown, now)?
        }
        Target::Existing { task, context } => {
            let Some(key) = known else { return Ok(Accepted::NotFound) };
            let locked = match rows::lock(connection, key, *task)? {
                Some(locked) if locked.row.shown => locked,
                Some(_) | None => return Ok(Accepted::NotFound),
            };
            if context.as_ref().is_some_and(|context| *context.as_str() != *locked.context) {
                return Ok(Accepted::OtherContext);
            }
            if locked.row.state.is_terminal() {
                return Ok(Accepted::Ended(locked.row.state));
            }
            go_on(connection, &locked, accept, now, wake)?
        }
    };
    if let Some(dedupe) = &accept.dedupe {
        let key = names.intern(connection, scope)?;
        remember(connection, key, accept, dedupe, &accepted, now)?;
    }
    wake.task = true;
    let head = accepted.turn == 1 || wake.turns;
    wake.turns = head && !accepted.leased;
    Ok(Accepted::New(accepted))
}

fn earlier(
    connection: &Connection,
    key: ScopeKey,
    accept: &Accept,
    dedupe: &Dedupe,
    now: i64,
) -> Result<Option<Accepted>, Error> {
    let mut find = connection.prepare_cached(&scoped(
        connection,
        "select digest, task_id, turn, generation from sent_messages
         where tenant = ?1 and owner = ?2 and context_id = ?3 and sent_task = ?4
           and message_id = ?5 and expires_at > ?6",
    ))?;
    let key =
        params![key.tenant, key.owner, dedupe.context, dedupe.task, accept.message.message_id, now];
    let found = find.query_row(key, |row| {
        let digest: Vec<u8> = row.get(0)?;
        let task: Uuid = row.get(1)?;
        let turn = AcceptedTurn {
            task: TaskId::from(task),
            turn: row.get(2)?,
            generation: row.get(3)?,
            leased: false,
        };
        Ok(if digest == dedupe.digest { Accepted::Repeat(turn) } else { Accepted::OtherContent })
    });
    Ok(found.optional()?)
}

fn remember(
    connection: &Connection,
    key: ScopeKey,
    accept: &Accept,
    dedupe: &Dedupe,
    accepted: &AcceptedTurn,
    now: i64,
) -> Result<(), Error> {
    connection
        .prepare_cached(
            "insert or replace into sent_messages (tenant, owner, context_id, sent_task,
               message_id, digest, task_id, turn, generation, expires_at)
             values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        )?
        .execute(params![
            key.tenant,
            key.owner,
            dedupe.context,
            dedupe.task,
            accept.message.message_id,
            dedupe.digest,
            accepted.task.uuid(),
            accepted.turn,
            accepted.generation,
            now.saturating_add(micros(dedupe.window)),
        ])?;
    Ok(())
}

fn begin_task(
    connection: &Connection,
    key: ScopeKey,
    accept: &Accept,
    task: TaskId,
    context: &str,
    shown: bool,
    now: i64,
) -> Result<AcceptedTurn, Error> {
    let (id, at) = (task.uuid(), floor_ms(now));
    let lease = accept.lease.map(|lease| lease.token.uuid());
    connection
        .prepare_cached(
            "insert into tasks (tenant, id, owner, context_id, state, status_at, generation,
               next_seq, shown, lease, head_turn, next_turn, created_at, updated_at)
             values (?1, ?2, ?3, ?4, ?5, ?6, 1, 1, ?7, ?8, 1, 2, ?9, ?9)",
        )?
        .execute(params![
            key.tenant,
            id,
            key.owner,
            context,
            TaskState::Submitted as i32,
            at,
            shown,
            lease,
            now
        ])?;
    connection
        .prepare_cached(
            "insert into task_events (tenant, task_id, generation, turn, state, at, body)
             values (?1, ?2, 1, 1, ?3, ?4, ?5)",
        )?
        .execute(params![
            key.tenant,
            id,
            TaskState::Submitted as i32,
            at,
            status_body(TaskState::Submitted, None, None)
        ])?;
    connection
        .prepare_cached("insert into messages (tenant, task_id, seq, body) values (?1, ?2, 0, ?3)")?
        .execute(params![key.tenant, id, message_body(&accept.message)])?;
    if shown {
        rows::count(connection, key, TaskState::Submitted as i32, 1)?;
    }
    let accepted = AcceptedTurn { task, turn: 1, generation: 1, leased: lease.is_some() };
    insert_turn(connection, key, accept, &accepted, 0, true, now)?;
    Ok(accepted)
}

fn go_on(
    connection: &Connection,
    locked: &Locked,
    accept: &Accept,
    now: i64,
    wake: &mut Wake,
) -> Result<AcceptedTurn, Error> {
    let row = &locked.row;
    let is_head = row.head_turn == row.next_turn;
    let lease = if is_head { accept.lease } else { None };
    let mut change = Change::begin(row, now);
    change.row.next_turn += 1;
    change.row.next_seq += 1;
    change.row.lease = lease.map_or(row.lease, |lease| Some(lease.token));
    rows::insert_message(connection, locked, row.next_seq, &message_body(&accept.message))?;
    rows::apply(connection, locked, &change, wake)?;
    let accepted = AcceptedTurn {
        task: locked.task,
        turn: row.next_turn,
        generation: row.generation,
        leased: lease.is_some(),
    };
    insert_turn(connection, locked.key, accept, &accepted, row.next_seq, is_head, now)?;
    wake.turns = is_head;
    Ok(accepted)
}

fn insert_turn(
    connection: &Connection,
    key: ScopeKey,
    accept: &Accept,
    accepted: &AcceptedTurn,
    message_seq: i64,
    is_head: bool,
    now: i64,
) -> Result<(), Error> {
    let lease = accept.lease.filter(|_| accepted.leased);
    let state = match (is_head, lease) {
        (false, _) => turn_state::BLOCKED,
        (true, None) => turn_state::QUEUED,
        (true, Some(_)) => turn_state::LEASED,
    };
    connection
        .prepare_cached(
            "insert into turns (tenant, task_id, turn, state, message_seq, request, trace,
               last_report, lease, lease_until, due_at, errors, interruptions)
             values (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, ?8, ?9, ?10, 0, 0)",
        )?
        .execute(params![
            key.tenant,
            accepted.task.uuid(),
            accepted.turn,
            state,
            message_seq,
            codec::request_body(&accept.request),
            accept.request.trace,
            lease.map(|lease| lease.token.uuid()),
            lease.map(|lease| now.saturating_add(micros(lease.lease))),
            now,
        ])?;
    Ok(())
}
