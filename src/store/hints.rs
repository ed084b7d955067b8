//! Hints that something changed, so that waiting costs no polling.
//!
//! A hint says "read again", never what changed. It can be lost (a cut connection, a restart), so
//! whoever waits also reads on a slow timer. Arm first, read second: a change between the two then
//! wakes the waiter.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use crate::domain::TaskId;

/// Hints of one process. The stores wake them after each commit, and PostgreSQL's listener for
/// the commits of other processes.
#[derive(Default)]
pub struct Hints {
    tasks: Mutex<HashMap<TaskId, Weak<Notify>>>,
    turns: Arc<Notify>,
}

impl fmt::Debug for Hints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hints").finish_non_exhaustive()
    }
}

/// Interest in one task. Dropping it ends the interest.
#[derive(Debug)]
pub struct TaskHint {
    notify: Arc<Notify>,
}

impl TaskHint {
    /// A future that ends at the first change after this call. Make it before reading.
    pub fn armed(&self) -> OwnedNotified {
        Arc::clone(&self.notify).notified_owned()
    }
}

impl Hints {
    /// Registers interest in `task`.
    #[must_use]
    pub fn watch_task(&self, task: TaskId) -> TaskHint {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(notify) = tasks.get(&task).and_then(Weak::upgrade) {
            return TaskHint { notify };
        }
        // Entries of waiters that left stay until the map has doubled; then all go at once.
        if tasks.len() == tasks.capacity() {
            tasks.retain(|_, waiter| waiter.strong_count() > 0);
        }
        let notify = Arc::new(Notify::new());
        tasks.insert(task, Arc::downgrade(&notify));
        TaskHint { notify }
    }

    /// Wakes everybody who waits for `task`.
    pub fn wake_task(&self, task: TaskId) {
        let notify = {
            let tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            tasks.get(&task).and_then(Weak::upgrade)
        };
        if let Some(notify) = notify {
            notify.notify_waiters();
        }
    }

    /// Wakes everybody, after a time in which hints may have been lost.
    pub fn wake_all(&self) {
        let waiters: Vec<_> = {
            let tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            tasks.values().filter_map(Weak::upgrade).collect()
        };
        for notify in waiters {
            notify.notify_waiters();
        }
        self.wake_turns();
    }

    /// A future that ends when a turn may have become due; one hint is kept if nobody waits.
    pub fn turn_due(&self) -> OwnedNotified {
        Arc::clone(&self.turns).notified_owned()
    }

    /// Says that a turn may be due.
    pub fn wake_turns(&self) {
        self.turns.notify_one();
    }
}
