//! Every setting, its default and its bounds.
//!
//! A scalar is a flag and an `A2AD_` variable; the flag wins. What has structure stands in a TOML
//! file ([`mod@file`]). [`Config::check`] finds everything that is wrong at once and refuses what is
//! unsafe; only what it returns is used to run a server.

mod card;
mod check;
pub mod cli;
pub mod file;
mod identity;
mod protocol;
mod quotas;
pub mod retention;
mod show;
mod tls;
mod values;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use clap::{Args, ValueEnum};

use crate::auth::ApiKey;

pub use card::{CardArgs, CardForms, Cards};
pub use check::Checked;
pub use protocol::{
    AgentRole, CancelAgain, EarlyErrors, MissingVersion, ProtocolArgs, RequireExtensions,
    StatusTable, Wait,
};
pub use retention::RetentionArgs;
pub use tls::{ClientCerts, Tls, TlsFiles};
pub use values::{Secret, StoreKind, StoreUrl, duration, duration_text};

/// All scalars.
#[derive(Debug, Clone, Args)]
pub struct Config {
    /// Settings file in TOML, for API keys, interfaces and limits
    #[arg(long, env = "A2AD_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where clients connect
    #[arg(long, env = "A2AD_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:50051")]
    pub listen: SocketAddr,
    /// Where `/healthz` and `/readyz` are, or `off`
    #[arg(
        long,
        env = "A2AD_ADMIN_LISTEN",
        value_name = "ADDRESS",
        default_value = "127.0.0.1:9464"
    )]
    pub admin_listen: AdminListen,
    /// The agent card.
    #[command(flatten)]
    pub card: CardArgs,
    /// Certificate chain in PEM; with it the port speaks TLS alone
    #[arg(long, env = "A2AD_TLS_CERT", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// Private key in PEM
    #[arg(long, env = "A2AD_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Authorities in PEM whose client certificates are believed
    #[arg(long, env = "A2AD_TLS_CLIENT_CA", value_name = "FILE")]
    pub tls_client_ca: Option<PathBuf>,
    /// Whether clients need a certificate of such an authority to connect at all
    #[arg(long, env = "A2AD_TLS_CLIENT_CERTS", value_name = "WHEN", default_value = "optional")]
    pub tls_client_certs: ClientCerts,
    /// How callers prove who they are: not at all, or in one of these ways, looked for in this order
    #[arg(
        long,
        env = "A2AD_AUTH",
        value_name = "MODE[,MODE...]",
        value_delimiter = ',',
        default_value = "none"
    )]
    pub auth: Vec<AuthMode>,
    /// Allow `--auth none` on an address that other machines reach
    #[arg(long, env = "A2AD_INSECURE")]
    pub insecure: bool,
    /// The store, and how it is reached.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Do not apply migrations at start; refuse a schema that lacks some
    #[arg(long, env = "A2AD_NO_MIGRATE")]
    pub no_migrate: bool,
    /// Keys of page tokens; the first signs, all verify [default: one is made beside the SQLite
    /// file]
    #[arg(
        long,
        env = "A2AD_PAGE_TOKEN_KEYS",
        value_name = "ID:HEX[,ID:HEX...]",
        hide_env_values = true
    )]
    pub page_token_keys: Option<Secret>,
    /// How long a page token works after its page
    #[arg(
        long,
        env = "A2AD_PAGE_TOKEN_LIFETIME",
        value_name = "TIME",
        default_value = "10m",
        value_parser = duration
    )]
    pub page_token_lifetime: Duration,
    /// The agent that does the work
    #[arg(long, env = "A2AD_AGENT", value_name = "NAME", default_value = "demo")]
    pub agent: AgentName,
    /// Whether a message that is sent again finds its first task; `auto` is on for callers with
    /// credentials
    #[arg(long, env = "A2AD_DEDUPE", value_name = "WHEN", default_value = "auto")]
    pub dedupe: Dedupe,
    /// How long a message is remembered for that
    #[arg(
        long,
        env = "A2AD_DEDUPE_WINDOW",
        value_name = "TIME",
        default_value = "24h",
        value_parser = duration
    )]
    pub dedupe_window: Duration,
    /// How long what has ended is kept.
    #[command(flatten)]
    pub retention: RetentionArgs,
    /// Messages of history in a task when a call names no number
    #[arg(long, env = "A2AD_HISTORY", value_name = "N", default_value_t = 100)]
    pub history: u32,
    /// Messages of history in a listing's tasks when a call names no number
    #[arg(long, env = "A2AD_LIST_HISTORY", value_name = "N", default_value_t = 0)]
    pub list_history: u32,
    /// Where the protocol leaves a choice.
    #[command(flatten)]
    pub protocol: ProtocolArgs,
    /// How long a turn stays with a server that is silent
    #[arg(
        long,
        env = "A2AD_LEASE",
        value_name = "TIME",
        default_value = "15s",
        value_parser = duration
    )]
    pub lease: Duration,
    /// How often an agent may fail at one turn
    #[arg(
        long,
        env = "A2AD_MAX_ATTEMPTS",
        value_name = "N",
        default_value_t = 3,
        value_parser = clap::value_parser!(u32).range(1..=100)
    )]
    pub max_attempts: u32,
    /// How many turns run at a time
    #[arg(
        long,
        env = "A2AD_MAX_TURNS",
        value_name = "N",
        default_value_t = 64,
        value_parser = clap::value_parser!(u32).range(1..=10_000)
    )]
    pub max_turns: u32,
    /// How long an agent has to end a task its own way after a cancel
    #[arg(
        long,
        env = "A2AD_CANCEL_GRACE",
        value_name = "TIME",
        default_value = "5s",
        value_parser = duration
    )]
    pub cancel_grace: Duration,
    /// How long calls and turns have to end when the server ends
    #[arg(
        long,
        env = "A2AD_GRACE",
        value_name = "TIME",
        default_value = "10s",
        value_parser = duration
    )]
    pub grace: Duration,
    /// How long calls are still accepted after a signal, so that balancers look elsewhere first
    #[arg(
        long,
        env = "A2AD_DRAIN_DELAY",
        value_name = "TIME",
        default_value = "2s",
        value_parser = duration
    )]
    pub drain_delay: Duration,
    /// What a log line looks like
    #[arg(long, env = "A2AD_LOG_FORMAT", value_name = "FORM", default_value = "text")]
    pub log_format: LogForm,
    /// What is logged: a level, or levels by part, as in `warn,a2ad=debug`
    #[arg(long, env = "A2AD_LOG", value_name = "FILTER", default_value = "info")]
    pub log: String,
}

