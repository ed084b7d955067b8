//! Hints between processes, by LISTEN and NOTIFY.
//!
//! A NOTIFY takes a lock that puts all commits into one row, so no write sends one. What was
//! written is collected here, and one connection sends it about every millisecond, in payloads of
//! many ids. Another connection hears the other processes. Hints only: after every gap, whoever
//! waits is woken and reads the tables.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use futures_util::future::join3;
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Client, Error};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::domain::TaskId;
use crate::domain::error::chain;
use crate::store::hints::Hints;
use crate::store::postgres::settings::{Driver, Way};

/// The channel's name.
const CHANNEL: &str = "a2ad_hints";
/// How many ids fit into one payload: 7,999 bytes, less the head.
const IDS_MAX: usize = 350;
/// How many ids wait to be sent; beyond, everybody is told to look.
const PENDING_MAX: usize = 20_000;
/// The rest between two batches.
const TICK: Duration = Duration::from_millis(1);
/// The rest after a connection was lost: from, to.
const REST: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// How often the listening connection is asked whether it lives, and how long it has to answer.
const PING: (Duration, Duration) = (Duration::from_secs(20), Duration::from_secs(5));

/// What this process has to tell the others.
#[derive(Debug)]
pub(super) struct Notices {
    /// Tells our own notices from those of others.
    sender: Uuid,
    pending: Mutex<Pending>,
    there: Notify,
}

#[derive(Debug, Default)]
struct Pending {
    tasks: HashSet<TaskId>,
    turns: bool,
    all: bool,
}

impl Default for Notices {
    fn default() -> Self {
        let pending = Mutex::default();
        Self { sender: Uuid::new_v4(), pending, there: Notify::new() }
    }
}

impl Notices {
    /// Queues what changed; the same task twice is one notice.
    pub(super) fn push(&self, task: Option<TaskId>, turns: bool) {
        {
            let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
            pending.turns |= turns;
            if pending.tasks.len() >= PENDING_MAX {
                pending.all = true;
                pending.tasks.clear();
            }
            if let Some(task) = task.filter(|_| !pending.all) {
                pending.tasks.insert(task);
            }
        }
        self.there.notify_one();
    }

    /// Takes all that waits, as payloads: sender, what it is about, ids.
    fn take(&self) -> Vec<String> {
        let Pending { tasks, turns, all } =
            std::mem::take(&mut *self.pending.lock().unwrap_or_else(PoisonError::into_inner));
        let head = |about: char| format!("{}{about}", self.sender.simple());
        if all {
            return vec![head('a')];
        }
        let ids: Vec<TaskId> = tasks.into_iter().collect();
        let mut payloads: Vec<String> = ids
            .chunks(IDS_MAX)
            .enumerate()
            .map(|(n, ids)| {
                let bytes: Vec<u8> = ids.iter().flat_map(|id| id.uuid().into_bytes()).collect();
                let about = if turns && n == 0 { 't' } else { '-' };
                head(about) + &STANDARD_NO_PAD.encode(bytes)
            })
            .collect();
        if payloads.is_empty() && turns {
            payloads.push(head('t'));
        }
        payloads
    }

    /// Wakes who waits in this process for what another one says.
    fn hear(&self, hints: &Hints, payload: &str) {
        let Some((sender, rest)) = payload.split_at_checked(32) else { return };
        if Uuid::try_parse(sender) == Ok(self.sender) {
            return;
        }
        let Some((about, ids)) = rest.split_at_checked(1) else { return };
        match about {
            "a" => return hints.wake_all(),
            "t" => hints.wake_turns(),
            _ => {}
        }
        for id in STANDARD_NO_PAD.decode(ids).unwrap_or_default().chunks_exact(16) {
            if let Ok(id) = Uuid::from_slice(id) {
                hints.wake_task(TaskId::from(id));
            }
        }
    }
}

/// Sends until `stop`, and then what is left.
pub(super) async fn send(way: Way, notices: Arc<Notices>, stop: CancellationToken) {
    let mut rest = REST.0;
    let mut left: Vec<String> = Vec::new();
    while !stop.is_cancelled() {
        match way.connect().await {
            Ok((client, driver)) => {
                rest = REST.0;
                tokio::select! {
                    sent = send_on(&client, &notices, &mut left, &stop) => if sent.is_ok() { return },
                    () = drive(driver, |_| {}) => {}
                }
            }
            Err(error) => {
                tracing::warn!(error.chain = chain(&error), "hints cannot be sent for the moment")
            }
        }
        wait(&mut rest, &stop).await;
    }
}

