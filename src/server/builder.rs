//! What a server is made of, with a default for each part.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::agent::Agent;
use crate::agent::demo::Demo;
use crate::auth::Auth;
use crate::bindings;
use crate::card;
use crate::config::file::Limits;
use crate::config::{
    AdminListen, AgentName, Cards, Checked, Config, Dedupe, StoreKind, StoreUrl, Tls,
};
use crate::domain::page::{KeyRing, PageTokens};
use crate::domain::{Clock, SystemClock};
use crate::metrics::Metrics;
use crate::server::card::Card;
use crate::server::open::{OpenError, Place};
use crate::server::page_keys;
use crate::server::port::Port;
use crate::server::running::{Parts, Server};
use crate::server::signals::Signals;
use crate::service::quotas::Quotas;
use crate::service::retention::Rules;
use crate::service::{self, Service};
use crate::store::Store;

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// An address cannot be listened on.
    #[error("{setting}: cannot listen on {address}")]
    Listen {
        /// The setting that chooses it.
        setting: &'static str,
        /// Which.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// A store that several servers use needs keys that all of them have.
    #[error(
        "a PostgreSQL store needs page-token keys, the same on every server; `a2ad keys new` makes one"
    )]
    NoPageKey,
    /// The page-token key cannot be made or read.
    #[error("the page-token key cannot be used")]
    PageKey(#[source] io::Error),
    /// What the card should say clients connect to.
    #[error("the public address cannot be used: {0}")]
    PublicAddress(String),
    /// The agent card.
    #[error("the agent card cannot be served: {0}")]
    Card(String),
    /// What each caller may ask for.
    #[error("{0}")]
    Limits(String),
    /// A part of the contract cannot be served.
    #[error("the contract's descriptors cannot be read")]
    Contract(#[source] tonic_reflection::server::Error),
}

/// A server that has not started. Every method has a default that works.
#[must_use = "a builder does nothing until `serve` or `start`"]
pub struct Builder {
    pub(crate) agent: Arc<dyn Agent>,
    pub(crate) store: StoreChoice,
    pub(crate) listen: SocketAddr,
    pub(crate) admin: Option<SocketAddr>,
    pub(crate) public_address: Option<String>,
    pub(crate) cards: Cards,
    pub(crate) card_max_age: Duration,
    pub(crate) tls: Option<Tls>,
    pub(crate) auth: Auth,
    pub(crate) page_token_keys: Option<KeyRing>,
    pub(crate) page_token_lifetime: Duration,
    pub(crate) settings: service::Settings,
    pub(crate) retention: Rules,
    pub(crate) bindings: bindings::Settings,
    pub(crate) limits: Limits,
    pub(crate) clock: Option<Arc<dyn Clock>>,
    pub(crate) drain_delay: Duration,
    pub(crate) grace: Duration,
}

/// A store, or where it is.
#[derive(Debug)]
pub(crate) enum StoreChoice {
    At(Place),
    Open(Arc<dyn Store>),
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("store", &self.store)
            .field("listen", &self.listen)
            .field("auth", &self.auth)
            .finish_non_exhaustive()
    }
}

impl Builder {
    pub(crate) fn new(agent: Arc<dyn Agent>) -> Self {
        Self {
            agent,
            store: StoreChoice::At(Place::new("sqlite::memory:")),
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            admin: None,
            public_address: None,
            cards: Cards::default(),
            card_max_age: Duration::from_secs(60),
            tls: None,
            auth: Auth::none(),
            page_token_keys: None,
            page_token_lifetime: Duration::from_secs(600),
            settings: service::Settings::default(),
            retention: Rules::default(),
            bindings: bindings::Settings::default(),
            limits: Limits::default(),
            clock: None,
            drain_delay: Duration::ZERO,
            grace: Duration::from_secs(10),
        }
    }

