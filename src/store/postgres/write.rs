//! Writes about one task that exists: reports, replies, showing, canceling.

use std::time::Duration;

use deadpool_postgres::Object;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::domain::{Error, Scope, TaskId};
use crate::store::change::{self, Change, ReplyChange, TurnChange};
use crate::store::postgres::Wake;
use crate::store::postgres::db::{CLOCK, Db, us};
use crate::store::postgres::rows::{self, Extra, Locked, TurnEffect, TurnKey};
use crate::store::types::{CancelRequested, Replied, Reply, Report, Reported, Shown};

/// What a write decided on a locked row.
enum Decision<T> {
    /// Nothing is written.
    Leave(T),
    /// All of this is written.
    Write(T, Box<Plan>),
}

struct Plan {
    change: Change,
    turn: Option<TurnEffect>,
    extra: Extra,
    /// Whether a turn is due again.
    queued: bool,
}

impl Plan {
    fn new(change: Change) -> Box<Self> {
        Box::new(Self { change, turn: None, extra: Extra::default(), queued: false })
    }
}

/// Locks a task, lets `decide` see it, and writes what it says. `absent` is the outcome for a
/// task that this scope does not have.
async fn decide<T>(
    db: &Db,
    scope: &Scope,
    task: TaskId,
    turn: Option<TurnKey>,
    absent: T,
    decide: impl FnOnce(&Locked) -> Result<Decision<T>, Error>,
) -> Result<(T, Wake), Error> {
    let client = db.client().await?;
    let Some(key) = db.find(&client, scope).await? else { return Ok((absent, Wake::default())) };
    let of_owner = |locked: &Locked| locked.key.owner == key.owner;
    within(db, client, key.tenant, task, turn, absent, of_owner, decide).await
}

async fn within<T>(
    db: &Db,
    client: Object,
    tenant: i32,
    task: TaskId,
    turn: Option<TurnKey>,
    absent: T,
    mine: impl FnOnce(&Locked) -> bool,
    decide: impl FnOnce(&Locked) -> Result<Decision<T>, Error>,
) -> Result<(T, Wake), Error> {
    let decided = match rows::lock(db, &client, "begin", tenant, task, turn).await {
        Ok(Some(locked)) if mine(&locked) => decide(&locked).map(|decision| (locked, decision)),
        Ok(_) => {
            db.rollback(client).await;
            return Ok((absent, Wake::default()));
        }
        Err(error) => Err(error),
    };
    let (locked, decision) = match decided {
        Ok(decided) => decided,
        Err(error) => {
            db.rollback(client).await;
            return Err(error);
        }
    };
    match decision {
        Decision::Leave(outcome) => {
            db.rollback(client).await;
            Ok((outcome, Wake::default()))
        }
        Decision::Write(outcome, plan) => {
            let applied =
                rows::apply(db, &client, &locked, &plan.change, plan.turn, &plan.extra).await;
            if let Err(error) = applied {
                db.rollback(client).await;
                return Err(error);
            }
            let turns = plan.queued || plan.change.unblocks.is_some();
            Ok((outcome, Wake { tasks: vec![task], turns }))
        }
    }
}

/// What the lease of a report says.
enum Held {
    Yes,
    Repeated,
    Stale,
}

fn held(locked: &Locked, turn: TurnKey, sequence: i64) -> Held {
    match locked.last_report {
        None => Held::Stale,
        Some(last) if last >= sequence => Held::Repeated,
        Some(_) if locked.row.lease == Some(turn.lease) => Held::Yes,
        Some(_) => Held::Stale,
    }
}

pub(super) async fn report(
    db: &Db,
    scope: &Scope,
    task: TaskId,
    report: &Report,
) -> Result<(Reported, Wake), Error> {
    let turn = TurnKey { turn: report.turn, lease: report.lease };
    decide(db, scope, task, Some(turn), Reported::Stale, |locked| {
        match held(locked, turn, report.sequence) {
            Held::Stale => return Ok(Decision::Leave(Reported::Stale)),
            Held::Repeated => return Ok(Decision::Leave(Reported::Repeated)),
            Held::Yes => {}
        }
        let (change, turn_change) = change::report(&locked.row, report, locked.now)?;
        let outcome = Reported::Landed {
            generation: change.row.generation,
            cancel_requested: change.row.cancel_requested_at.is_some(),
        };
        let mut plan = Plan::new(change);
        plan.turn =
            Some(TurnEffect { turn: report.turn, sequence: report.sequence, change: turn_change });
        plan.queued = matches!(turn_change, TurnChange::Failed { .. } | TurnChange::HandedBack);
        Ok(Decision::Write(outcome, plan))
    })
    .await
}

