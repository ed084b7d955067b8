//! Every setting, its default and its bounds.
//!
//! Scalars are flags with an `A2AD_` variable each; what has structure stands in a TOML file. A
//! flag wins over its variable, and both over nothing: the file holds other things.

mod file;
mod values;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::auth::Auth;
use crate::domain::page::KeyRing;
use crate::server::Tls;
use crate::service;
use crate::store::postgres::{self, StatementMode};
use crate::telemetry::LogFormat;

pub use file::File;
pub use values::{Secret, StoreKind, StoreUrl, duration, duration_text};

/// How callers prove who they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AuthMode {
    /// Not at all: everybody is one principal.
    None,
    /// By a key of the settings file.
    ApiKey,
}

/// Which agent does the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AgentChoice {
    /// The built-in demo agent.
    Demo,
}

/// When the same message counts as sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DedupeChoice {
    /// For every caller.
    On,
    /// For nobody.
    Off,
    /// For callers with credentials.
    Auto,
}

/// How statements go to PostgreSQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StatementChoice {
    /// Unnamed: safe behind a pooler.
    Typed,
    /// Prepared: for direct connections.
    Cached,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogChoice {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Where tasks are kept.
#[derive(Debug, Clone, Args)]
pub struct StoreArgs {
    /// Where tasks are kept: `sqlite:FILE`, `sqlite::memory:` or `postgres://user:password@host/db`
    #[arg(
        long,
        env = "A2AD_STORE",
        default_value = "sqlite:a2ad.db",
        value_name = "URL",
        hide_env_values = true
    )]
    pub store: StoreUrl,
    /// The same PostgreSQL database without a pooler between, for LISTEN and migrations
    #[arg(long, env = "A2AD_STORE_DIRECT", value_name = "URL", hide_env_values = true)]
    pub store_direct: Option<StoreUrl>,
    /// How statements go to PostgreSQL: typed is safe behind a pooler, cached needs direct
    /// connections
    #[arg(long, env = "A2AD_STATEMENT_MODE", default_value = "typed")]
    pub statement_mode: StatementChoice,
    /// The most connections to PostgreSQL, beside one that listens (1 to 1000)
    #[arg(long, env = "A2AD_STORE_CONNECTIONS", default_value_t = 16, value_name = "N")]
    pub store_connections: u16,
}

/// Settings of `serve` and `check`.
#[derive(Debug, Clone, Args)]
pub struct Config {
    /// The address to serve on
    #[arg(long, env = "A2AD_LISTEN", default_value = "127.0.0.1:50051", value_name = "ADDR")]
    pub listen: SocketAddr,
    /// The address of /healthz and /readyz
    #[arg(long, env = "A2AD_ADMIN_LISTEN", default_value = "127.0.0.1:9464", value_name = "ADDR")]
    pub admin_listen: SocketAddr,
    /// The host:port that the agent card names, if it is not the listening address
    #[arg(long, env = "A2AD_PUBLIC_ADDRESS", value_name = "HOST:PORT")]
    pub public_address: Option<String>,
    /// Where tasks are kept.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Do not apply migrations; refuse an older schema
    #[arg(long, env = "A2AD_NO_MIGRATE")]
    pub no_migrate: bool,
    /// Keys that sign page tokens, ID:HEX[,ID:HEX...]; the first one signs, all of them verify
    #[arg(long, env = "A2AD_PAGE_TOKEN_KEYS", value_name = "KEYS", hide_env_values = true)]
    pub page_token_keys: Option<Secret>,
    /// How long a page token lives (1m to 3d)
    #[arg(long, env = "A2AD_PAGE_TOKEN_LIFETIME", default_value = "10m", value_parser = duration, value_name = "TIME")]
    pub page_token_lifetime: Duration,
    /// Which agent does the work
    #[arg(long, env = "A2AD_AGENT", default_value = "demo")]
    pub agent: AgentChoice,
    /// How callers prove who they are
    #[arg(long, env = "A2AD_AUTH", default_value = "none")]
    pub auth: AuthMode,
    /// When the same message counts as sent again; auto is for callers with credentials
    #[arg(long, env = "A2AD_DEDUPE", default_value = "auto")]
    pub dedupe: DedupeChoice,
    /// How long a runner may be silent before its turn goes to another (500ms to 1h)
    #[arg(long, env = "A2AD_LEASE", default_value = "15s", value_parser = duration, value_name = "TIME")]
    pub lease: Duration,
    /// How long a canceled agent, and work at the end of the server, may take (0s to 1h)
    #[arg(long, env = "A2AD_GRACE", default_value = "5s", value_parser = duration, value_name = "TIME")]
    pub grace: Duration,
    /// How long to go on serving after SIGTERM while health says NOT_SERVING (0s to 10m)
    #[arg(long, env = "A2AD_DRAIN_DELAY", default_value = "0s", value_parser = duration, value_name = "TIME")]
    pub drain_delay: Duration,
    /// How often an agent may fail in one turn (1 to 100)
    #[arg(long, env = "A2AD_MAX_ATTEMPTS", default_value_t = 3, value_name = "N")]
    pub max_attempts: i32,
    /// How many turns run at a time (1 to 10000)
    #[arg(long, env = "A2AD_RUNNERS", default_value_t = 64, value_name = "N")]
    pub runners: usize,
    /// The certificate chain for TLS, in PEM
    #[arg(long, env = "A2AD_TLS_CERT", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// The private key for TLS, in PEM
    #[arg(long, env = "A2AD_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// The settings file, in TOML: API keys and limits
    #[arg(long, env = "A2AD_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Serve other machines although callers need no credentials
    #[arg(long, env = "A2AD_INSECURE")]
    pub insecure: bool,
    /// What is logged, such as info or info,a2ad=debug
    #[arg(long, env = "A2AD_LOG", default_value = "info", value_name = "FILTER")]
    pub log: String,
    /// How log lines look
    #[arg(long, env = "A2AD_LOG_FORMAT", default_value = "text")]
    pub log_format: LogChoice,
}

