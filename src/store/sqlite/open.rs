//! Opening the file: the lock, the connections, the schema, the state that a crash left.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use uuid::Uuid;

use crate::domain::Clock;
use crate::store::hints::Hints;
use crate::store::migrate::{self, Dialect};
use crate::store::sqlite::checkpoint::{Anew, Checkpoints};
use crate::store::sqlite::pool::Readers;
use crate::store::sqlite::writer::Writer;
use crate::store::sqlite::{Location, Names, Settings, Sqlite};

/// Why the store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error("{} is in use by another process; one a2ad at a time may open an SQLite file (use PostgreSQL for several)", .0.display())]
    InUse(PathBuf),
    /// The file, its folder or its lock cannot be used.
    #[error("{} cannot be opened", .0.display())]
    File(PathBuf, #[source] io::Error),
    /// The file is a database of another program.
    #[error("{} is an SQLite database of another program; name a file that a2ad made, or one that is not there yet", .0.display())]
    Foreign(PathBuf),
    /// The schema does not fit this program.
    #[error(transparent)]
    Schema(#[from] migrate::SchemaError),
    /// SQLite says no.
    #[error("the database cannot be opened")]
    Database(#[from] rusqlite::Error),
}

/// Runs `work` on a thread that may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, OpenError> + Send + 'static,
) -> Result<T, OpenError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        Err(OpenError::File(PathBuf::from("the database"), io::Error::other(error)))
    })
}

pub(super) async fn open(settings: Settings) -> Result<Sqlite, OpenError> {
    blocking(move || open_now(&settings)).await
}

/// Applies migrations alone. Returns the version before and after.
pub(super) async fn migrate_alone(settings: Settings) -> Result<(u32, u32), OpenError> {
    blocking(move || {
        let base = Base::find(&settings.location)?;
        let mut connection = base.connect_first(settings.wal_bytes_max)?;
        migrate(&mut connection, true)
    })
    .await
}

/// Freed pages, and free places of pages in use, keep what was deleted until they are used again.
pub(super) async fn scrub(settings: Settings) -> Result<(), OpenError> {
    blocking(move || {
        let base = Base::find(&settings.location)?;
        let connection = base.connect_first(settings.wal_bytes_max)?;
        connection.execute_batch("vacuum")?;
        connection.query_row("pragma wal_checkpoint(truncate)", (), |_| Ok(()))?;
        Ok(())
    })
    .await
}

fn open_now(settings: &Settings) -> Result<Sqlite, OpenError> {
    let base = Base::find(&settings.location)?;
    let mut writer = base.connect_first(settings.wal_bytes_max)?;
    migrate(&mut writer, settings.migrate)?;
    free_leases(&mut writer, &*settings.clock)?;
    let readers = (0..settings.readers.max(1))
        .map(|_| base.connect(settings.wal_bytes_max))
        .collect::<Result<Vec<_>, _>>()?;
    for reader in &readers {
        reader.pragma_update(None, "query_only", true)?;
    }
    let checkpoints = base.connect(settings.wal_bytes_max)?;
    let io = |error| OpenError::File(base.path.clone(), error);
    let anew = Arc::new(Anew::default());
    let checkpoints =
        Checkpoints::start(checkpoints, settings.wal_bytes_max, Arc::clone(&anew)).map_err(io)?;
    // The thread may still write for a moment when the store is dropped.
    let guard = base.lock.clone();
    Ok(Sqlite {
        writer: Writer::start(writer, anew, guard).map_err(io)?,
        readers: Readers::new(readers),
        hints: Arc::new(Hints::default()),
        clock: Arc::clone(&settings.clock),
        names: Arc::new(Names::default()),
        checkpoints,
        _lock: base.lock.clone(),
    })
}

/// The file and the right to it.
struct Base {
    path: PathBuf,
    lock: Option<Arc<File>>,
    nameless: bool,
}

impl Base {
    fn find(location: &Location) -> Result<Self, OpenError> {
        match location {
            Location::File(path) => {
                let lock = Some(Arc::new(lock(path)?));
                Ok(Self { path: path.clone(), lock, nameless: false })
            }
            Location::Memory => {
                let path = std::env::temp_dir().join(format!("a2ad-{}.db", Uuid::new_v4()));
                Ok(Self { path, lock: None, nameless: true })
            }
        }
    }

    /// The first connection, which leaves a file that is not ours as it is.
    fn connect_first(&self, wal_bytes_max: u32) -> Result<Connection, OpenError> {
        let connection = open_file(&self.path)?;
        let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        let things: i64 =
            connection.query_row("select count(*) from sqlite_schema", (), |row| row.get(0))?;
        if version == 0 && things > 0 {
            return Err(OpenError::Foreign(self.path.clone()));
        }
        Ok(set_up(connection, wal_bytes_max)?)
    }

    fn connect(&self, wal_bytes_max: u32) -> Result<Connection, OpenError> {
        Ok(set_up(open_file(&self.path)?, wal_bytes_max)?)
    }
}

impl Drop for Base {
    /// A file without a name is open by now, or could not be opened; either way its name goes.
    fn drop(&mut self) {
        if self.nameless {
            for suffix in ["", "-wal", "-shm"] {
                drop(fs::remove_file(beside(&self.path, suffix)));
            }
        }
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// The system frees this lock when the process ends, however it ends.
fn lock(path: &Path) -> Result<File, OpenError> {
    let io = |error| OpenError::File(path.to_owned(), error);
    let at = beside(&real(path).map_err(io)?, ".lock");
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&at).map_err(io)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse(path.to_owned())),
        Err(TryLockError::Error(error)) => Err(io(error)),
    }
}

/// The one name of a file, whatever links lead to it; its own, if it is not there yet.
fn real(path: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = match path.parent() {
                Some(folder) if !folder.as_os_str().is_empty() => folder,
                _ => Path::new("."),
            };
            let name = path.file_name().ok_or(error)?;
            Ok(fs::canonicalize(folder)?.join(name))
        }
        known => known,
    }
}

fn open_file(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    Ok(connection)
}

fn set_up(connection: Connection, wal_bytes_max: u32) -> rusqlite::Result<Connection> {
    connection.set_prepared_statement_cache_capacity(128);
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.pragma_update(None, "journal_size_limit", wal_bytes_max)?;
    Ok(connection)
}

fn migrate(connection: &mut Connection, allowed: bool) -> Result<(u32, u32), OpenError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let version: u32 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    for migration in migrate::pending(Dialect::Sqlite, version, allowed)? {
        transaction.execute_batch(migration.sql)?;
        transaction.pragma_update(None, "user_version", migration.version)?;
    }
    transaction.commit()?;
    Ok((version, migrate::newest(Dialect::Sqlite)))
}

/// No runner of this file is alive, whatever the leases say. A task has a lease exactly if one of
/// its turns does, so the turns lead to the tasks and no task is read in vain.
fn free_leases(connection: &mut Connection, clock: &dyn Clock) -> rusqlite::Result<()> {
    let now = clock.now_us();
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute(
        "update tasks set lease = null, updated_at = max(tasks.updated_at + 1, ?1)
         from turns
         where turns.state = 2 and tasks.tenant = turns.tenant and tasks.id = turns.task_id",
        [now],
    )?;
    transaction.execute(
        "update turns set state = 1, due_at = ?1, interruptions = interruptions + 1
         where state = 2",
        [now],
    )?;
    transaction.commit()
}
