//! What a turn's runner reports.
//!
//! The rules stand in `change`, which here decides on a row that counts from zero: the statement
//! adds what the locked row holds. So one statement locks, decides whether the lease holds, and
//! writes everything.

use uuid::Uuid;

use crate::contract::v1::TaskState;
use crate::domain::{Error, LeaseToken, Scope, TaskId};
use crate::store::change::{self, Change, NewChunk, TurnChange, turn_state};
use crate::store::postgres::names::ScopeKey;
use crate::store::postgres::pool::Call;
use crate::store::postgres::{Inner, Wake};
use crate::store::types::{Report, Reported};

/// Locks task and turn, in this order as everywhere. `$8` says that the caller holds the task's
/// lock since before this statement; without, a turn that ends while others wait behind it is
/// left alone, for this statement might not see them yet.
const REPORT: &str = "-- report
with l as (
  select t.owner, t.state, t.status_at, t.status_message, t.status_seq, t.generation, t.next_seq,
    t.shown, t.next_turn, t.cancel_requested_at is not null as cancel_requested, t.updated_at
  from tasks t join turns u on u.tenant = t.tenant and u.task_id = t.id
  where t.tenant = $2 and t.owner = $3 and t.id = $4 and t.lease = $5 and t.head_turn = $6
    and u.turn = $6 and u.lease = $5 and u.last_report < $7
  for update of t, u
), s as materialized (
  select n.*, greatest(n.status_at, n.now - n.now % 1000) as at,
    greatest(n.now, n.updated_at + 1) as moved, coalesce($11, n.state) as state_after,
    n.shown or cardinality($10) > 0 as shown_after
  from (
    select l.*, coalesce($1, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now
    from l where $8 or $23 <> 3 or l.next_turn = $6 + 1
    offset 0
  ) n
), e as (
  insert into task_events (tenant, task_id, generation, turn, state, at, body)
  select $2, $4, s.generation + x.n, $6, x.state, s.at, x.body
  from s, unnest($9, $10) with ordinality x (state, body, n)
), m as (
  insert into messages (tenant, task_id, seq, body)
  select $2, $4, s.status_seq, s.status_message from s
  where $11 is not null and s.status_message is not null
  union all
  select $2, $4, s.next_seq + x.seq, x.body from s, unnest($14, $15) x (seq, body)
), a as (
  insert into artifacts (tenant, task_id, artifact_id, ordinal, since, head)
  select $2, $4, x.id, s.generation + x.ordinal, s.generation + x.since, x.head
  from s, unnest($17, $18, $19, $20) x (id, ordinal, since, head)
  on conflict (tenant, task_id, artifact_id) do update
    set since = excluded.since, head = excluded.head
    where artifacts.artifact_id = any ($21)
), r as (
  delete from artifact_chunks c using s
  where c.tenant = $2 and c.task_id = $4 and c.artifact_id = any ($21)
), p as (
  insert into artifact_chunks (tenant, task_id, artifact_id, seq, parts)
  select $2, $4, x.id, s.generation + x.seq, x.parts
  from s, unnest($25, $26, $27) x (id, seq, parts)
), h as (
  update turns u
  set state = $23, last_report = $7, due_at = coalesce(s.now + $24, u.due_at),
    errors = u.errors + $28
  from s where u.tenant = $2 and u.task_id = $4 and u.turn = $6
), q as (
  update turns u set state = case when $22 then 4 else 1 end, due_at = s.now
  from s
  where $23 = 3 and u.tenant = $2 and u.task_id = $4 and u.turn > $6 and u.state = 0
    and ($22 or u.turn = $6 + 1)
  returning 1
), w as (
  update tasks t
  set state = s.state_after, generation = s.generation + cardinality($10),
    status_at = case when $11 is null then s.status_at else s.at end,
    status_message = case when $11 is null then s.status_message else $12 end,
    status_seq = case when $11 is null then s.status_seq else s.next_seq + $13 end,
    next_seq = s.next_seq + $16, shown = s.shown_after,
    lease = case when $23 = 2 then t.lease end,
    head_turn = case when $22 then s.next_turn when $23 = 3 then $6 + 1 else t.head_turn end,
    interrupted_generation = coalesce(s.generation + $29, t.interrupted_generation),
    interrupted_turn = case when $29 is null then t.interrupted_turn else $6 end,
    terminal_at = case when $22 then s.at end, updated_at = s.moved
  from s where t.tenant = $2 and t.id = $4
), c as (
  insert into task_count_deltas (tenant, owner, state, n)
  select $2, s.owner, s.state, -1 from s where s.shown and s.state <> s.state_after
  union all
  select $2, s.owner, s.state_after, 1 from s
  where s.shown_after and (not s.shown or s.state <> s.state_after)
)
select l.generation + cardinality($10) as generation, l.cancel_requested,
  exists (select from s) as landed, exists (select from q) as next
from l";

const LOCK: &str = "-- report: the lock
select from tasks where tenant = $1 and owner = $2 and id = $3 for update";

const REPEATED: &str = "-- report: whether it landed before
select from tasks t join turns u on u.tenant = t.tenant and u.task_id = t.id
where t.tenant = $1 and t.owner = $2 and t.id = $3 and u.turn = $4 and u.lease = $5
  and u.last_report >= $6";

/// Who reports.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reporter {
    pub(super) key: ScopeKey,
    pub(super) task: TaskId,
    pub(super) lease: LeaseToken,
    pub(super) turn: i64,
    pub(super) sequence: i64,
}

