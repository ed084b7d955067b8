//! What a turn's runner reports.
//!
//! The rules stand in `change`, which here decides on a row that counts from zero: the statement
//! adds what the locked row holds. So one statement locks, decides whether the lease holds, and
//! writes everything.

use std::sync::LazyLock;

use uuid::Uuid;

use crate::contract::v1::TaskState;
use crate::domain::{Error, LeaseToken, Scope, TaskId};
use crate::store::change::{self, Change, NewChunk, TurnChange, turn_state};
use crate::store::postgres::names::ScopeKey;
use crate::store::postgres::pool::Call;
use crate::store::postgres::{Inner, Wake};
use crate::store::types::{Report, Reported};

/// What a report has, and so which parts its statement needs: planning is most of what a small
/// statement costs, and grows with its parts.
#[derive(Debug, Clone, Copy)]
struct Shape {
    /// Whether the caller holds the task's lock since before the statement.
    locked: bool,
    /// Whether the status is replaced.
    status: bool,
    /// Whether messages of this very batch go into the history.
    messages: bool,
    artifacts: bool,
    /// Whether artifacts are replaced.
    replaces: bool,
}

/// The texts of all shapes, by [`Shape::number`].
static TEXTS: LazyLock<Vec<String>> =
    LazyLock::new(|| (0..32).map(|n| Shape::of(n).sql()).collect());

impl Shape {
    fn number(self) -> usize {
        let bits = [self.locked, self.status, self.messages, self.artifacts, self.replaces];
        bits.iter().rev().fold(0, |n, bit| n * 2 + usize::from(*bit))
    }

    fn of(n: usize) -> Self {
        Self {
            locked: n & 1 != 0,
            status: n & 2 != 0,
            messages: n & 4 != 0,
            artifacts: n & 8 != 0,
            replaces: n & 16 != 0,
        }
    }

    fn sql(self) -> String {
        let mut sql = BEGIN.to_owned();
        // This statement might not see a turn that was accepted while it waited for the lock. It
        // lets a turn that ends before others alone, and lets one under the lock do it.
        sql += if self.locked { "true" } else { "$20 <> 3 or l.next_turn = $6 + 1" };
        sql += DECIDED;
        let parts = [
            (self.status, REPLACED),
            (self.messages, MESSAGES),
            (self.artifacts && !self.replaces, ARTIFACTS),
            (self.artifacts && self.replaces, REPLACING),
            (self.artifacts, CHUNKS),
            (self.locked, OTHERS),
        ];
        for (wanted, part) in parts {
            if wanted {
                sql += part;
            }
        }
        sql += if self.status { WITH_STATUS } else { WITHOUT_STATUS };
        sql += END;
        sql += if self.locked { "exists (select from others)" } else { "false" };
        sql += " as next from l where exists (select from u)";
        sql
    }
}

/// Locks the task, then its turn, in this order as everywhere.
const BEGIN: &str = "-- report
with l as (
  select owner, state, status_at, status_message, status_seq, generation, next_seq, shown,
    next_turn, cancel_requested_at is not null as cancel_requested, updated_at
  from tasks
  where tenant = $2 and owner = $3 and id = $4 and lease = $5 and head_turn = $6
  for update
), u as materialized (
  select from turns
  where tenant = $2 and task_id = $4 and turn = $6 and lease = $5 and last_report < $7
    and exists (select from l)
  for update
), s as materialized (
  select l.*, coalesce($1, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now
  from l where exists (select from u) and (";

/// What follows reads the one row of `s`, or does nothing.
const DECIDED: &str = ")
), events as (
  insert into task_events (tenant, task_id, generation, turn, state, at, body)
  select $2, $4, s.generation + x.n, $6, x.state, greatest(s.status_at, s.now - s.now % 1000),
    x.body
  from s, unnest($8, $9) with ordinality x (state, body, n)
), turn as (
  update turns
  set state = $20, last_report = $7, due_at = coalesce((select now from s) + $21, due_at),
    errors = errors + $22
  where tenant = $2 and task_id = $4 and turn = $6 and exists (select from s)
)";

const REPLACED: &str = ", replaced as (
  insert into messages (tenant, task_id, seq, body)
  select $2, $4, s.status_seq, s.status_message from s where s.status_message is not null
)";

const MESSAGES: &str = ", messages as (
  insert into messages (tenant, task_id, seq, body)
  select $2, $4, s.next_seq + x.seq, x.body from s, unnest($13, $14) x (seq, body)
)";

const ARTIFACTS: &str = ", artifacts as (
  insert into artifacts (tenant, task_id, artifact_id, ordinal, since, head)
  select $2, $4, x.id, s.generation + x.ordinal, s.generation + x.since, x.head
  from s, unnest($16, $17, $18, $19) x (id, ordinal, since, head)
  on conflict (tenant, task_id, artifact_id) do nothing
)";

const REPLACING: &str = ", artifacts as (
  insert into artifacts (tenant, task_id, artifact_id, ordinal, since, head)
  select $2, $4, x.id, s.generation + x.ordinal, s.generation + x.since, x.head
  from s, unnest($16, $17, $18, $19) x (id, ordinal, since, head)
  on conflict (tenant, task_id, artifact_id) do update
    set since = excluded.since, head = excluded.head
    where artifacts.artifact_id = any ($23)
), gone as (
  delete from artifact_chunks
  where tenant = $2 and task_id = $4 and artifact_id = any ($23) and exists (select from s)
)";

