//! Putting a server together.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::service::Routes;
use tonic_health::server::HealthReporter;

use crate::agent::Agent;
use crate::auth::Auth;
use crate::bindings::{Door, grpc};
use crate::contract::DESCRIPTOR_SET;
use crate::domain::page::{KeyRing, PageTokens};
use crate::domain::{Clock, SystemClock};
use crate::server::accept::{Acceptor, Limits};
use crate::server::health::Watch;
use crate::server::{Server, Tls, card, health, layers};
use crate::service::{self, Service};
use crate::store::Store;
use crate::store::sqlite::{self, Sqlite};

/// Why a server does not start. The text says what to change.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store is no store's URL.
    #[error("the store {0} is not one: use sqlite:FILE, sqlite::memory: or postgres://...")]
    Store(String),
    /// The SQLite file cannot be used.
    #[error(transparent)]
    Sqlite(#[from] sqlite::OpenError),
    /// PostgreSQL cannot be used.
    #[error(transparent)]
    Postgres(#[from] crate::store::postgres::ConnectError),
    /// An address cannot be listened on.
    #[error("cannot listen on {0}")]
    Listen(SocketAddr, #[source] std::io::Error),
    /// Something else, in words.
    #[error("{0}")]
    Other(String),
}

/// Where the tasks are kept.
enum StoreChoice {
    Url(String),
    Open(Arc<dyn Store>),
}

/// Settings of a server that is about to start. Every method has a default that works.
pub struct Builder {
    agent: Arc<dyn Agent>,
    store: StoreChoice,
    postgres: Option<crate::store::postgres::Settings>,
    migrate: bool,
    listen: SocketAddr,
    admin: Option<SocketAddr>,
    public_address: Option<String>,
    auth: Auth,
    tls: Option<Tls>,
    keys: Option<KeyRing>,
    token_lifetime: Duration,
    clock: Arc<dyn Clock>,
    settings: service::Settings,
    receive_bytes_max: usize,
    drain_delay: Duration,
    grace: Duration,
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("listen", &self.listen).finish_non_exhaustive()
    }
}

impl Builder {
    pub(super) fn new(agent: Arc<dyn Agent>) -> Self {
        Self {
            agent,
            store: StoreChoice::Url("sqlite::memory:".to_owned()),
            postgres: None,
            migrate: true,
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            admin: None,
            public_address: None,
            auth: Auth::None,
            tls: None,
            keys: None,
            token_lifetime: Duration::from_secs(600),
            clock: Arc::new(SystemClock),
            settings: service::Settings::default(),
            receive_bytes_max: 16 << 20,
            drain_delay: Duration::ZERO,
            grace: Duration::from_secs(5),
        }
    }

    /// `sqlite:FILE`, `sqlite::memory:` (the default) or `postgres://...`.
    #[must_use]
    pub fn store(mut self, url: &str) -> Self {
        self.store = StoreChoice::Url(url.to_owned());
        self
    }

    /// A store that is open already.
    #[must_use]
    pub fn open_store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = StoreChoice::Open(store);
        self
    }

    /// How to connect to PostgreSQL, instead of the defaults for its URL.
    #[must_use]
    pub fn postgres(mut self, settings: crate::store::postgres::Settings) -> Self {
        self.postgres = Some(settings);
        self
    }

    /// Whether to apply migrations at the start; on by default.
    #[must_use]
    pub fn migrate(mut self, migrate: bool) -> Self {
        self.migrate = migrate;
        self
    }

    /// The address to listen on; a free port of 127.0.0.1 by default.
    #[must_use]
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    /// The address of the admin listener; none by default.
    #[must_use]
    pub fn admin(mut self, address: Option<SocketAddr>) -> Self {
        self.admin = address;
        self
    }

    /// The `host:port` that the agent card names; the listening address by default.
    #[must_use]
    pub fn public_address(mut self, address: Option<String>) -> Self {
        self.public_address = address;
        self
    }

    /// How callers prove who they are; not at all by default.
    #[must_use]
    pub fn auth(mut self, auth: Auth) -> Self {
        self.auth = auth;
        self
    }

    /// Speaks TLS.
    #[must_use]
    pub fn tls(mut self, tls: Option<Tls>) -> Self {
        self.tls = tls;
        self
    }

    /// The keys of page tokens. Needed with PostgreSQL, where every server must have the same;
    /// otherwise fresh ones are made, or kept beside the SQLite file.
    #[must_use]
    pub fn page_token_keys(mut self, keys: KeyRing) -> Self {
        self.keys = Some(keys);
        self
    }

    /// How long a page token lives; ten minutes by default.
    #[must_use]
    pub fn page_token_lifetime(mut self, lifetime: Duration) -> Self {
        self.token_lifetime = lifetime;
        self
    }

    /// Where the server, and an SQLite store that it opens, take the time from.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The service's settings.
    #[must_use]
    pub fn settings(mut self, settings: service::Settings) -> Self {
        self.settings = settings;
        self
    }

    /// How long to go on serving after it is known that the server ends, and how long work may
    /// then take.
    #[must_use]
    pub fn drain(mut self, delay: Duration, grace: Duration) -> Self {
        self.drain_delay = delay;
        self.grace = grace;
        self
    }

    /// Opens the store, binds the port, and serves.
    ///
    /// # Errors
    /// When the store, an address or a setting cannot be used.
    pub async fn start(mut self) -> Result<Server, StartError> {
        let (store, keys) = self.open().await?;
        let listener = bind(self.listen).await?;
        let address = listener.local_addr().map_err(|e| StartError::Listen(self.listen, e))?;
        let admin = match self.admin {
            Some(address) => Some((bind(address).await?, address)),
            None => None,
        };
        let service = Service::start(
            Arc::clone(&store),
            Arc::clone(&self.agent),
            PageTokens::new(keys, self.token_lifetime),
            Arc::clone(&self.clock),
            self.settings,
        );
        let (unready, closing) = (CancellationToken::new(), CancellationToken::new());
        let (connections, background) = (TaskTracker::new(), TaskTracker::new());
        let (ready, is_ready) = watch::channel(true);
        let door = Door::new(self.auth);
        let (grpc, reporter) = grpc_routes(service.clone(), door, self.receive_bytes_max)?;
        health::tell(&reporter, true).await;
        let watch = Watch { store: Arc::clone(&store), reporter, ready, drain: unready.clone() };
        background.spawn(watch.run());

        let public = self.public_address.take().unwrap_or_else(|| address.to_string());
        let card =
            card::routes(&card::complete(service.card(), &public)).map_err(StartError::Other)?;
        let app = card.merge(grpc).fallback(layers::not_found).layer(from_fn(layers::guard));
        let acceptor = Acceptor {
            listener,
            tls: self.tls.map(|tls| tls.acceptor()),
            app,
            limits: Limits { connections_max: 10_000, streams_max: 250 },
        };
        connections.spawn(acceptor.run(connections.clone(), closing.clone()));
        let mut admin_address = None;
        if let Some((listener, asked)) = admin {
            admin_address = Some(listener.local_addr().map_err(|e| StartError::Listen(asked, e))?);
            let acceptor = Acceptor {
                listener,
                tls: None,
                app: health::admin(is_ready),
                limits: Limits { connections_max: 100, streams_max: 16 },
            };
            connections.spawn(acceptor.run(connections.clone(), closing.clone()));
        }
        connections.close();
        Ok(Server {
            address,
            admin: admin_address,
            service,
            store,
            connections,
            background,
            unready,
            closing,
            drain_delay: self.drain_delay,
            grace: self.grace,
        })
    }

    async fn open(&mut self) -> Result<(Arc<dyn Store>, KeyRing), StartError> {
        let fresh = || {
            let made = KeyRing::generate();
            made.map(|(ring, _)| ring).map_err(|error| StartError::Other(error.to_string()))
        };
        let url = match &self.store {
            StoreChoice::Open(store) => {
                let keys = self.keys.take().map_or_else(fresh, Ok)?;
                return Ok((Arc::clone(store), keys));
            }
            StoreChoice::Url(url) => url.clone(),
        };
        if let Some(path) = url.strip_prefix("sqlite:").filter(|path| !path.is_empty()) {
            let location = match path {
                ":memory:" => sqlite::Location::Memory,
                path => sqlite::Location::File(PathBuf::from(path)),
            };
            let mut settings = sqlite::Settings::new(location, Arc::clone(&self.clock));
            settings.migrate = self.migrate;
            let store = Sqlite::open(settings).await?;
            let keys = self.keys.take().map_or_else(fresh, Ok)?;
            return Ok((Arc::new(store), keys));
        }
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            let keys = self.keys.take().ok_or_else(|| {
                StartError::Other(
                    "PostgreSQL needs page-token keys, the same on every server".to_owned(),
                )
            })?;
            let settings = self.postgres.take();
            let mut settings =
                settings.unwrap_or_else(|| crate::store::postgres::Settings::new(&url));
            settings.migrate = self.migrate;
            let store = crate::store::postgres::Postgres::connect(settings).await?;
            return Ok((Arc::new(store), keys));
        }
        Err(StartError::Store(url.split(':').next().unwrap_or_default().to_owned()))
    }
}

async fn bind(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|error| StartError::Listen(address, error))
}

/// The gRPC services under one router: A2A, health, and reflection in both versions; and the way
/// to tell health.
fn grpc_routes(
    service: Service,
    door: Door,
    receive_bytes_max: usize,
) -> Result<(Router, HealthReporter), StartError> {
    let set = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let problem = |error: tonic_reflection::server::Error| StartError::Other(error.to_string());
    let (reporter, health) = tonic_health::server::health_reporter();
    let routes = Routes::from(Router::new())
        .add_service(grpc::server(service, door, receive_bytes_max))
        .add_service(health)
        .add_service(set().build_v1().map_err(problem)?)
        .add_service(set().build_v1alpha().map_err(problem)?);
    let router = routes.prepare().into_axum_router().layer(from_fn(layers::only_grpc));
    Ok((router, reporter))
}
