//! Connections that read.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use tokio::sync::Semaphore;

use crate::domain::Error;

/// A fixed set of reading connections, each used by one read at a time.
#[derive(Clone)]
pub(super) struct Readers {
    idle: Arc<Mutex<Vec<Connection>>>,
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
            let _permit = permit;
            let lock = || idle.lock().unwrap_or_else(PoisonError::into_inner);
            let connection =
                lock().pop().ok_or_else(|| Error::unavailable("no reading connection is left"))?;
            let outcome = snapshot(&connection, work);
            lock().push(connection);
            outcome
        });
        reading.await.map_err(Error::internal)?
    }
}

/// One transaction, so that every statement of a read sees the same commit.
fn snapshot<T>(
    connection: &Connection,
    work: impl FnOnce(&Connection) -> Result<T, Error>,
) -> Result<T, Error> {
    connection.prepare_cached("begin")?.execute(())?;
    let outcome = work(connection);
    connection.prepare_cached("commit")?.execute(())?;
    outcome
}