/// Everything checked and read: what a server is built from.
#[derive(Debug)]
pub struct Checked {
    /// How callers prove who they are.
    pub auth: Auth,
    /// The keys of page tokens, if any are set.
    pub keys: Option<KeyRing>,
    /// TLS, if it is set.
    pub tls: Option<Tls>,
    /// The service's settings.
    pub service: service::Settings,
}

impl StoreArgs {
    /// How to connect, if the store is PostgreSQL.
    #[must_use]
    pub fn postgres(&self) -> Option<postgres::Settings> {
        (self.store.kind() == Some(StoreKind::Postgres)).then(|| {
            let mut settings = postgres::Settings::new(self.store.expose());
            settings.direct_url = self.store_direct.as_ref().map(|url| url.expose().to_owned());
            settings.statement_mode = match self.statement_mode {
                StatementChoice::Typed => StatementMode::Typed,
                StatementChoice::Cached => StatementMode::Cached,
            };
            settings.pool_size = usize::from(self.store_connections);
            settings
        })
    }

    fn check(&self, problems: &mut Vec<String>) {
        let kind = self.store.kind();
        if kind.is_none() {
            problems.push(
                "--store is none: use sqlite:FILE, sqlite::memory: or postgres://...".to_owned(),
            );
        }
        if let Some(direct) = &self.store_direct {
            if direct.kind() != Some(StoreKind::Postgres) {
                problems.push("--store-direct must be postgres://...".to_owned());
            }
            if kind != Some(StoreKind::Postgres) {
                problems.push("--store-direct goes with a PostgreSQL --store alone".to_owned());
            }
        }
        between(problems, "--store-connections", self.store_connections, 1, 1000);
    }
}

fn between<T: PartialOrd + std::fmt::Display>(
    problems: &mut Vec<String>,
    flag: &str,
    value: T,
    least: T,
    most: T,
) {
    if value < least || value > most {
        problems.push(format!("{flag} is {value}, must be from {least} to {most}"));
    }
}

fn lasts(problems: &mut Vec<String>, flag: &str, value: Duration, least: &str, most: &str) {
    let bound = |text| duration(text).unwrap_or_default();
    if value < bound(least) || value > bound(most) {
        let value = duration_text(value);
        problems.push(format!("{flag} is {value}, must be from {least} to {most}"));
    }
}

impl Config {
    /// Reads the files that the settings name and checks everything.
    ///
    /// # Errors
    /// All problems, each in a sentence of its own, none of them with a secret.
    pub fn check(&self) -> Result<Checked, Vec<String>> {
        let mut problems = Vec::new();
        self.store.check(&mut problems);
        self.check_numbers(&mut problems);
        let file = self.read_file(&mut problems);
        let auth = self.read_auth(&file, &mut problems);
        let keys = self.read_keys(&mut problems);
        let tls = self.read_tls(&mut problems);
        self.check_exposure(&mut problems);
        if !problems.is_empty() {
            return Err(problems);
        }
        let service = service::Settings {
            dedupe: match self.dedupe {
                DedupeChoice::On => service::Dedupe::On,
                DedupeChoice::Off => service::Dedupe::Off,
                DedupeChoice::Auto => service::Dedupe::Auto,
            },
            lease: self.lease,
            renew: self.lease / 3,
            grace: self.grace,
            max_attempts: self.max_attempts,
            runners: self.runners,
            limits: file.limits.service(),
            ..service::Settings::default()
        };
        Ok(Checked { auth, keys, tls, service })
    }

