//! Migrations under a lock, on a direct connection.

use tokio_postgres::Client;
use tokio_util::task::TaskTracker;

use crate::store::migrate::{self, Dialect};
use crate::store::postgres::Settings;
use crate::store::postgres::connect::{self, ConnectError};

/// The advisory lock of everybody who migrates; any number that no other program uses.
const LOCK: &str = "select pg_advisory_lock(7202260218)";

/// Before a server starts: migrates if it may, and otherwise just looks.
pub(super) async fn prepare(settings: &Settings) -> Result<(), ConnectError> {
    if settings.migrate {
        return migrate(settings).await.map(drop);
    }
    with(settings, async |client| {
        let found = version(client, false).await.map_err(ConnectError::Unreachable)?;
        migrate::pending(Dialect::Postgres, found, false).map(drop)?;
        Ok(())
    })
    .await
}

/// Applies what is missing. The lock goes with the connection, however it ends.
pub(super) async fn migrate(settings: &Settings) -> Result<(u32, u32), ConnectError> {
    with(settings, async |client| {
        client.batch_execute(LOCK).await.map_err(ConnectError::Unreachable)?;
        let found = version(client, true).await.map_err(ConnectError::Unreachable)?;
        for migration in migrate::pending(Dialect::Postgres, found, true)? {
            let sql = format!(
                "begin; {}\n; insert into schema_migrations (version) values ({}); commit",
                migration.sql, migration.version
            );
            client
                .batch_execute(&sql)
                .await
                .map_err(|source| ConnectError::Migration { version: migration.version, source })?;
        }
        Ok((found, migrate::newest(Dialect::Postgres)))
    })
    .await
}

async fn with<T>(
    settings: &Settings,
    work: impl AsyncFnOnce(&Client) -> Result<T, ConnectError>,
) -> Result<T, ConnectError> {
    let (client, connection) = connect::dedicated(settings.direct()).await?;
    let tracker = TaskTracker::new();
    tracker.spawn(connection);
    tracker.close();
    let outcome = work(&client).await;
    drop(client);
    tracker.wait().await;
    outcome
}

async fn version(client: &Client, make: bool) -> Result<u32, tokio_postgres::Error> {
    let there =
        client.query_one("select to_regclass('schema_migrations') is not null", &[]).await?;
    if !there.get::<_, bool>(0) {
        if !make {
            return Ok(0);
        }
        client
            .batch_execute(
                "create table if not exists schema_migrations (
                   version integer primary key,
                   applied_at timestamptz not null default now())",
            )
            .await?;
    }
    let newest =
        client.query_one("select coalesce(max(version), 0) from schema_migrations", &[]).await?;
    Ok(u32::try_from(newest.get::<_, i32>(0)).unwrap_or(u32::MAX))
}