pub(super) async fn reply(
    db: &Db,
    scope: &Scope,
    task: TaskId,
    reply: &Reply,
) -> Result<(Replied, Wake), Error> {
    let turn = TurnKey { turn: reply.turn, lease: reply.lease };
    decide(db, scope, task, Some(turn), Replied::Stale, |locked| {
        match held(locked, turn, reply.sequence) {
            Held::Stale => return Ok(Decision::Leave(Replied::Stale)),
            Held::Repeated => return Ok(Decision::Leave(Replied::Repeated)),
            Held::Yes => {}
        }
        let (outcome, mut plan) =
            match change::reply(&locked.row, reply.turn, &reply.message, locked.now) {
                ReplyChange::Completed(change) => (Replied::Completed, Plan::new(change)),
                ReplyChange::Direct(change, body) => {
                    let mut plan = Plan::new(change);
                    plan.extra.reply = Some(body);
                    (Replied::Direct, plan)
                }
            };
        plan.turn = Some(TurnEffect {
            turn: reply.turn,
            sequence: reply.sequence,
            change: TurnChange::Done,
        });
        Ok(Decision::Write(outcome, plan))
    })
    .await
}

pub(super) async fn show(db: &Db, scope: &Scope, task: TaskId) -> Result<(Shown, Wake), Error> {
    decide(db, scope, task, None, Shown::NotFound, |locked| {
        if locked.row.replied {
            return Ok(Decision::Leave(Shown::Replied));
        }
        Ok(match change::show(&locked.row, locked.now) {
            Some(change) => Decision::Write(Shown::Yes, Plan::new(change)),
            None => Decision::Leave(Shown::Yes),
        })
    })
    .await
}

pub(super) async fn request_cancel(
    db: &Db,
    scope: &Scope,
    task: TaskId,
    metadata: Option<Vec<u8>>,
) -> Result<(CancelRequested, Wake), Error> {
    decide(db, scope, task, None, CancelRequested::NotFound, |locked| {
        let row = &locked.row;
        if !row.shown {
            return Ok(Decision::Leave(CancelRequested::NotFound));
        }
        if row.state.is_terminal() {
            return Ok(Decision::Leave(CancelRequested::Ended(row.state)));
        }
        if row.lease.is_none() {
            let cancel = Plan::new(change::cancel(row, locked.now));
            return Ok(Decision::Write(CancelRequested::Canceled, cancel));
        }
        if row.cancel_requested_at.is_some() {
            return Ok(Decision::Leave(CancelRequested::Requested));
        }
        let mut change = Change::begin(row, locked.now);
        change.row.cancel_requested_at = Some(locked.now);
        let mut plan = Plan::new(change);
        plan.extra.cancel_metadata = metadata;
        Ok(Decision::Write(CancelRequested::Requested, plan))
    })
    .await
}

fn finish(locked: &Locked) -> Decision<bool> {
    if locked.row.state.is_terminal() || locked.row.cancel_requested_at.is_none() {
        return Decision::Leave(false);
    }
    Decision::Write(true, Plan::new(change::cancel(&locked.row, locked.now)))
}

pub(super) async fn finish_cancel(
    db: &Db,
    scope: &Scope,
    task: TaskId,
) -> Result<(bool, Wake), Error> {
    decide(db, scope, task, None, false, |locked| Ok(finish(locked))).await
}

/// One transaction for each task, so that none waits for another.
pub(super) async fn finish_cancels(
    db: &Db,
    grace: Duration,
    limit: u32,
) -> Result<(u32, Wake), Error> {
    let client = db.client().await?;
    let (now, grace, limit) = (db.now(), us(grace), i64::from(limit));
    let sql = format!(
        "select tenant, id from tasks \
         where cancel_requested_at is not null and terminal_at is null \
           and cancel_requested_at <= {CLOCK} - $2 \
         order by cancel_requested_at limit $3"
    );
    let params: [_; 3] =
        [(&now as _, Type::INT8), (&grace as _, Type::INT8), (&limit as _, Type::INT8)];
    let wanted = db.rows(&client, &sql, &params).await?;
    drop(client);
    let mut all = Wake::default();
    for row in wanted {
        let task = TaskId::from(row.get::<_, Uuid>(1));
        let client = db.client().await?;
        let any = |_: &Locked| true;
        let (_, wake) =
            within(db, client, row.get(0), task, None, false, any, |l| Ok(finish(l))).await?;
        all.tasks.extend(wake.tasks);
    }
    Ok((u32::try_from(all.tasks.len()).unwrap_or(u32::MAX), all))
}