    /// The format of log lines.
    #[must_use]
    pub fn log_format(&self) -> LogFormat {
        match self.log_format {
            LogChoice::Text => LogFormat::Text,
            LogChoice::Json => LogFormat::Json,
        }
    }

    /// The file of the key that is made when none is set: beside the SQLite file.
    #[must_use]
    pub fn key_file(&self) -> Option<PathBuf> {
        match self.store.store.kind() {
            Some(StoreKind::SqliteFile(path)) => Some(PathBuf::from(format!("{path}.page-key"))),
            Some(StoreKind::SqliteMemory | StoreKind::Postgres) | None => None,
        }
    }

    fn check_numbers(&self, problems: &mut Vec<String>) {
        between(problems, "--max-attempts", self.max_attempts, 1, 100);
        between(problems, "--runners", self.runners, 1, 10_000);
        lasts(problems, "--lease", self.lease, "500ms", "1h");
        lasts(problems, "--grace", self.grace, "0s", "1h");
        lasts(problems, "--drain-delay", self.drain_delay, "0s", "10m");
        lasts(problems, "--page-token-lifetime", self.page_token_lifetime, "1m", "3d");
    }

    fn read_file(&self, problems: &mut Vec<String>) -> File {
        let Some(path) = &self.config else { return File::default() };
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => {
                problems.push(format!("--config {} cannot be read: {error}", path.display()));
                return File::default();
            }
        };
        File::parse(&text).unwrap_or_else(|problem| {
            problems.push(format!("--config {}: {problem}", path.display()));
            File::default()
        })
    }

    fn read_auth(&self, file: &File, problems: &mut Vec<String>) -> Auth {
        match self.auth {
            AuthMode::None => {
                if !file.api_keys.is_empty() {
                    problems.push(
                        "the settings file has API keys, but --auth is none: add --auth api-key"
                            .to_owned(),
                    );
                }
                Auth::None
            }
            AuthMode::ApiKey => match file.keys() {
                Ok(keys) => Auth::ApiKeys(keys),
                Err(found) => {
                    problems.extend(found);
                    Auth::None
                }
            },
        }
    }

    fn read_keys(&self, problems: &mut Vec<String>) -> Option<KeyRing> {
        let Some(text) = &self.page_token_keys else {
            if self.store.store.kind() == Some(StoreKind::Postgres) {
                problems.push(
                    "PostgreSQL needs --page-token-keys, the same on every server: make one with \
                     `a2ad keys new`"
                        .to_owned(),
                );
            }
            return None;
        };
        match KeyRing::parse(text.expose()) {
            Ok(keys) => Some(keys),
            Err(error) => {
                problems.push(format!("--page-token-keys: {error}"));
                None
            }
        }
    }

    fn read_tls(&self, problems: &mut Vec<String>) -> Option<Tls> {
        let (cert, key) = match (&self.tls_cert, &self.tls_key) {
            (None, None) => return None,
            (Some(cert), Some(key)) => (cert, key),
            (Some(_), None) | (None, Some(_)) => {
                problems.push("--tls-cert and --tls-key go together".to_owned());
                return None;
            }
        };
        let mut read = |flag: &str, path: &PathBuf| {
            std::fs::read(path).map_err(|error| {
                problems.push(format!("{flag} {} cannot be read: {error}", path.display()));
            })
        };
        let (chain, key) = (read("--tls-cert", cert), read("--tls-key", key));
        let (Ok(chain), Ok(key)) = (chain, key) else { return None };
        match Tls::from_pem(&chain, &key) {
            Ok(tls) => Some(tls),
            Err(problem) => {
                problems.push(format!("--tls-cert and --tls-key: {problem}"));
                None
            }
        }
    }

    fn check_exposure(&self, problems: &mut Vec<String>) {
        let is_open = self.auth == AuthMode::None && !self.insecure;
        if is_open && !self.listen.ip().is_loopback() {
            problems.push(format!(
                "--listen {} lets other machines in, and --auth none asks nobody who they are: \
                 choose --auth api-key, or say --insecure if something in front protects it",
                self.listen
            ));
        }
        if !self.admin_listen.ip().is_loopback() && !self.insecure {
            problems.push(format!(
                "--admin-listen {} is open to other machines: use a loopback address, or say \
                 --insecure if something in front protects it",
                self.admin_listen
            ));
        }
    }
}
