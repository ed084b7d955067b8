//! Accepting a message.

use deadpool_postgres::Object;
use futures_util::future::try_join;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::contract::v1::TaskState;
use crate::domain::{Error, Scope, TaskId};
use crate::store::change::{Change, message_body, status_body, turn_state};
use crate::store::codec;
use crate::store::postgres::Wake;
use crate::store::postgres::db::{CLOCK, Db, Param, ScopeKey, us};
use crate::store::postgres::rows::{self, Extra, Locked};
use crate::store::types::{Accept, Accepted, AcceptedTurn, Dedupe, Target};

pub(super) async fn accept(
    db: &Db,
    scope: &Scope,
    accept: &Accept,
) -> Result<(Accepted, Wake), Error> {
    let client = db.client().await?;
    match &accept.target {
        Target::New { task, context, shown } => {
            let key = db.intern(&client, scope).await?;
            begin_task(db, &client, key, accept, *task, context.as_str(), *shown).await
        }
        Target::Existing { task, .. } => match db.find(&client, scope).await? {
            Some(key) => go_on(db, client, key, accept, *task).await,
            None => Ok((Accepted::NotFound, Wake::default())),
        },
    }
}

/// The row that recognises repeats comes first, and every other insert selects from it: a repeat
/// does nothing. A row whose time is over is overwritten.
const REMEMBER: &str = "
  insert into sent_messages as s (tenant, owner, context_id, sent_task, message_id, digest,
    task_id, turn, generation, expires_at)
  select $2, $3, $4, $5, $6, $7, $8, 1, 1, now + $9 from clock
  on conflict (tenant, owner, context_id, sent_task, message_id) do update
    set digest = excluded.digest, task_id = excluded.task_id, turn = excluded.turn,
        generation = excluded.generation, expires_at = excluded.expires_at
    where s.expires_at <= (select now from clock)
  returning 1";

/// Without de-duplication every message is new.
const EVERY: &str = "select 1";

fn begin_sql(first: &str) -> String {
    format!(
        "with clock as (select {CLOCK} as now), first as ({first}), task as (
  insert into tasks (tenant, id, owner, context_id, state, status_at, generation, next_seq,
    shown, lease, head_turn, next_turn, created_at, updated_at)
  select $2, $8, $3, $10, 1, now - now % 1000, 1, 1, $11, $12, 1, 2, now, now from clock, first
), said as (
  insert into messages (tenant, task_id, seq, body) select $2, $8, 0, $13 from first
), happened as (
  insert into task_events (tenant, task_id, generation, turn, state, at, body)
  select $2, $8, 1, 1, 1, now - now % 1000, $14 from clock, first
), counted as (
  insert into task_count_deltas (tenant, owner, state, n) select $2, $3, 1, 1 from first where $11
), turn as (
  insert into turns (tenant, task_id, turn, state, message_seq, request, trace, last_report,
    lease, lease_until, due_at, errors, interruptions)
  select $2, $8, 1, $15, 0, $16, $17, 0, $12, now + $18, now, 0, 0 from clock, first
)
select 1 from first"
    )
}

