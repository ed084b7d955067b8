//! Copying the WAL into the file, beside the writer.
//!
//! A passive checkpoint waits for nobody. But it never catches up with a writer that does not
//! rest, and then the WAL is never begun anew and grows for as long as the load lasts. So once it
//! is over its bound, this thread asks the writer to do the rest between two commits: copy the
//! last frames, so that the next write begins at the front. Only the writer can, for anybody else
//! would have to wait for its lock, which it takes again at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use rusqlite::Connection;

/// How often.
const EVERY: Duration = Duration::from_millis(200);
/// How long the writer waits for reads to end before it begins the WAL anew.
const HELD_AT_MOST: Duration = Duration::from_millis(100);
/// How long the writer is left alone after a read did not end in time.
const REST: Duration = Duration::from_secs(2);

/// What the thread and the writer tell each other.
#[derive(Debug, Default)]
pub(super) struct Anew {
    wanted: AtomicBool,
    in_vain: AtomicBool,
}

impl Anew {
    /// Begins the WAL anew if that is wanted. For the writer, outside of a transaction.
    pub(super) fn if_wanted(&self, connection: &Connection, busy_timeout: Duration) {
        if !self.wanted.swap(false, Ordering::AcqRel) {
            return;
        }
        let begun = connection
            .busy_timeout(HELD_AT_MOST)
            .and_then(|()| checkpoint(connection, "pragma wal_checkpoint(restart)"));
        match begun {
            Ok((is_busy, _)) => self.in_vain.store(is_busy, Ordering::Release),
            Err(error) => tracing::warn!(error = %error, "the WAL was not begun anew"),
        }
        if let Err(error) = connection.busy_timeout(busy_timeout) {
            tracing::warn!(error = %error, "writes wait less than they should");
        }
    }
}

/// The thread. Dropping this ends it, soon and unawaited.
#[derive(Debug)]
pub(super) struct Checkpoints {
    over: Arc<AtomicBool>,
    thread: Thread,
}

impl Checkpoints {
    /// Starts the thread on a connection of its own.
    pub(super) fn start(
        connection: Connection,
        wal_bytes_max: u32,
        anew: Arc<Anew>,
    ) -> std::io::Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&over);
        let handle = thread::Builder::new()
            .name("sqlite-checkpoint".to_owned())
            .spawn(move || run(&connection, wal_bytes_max, &anew, &ends))?;
        Ok(Self { over, thread: handle.thread().clone() })
    }

    /// Ends the thread.
    pub(super) fn stop(&self) {
        self.over.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run(connection: &Connection, wal_bytes_max: u32, anew: &Anew, over: &AtomicBool) {
    let mut not_before = Instant::now();
    while !over.load(Ordering::Acquire) {
        match wal_bytes(connection) {
            Ok(bytes) => {
                let is_large = bytes > i64::from(wal_bytes_max);
                if anew.in_vain.swap(false, Ordering::AcqRel) {
                    not_before = Instant::now() + REST;
                    tracing::warn!(wal.bytes = bytes, "a long read keeps the WAL growing");
                }
                if is_large && Instant::now() >= not_before {
                    anew.wanted.store(true, Ordering::Release);
                }
            }
            Err(error) => tracing::warn!(error = %error, "a checkpoint failed"),
        }
        thread::park_timeout(EVERY);
    }
}

/// Copies what can be copied without waiting. Returns how large the part of the WAL in use is.
fn wal_bytes(connection: &Connection) -> rusqlite::Result<i64> {
    let (_, frames) = checkpoint(connection, "pragma wal_checkpoint(passive)")?;
    let page: i64 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
    Ok(frames.saturating_mul(page))
}

/// Whether somebody was in the way, and how many frames the WAL has.
fn checkpoint(connection: &Connection, sql: &str) -> rusqlite::Result<(bool, i64)> {
    connection.query_row(sql, (), |row| Ok((row.get(0)?, row.get(1)?)))
}
