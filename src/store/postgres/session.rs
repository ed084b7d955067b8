//! Connections outside of the pool, and what can be found out with one.

use std::time::{Duration, Instant};

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_util::task::TaskTracker;

use crate::domain::error::chain;
use crate::store::postgres::fault::{ConnectError, is_temporary};
use crate::store::postgres::settings::{Settings, StatementMode, Way};

/// The longest rest between two tries to connect.
const REST_MAX: Duration = Duration::from_secs(2);
/// A setting of no meaning, given when a connection starts.
const PROBE: &str = "a2ad.direct";

/// A connection outside of the pool.
pub(super) struct Session {
    pub(super) client: Client,
    driver: TaskTracker,
}

impl Session {
    /// Connects, and tries again while the database starts.
    pub(super) async fn open(way: &Way, patience: Duration) -> Result<Self, ConnectError> {
        Self::open_while(is_temporary, way, patience).await
    }

    async fn open_while(
        temporary: fn(&tokio_postgres::Error) -> bool,
        way: &Way,
        patience: Duration,
    ) -> Result<Self, ConnectError> {
        let begun = Instant::now();
        let mut rest = Duration::from_millis(50);
        loop {
            let source = match way.connect().await {
                Ok((client, mut messages)) => {
                    let driver = TaskTracker::new();
                    drop(driver.spawn(async move {
                        while let Some(Ok(_)) =
                            std::future::poll_fn(|cx| messages.poll_message(cx)).await
                        {
                        }
                    }));
                    driver.close();
                    return Ok(Self { client, driver });
                }
                Err(error) => error,
            };
            if !temporary(&source) {
                return Err(ConnectError::Refused(source));
            }
            if begun.elapsed() + rest > patience {
                return Err(ConnectError::Unreachable { waited: begun.elapsed(), source });
            }
            tracing::warn!(error.chain = chain(&source), "PostgreSQL does not answer yet");
            tokio::time::sleep(rest).await;
            rest = (rest * 2).min(REST_MAX);
        }
    }

    pub(super) async fn close(self) {
        drop(self.client);
        self.driver.wait().await;
    }
}

/// How statements are sent, found out where it is not settled.
///
/// A parameter given at the start of a connection reaches PostgreSQL only on a session that is
/// ours: a pooler that lends sessions out refuses it or drops it. Whatever is not plainly direct
/// is taken for a pooler, which is always safe.
pub(super) async fn statement_mode(settings: &Settings) -> Result<StatementMode, ConnectError> {
    if settings.statement_mode != StatementMode::Auto {
        return Ok(settings.statement_mode);
    }
    let mut way = settings.pooled()?;
    let given = way.config.get_options().unwrap_or_default();
    let options = format!("{given} -c {PROBE}=on");
    way.config.options(options.trim());
    // In a pooler's mouth this code means a parameter that it does not take, among other things.
    let temporary = |error: &tokio_postgres::Error| {
        is_temporary(error) && error.code() != Some(&SqlState::PROTOCOL_VIOLATION)
    };
    let session = match Session::open_while(temporary, &way, settings.start_timeout).await {
        Ok(session) => session,
        Err(ConnectError::Refused(error)) => {
            tracing::debug!(error = %error, "the start of a session takes no parameters");
            return Ok(StatementMode::Typed);
        }
        Err(other) => return Err(other),
    };
    let found = format!("select 1 where current_setting('{PROBE}', true) = 'on'");
    let rows = session.client.query_typed(&found, &[]).await;
    session.close().await;
    let rows = rows.map_err(ConnectError::Refused)?;
    Ok(if rows.is_empty() { StatementMode::Typed } else { StatementMode::Cached })
}
