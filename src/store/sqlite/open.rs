//! Opening the file: the lock, the connections, the schema, the state that a crash left.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::domain::Clock;
use crate::store::hints::Hints;
use crate::store::migrate::{self, Dialect};
use crate::store::sqlite::pool::Readers;
use crate::store::sqlite::writer::Writer;
use crate::store::sqlite::{Location, Names, Settings, Sqlite};

/// How often the WAL is copied into the file, beside the writer.
const CHECKPOINT_EVERY: Duration = Duration::from_millis(200);
/// What the WAL is cut back to when a checkpoint has emptied it.
const WAL_BYTES_MAX: u32 = 64 << 20;

/// Why the store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error("{} is in use by another process; one a2ad at a time may open an SQLite file (use PostgreSQL for several)", .0.display())]
    InUse(PathBuf),
    /// The file, its folder or its lock cannot be used.
    #[error("{} cannot be opened", .0.display())]
    File(PathBuf, #[source] std::io::Error),
    /// The schema does not fit this program.
    #[error(transparent)]
    Schema(#[from] migrate::SchemaError),
    /// SQLite says no.
    #[error("the database cannot be opened")]
    Database(#[from] rusqlite::Error),
}

/// Opens everything on a thread that may block.
pub(super) async fn open(settings: Settings) -> Result<Sqlite, OpenError> {
    let opening = tokio::task::spawn_blocking(move || open_now(&settings));
    opening.await.unwrap_or_else(|error| {
        Err(OpenError::File(PathBuf::from("the database"), std::io::Error::other(error)))
    })
}

fn open_now(settings: &Settings) -> Result<Sqlite, OpenError> {
    let (path, lock) = match &settings.location {
        Location::File(path) => (path.clone(), Some(lock(path)?)),
        Location::Memory => {
            (std::env::temp_dir().join(format!("a2ad-{}.db", Uuid::new_v4())), None)
        }
    };
    let mut writer = connect(&path)?;
    migrate(&mut writer, settings.migrate)?;
    free_leases(&mut writer, &*settings.clock)?;
    let readers =
        (0..settings.readers.max(1)).map(|_| connect(&path)).collect::<Result<Vec<_>, _>>()?;
    for reader in &readers {
        reader.pragma_update(None, "query_only", true)?;
    }
    let checkpoints = connect(&path)?;
    if settings.location == Location::Memory {
        forget(&path);
    }
    let stop = CancellationToken::new();
    let io = |error| OpenError::File(path.clone(), error);
    checkpoint(checkpoints, stop.clone()).map_err(io)?;
    Ok(Sqlite {
        writer: Writer::start(writer).map_err(io)?,
        readers: Readers::new(readers),
        hints: Arc::new(Hints::default()),
        clock: Arc::clone(&settings.clock),
        names: Arc::new(Names::default()),
        stop,
        _lock: lock,
    })
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// The system frees this lock when the process ends, however it ends.
fn lock(path: &Path) -> Result<File, OpenError> {
    let at = beside(path, ".lock");
    let io = |error| OpenError::File(path.to_owned(), error);
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&at).map_err(io)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse(path.to_owned())),
        Err(TryLockError::Error(error)) => Err(io(error)),
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.set_prepared_statement_cache_capacity(128);
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.pragma_update(None, "journal_size_limit", WAL_BYTES_MAX)?;
    Ok(connection)
}

/// The files stay open, and lose their names.
fn forget(path: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        drop(std::fs::remove_file(beside(path, suffix)));
    }
}

fn migrate(connection: &mut Connection, allowed: bool) -> Result<(), OpenError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let version: u32 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    for migration in migrate::pending(Dialect::Sqlite, version, allowed)? {
        transaction.execute_batch(migration.sql)?;
        transaction.pragma_update(None, "user_version", migration.version)?;
    }
    transaction.commit()?;
    Ok(())
}

/// No runner of this file is alive, whatever the leases say.
fn free_leases(connection: &mut Connection, clock: &dyn Clock) -> rusqlite::Result<()> {
    let now = clock.now_us();
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute(
        "update tasks set lease = null, updated_at = max(updated_at + 1, ?1)
         where lease is not null",
        [now],
    )?;
    transaction.execute(
        "update turns set state = 1, due_at = ?1, interruptions = interruptions + 1
         where state = 2",
        [now],
    )?;
    transaction.commit()
}

/// Copies the WAL into the file without ever waiting for readers or the writer.
fn checkpoint(connection: Connection, stop: CancellationToken) -> std::io::Result<()> {
    let run = move || {
        while !stop.is_cancelled() {
            thread::sleep(CHECKPOINT_EVERY);
            let done = connection.query_row("pragma wal_checkpoint(passive)", (), |_| Ok(()));
            if let Err(error) = done {
                tracing::warn!(error = %error, "a checkpoint failed");
            }
        }
    };
    thread::Builder::new().name("sqlite-checkpoint".to_owned()).spawn(run).map(drop)
}
