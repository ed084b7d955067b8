//! A task's row: locking it for a decision, and writing what was decided.

use deadpool_postgres::Object;
use futures_util::future::{try_join_all, try_join3};
use tokio_postgres::Row as SqlRow;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::domain::{Error, LeaseToken, TaskId};
use crate::store::change::{Change, NewChunk, Row, TurnChange, turn_state};
use crate::store::codec;
use crate::store::postgres::db::{CLOCK, Db, Param, ScopeKey};

const LOCK: &str = "select state, status_at, status_seq, generation, next_seq, shown, \
     reply is not null, lease, head_turn, next_turn, interrupted_generation, interrupted_turn, \
     cancel_requested_at, updated_at, terminal_at, context_id, owner \
     from tasks where tenant = $1 and id = $2 for update";

/// A task's row, locked until the transaction ends.
pub(super) struct Locked {
    pub(super) row: Row,
    pub(super) context: String,
    pub(super) key: ScopeKey,
    pub(super) task: TaskId,
    /// The time, read after the lock was there.
    pub(super) now: i64,
    /// The last report of the turn that was asked for, if it has that lease or had it last.
    pub(super) last_report: Option<i64>,
}

/// The turn that a report speaks of.
#[derive(Debug, Clone, Copy)]
pub(super) struct TurnKey {
    pub(super) turn: i64,
    pub(super) lease: LeaseToken,
}