    /// A server as these settings say.
    pub fn configured(checked: Checked) -> Self {
        let Checked {
            config,
            auth,
            page_token_keys,
            tls,
            cards,
            card: _,
            retention,
            limits,
            warnings: _,
        } = checked;
        let settings = settings(&config, &limits);
        let AgentName::Demo = config.agent;
        Self {
            agent: Arc::new(Demo),
            store: StoreChoice::At(Place::configured(config.store, !config.no_migrate)),
            listen: config.listen,
            admin: match config.admin_listen {
                AdminListen::Off => None,
                AdminListen::At(address) => Some(address),
            },
            public_address: config.card.public_url,
            cards,
            card_max_age: config.card.card_max_age,
            tls,
            auth,
            page_token_keys,
            page_token_lifetime: config.page_token_lifetime,
            settings,
            retention,
            bindings: config.protocol.of_bindings(),
            limits,
            clock: None,
            drain_delay: config.drain_delay,
            grace: config.grace,
        }
    }

    /// The store at a URL: `sqlite:PATH`, `sqlite::memory:` (the default) or `postgres://...`.
    pub fn store(mut self, url: impl Into<StoreUrl>) -> Self {
        self.store = StoreChoice::At(Place::new(url));
        self
    }

    /// The store at a place, for what a URL does not say.
    pub fn place(mut self, place: Place) -> Self {
        self.store = StoreChoice::At(place);
        self
    }