/// A row that holds nothing yet, for [`change`] to count from: `next_seq` and `generation` are 0,
/// and so is the time.
fn zero(turn: i64) -> change::Row {
    change::Row {
        state: TaskState::Submitted,
        status_at: 0,
        status_seq: None,
        generation: 0,
        next_seq: 0,
        shown: true,
        replied: false,
        lease: None,
        head_turn: turn,
        next_turn: turn + 1,
        interrupted: None,
        cancel_requested_at: None,
        updated_at: 0,
        terminal_at: None,
    }
}

/// The pieces of artifacts, so that each artifact is written once.
#[derive(Default)]
struct Pieces {
    ids: Vec<String>,
    ordinals: Vec<i64>,
    since: Vec<i64>,
    heads: Vec<Vec<u8>>,
    replaced: Vec<String>,
    chunk_ids: Vec<String>,
    chunk_seqs: Vec<i64>,
    chunk_parts: Vec<Vec<u8>>,
}

impl Pieces {
    fn of(chunks: Vec<NewChunk>) -> Self {
        let mut pieces = Self::default();
        for (at, chunk) in chunks.iter().enumerate() {
            let replaced_later = chunks
                .iter()
                .skip(at + 1)
                .any(|later| !later.append && later.artifact_id == chunk.artifact_id);
            let known = pieces.ids.iter().position(|id| *id == chunk.artifact_id);
            let known = known.unwrap_or_else(|| {
                pieces.ids.push(chunk.artifact_id.clone());
                pieces.ordinals.push(chunk.generation);
                pieces.since.push(chunk.generation);
                pieces.heads.push(chunk.head.clone());
                pieces.ids.len() - 1
            });
            if !chunk.append {
                if let (Some(since), Some(head)) =
                    (pieces.since.get_mut(known), pieces.heads.get_mut(known))
                {
                    *since = chunk.generation;
                    head.clone_from(&chunk.head);
                }
                pieces.replaced.push(chunk.artifact_id.clone());
            }
            if !replaced_later {
                pieces.chunk_ids.push(chunk.artifact_id.clone());
                pieces.chunk_seqs.push(chunk.generation);
                pieces.chunk_parts.push(chunk.parts.clone());
            }
        }
        pieces
    }
}

