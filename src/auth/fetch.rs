//! Where an issuer's keys are read: a file, or a URL.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL};
use http::{HeaderMap, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::{ClientConfig, RootCertStore};

/// How long one reading may take.
pub(super) const FETCH_WITHIN: Duration = Duration::from_secs(5);
/// The most bytes of a set.
const BYTES_MAX: usize = 256 * 1024;

/// Why a source was not read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The file.
    #[error("the file cannot be read: {0}")]
    File(#[source] std::io::Error),
    /// It took too long.
    #[error("there was no answer within {}s", FETCH_WITHIN.as_secs())]
    TooSlow,
    /// The connection.
    #[error("the URL cannot be reached: {0}")]
    Http(String),
    /// The answer.
    #[error("the answer was {0}")]
    Status(StatusCode),
    /// The size.
    #[error("the answer has more than {BYTES_MAX} bytes, or broke off")]
    Body,
}

/// A set as it was read.
#[derive(Debug)]
pub struct Fetched {
    /// Its text.
    pub body: Vec<u8>,
    /// How long it is fresh, where its source says so.
    pub max_age: Option<Duration>,
}

/// Where a set is.
#[derive(Clone)]
pub enum Source {
    /// In a file.
    File(PathBuf),
    /// At a URL.
    Url(Uri, Box<Client<HttpsConnector<HttpConnector>, Empty<Bytes>>>),
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Url(uri, _) => uri.fmt(f),
        }
    }
}

impl Source {
    /// A path, or a URL that begins with `https://`; `http://` on this machine alone.
    ///
    /// # Errors
    /// What would be right, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        if !text.starts_with("https://") && !text.starts_with("http://") {
            return Ok(Self::File(PathBuf::from(text)));
        }
        let uri: Uri = text.parse().map_err(|error| format!("is no URL: {error}"))?;
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        if host.is_empty() || uri.authority().is_some_and(|at| at.as_str().contains('@')) {
            return Err("must have a host and no password".to_owned());
        }
        let is_here = host == "localhost"
            || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
        if uri.scheme_str() == Some("http") && !is_here {
            return Err("must begin with https://, since whoever answers is believed".to_owned());
        }
        Ok(Self::Url(uri, Box::new(client()?)))
    }

    /// Reads it.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub async fn fetch(&self) -> Result<Fetched, SourceError> {
        let fetched = tokio::time::timeout(FETCH_WITHIN, self.read()).await;
        fetched.unwrap_or(Err(SourceError::TooSlow))
    }

    async fn read(&self) -> Result<Fetched, SourceError> {
        let (uri, client) = match self {
            Self::File(path) => {
                let body = tokio::fs::read(path).await.map_err(SourceError::File)?;
                let fits = body.len() <= BYTES_MAX;
                return if fits {
                    Ok(Fetched { body, max_age: None })
                } else {
                    Err(SourceError::Body)
                };
            }
            Self::Url(uri, client) => (uri, client),
        };
        let unreachable =
            |error: &dyn std::error::Error| SourceError::Http(crate::domain::error::chain(error));
        let request = Request::get(uri.clone())
            .header(ACCEPT, "application/jwk-set+json, application/json")
            .body(Empty::new())
            .map_err(|error| unreachable(&error))?;
        // Redirections are not followed: the settings say where the keys are.
        let response = client.request(request).await.map_err(|error| unreachable(&error))?;
        if response.status() != StatusCode::OK {
            return Err(SourceError::Status(response.status()));
        }
        let max_age = max_age(response.headers());
        let body = Limited::new(response.into_body(), BYTES_MAX).collect().await;
        let body = body.map_err(|_cause| SourceError::Body)?.to_bytes().to_vec();
        Ok(Fetched { body, max_age })
    }
}

fn client() -> Result<Client<HttpsConnector<HttpConnector>, Empty<Bytes>>, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let config =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
    let https =
        HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1().build();
    Ok(Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(https))
}

/// `max-age` of `Cache-Control`; nothing where the answer is not to be stored.
fn max_age(headers: &HeaderMap) -> Option<Duration> {
    let values = headers.get_all(CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    let directives = values.flat_map(|value| value.split(',')).map(str::trim);
    let seconds =
        directives.filter_map(|directive| directive.split_once('=')).find_map(|(name, seconds)| {
            name.eq_ignore_ascii_case("max-age").then(|| seconds.trim_matches('"').parse().ok())
        });
    seconds.flatten().map(Duration::from_secs)
}
