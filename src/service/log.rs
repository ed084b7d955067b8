//! Reading the log of one task for all of its streams in this process.
//!
//! A stream that is at the end of the log asks for what came after. Those that ask at one time
//! share one read, and what it brought is kept for those that come a little later, within bounds.
//! A stream that is further behind reads for itself; so a slow client costs no memory.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use prost::Message as _;
use tokio::sync::futures::OwnedNotified;
use tokio::time::Instant;

use crate::domain::{Error, Scope, TaskId};
use crate::store::hints::TaskHint;
use crate::store::{Event, Store, TaskRecord, View};

/// The most events of one read.
const READ_EVENTS: u32 = 64;
/// What is kept of a log that several streams follow: as many events as this, and as many bytes,
/// but always the newest event.
const KEPT_EVENTS: usize = 256;
const KEPT_BYTES: usize = 256 << 10;

/// Events in order, without a gap; `None` if the scope has no such task that is shown, or they are
/// gone with the whole log.
type Read = Result<Option<Vec<Arc<Event>>>, Error>;

/// The logs that are followed in this process.
pub(super) struct Logs {
    store: Arc<dyn Store>,
    open: Mutex<HashMap<(Scope, TaskId), Weak<Log>>>,
}

impl Logs {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, open: Mutex::default() }
    }

    /// The log of a task, as this scope may read it.
    pub(super) fn open(&self, scope: &Scope, task: TaskId) -> Arc<Log> {
        let key = (scope.clone(), task);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(log) = open.get(&key).and_then(Weak::upgrade) {
            return log;
        }
        // Entries of logs that nobody follows stay until the map has doubled; then all go at once.
        if open.len() == open.capacity() {
            open.retain(|_, log| log.strong_count() > 0);
        }
        let log = Arc::new(Log {
            store: Arc::clone(&self.store),
            scope: scope.clone(),
            task,
            hint: self.store.hints().watch_task(task),
            recent: Mutex::new(Recent::default()),
            reading: tokio::sync::Mutex::default(),
        });
        open.insert(key, Arc::downgrade(&log));
        log
    }
}

/// The log of one task.
pub(super) struct Log {
    store: Arc<dyn Store>,
    scope: Scope,
    task: TaskId,
    hint: TaskHint,
    recent: Mutex<Recent>,
    /// Held by the one read at the end that is under way.
    reading: tokio::sync::Mutex<()>,
}

/// What is known of the log's end.
#[derive(Default)]
struct Recent {
    /// Without a gap; the last one has the generation `end`.
    events: VecDeque<Arc<Event>>,
    bytes: usize,
    end: i64,
    /// The number of the read at the end that began last, and of the one that ended last.
    begun: u64,
    done: u64,
    outcome: Outcome,
    /// When the read that ended last began, unless it failed.
    looked: Option<Instant>,
}

/// How the last read at the end came out, for those who waited for it too.
#[derive(Default, Clone, Copy)]
enum Outcome {
    #[default]
    Found,
    NoTask,
    Failed,
}

/// Where a generation is in what is known.
enum Place {
    /// These follow it.
    Before(Vec<Arc<Event>>),
    /// What follows it was let go.
    Behind,
    /// Nothing is known to follow it.
    End,
}

impl Recent {
    fn place(&self, generation: i64) -> Place {
        let missed = match usize::try_from(self.end - generation) {
            Ok(missed) if missed > 0 => missed,
            _ => return Place::End,
        };
        match self.events.len().checked_sub(missed) {
            Some(skipped) => {
                let most = READ_EVENTS as usize;
                Place::Before(self.events.iter().skip(skipped).take(most).cloned().collect())
            }
            None => Place::Behind,
        }
    }

    fn clear(&mut self) {
        self.events = VecDeque::new();
        self.bytes = 0;
    }