async fn begin_task(
    db: &Db,
    client: &Object,
    key: ScopeKey,
    accept: &Accept,
    task: TaskId,
    context: &str,
    shown: bool,
) -> Result<(Accepted, Wake), Error> {
    let (now, id) = (db.now(), task.uuid());
    let dedupe = accept.dedupe.as_ref();
    let sql = begin_sql(if dedupe.is_some() { REMEMBER } else { EVERY });
    let sent_context = dedupe.map(|dedupe| dedupe.context.as_str());
    let sent_task = dedupe.map(|dedupe| dedupe.task.as_str());
    let digest = dedupe.map(|dedupe| dedupe.digest.as_slice());
    let window = dedupe.map(|dedupe| us(dedupe.window));
    let lease = accept.lease.map(|lease| lease.token.uuid());
    let lease_for = accept.lease.map(|lease| us(lease.lease));
    let state = if lease.is_some() { turn_state::LEASED } else { turn_state::QUEUED };
    let body = message_body(&accept.message);
    let event = status_body(TaskState::Submitted, None, None);
    let request = codec::request_body(&accept.request);
    let params: [Param<'_>; 18] = [
        (&now, Type::INT8),
        (&key.tenant, Type::INT4),
        (&key.owner, Type::INT4),
        (&sent_context, Type::TEXT),
        (&sent_task, Type::TEXT),
        (&accept.message.message_id, Type::TEXT),
        (&digest, Type::BYTEA),
        (&id, Type::UUID),
        (&window, Type::INT8),
        (&context, Type::TEXT),
        (&shown, Type::BOOL),
        (&lease, Type::UUID),
        (&body, Type::BYTEA),
        (&event, Type::BYTEA),
        (&state, Type::INT2),
        (&request, Type::BYTEA),
        (&accept.request.trace, Type::TEXT),
        (&lease_for, Type::INT8),
    ];
    let rows = db.rows(client, &sql, &params).await?;
    if rows.is_empty() {
        let Some(dedupe) = dedupe else { return Err(Error::internal("a message did nothing")) };
        let earlier = earlier(db, client, key, accept, dedupe).await?;
        return Ok((earlier, Wake::default()));
    }
    let turn = AcceptedTurn { task, turn: 1, generation: 1, leased: lease.is_some() };
    Ok((Accepted::New(turn), Wake { tasks: vec![task], turns: lease.is_none() }))
}

/// What the message did that came first.
async fn earlier(
    db: &Db,
    client: &Object,
    key: ScopeKey,
    accept: &Accept,
    dedupe: &Dedupe,
) -> Result<Accepted, Error> {
    let sql = "select digest, task_id, turn, generation from sent_messages \
               where tenant = $1 and owner = $2 and context_id = $3 and sent_task = $4 \
                 and message_id = $5";
    let params: [Param<'_>; 5] = [
        (&key.tenant, Type::INT4),
        (&key.owner, Type::INT4),
        (&dedupe.context, Type::TEXT),
        (&dedupe.task, Type::TEXT),
        (&accept.message.message_id, Type::TEXT),
    ];
    let rows = db.rows(client, sql, &params).await?;
    // It was there a moment ago; only its expiry can have come between.
    let row = rows.first().ok_or_else(|| Error::unavailable("a repeat met an expiry"))?;
    if row.get::<_, &[u8]>(0) != dedupe.digest {
        return Ok(Accepted::OtherContent);
    }
    Ok(Accepted::Repeat(AcceptedTurn {
        task: TaskId::from(row.get::<_, Uuid>(1)),
        turn: row.get(2),
        generation: row.get(3),
        leased: false,
    }))
}

/// A message to a task that exists: one transaction, in which the row that recognises repeats
/// comes first, so that all writers wait in one order.
async fn go_on(
    db: &Db,
    client: Object,
    key: ScopeKey,
    accept: &Accept,
    task: TaskId,
) -> Result<(Accepted, Wake), Error> {
    let tried = try_go_on(db, &client, key, accept, task).await;
    match tried {
        Ok((accepted @ Accepted::New(_), wake)) => Ok((accepted, wake)),
        other => {
            db.rollback(client).await;
            other
        }
    }
}

async fn try_go_on(
    db: &Db,
    client: &Object,
    key: ScopeKey,
    accept: &Accept,
    task: TaskId,
) -> Result<(Accepted, Wake), Error> {
    let nothing = |accepted| Ok((accepted, Wake::default()));
    let mut begin = "begin";
    if let Some(dedupe) = &accept.dedupe {
        db.batch(client, std::mem::take(&mut begin)).await?;
        if !remember(db, client, key, accept, dedupe, task).await? {
            return nothing(earlier(db, client, key, accept, dedupe).await?);
        }
    }
    let locked = match rows::lock(db, client, begin, key.tenant, task, None).await? {
        Some(locked) if locked.key.owner == key.owner && locked.row.shown => locked,
        Some(_) | None => return nothing(Accepted::NotFound),
    };
    let Target::Existing { context, .. } = &accept.target else {
        return Err(Error::internal("a new task goes on"));
    };
    if context.as_ref().is_some_and(|context| *context.as_str() != *locked.context) {
        return nothing(Accepted::OtherContext);
    }
    if locked.row.state.is_terminal() {
        return nothing(Accepted::Ended(locked.row.state));
    }
    let row = &locked.row;
    let is_head = row.head_turn == row.next_turn;
    let lease = if is_head { accept.lease } else { None };
    let accepted = AcceptedTurn {
        task,
        turn: row.next_turn,
        generation: row.generation,
        leased: lease.is_some(),
    };
    let mut change = Change::begin(row, locked.now);
    change.messages.push((row.next_seq, message_body(&accept.message)));
    change.row.next_turn += 1;
    change.row.next_seq += 1;
    change.row.lease = lease.map_or(row.lease, |lease| Some(lease.token));
    insert_turn(db, client, &locked, accept, &accepted, is_head).await?;
    rows::apply(db, client, &locked, &change, None, &Extra::default()).await?;
    let turns = is_head && !accepted.leased;
    Ok((Accepted::New(accepted), Wake { tasks: vec![task], turns }))
}