const CHUNKS: &str = ", chunks as (
  insert into artifact_chunks (tenant, task_id, artifact_id, seq, parts)
  select $2, $4, x.id, s.generation + x.seq, x.parts
  from s, unnest($24, $25, $26) x (id, seq, parts)
)";

const OTHERS: &str = ", others as (
  update turns set state = case when $27 then 4 else 1 end, due_at = (select now from s)
  where $20 = 3 and tenant = $2 and task_id = $4 and turn > $6 and state = 0
    and ($27 or turn = $6 + 1) and exists (select from s)
  returning 1
)";

const WITH_STATUS: &str = ", counted as (
  insert into task_count_deltas (tenant, owner, state, n)
  select $2, owner, unnest(case when shown then array[state, $10] else array[$10] end),
    unnest(case when shown then array[-1, 1] else array[1] end)
  from s where not shown or state <> $10
), task as (
  update tasks t
  set state = $10, status_at = greatest(s.status_at, s.now - s.now % 1000), status_message = $11,
    status_seq = s.next_seq + $12,
    interrupted_generation = coalesce(s.generation + $28, t.interrupted_generation),
    interrupted_turn = case when $28 is null then t.interrupted_turn else $6 end,
    terminal_at = case when $27 then greatest(s.status_at, s.now - s.now % 1000) end,
    next_seq = s.next_seq + $15, shown = true,";

const WITHOUT_STATUS: &str = ", counted as (
  insert into task_count_deltas (tenant, owner, state, n)
  select $2, owner, state, 1 from s where not shown and cardinality($9) > 0
), task as (
  update tasks t
  set shown = s.shown or cardinality($9) > 0,";

const END: &str = "
    generation = s.generation + cardinality($9), lease = case when $20 = 2 then t.lease end,
    head_turn = case when $27 then s.next_turn when $20 = 3 then $6 + 1 else t.head_turn end,
    updated_at = greatest(s.now, s.updated_at + 1)
  from s where t.tenant = $2 and t.id = $4
)
select l.generation + cardinality($9) as generation, l.cancel_requested,
  exists (select from s) as landed, ";

const LOCK: &str = "-- report: the lock
select from tasks where tenant = $1 and owner = $2 and id = $3 for update";

const WHY: &str = "-- report: why it did not land
select u.last_report >= $6 as repeated, t.lease = $5 and t.head_turn = $4 as held
from tasks t join turns u on u.tenant = t.tenant and u.task_id = t.id
where t.tenant = $1 and t.owner = $2 and t.id = $3 and u.turn = $4 and u.lease = $5";

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
    let shape = Shape {
        locked,
        status: change.new_status,
        messages: !message_seqs.is_empty(),
        artifacts: !pieces.chunk_ids.is_empty(),
        replaces: !pieces.replaced.is_empty(),
    };
    named(TEXTS.get(shape.number()).map_or("", String::as_str), from, now)
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
        .with(state)
        .with(rest)
        .with(errors)
        .with(pieces.replaced)
        .with(pieces.chunk_ids)
        .with(pieces.chunk_seqs)
        .with(pieces.chunk_parts)
        .with(row.state.is_terminal())
        .with(row.interrupted.map(|(generation, _)| generation))
}

pub(super) async fn report(
    inner: &Inner,
    scope: &Scope,
    task: TaskId,
    report: &Report,
) -> Result<Reported, Error> {
    let Some(key) = inner.names.find(&inner.db, scope).await? else { return Ok(Reported::Stale) };
    let from = reporter(key, task, report);
    match change::report(&zero(report.turn), report, 0) {
        Ok((change, turn)) => land(inner, &from, change, turn).await,
        Err(fault) => match why(inner, &from).await? {
            Some(outcome) => Ok(outcome),
            None => Err(fault),
        },
    }
}

fn reporter(key: ScopeKey, task: TaskId, report: &Report) -> Reporter {
    let (lease, turn, sequence) = (report.lease, report.turn, report.sequence);
    Reporter { key, task, lease, turn, sequence }
}

/// The statement that a report is sent as first.
pub(super) fn first(key: ScopeKey, task: TaskId, report: &Report) -> Result<Call, Error> {
    let (change, turn) = change::report(&zero(report.turn), report, 0)?;
    Ok(statement(&reporter(key, task, report), change, turn, None, false))
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
    let Some(row) = rows.first() else { return refused(inner, from).await };
    let turns = due_now || row.get("next");
    inner.wake(from.task, Wake { turns });
    Ok(Reported::Landed {
        generation: row.get("generation"),
        cancel_requested: row.get("cancel_requested"),
    })
}

/// What a report is that did not land: it did before, or the lease is gone.
pub(super) async fn refused(inner: &Inner, from: &Reporter) -> Result<Reported, Error> {
    Ok(why(inner, from).await?.unwrap_or(Reported::Stale))
}

/// Why a report cannot land; `None` if the lease is held and this report is new.
async fn why(inner: &Inner, from: &Reporter) -> Result<Option<Reported>, Error> {
    let call = Call::new(WHY)
        .with(from.key.tenant)
        .with(from.key.owner)
        .with(from.task.uuid())
        .with(from.turn)
        .with(from.lease.uuid())
        .with(from.sequence);
    let rows = inner.db.run(&call).await?;
    Ok(match rows.first() {
        Some(row) if row.get("repeated") => Some(Reported::Repeated),
        // Without a lease on the task's row, the comparison says neither.
        Some(row) if row.get::<_, Option<bool>>("held") == Some(true) => None,
        Some(_) | None => Some(Reported::Stale),
    })
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