    /// A store that is open already. Its server needs [`page_token_keys`](Self::page_token_keys)
    /// if other servers use the same store.
    pub fn open_store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = StoreChoice::Open(store);
        self
    }

    /// Where clients connect. Port 0, the default, takes any free one; [`Server::address`] knows
    /// which.
    pub fn listen(mut self, address: impl Into<SocketAddr>) -> Self {
        self.listen = address.into();
        self
    }

    /// Where `/healthz` and `/readyz` are; nowhere by default.
    pub fn admin(mut self, address: Option<SocketAddr>) -> Self {
        self.admin = address;
        self
    }

    /// What the agent card says clients connect to, `host:port` or a URL; the listening address
    /// by default.
    pub fn public_address(mut self, address: Option<String>) -> Self {
        self.public_address = address;
        self
    }

    /// What is told instead of the agent's own card, what callers with credentials are told, and
    /// the interfaces that both name.
    pub fn cards(mut self, cards: Cards) -> Self {
        self.cards = cards;
        self
    }

    /// How long clients may keep the card without asking again; a minute without this.
    pub fn card_max_age(mut self, age: Duration) -> Self {
        self.card_max_age = age;
        self
    }

    /// Speaks TLS alone.
    pub fn tls(mut self, tls: Option<Tls>) -> Self {
        self.tls = tls;
        self
    }

    /// Who may call; without it everybody may, as one principal.
    pub fn auth(mut self, auth: Auth) -> Self {
        self.auth = auth;
        self
    }

    /// The keys of page tokens, the same for all servers of one store.
    pub fn page_token_keys(mut self, keys: KeyRing) -> Self {
        self.page_token_keys = Some(keys);
        self
    }

    /// How long a page token works after its page; ten minutes without this.
    pub fn page_token_lifetime(mut self, lifetime: Duration) -> Self {
        self.page_token_lifetime = lifetime;
        self
    }

    /// How the service behaves, sizes included.
    pub fn settings(mut self, settings: service::Settings) -> Self {
        self.settings = settings;
        self
    }

    /// How long what has ended is kept; for ever without this.
    pub fn retention(mut self, rules: Rules) -> Self {
        self.retention = rules;
        self
    }

    /// What the bindings do where the protocol leaves a choice.
    pub fn bindings(mut self, settings: bindings::Settings) -> Self {
        self.bindings = settings;
        self
    }

    /// How much is taken.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.settings.limits = limits.of_service();
        self.limits = limits;
        self
    }

    /// Where time comes from, for tests.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// How long calls are still accepted once the server is to end, and how long calls and turns
    /// then have to end; nothing and ten seconds by default.
    pub fn drain(mut self, delay: Duration, grace: Duration) -> Self {
        self.drain_delay = delay;
        self.grace = grace;
        self
    }

    /// Starts the server, serves until SIGTERM or SIGINT, then ends in order. Returns whether
    /// everything ended in time.
    ///
    /// # Errors
    /// When the server cannot start.
    pub async fn serve(self) -> Result<bool, StartError> {
        let signals = Signals::listen();
        Ok(self.start().await?.until(signals).await)
    }

    /// Starts the server and returns: the ports are taken, the store is open, calls are taken. A
    /// server that cannot have its ports makes no file and migrates no database.
    ///
    /// # Errors
    /// When the server cannot start.
    pub async fn start(mut self) -> Result<Server, StartError> {
        let quotas = self.limits.quotas();
        let quotas = quotas.map_err(|wrong| StartError::Limits(wrong.join("; ")))?;
        if quotas != Quotas::default() {
            self.settings.quotas = quotas;
        }
        let port = Port::take("--listen", self.listen)?;
        let admin = self.admin.map(|address| Port::take("--admin-listen", address)).transpose()?;
        let (store, keys) = self.open().await?;
        let (listener, admin) = (port.listen()?, admin.map(Port::listen).transpose()?);
        let own = self.cards.public.clone().unwrap_or_else(|| self.agent.card());
        let place = self.place_of(&listener)?.or_of(&own);
        self.cards.retention = self.retention.clone();
        let offers = self.cards.offers(own, &place, &self.auth.schemes());
        let offers = offers.map_err(|wrong| StartError::Card(wrong.join("; ")))?;
        let tokens = PageTokens::new(keys, self.page_token_lifetime);
        let clock = self.clock.unwrap_or_else(|| Arc::new(SystemClock));
        let auth = self.auth.timed_by(Arc::clone(&clock));
        let (shared, timed) = (Arc::clone(&store), Arc::clone(&clock));
        let service = Service::start(
            shared,
            self.agent,
            offers,
            tokens,
            timed,
            self.settings,
            Metrics::default(),
        );
        service.retain(self.retention);
        let age = (self.card_max_age, clock.now_us());
        let keys = &self.cards.signer.keys;
        let card = Card::new(service.offers().card().clone(), place, keys, age);
        let parts = Parts {
            card: card.map_err(StartError::Card)?,
            service,
            store,
            auth,
            bindings: self.bindings,
            tls: self.tls,
            limits: self.limits,
            drain_delay: self.drain_delay,
            grace: self.grace,
        };
        Server::start_on(parts, listener, admin).await
    }

    /// Where the card says that clients connect.
    fn place_of(&self, listener: &tokio::net::TcpListener) -> Result<card::Place, StartError> {
        let secure = self.tls.is_some();
        let address = self.listen;
        let bound = listener.local_addr().map_err(|source| StartError::Listen {
            setting: "--listen",
            address,
            source,
        })?;
        let public = self.public_address.as_deref().map(|text| card::Address::parse(text, secure));
        let public = public.transpose().map_err(StartError::PublicAddress)?;
        Ok(card::Place::new(&self.cards.interfaces, public, bound, secure))
    }

    /// The store, and the keys that go with it.
    async fn open(&self) -> Result<(Arc<dyn Store>, KeyRing), StartError> {
        let place = match &self.store {
            StoreChoice::Open(store) => {
                let keys = match &self.page_token_keys {
                    Some(keys) => keys.clone(),
                    None => page_keys::fresh().map_err(StartError::PageKey)?,
                };
                return Ok((Arc::clone(store), keys));
            }
            StoreChoice::At(place) => place,
        };
        let kind = place.url.kind();
        if kind == Some(StoreKind::Postgres) && self.page_token_keys.is_none() {
            return Err(StartError::NoPageKey);
        }
        let store = place.open(self.clock.clone()).await?;
        let keys = match (&self.page_token_keys, kind) {
            (Some(keys), _) => Ok(keys.clone()),
            (None, Some(StoreKind::SqliteFile(path))) => page_keys::beside(Path::new(path)),
            (None, _) => page_keys::fresh(),
        };
        Ok((store, keys.map_err(StartError::PageKey)?))
    }
}

/// The service's part of the settings.
fn settings(config: &Config, limits: &Limits) -> service::Settings {
    config.protocol.of_service(service::Settings {
        dedupe: match config.dedupe {
            Dedupe::On => service::Dedupe::On,
            Dedupe::Off => service::Dedupe::Off,
            Dedupe::Auto => service::Dedupe::Auto,
        },
        dedupe_window: config.dedupe_window,
        lease: config.lease,
        renew: config.lease / 3,
        grace: config.cancel_grace,
        max_attempts: i32::try_from(config.max_attempts).unwrap_or(i32::MAX),
        runners: usize::try_from(config.max_turns).unwrap_or(usize::MAX),
        history_default: config.history,
        list_history_default: config.list_history,
        limits: limits.of_service(),
        ..service::Settings::default()
    })
}