/// Takes the place of the message among those sent; `false` if another one has it.
async fn remember(
    db: &Db,
    client: &Object,
    key: ScopeKey,
    accept: &Accept,
    dedupe: &Dedupe,
    task: TaskId,
) -> Result<bool, Error> {
    let sql = format!("with clock as (select {CLOCK} as now) {REMEMBER}");
    let (now, id, window) = (db.now(), task.uuid(), us(dedupe.window));
    let digest = dedupe.digest.as_slice();
    let params: [Param<'_>; 9] = [
        (&now, Type::INT8),
        (&key.tenant, Type::INT4),
        (&key.owner, Type::INT4),
        (&dedupe.context, Type::TEXT),
        (&dedupe.task, Type::TEXT),
        (&accept.message.message_id, Type::TEXT),
        (&digest, Type::BYTEA),
        (&id, Type::UUID),
        (&window, Type::INT8),
    ];
    Ok(!db.rows(client, &sql, &params).await?.is_empty())
}

async fn insert_turn(
    db: &Db,
    client: &Object,
    locked: &Locked,
    accept: &Accept,
    accepted: &AcceptedTurn,
    is_head: bool,
) -> Result<(), Error> {
    let lease = accept.lease.filter(|_| accepted.leased);
    let state = match (is_head, lease) {
        (false, _) => turn_state::BLOCKED,
        (true, None) => turn_state::QUEUED,
        (true, Some(_)) => turn_state::LEASED,
    };
    let id = locked.task.uuid();
    let request = codec::request_body(&accept.request);
    let token = lease.map(|lease| lease.token.uuid());
    let until = lease.map(|lease| locked.now.saturating_add(us(lease.lease)));
    let message_seq = locked.row.next_seq;
    let params: [Param<'_>; 10] = [
        (&locked.key.tenant, Type::INT4),
        (&id, Type::UUID),
        (&accepted.turn, Type::INT8),
        (&state, Type::INT2),
        (&message_seq, Type::INT8),
        (&request, Type::BYTEA),
        (&accept.request.trace, Type::TEXT),
        (&token, Type::UUID),
        (&until, Type::INT8),
        (&locked.now, Type::INT8),
    ];
    let insert = "insert into turns (tenant, task_id, turn, state, message_seq, request, trace, \
                    last_report, lease, lease_until, due_at, errors, interruptions) \
                  values ($1, $2, $3, $4, $5, $6, $7, 0, $8, $9, $10, 0, 0)";
    let placed = "update sent_messages set turn = $6, generation = $7 \
                  where $8 and tenant = $1 and owner = $2 and context_id = $3 and sent_task = $4 \
                    and message_id = $5";
    let dedupe = accept.dedupe.as_ref();
    let context = dedupe.map(|dedupe| dedupe.context.as_str());
    let sent_task = dedupe.map(|dedupe| dedupe.task.as_str());
    let is_deduped = dedupe.is_some();
    let place: [Param<'_>; 8] = [
        (&locked.key.tenant, Type::INT4),
        (&locked.key.owner, Type::INT4),
        (&context, Type::TEXT),
        (&sent_task, Type::TEXT),
        (&accept.message.message_id, Type::TEXT),
        (&accepted.turn, Type::INT8),
        (&accepted.generation, Type::INT8),
        (&is_deduped, Type::BOOL),
    ];
    try_join(db.rows(client, insert, &params), db.rows(client, placed, &place)).await?;
    Ok(())
}

const _: () = assert!(TaskState::Submitted as i32 == 1, "the statement writes it as a number");
