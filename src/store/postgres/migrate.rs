//! Applying migrations, one program at a time.

use std::time::Duration;

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::store::migrate::{self, Dialect, Migration};
use crate::store::postgres::fault::ConnectError;
use crate::store::postgres::session::Session;
use crate::store::postgres::settings::Settings;

/// How long one program waits for another that migrates.
const LOCK_WAIT: Duration = Duration::from_secs(120);
/// The advisory lock's key, "a2ad" in ASCII.
const LOCK: i64 = 0x6132_6164;

/// Applies what the database lacks. Returns the version before and after.
pub(super) async fn apply(settings: &Settings) -> Result<(u32, u32), ConnectError> {
    let session = Session::open(&settings.direct()?, settings.start_timeout).await?;
    let applied = apply_locked(&session.client).await;
    session.close().await;
    applied
}

/// Checks that the schema is the one that this program works with.
pub(super) async fn check(settings: &Settings) -> Result<(), ConnectError> {
    let session = Session::open(&settings.pooled()?, settings.start_timeout).await?;
    let found = version(&session.client).await;
    session.close().await;
    migrate::pending(Dialect::Postgres, found?, false).map(drop)?;
    Ok(())
}

async fn version(client: &Client) -> Result<u32, ConnectError> {
    match client.query_typed("select max(version) from schema_migrations", &[]).await {
        Ok(rows) => {
            let version: Option<i32> = rows.first().and_then(|row| row.get(0));
            Ok(version.and_then(|version| u32::try_from(version).ok()).unwrap_or(0))
        }
        Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => Ok(0),
        Err(error) => Err(ConnectError::Refused(error)),
    }
}

async fn apply_locked(client: &Client) -> Result<(u32, u32), ConnectError> {
    let wait = format!("set lock_timeout = {}", LOCK_WAIT.as_millis());
    client.batch_execute(&wait).await.map_err(ConnectError::Refused)?;
    // The lock belongs to the session and ends with it.
    if let Err(error) = client.batch_execute(&format!("select pg_advisory_lock({LOCK})")).await {
        return Err(match error.code() {
            Some(&SqlState::LOCK_NOT_AVAILABLE) => {
                ConnectError::MigrationsLocked { waited: LOCK_WAIT }
            }
            _ => ConnectError::Refused(error),
        });
    }
    let found = version(client).await?;
    for migration in migrate::pending(Dialect::Postgres, found, true)? {
        apply_one(client, migration)
            .await
            .map_err(|source| ConnectError::Migration { name: migration.name, source })?;
    }
    Ok((found, migrate::newest(Dialect::Postgres)))
}

/// Waits a short time alone for tables that are in use: whoever waits for such a lock stops all
/// that come after.
async fn apply_one(client: &Client, migration: &Migration) -> Result<(), tokio_postgres::Error> {
    let sql = format!(
        "begin; set local lock_timeout = '5s';\n{}\n{}\ncommit",
        migration.sql,
        Dialect::Postgres.note(migration)
    );
    let done = client.batch_execute(&sql).await;
    if done.is_err() {
        client.batch_execute("rollback").await?;
    }
    done
}
