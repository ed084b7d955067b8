//! Reaching the database.

use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::Config;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::store::migrate::SchemaError;

/// Why the database cannot be used. No text repeats the URL or the database's words about it.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The URL is none.
    #[error("the PostgreSQL URL cannot be read; write postgres://user:password@host/database")]
    Url,
    /// It cannot be reached, or it refuses.
    #[error("PostgreSQL cannot be reached")]
    Unreachable(#[source] tokio_postgres::Error),
    /// The schema does not fit.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// A migration failed.
    #[error("migration {version} failed")]
    Migration {
        /// Which.
        version: u32,
        /// Why.
        #[source]
        source: tokio_postgres::Error,
    },
    /// The pool cannot be made.
    #[error("the connection pool cannot be made")]
    Pool(#[from] deadpool_postgres::BuildError),
}

/// The first try, and four more.
const PAUSES_MS: [u64; 5] = [0, 100, 400, 1000, 2000];

pub(super) fn config(url: &str) -> Result<Config, ConnectError> {
    // The parser's error is dropped, for it may repeat a part of the URL.
    let Ok(mut config) = url.parse::<Config>() else { return Err(ConnectError::Url) };
    config.application_name("a2ad");
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(Duration::from_secs(5));
    }
    Ok(config)
}

/// TLS when the URL's `sslmode` asks for it, with the certificates that the system trusts.
pub(super) fn tls() -> MakeRustlsConnect {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider speaks TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    MakeRustlsConnect::new(config)
}

/// A connection outside of the pool, with a few tries. Its other half has to be polled.
pub(super) async fn dedicated(
    url: &str,
) -> Result<
    (
        tokio_postgres::Client,
        tokio_postgres::Connection<
            tokio_postgres::Socket,
            <MakeRustlsConnect as tokio_postgres::tls::MakeTlsConnect<tokio_postgres::Socket>>::Stream,
        >,
    ),
    ConnectError,
>{
    let config = config(url)?;
    let mut last = None;
    for pause in PAUSES_MS {
        tokio::time::sleep(Duration::from_millis(pause)).await;
        match config.connect(tls()).await {
            Ok(connected) => return Ok(connected),
            // The database's own word, such as a wrong password, does not change by waiting;
            // that it is still starting does.
            Err(error) if error.code().is_some_and(|state| !state.code().starts_with("57")) => {
                return Err(ConnectError::Unreachable(error));
            }
            Err(error) => last = Some(error),
        }
    }
    Err(last.map_or(ConnectError::Url, ConnectError::Unreachable))
}