/// Begins a transaction (with `begin`, or with nothing where one has begun), locks a task, and
/// reads clock and turn behind the lock: three statements in one round trip.
pub(super) async fn lock(
    db: &Db,
    client: &Object,
    begin: &str,
    tenant: i32,
    task: TaskId,
    turn: Option<TurnKey>,
) -> Result<Option<Locked>, Error> {
    let (id, now) = (task.uuid(), db.now());
    let number = turn.map(|turn| turn.turn);
    let lease = turn.map(|turn| turn.lease.uuid());
    let lock: [Param<'_>; 2] = [(&tenant, Type::INT4), (&id, Type::UUID)];
    let clock: [Param<'_>; 5] = [
        (&now, Type::INT8),
        (&tenant, Type::INT4),
        (&id, Type::UUID),
        (&number, Type::INT8),
        (&lease, Type::UUID),
    ];
    let clock_sql = format!(
        "select {CLOCK}, (select last_report from turns \
         where tenant = $2 and task_id = $3 and turn = $4 and lease = $5)"
    );
    db.prime(client, LOCK, &lock).await?;
    db.prime(client, &clock_sql, &clock).await?;
    let ((), rows, facts) = try_join3(
        db.batch(client, begin),
        db.rows(client, LOCK, &lock),
        db.rows(client, &clock_sql, &clock),
    )
    .await?;
    let facts = facts.first().ok_or_else(|| Error::internal("no clock"))?;
    rows.first().map(|row| locked(row, facts, tenant, task)).transpose()
}

fn locked(sql: &SqlRow, facts: &SqlRow, tenant: i32, task: TaskId) -> Result<Locked, Error> {
    let lease: Option<Uuid> = sql.get(7);
    let generation: Option<i64> = sql.get(10);
    let row = Row {
        state: codec::state(i64::from(sql.get::<_, i16>(0)))?,
        status_at: sql.get(1),
        status_seq: sql.get(2),
        generation: sql.get(3),
        next_seq: sql.get(4),
        shown: sql.get(5),
        replied: sql.get(6),
        lease: lease.map(LeaseToken::from),
        head_turn: sql.get(8),
        next_turn: sql.get(9),
        interrupted: generation.zip(sql.get(11)),
        cancel_requested_at: sql.get(12),
        updated_at: sql.get(13),
        terminal_at: sql.get(14),
    };
    Ok(Locked {
        row,
        context: sql.get(15),
        key: ScopeKey { tenant, owner: sql.get(16) },
        task,
        now: facts.get(0),
        last_report: facts.get(1),
    })
}

/// What becomes of the turn that reported.
#[derive(Debug, Clone, Copy)]
pub(super) struct TurnEffect {
    pub(super) turn: i64,
    pub(super) sequence: i64,
    pub(super) change: TurnChange,
}

/// What only some writes do beside their change.
#[derive(Debug, Clone, Default)]
pub(super) struct Extra {
    /// The direct reply.
    pub(super) reply: Option<Vec<u8>>,
    /// The metadata of the first cancel.
    pub(super) cancel_metadata: Option<Vec<u8>>,
}

const APPLY: &str = "
with replaced as (
  insert into messages (tenant, task_id, seq, body)
  select tenant, id, status_seq, status_message from tasks
  where tenant = $1 and id = $2 and $3 and status_seq is not null
), said as (
  insert into messages (tenant, task_id, seq, body)
  select $1, $2, seq, body from unnest($4::bigint[], $5::bytea[]) as m (seq, body)
), happened as (
  insert into task_events (tenant, task_id, generation, turn, state, at, body)
  select $1, $2, generation, turn, state, $10, body
  from unnest($6::bigint[], $7::bigint[], $8::smallint[], $9::bytea[])
    as e (generation, turn, state, body)
), counted as (
  insert into task_count_deltas (tenant, owner, state, n)
  select $1, $11, state, n from unnest($12::smallint[], $13::bigint[]) as c (state, n)
), reported as (
  update turns set state = $15, last_report = $16, due_at = coalesce($17, due_at),
    errors = errors + $18
  where tenant = $1 and task_id = $2 and turn = $14
), dropped as (
  update turns set state = 4
  where $19 and tenant = $1 and task_id = $2 and state < 3 and turn is distinct from $14
), unblocked as (
  update turns set state = 1, due_at = $38
  where tenant = $1 and task_id = $2 and turn = $20 and state = 0
)
update tasks set
  state = $22, status_at = $23,
  status_message = case when $3 then $24 else status_message end, status_seq = $25,
  generation = $26, next_seq = $27, shown = $28, lease = $29, head_turn = $30, next_turn = $31,
  interrupted_generation = $32, interrupted_turn = $33, cancel_requested_at = $34,
  updated_at = $21, terminal_at = $35, reply = coalesce($36, reply),
  cancel_metadata = coalesce($37, cancel_metadata)
where tenant = $1 and id = $2";

const CHUNK: &str = "
with head as (
  insert into artifacts (tenant, task_id, artifact_id, ordinal, since, head)
  values ($1, $2, $3, $4, $4, $5)
  on conflict (tenant, task_id, artifact_id) do update
    set since = case when $7 then artifacts.since else excluded.since end,
        head = case when $7 then artifacts.head else excluded.head end
), replaced as (
  delete from artifact_chunks
  where not $7 and tenant = $1 and task_id = $2 and artifact_id = $3
)
insert into artifact_chunks (tenant, task_id, artifact_id, seq, parts)
values ($1, $2, $3, $4, $6)";

/// Writes a change and commits, in one round trip.
pub(super) async fn apply(
    db: &Db,
    client: &Object,
    locked: &Locked,
    change: &Change,
    turn: Option<TurnEffect>,
    extra: &Extra,
) -> Result<(), Error> {
    let chunks = try_join_all(change.chunks.iter().map(|new| chunk(db, client, locked, new)));
    let (_, (), ()) = try_join3(
        chunks,
        update(db, client, locked, change, turn, extra),
        db.batch(client, "commit"),
    )
    .await?;
    Ok(())
}

async fn chunk(db: &Db, client: &Object, locked: &Locked, new: &NewChunk) -> Result<(), Error> {
    let id = locked.task.uuid();
    let params: [Param<'_>; 7] = [
        (&locked.key.tenant, Type::INT4),
        (&id, Type::UUID),
        (&new.artifact_id, Type::TEXT),
        (&new.generation, Type::INT8),
        (&new.head, Type::BYTEA),
        (&new.parts, Type::BYTEA),
        (&new.append, Type::BOOL),
    ];
    db.rows(client, CHUNK, &params).await.map(drop)
}

/// A turn's new state, its next due time, and whether an error counts.
fn turn_columns(change: TurnChange, now: i64) -> (i16, Option<i64>, i32) {
    match change {
        TurnChange::Goes => (turn_state::LEASED, None, 0),
        TurnChange::Done => (turn_state::DONE, None, 0),
        TurnChange::Failed { due_at } => (turn_state::QUEUED, Some(due_at), 1),
        TurnChange::HandedBack => (turn_state::QUEUED, Some(now), 0),
    }
}

async fn update(
    db: &Db,
    client: &Object,
    locked: &Locked,
    change: &Change,
    turn: Option<TurnEffect>,
    extra: &Extra,
) -> Result<(), Error> {
    let row = &change.row;
    let id = locked.task.uuid();
    let (message_seqs, message_bodies): (Vec<i64>, Vec<&[u8]>) =
        change.messages.iter().map(|(seq, body)| (*seq, body.as_slice())).unzip();
    let generations: Vec<i64> = change.events.iter().map(|event| event.generation).collect();
    let turns: Vec<i64> = change.events.iter().map(|event| event.turn).collect();
    let states: Vec<Option<i16>> =
        change.events.iter().map(|event| event.state.map(small)).collect();
    let bodies: Vec<&[u8]> = change.events.iter().map(|event| event.body.as_slice()).collect();
    let (count_states, counts): (Vec<i16>, Vec<i64>) =
        change.counts.iter().map(|(state, n)| (small(*state), *n)).unzip();
    let number = turn.map(|turn| turn.turn);
    let sequence = turn.map(|turn| turn.sequence);
    let columns = turn.map(|turn| turn_columns(turn.change, locked.now));
    let turn_state = columns.map(|(state, _, _)| state);
    let due_at = columns.and_then(|(_, due_at, _)| due_at);
    let errors = columns.map_or(0, |(_, _, errors)| errors);
    let state = small(row.state);
    let lease = row.lease.map(|lease| lease.uuid());
    let interrupted_generation = row.interrupted.map(|(generation, _)| generation);
    let interrupted_turn = row.interrupted.map(|(_, turn)| turn);
    let params: [Param<'_>; 38] = [
        (&locked.key.tenant, Type::INT4),
        (&id, Type::UUID),
        (&change.new_status, Type::BOOL),
        (&message_seqs, Type::INT8_ARRAY),
        (&message_bodies, Type::BYTEA_ARRAY),
        (&generations, Type::INT8_ARRAY),
        (&turns, Type::INT8_ARRAY),
        (&states, Type::INT2_ARRAY),
        (&bodies, Type::BYTEA_ARRAY),
        (&change.at, Type::INT8),
        (&locked.key.owner, Type::INT4),
        (&count_states, Type::INT2_ARRAY),
        (&counts, Type::INT8_ARRAY),
        (&number, Type::INT8),
        (&turn_state, Type::INT2),
        (&sequence, Type::INT8),
        (&due_at, Type::INT8),
        (&errors, Type::INT4),
        (&change.drops_turns, Type::BOOL),
        (&change.unblocks, Type::INT8),
        (&row.updated_at, Type::INT8),
        (&state, Type::INT2),
        (&row.status_at, Type::INT8),
        (&change.status_message, Type::BYTEA),
        (&row.status_seq, Type::INT8),
        (&row.generation, Type::INT8),
        (&row.next_seq, Type::INT8),
        (&row.shown, Type::BOOL),
        (&lease, Type::UUID),
        (&row.head_turn, Type::INT8),
        (&row.next_turn, Type::INT8),
        (&interrupted_generation, Type::INT8),
        (&interrupted_turn, Type::INT8),
        (&row.cancel_requested_at, Type::INT8),
        (&row.terminal_at, Type::INT8),
        (&extra.reply, Type::BYTEA),
        (&extra.cancel_metadata, Type::BYTEA),
        (&change.now, Type::INT8),
    ];
    db.rows(client, APPLY, &params).await.map(drop)
}

/// A state as its column has it.
pub(super) fn small(state: crate::contract::v1::TaskState) -> i16 {
    i16::try_from(state as i32).unwrap_or(i16::MAX)
}
