//! From a URL to an open store.

use std::path::PathBuf;
use std::sync::Arc;

use crate::config::{StatementMode, StoreArgs, StoreKind, StoreUrl};
use crate::domain::{Clock, SystemClock};
use crate::store::Store;
use crate::store::postgres::{self, Postgres};
use crate::store::sqlite::{self, Sqlite};

/// How a store is reached.
#[derive(Debug, Clone)]
pub struct Place {
    /// Which store.
    pub url: StoreUrl,
    /// PostgreSQL without a pooler in between.
    pub direct: Option<StoreUrl>,
    /// How statements reach PostgreSQL.
    pub statement_mode: StatementMode,
    /// The most connections to PostgreSQL, beside one that listens.
    pub connections: u16,
    /// Whether missing migrations are applied.
    pub migrate: bool,
}

/// Why a store is not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL names no store.
    #[error("the store must be sqlite:PATH, sqlite::memory: or postgres://user@host/database")]
    Url,
    /// SQLite says no.
    #[error(transparent)]
    Sqlite(#[from] sqlite::OpenError),
    /// PostgreSQL cannot be reached, or says no.
    #[error(transparent)]
    Postgres(#[from] postgres::ConnectError),
}

impl Place {
    /// A store at `url`, with all else as it is by default.
    #[must_use]
    pub fn new(url: impl Into<StoreUrl>) -> Self {
        Self {
            url: url.into(),
            direct: None,
            statement_mode: StatementMode::Auto,
            connections: 16,
            migrate: true,
        }
    }

    /// The store that the settings name.
    #[must_use]
    pub fn configured(store: StoreArgs, migrate: bool) -> Self {
        let StoreArgs { store: url, store_direct: direct, statement_mode, store_connections } =
            store;
        Self { url, direct, statement_mode, connections: store_connections, migrate }
    }

    /// Opens the store. Stamps come from `clock`; without one, from the database's own clock on
    /// PostgreSQL and from this machine's otherwise.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub async fn open(&self, clock: Option<Arc<dyn Clock>>) -> Result<Arc<dyn Store>, OpenError> {
        match self.sqlite(clock.clone())? {
            Some(settings) => Ok(Arc::new(Sqlite::open(settings).await?)),
            None => Ok(Arc::new(Postgres::connect(self.postgres(clock)).await?)),
        }
    }

    /// Applies migrations. Returns the schema's version, then and now.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub async fn migrate(&self) -> Result<(u32, u32), OpenError> {
        match self.sqlite(None)? {
            Some(settings) => Ok(Sqlite::migrate(settings).await?),
            None => Ok(Postgres::migrate(&self.postgres(None)).await?),
        }
    }

    /// Writes an SQLite file anew, without what was deleted from it. Does nothing to PostgreSQL.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub async fn scrub(&self) -> Result<(), OpenError> {
        match self.sqlite(None)? {
            Some(settings) => Ok(Sqlite::scrub(settings).await?),
            None => Ok(()),
        }
    }

    /// How to open SQLite; `None` if the store is PostgreSQL.
    fn sqlite(&self, clock: Option<Arc<dyn Clock>>) -> Result<Option<sqlite::Settings>, OpenError> {
        let location = match self.url.kind().ok_or(OpenError::Url)? {
            StoreKind::SqliteMemory => sqlite::Location::Memory,
            StoreKind::SqliteFile(path) => sqlite::Location::File(PathBuf::from(path)),
            StoreKind::Postgres => return Ok(None),
        };
        let clock = clock.unwrap_or_else(|| Arc::new(SystemClock));
        let mut settings = sqlite::Settings::new(location, clock);
        settings.migrate = self.migrate;
        Ok(Some(settings))
    }

    fn postgres(&self, clock: Option<Arc<dyn Clock>>) -> postgres::Settings {
        let mut settings = postgres::Settings::new(self.url.expose());
        settings.direct_url = self.direct.as_ref().map(|url| url.expose().into());
        settings.statement_mode = match self.statement_mode {
            StatementMode::Auto => postgres::StatementMode::Auto,
            StatementMode::Typed => postgres::StatementMode::Typed,
            StatementMode::Cached => postgres::StatementMode::Cached,
        };
        settings.pool_size = usize::from(self.connections);
        settings.migrate = self.migrate;
        settings.clock = clock;
        settings
    }
}