async fn send_on(
    client: &Client,
    notices: &Notices,
    left: &mut Vec<String>,
    stop: &CancellationToken,
) -> Result<(), Error> {
    loop {
        if left.is_empty() {
            *left = notices.take();
        }
        if left.is_empty() {
            if stop.is_cancelled() {
                return Ok(());
            }
            tokio::select! {
                () = notices.there.notified() => {}
                () = stop.cancelled() => {}
            }
            continue;
        }
        // A hint that a crash of the database loses is worth no write to the disk.
        let (begun, sent, ended) = join3(
            client.batch_execute("begin; set local synchronous_commit = off"),
            client.query_typed(
                "select pg_notify($1, payload) from unnest($2) payload",
                &[(&CHANNEL, Type::TEXT), (&*left, Type::TEXT_ARRAY)],
            ),
            client.batch_execute("commit"),
        )
        .await;
        begun?;
        sent?;
        ended?;
        left.clear();
        tokio::time::sleep(TICK).await;
    }
}

/// Hears until `stop`.
pub(super) async fn hear(
    way: Way,
    notices: Arc<Notices>,
    hints: Arc<Hints>,
    stop: CancellationToken,
) {
    let mut rest = REST.0;
    while !stop.is_cancelled() {
        match way.connect().await {
            Ok((client, driver)) => {
                rest = REST.0;
                tokio::select! {
                    error = listen_on(&client, &hints) => {
                        tracing::warn!(error.chain = chain(&*error), "the connection that hears hints is lost");
                    }
                    () = drive(driver, |payload| notices.hear(&hints, payload)) => {}
                    () = stop.cancelled() => return,
                }
            }
            Err(error) => {
                tracing::warn!(error.chain = chain(&error), "hints cannot be heard for the moment")
            }
        }
        wait(&mut rest, &stop).await;
    }
}

/// Listens, and says so again now and then: a silent connection looks the same as one that was
/// cut.
async fn listen_on(client: &Client, hints: &Hints) -> Box<dyn std::error::Error + Send + Sync> {
    let listen = format!("listen {CHANNEL}");
    let mut is_new = true;
    loop {
        match timeout(PING.1, client.batch_execute(&listen)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return error.into(),
            Err(elapsed) => return elapsed.into(),
        }
        if std::mem::take(&mut is_new) {
            // What happened before is known to nobody here.
            hints.wake_all();
        }
        tokio::time::sleep(PING.0).await;
    }
}

/// Polls a connection to its end.
async fn drive(mut driver: Driver, mut heard: impl FnMut(&str)) {
    while let Some(Ok(message)) = std::future::poll_fn(|cx| driver.poll_message(cx)).await {
        if let AsyncMessage::Notification(notification) = message {
            heard(notification.payload());
        }
    }
}

async fn wait(rest: &mut Duration, stop: &CancellationToken) {
    tokio::select! {
        () = tokio::time::sleep(*rest) => {}
        () = stop.cancelled() => {}
    }
    *rest = (*rest * 2).min(REST.1);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_woken(armed: tokio::sync::futures::OwnedNotified) -> bool {
        use futures_util::FutureExt as _;
        armed.now_or_never().is_some()
    }

    #[test]
    fn a_payload_wakes_the_tasks_it_names_in_other_processes_alone() {
        let (ours, theirs) = (Notices::default(), Notices::default());
        let hints = Hints::default();
        let (named, other) = (TaskId::generate(), TaskId::generate());
        let (named_hint, other_hint) = (hints.watch_task(named), hints.watch_task(other));
        let (a, b, c) = (named_hint.armed(), other_hint.armed(), named_hint.armed());
        ours.push(Some(named), true);
        ours.push(Some(named), false);
        let payloads = ours.take();
        assert_eq!(payloads.len(), 1);
        ours.hear(&hints, payloads.first().unwrap());
        assert!(!is_woken(a), "our own notices are no news");
        theirs.hear(&hints, payloads.first().unwrap());
        assert!(is_woken(c));
        assert!(!is_woken(b));
        assert!(is_woken(hints.turn_due()));
        assert!(ours.take().is_empty());
    }

    #[test]
    fn payloads_fit_and_too_many_become_one() {
        let notices = Notices::default();
        for _ in 0..1000 {
            notices.push(Some(TaskId::generate()), false);
        }
        let payloads = notices.take();
        assert_eq!(payloads.len(), 3);
        assert!(payloads.iter().all(|payload| payload.len() <= 7999));
        for _ in 0..=PENDING_MAX {
            notices.push(Some(TaskId::generate()), false);
        }
        assert_eq!(notices.take().len(), 1);
    }
}