fn statement(
    from: &Reporter,
    change: Change,
    turn: TurnChange,
    now: Option<i64>,
    locked: bool,
) -> Call {
    let (state, rest, errors) = match turn {
        TurnChange::Goes => (turn_state::LEASED, None, 0),
        TurnChange::Done => (turn_state::DONE, None, 0),
        TurnChange::Failed { due_at } => (turn_state::QUEUED, Some(due_at), 1),
        TurnChange::HandedBack => (turn_state::QUEUED, Some(0), 0),
    };
    let number = |state: TaskState| i16::try_from(state as i32).unwrap_or_default();
    let (event_states, event_bodies): (Vec<_>, Vec<_>) =
        change.events.into_iter().map(|event| (event.state.map(number), event.body)).unzip();
    let (message_seqs, message_bodies): (Vec<_>, Vec<_>) = change.messages.into_iter().unzip();
    let pieces = Pieces::of(change.chunks);
    let row = &change.row;
    Call::new(REPORT)
        .with(now)
        .with(from.key.tenant)
        .with(from.key.owner)
        .with(from.task.uuid())
        .with(from.lease.uuid())
        .with(from.turn)
        .with(from.sequence)
        .with(locked)
        .with(event_states)
        .with(event_bodies)
        .with(change.new_status.then(|| number(row.state)))
        .with(change.status_message)
        .with(row.status_seq)
        .with(message_seqs)
        .with(message_bodies)
        .with(row.next_seq)
        .with(pieces.ids)
        .with(pieces.ordinals)
        .with(pieces.since)
        .with(pieces.heads)
        .with(pieces.replaced)
        .with(row.state.is_terminal())
        .with(state)
        .with(rest)
        .with(pieces.chunk_ids)
        .with(pieces.chunk_seqs)
        .with(pieces.chunk_parts)
        .with(errors)
        .with(row.interrupted.map(|(generation, _)| generation))
}

pub(super) async fn report(
    inner: &Inner,
    scope: &Scope,
    task: TaskId,
    report: &Report,
) -> Result<Reported, Error> {
    let Some(key) = inner.names.find(&inner.db, scope).await? else { return Ok(Reported::Stale) };
    let (lease, turn, sequence) = (report.lease, report.turn, report.sequence);
    let from = Reporter { key, task, lease, turn, sequence };
    let (change, turn) = change::report(&zero(report.turn), report, 0)?;
    land(inner, &from, change, turn).await
}

/// A status that completes the task, as a report of its own.
pub(super) async fn complete(
    inner: &Inner,
    from: &Reporter,
    message: &crate::contract::v1::Message,
) -> Result<Reported, Error> {
    match change::reply(&zero(from.turn), from.turn, message, 0) {
        change::ReplyChange::Completed(change) => land(inner, from, change, TurnChange::Done).await,
        change::ReplyChange::Direct(..) => {
            Err(Error::internal("a shown task was taken for a hidden one"))
        }
    }
}

async fn land(
    inner: &Inner,
    from: &Reporter,
    change: Change,
    turn: TurnChange,
) -> Result<Reported, Error> {
    let now = inner.now();
    let due_now = match turn {
        TurnChange::HandedBack => true,
        TurnChange::Failed { due_at } => due_at == 0,
        TurnChange::Goes | TurnChange::Done => false,
    };
    let call = statement(from, change.clone(), turn, now, false);
    let mut rows = inner.db.run(&call).await?;
    if rows.first().is_some_and(|row| !row.get::<_, bool>("landed")) {
        let lock =
            Call::new(LOCK).with(from.key.tenant).with(from.key.owner).with(from.task.uuid());
        let call = statement(from, change, turn, now, true);
        rows = inner.db.run_locked(&lock, &call).await?;
    }
    let Some(row) = rows.first() else { return repeated(inner, from).await };
    let turns = due_now || row.get("next");
    inner.wake(from.task, Wake { turns });
    Ok(Reported::Landed {
        generation: row.get("generation"),
        cancel_requested: row.get("cancel_requested"),
    })
}

/// A report that did not land: it did before, or the lease is gone.
pub(super) async fn repeated(inner: &Inner, from: &Reporter) -> Result<Reported, Error> {
    let call = Call::new(REPEATED)
        .with(from.key.tenant)
        .with(from.key.owner)
        .with(from.task.uuid())
        .with(from.turn)
        .with(from.lease.uuid())
        .with(from.sequence);
    let rows = inner.db.run(&call).await?;
    Ok(if rows.is_empty() { Reported::Stale } else { Reported::Repeated })
}

/// The parameters that name a reporter, for statements that begin with them.
pub(super) fn named(sql: &'static str, from: &Reporter, now: Option<i64>) -> Call {
    let id: Uuid = from.task.uuid();
    Call::new(sql)
        .with(now)
        .with(from.key.tenant)
        .with(from.key.owner)
        .with(id)
        .with(from.lease.uuid())
        .with(from.turn)
        .with(from.sequence)
}