/// The store, and how it is reached.
#[derive(Debug, Clone, Args)]
pub struct StoreArgs {
    /// `sqlite:PATH`, `sqlite::memory:` or `postgres://...`
    #[arg(
        long,
        env = "A2AD_STORE",
        value_name = "URL",
        default_value = "sqlite:a2ad.db",
        hide_env_values = true
    )]
    pub store: StoreUrl,
    /// PostgreSQL without a pooler in between, for LISTEN and migrations [default: --store]
    #[arg(long, env = "A2AD_STORE_DIRECT", value_name = "URL", hide_env_values = true)]
    pub store_direct: Option<StoreUrl>,
    /// How statements reach PostgreSQL: `typed` works through poolers, `cached` costs a third of
    /// it without one, `auto` finds out which it is
    #[arg(long, env = "A2AD_STATEMENT_MODE", value_name = "MODE", default_value = "auto")]
    pub statement_mode: StatementMode,
    /// The most connections to PostgreSQL, beside one that listens
    #[arg(
        long,
        env = "A2AD_STORE_CONNECTIONS",
        value_name = "N",
        default_value_t = 16,
        value_parser = clap::value_parser!(u16).range(1..=1000)
    )]
    pub store_connections: u16,
}

/// Where the admin listener is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdminListen {
    /// Nowhere.
    Off,
    /// At this address.
    At(SocketAddr),
}

impl FromStr for AdminListen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self::Off);
        }
        let address = text.parse().map_err(|error| format!("{error}; or write off"))?;
        Ok(Self::At(address))
    }
}

impl fmt::Display for AdminListen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::At(address) => address.fmt(f),
        }
    }
}

/// How callers prove who they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AuthMode {
    /// Not at all: everybody is one principal.
    None,
    /// Bearers of a token of a trusted issuer.
    Jwt,
    /// Whoever a listed gateway names.
    Gateway,
    /// Holders of a client certificate.
    Mtls,
    /// Holders of a key.
    ApiKey,
}

/// Agents that are built in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AgentName {
    /// Shows what a task can do.
    Demo,
}

/// What a log line looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogForm {
    /// For people.
    Text,
    /// One JSON object.
    Json,
}

/// When a repeated message is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Dedupe {
    /// For every caller.
    On,
    /// For none.
    Off,
    /// For callers with credentials.
    Auto,
}

/// How statements reach PostgreSQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StatementMode {
    /// As the way allows: cached when it is direct, typed through a pooler.
    Auto,
    /// Unnamed, with the types of their parameters.
    Typed,
    /// Prepared once a connection.
    Cached,
}

impl Config {
    /// Whether everybody is let in.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.auth.contains(&AuthMode::None)
    }
}

fn name_of(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// A fresh API key, and its entry for the settings file.
///
/// # Errors
/// In words: a name that cannot be used, or a system without random bytes.
pub fn new_api_key(name: &str) -> Result<(String, String), String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| error.to_string())?;
    let key = format!("a2ad_{}", URL_SAFE_NO_PAD.encode(bytes));
    let hash = ApiKey::hash(&key);
    ApiKey::new(name, hash, &[])?;
    let name = toml::Value::from(name);
    Ok((key, format!("[[api_keys]]\nname = {name}\nsha256 = \"{}\"", hex::encode(hash))))
}
