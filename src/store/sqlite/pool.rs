//! Connections that read.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use tokio::sync::Semaphore;

use crate::domain::Error;

type Idle = Arc<Mutex<Vec<Connection>>>;

/// A fixed set of reading connections, each used by one read at a time.
#[derive(Clone)]
pub(super) struct Readers {
    idle: Idle,
    free: Arc<Semaphore>,
}

impl fmt::Debug for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readers").finish_non_exhaustive()
    }
}

impl Readers {
    pub(super) fn new(connections: Vec<Connection>) -> Self {
        let free = Arc::new(Semaphore::new(connections.len()));
        Self { idle: Arc::new(Mutex::new(connections)), free }
    }

    /// Runs `work` in one snapshot, on a thread that may block.
    pub(super) async fn read<T, F>(&self, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    {
        let permit = Arc::clone(&self.free).acquire_owned().await.map_err(Error::unavailable)?;
        let idle = Arc::clone(&self.idle);
        let reading = tokio::task::spawn_blocking(move || {
            // Dropped last, when the connection is back.
            let _permit = permit;
            let connection =
                pop(&idle).ok_or_else(|| Error::unavailable("no reading connection is left"))?;
            let lent = Lent { connection: Some(connection), idle };
            lent.snapshot(work)
        });
        reading.await.map_err(Error::internal)?
    }
}

fn pop(idle: &Idle) -> Option<Connection> {
    idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
}

/// A connection that goes back when its read is over, also when the read panicked.
struct Lent {
    connection: Option<Connection>,
    idle: Idle,
}

impl Lent {
    /// One transaction, so that every statement of a read sees the same commit.
    fn snapshot<T>(&self, work: impl FnOnce(&Connection) -> Result<T, Error>) -> Result<T, Error> {
        let connection =
            self.connection.as_ref().ok_or_else(|| Error::internal("a connection is gone"))?;
        connection.prepare_cached("begin")?.execute(())?;
        let outcome = work(connection)?;
        connection.prepare_cached("commit")?.execute(())?;
        Ok(outcome)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        // An old snapshot would show the next read the past, and keep the WAL from being cut.
        if !connection.is_autocommit() && connection.execute_batch("rollback").is_err() {
            return;
        }
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_read_that_fails_or_panics_gives_its_connection_back_without_a_snapshot() {
        let readers = Readers::new(vec![Connection::open_in_memory().unwrap()]);
        for round in 0..3 {
            let failed: Result<(), _> = readers.read(|_| Err(Error::internal("no"))).await;
            assert!(failed.is_err());
            let panicked: Result<(), _> = readers.read(|_| panic!("this one has a fault")).await;
            assert!(panicked.is_err());
            let fresh = readers.read(move |c| {
                assert!(!c.is_autocommit(), "in a transaction of its own");
                Ok(c.query_row("select ?1", [round], |row| row.get::<_, i64>(0))?)
            });
            assert_eq!(fresh.await.unwrap(), round);
        }
    }
}
