//! How to reach PostgreSQL.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::config::SslMode;
use tokio_postgres::{CancelToken, Client, Config, Connection, NoTls, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::domain::Clock;
use crate::store::postgres::fault::ConnectError;
use crate::store::postgres::tls::{self, Wanted};

/// A connection URL. It may hold a password, so it is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Url(String);

impl<T: Into<String>> From<T> for Url {
    fn from(url: T) -> Self {
        Self(url.into())
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Url(..)")
    }
}

/// How statements are sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StatementMode {
    /// `Cached` if the connection reaches PostgreSQL directly, `Typed` if not: found out once, at
    /// the start, by a parameter that only a session of our own takes.
    #[default]
    Auto,
    /// Each one anew, in one round trip and with a plan of its own. Safe behind PgBouncer in
    /// transaction mode, which is why sessions are left as they are and this program keeps the
    /// deadlines.
    Typed,
    /// Prepared and planned once for each connection, with limits set on the session: a third of
    /// PostgreSQL's work, and only for connections that reach it directly.
    Cached,
}

/// How to reach PostgreSQL, and how long to wait for it.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where to connect, perhaps through PgBouncer.
    pub url: Url,
    /// Where to connect directly, for LISTEN and migrations; the same place if absent.
    pub direct_url: Option<Url>,
    /// How statements are sent.
    pub statement_mode: StatementMode,
    /// The most connections, beside two for hints.
    pub pool_size: usize,
    /// How long a connection, or a free place in the pool, is waited for.
    pub connect_timeout: Duration,
    /// How long a statement may run before it is canceled in the database.
    pub statement_timeout: Duration,
    /// How long a statement may wait for a lock, on sessions that are ours alone.
    pub lock_timeout: Duration,
    /// How long to try at the start, while the database does not answer.
    pub start_timeout: Duration,
    /// Whether to apply migrations; without, an older schema is refused.
    pub migrate: bool,
    /// Whether to send and hear hints. One server alone does without.
    pub notify: bool,
    /// Where stamps come from: the database's clock, but in tests.
    pub clock: Option<Arc<dyn Clock>>,
}

impl Settings {
    /// The defaults: statements as the way allows, 12 connections, 5 s for a connection or a statement, 30 s
    /// for a database that still starts, migrations and hints on.
    #[must_use]
    pub fn new(url: impl Into<Url>) -> Self {
        Self {
            url: url.into(),
            direct_url: None,
            statement_mode: StatementMode::default(),
            pool_size: 12,
            connect_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(5),
            lock_timeout: Duration::from_secs(3),
            start_timeout: Duration::from_secs(30),
            migrate: true,
            notify: true,
            clock: None,
        }
    }

    /// The way through the pool.
    pub(super) fn pooled(&self) -> Result<Way, ConnectError> {
        self.way(&self.url, "the store's URL")
    }

    /// The direct way.
    pub(super) fn direct(&self) -> Result<Way, ConnectError> {
        match &self.direct_url {
            Some(url) => self.way(url, "the store's direct URL"),
            None => self.pooled(),
        }
    }

    fn way(&self, url: &Url, name: &'static str) -> Result<Way, ConnectError> {
        let Wanted { url, authorities } = tls::wanted(&url.0);
        let mut config: Config =
            url.parse().map_err(|source| ConnectError::Url { name, source })?;
        config
            .connect_timeout(self.connect_timeout)
            .keepalives_idle(Duration::from_secs(30))
            .tcp_user_timeout(Duration::from_secs(30));
        if config.get_application_name().is_none() {
            config.application_name("a2ad");
        }
        let tls = match config.get_ssl_mode() {
            SslMode::Require => Some(tls::connector(authorities.as_deref())?),
            // To name an authority and not ask for TLS is a mistake that nobody would notice.
            _ if authorities.is_some() => return Err(ConnectError::RootWithoutTls),
            SslMode::Disable | SslMode::Prefer | _ => {
                config.ssl_mode(SslMode::Disable);
                None
            }
        };
        Ok(Way { config, tls })
    }
}

/// Where and how to connect.
#[derive(Clone)]
pub(super) struct Way {
    pub(super) config: Config,
    pub(super) tls: Option<MakeRustlsConnect>,
}

/// What polls a connection; its end is the connection's end.
pub(super) type Driver = Box<dyn Messages>;

/// A connection of either kind.
pub(super) trait Messages: Send + Unpin {
    /// The next message that answers no query.
    fn poll_message(
        &mut self,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<tokio_postgres::AsyncMessage, tokio_postgres::Error>>>;
}

impl<T> Messages for Connection<Socket, T>
where
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send,
{
    fn poll_message(
        &mut self,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<tokio_postgres::AsyncMessage, tokio_postgres::Error>>> {
        Self::poll_message(self, cx)
    }
}

impl Way {
    /// Connects outside of the pool. Nothing happens on the connection unless the driver is
    /// polled.
    pub(super) async fn connect(&self) -> Result<(Client, Driver), tokio_postgres::Error> {
        match &self.tls {
            Some(tls) => {
                let (client, driver) = self.config.connect(tls.clone()).await?;
                Ok((client, Box::new(driver)))
            }
            None => {
                let (client, driver) = self.config.connect(NoTls).await?;
                Ok((client, Box::new(driver)))
            }
        }
    }

    /// Ends what runs on the connection of this token.
    pub(super) async fn cancel(&self, token: CancelToken) -> Result<(), tokio_postgres::Error> {
        match &self.tls {
            Some(tls) => token.cancel_query(tls.clone()).await,
            None => token.cancel_query(NoTls).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_never_shown() {
        let settings = Settings::new("postgres://a2ad:secret@db.example/a2ad");
        assert!(!format!("{settings:?}").contains("secret"));
        let error = Settings::new("postgres://a2ad:secret@db:port/x").pooled().err().unwrap();
        assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
    }

    #[test]
    fn tls_is_used_when_it_is_required_alone() {
        let way = |url: &str| Settings::new(url).pooled().unwrap();
        assert!(way("postgres://db/a2ad?sslmode=prefer").tls.is_none());
        assert!(way("postgres://db/a2ad?sslmode=require").tls.is_some());
    }
}