    /// Takes what was read after `end`. It is kept if others may want it too.
    fn take(&mut self, events: &[Arc<Event>], keep: bool) {
        let Some(last) = events.last() else { return };
        self.end = last.generation;
        if !keep {
            return self.clear();
        }
        for event in events {
            self.bytes += event.response.encoded_len();
            self.events.push_back(Arc::clone(event));
        }
        let too_much = |recent: &Self| {
            recent.events.len() > KEPT_EVENTS
                || (recent.bytes > KEPT_BYTES && recent.events.len() > 1)
        };
        while too_much(self) {
            let dropped = self.events.pop_front();
            self.bytes -= dropped.map_or(0, |event| event.response.encoded_len());
        }
    }
}

impl Log {
    /// The task itself, if it is shown.
    pub(super) async fn task(&self, view: View) -> Result<Option<TaskRecord>, Error> {
        self.store.task(&self.scope, self.task, view).await
    }

    /// A future that ends at the first change after this call. Make it before reading.
    pub(super) fn armed(&self) -> OwnedNotified {
        self.hint.armed()
    }

    /// Events above `generation`, as the store had them at this call or later; none if there are
    /// none yet.
    pub(super) async fn after(self: &Arc<Self>, generation: i64) -> Read {
        let asked = {
            let recent = self.recent();
            match recent.place(generation) {
                Place::Before(events) => return Ok(Some(events)),
                Place::Behind => None,
                Place::End => Some(recent.begun),
            }
        };
        match asked {
            Some(asked) => self.at_the_end(generation, asked).await,
            None => self.read(generation).await,
        }
    }

    /// Reads at the end, or takes what somebody else found there by a read that began after
    /// the one with the number `asked`.
    async fn at_the_end(self: &Arc<Self>, generation: i64, asked: u64) -> Read {
        let turn = self.reading.lock().await;
        let known = {
            let mut recent = self.recent();
            match recent.place(generation) {
                Place::Before(events) => return Ok(Some(events)),
                Place::Behind => None,
                Place::End if recent.done > asked && generation <= recent.end => {
                    return match recent.outcome {
                        Outcome::Found => Ok(Some(Vec::new())),
                        Outcome::NoTask => Ok(None),
                        Outcome::Failed => Err(Error::unavailable("the log could not be read")),
                    };
                }
                Place::End => {
                    if generation - recent.end > i64::from(READ_EVENTS) || self.is_sole() {
                        // Too far ahead to fill what lies between.
                        recent.clear();
                        recent.end = recent.end.max(generation);
                    }
                    recent.begun += 1;
                    Some((recent.end, recent.begun, Instant::now()))
                }
            }
        };
        let Some((end, number, began)) = known else {
            drop(turn);
            return self.read(generation).await;
        };
        let read = self.read(end).await;
        let ahead = {
            let mut recent = self.recent();
            recent.done = number;
            recent.outcome = match &read {
                Ok(Some(_)) => Outcome::Found,
                Ok(None) => Outcome::NoTask,
                Err(_) => Outcome::Failed,
            };
            if let Ok(Some(events)) = &read {
                recent.looked = Some(began);
                recent.take(events, !self.is_sole());
            }
            generation > end
        };
        drop(turn);
        match read {
            // What was read begins before what was asked for.
            Ok(Some(events)) if ahead => {
                let rest: Vec<_> =
                    events.iter().filter(|e| e.generation > generation).cloned().collect();
                let reached = events.last().is_none_or(|last| last.generation >= generation);
                if reached { Ok(Some(rest)) } else { self.read(generation).await }
            }
            read => read,
        }
    }

    /// Whether the last good look at the end began less than `age` ago.
    pub(super) fn looked_within(&self, age: Duration) -> bool {
        self.recent().looked.is_some_and(|looked| looked.elapsed() < age)
    }

    /// Lets go of what was kept, since nothing has happened for a while.
    pub(super) fn rest(&self) {
        self.recent().clear();
    }

    /// A number below 256 that is the task's own.
    pub(super) fn spread(&self) -> u32 {
        u32::from(self.task.uuid().into_bytes()[15])
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_sole(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) == 1
    }

    async fn read(&self, after: i64) -> Read {
        let events = self.store.events_after(&self.scope, self.task, after, READ_EVENTS).await?;
        Ok(events.map(|events| events.into_iter().map(Arc::new).collect()))
    }
}
