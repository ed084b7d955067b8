//! Hints between servers by LISTEN and NOTIFY.
//!
//! NOTIFY takes a lock that all commits of the database wait for, so no write does it. Keys are
//! put into an outbox after the commit; one connection empties it about every millisecond, many
//! keys at a time, and hears what the other servers say. What is lost with a connection is made
//! up by waking everybody when there is a new one.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::poll_fn;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_postgres::{AsyncMessage, Client};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::domain::TaskId;
use crate::store::hints::Hints;
use crate::store::postgres::connect;

const CHANNEL: &str = "a2ad_hints";
/// Between two sendings.
const REST: Duration = Duration::from_millis(1);
/// Keys of one sending: 32 digits each, in a payload of at most 7,999 bytes.
const KEYS_MAX: usize = 200;
/// Keys that wait at most. Beyond, hints are dropped: the readers' own timers make up for it.
const WAITING_MAX: usize = 100_000;

/// What is to be told to the other servers.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    waiting: Mutex<Waiting>,
    filled: Notify,
    emptied: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    tasks: BTreeSet<TaskId>,
    turns: bool,
}

impl Outbox {
    pub(super) fn put(&self, tasks: &[TaskId], turns: bool) {
        if tasks.is_empty() && !turns {
            return;
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.tasks.len() < WAITING_MAX {
            waiting.tasks.extend(tasks);
        }
        waiting.turns |= turns;
        drop(waiting);
        self.filled.notify_one();
    }

    /// Waits until everything is sent, at most `within`.
    pub(super) async fn flushed(&self, within: Duration) {
        let empty = async {
            loop {
                let emptied = self.emptied.notified();
                if self.is_empty() {
                    return;
                }
                emptied.await;
            }
        };
        drop(timeout(within, empty).await);
    }

    fn is_empty(&self) -> bool {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.tasks.is_empty() && !waiting.turns
    }

    /// The next payload: who says it, whether turns are due, and which tasks changed.
    fn take(&self, origin: &str) -> Option<String> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.tasks.is_empty() && !waiting.turns {
            return None;
        }
        let mut payload = format!("{origin} {} ", if waiting.turns { 't' } else { '-' });
        waiting.turns = false;
        for _ in 0..KEYS_MAX {
            let Some(task) = waiting.tasks.pop_first() else { break };
            payload.push_str(&task.uuid().simple().to_string());
        }
        Some(payload)
    }
}

/// Wakes whom a payload of another server concerns.
fn hear(hints: &Hints, origin: &str, payload: &str) {
    let mut words = payload.split(' ');
    if words.next() == Some(origin) {
        return;
    }
    if words.next() == Some("t") {
        hints.wake_turns();
    }
    let keys = words.next().unwrap_or_default().as_bytes();
    for key in keys.chunks_exact(32) {
        if let Ok(id) = Uuid::try_parse_ascii(key) {
            hints.wake_task(TaskId::from(id));
        }
    }
}

/// Listens and tells until `stop`, over as many connections as it takes.
pub(super) async fn run(
    url: String,
    hints: Arc<Hints>,
    outbox: Arc<Outbox>,
    stop: CancellationToken,
) {
    let origin = Uuid::new_v4().simple().to_string();
    let mut pause = Duration::from_millis(50);
    loop {
        let ended = tokio::select! {
            () = stop.cancelled() => return,
            ended = one_connection(&url, &origin, &hints, &outbox, &mut pause) => ended,
        };
        tracing::warn!(error.text = %ended, "hints from other servers are interrupted");
        tokio::select! {
            () = stop.cancelled() => return,
            () = sleep(pause) => {}
        }
        pause = (pause * 2).min(Duration::from_secs(5));
    }
}

async fn one_connection(
    url: &str,
    origin: &str,
    hints: &Hints,
    outbox: &Outbox,
    pause: &mut Duration,
) -> String {
    let (client, mut connection) = match connect::dedicated(url).await {
        Ok(connected) => connected,
        Err(error) => return error.to_string(),
    };
    let hearing = poll_fn(|context| {
        loop {
            match connection.poll_message(context) {
                Poll::Ready(Some(Ok(AsyncMessage::Notification(told)))) => {
                    hear(hints, origin, told.payload());
                }
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(error))) => return Poll::Ready(error.to_string()),
                Poll::Ready(None) => return Poll::Ready("the connection ended".to_owned()),
                Poll::Pending => return Poll::Pending,
            }
        }
    });
    tokio::select! {
        why = hearing => why,
        why = telling(&client, origin, hints, outbox, pause) => why,
    }
}

async fn telling(
    client: &Client,
    origin: &str,
    hints: &Hints,
    outbox: &Outbox,
    pause: &mut Duration,
) -> String {
    let begin = format!("set synchronous_commit = off; listen {CHANNEL}");
    if let Err(error) = client.batch_execute(&begin).await {
        return error.to_string();
    }
    *pause = Duration::from_millis(50);
    hints.wake_all();
    let notify = match client.prepare("select pg_notify($1, $2)").await {
        Ok(statement) => statement,
        Err(error) => return error.to_string(),
    };
    loop {
        outbox.filled.notified().await;
        while let Some(payload) = outbox.take(origin) {
            if let Err(error) = client.query(&notify, &[&CHANNEL, &payload]).await {
                return error.to_string();
            }
            outbox.emptied.notify_waiters();
            sleep(REST).await;
        }
    }
}
