//! From settings to what runs: everything is checked, and all that is wrong is told at once.

use std::path::Path;
use std::time::Duration;

use tracing_subscriber::EnvFilter;

use crate::agent::Agent;
use crate::agent::demo::Demo;
use crate::auth::Auth;
use crate::config::card::Site;
use crate::config::file::{File, Limits};
use crate::config::{
    AdminListen, AgentName, Cards, Config, StatementMode, StoreArgs, StoreKind, Tls, TlsFiles,
    duration_text,
};
use crate::contract::v1::AgentCard;
use crate::domain::page::KeyRing;
use crate::service::retention::Rules;

/// Settings that go together, with the files they name read.
#[derive(Debug, Clone)]
pub struct Checked {
    /// The scalars.
    pub config: Config,
    /// Who may call.
    pub auth: Auth,
    /// The keys of page tokens; `None` makes one.
    pub page_token_keys: Option<KeyRing>,
    /// The certificate, if the port speaks TLS.
    pub tls: Option<Tls>,
    /// The cards.
    pub cards: Cards,
    /// The public card as it would be told at `--listen`: completed and signed.
    pub card: AgentCard,
    /// How long what has ended is kept.
    pub retention: Rules,
    /// How much is taken.
    pub limits: Limits,
    /// What is allowed but deserves a second thought, in words.
    pub warnings: Vec<String>,
}

/// What is wrong, collected.
#[derive(Debug, Default)]
pub(super) struct Problems(Vec<String>);

impl Problems {
    pub(super) fn add(&mut self, problem: impl Into<String>) {
        self.0.push(problem.into());
    }

    /// The value, or its problem kept.
    pub(super) fn take<T>(&mut self, outcome: Result<T, String>) -> Option<T> {
        outcome.map_err(|problem| self.0.push(problem)).ok()
    }
}

impl Problems {
    /// The value, or all of its problems kept.
    pub(super) fn take_all<T>(&mut self, outcome: Result<T, Vec<String>>) -> Option<T> {
        outcome.map_err(|problems| self.0.extend(problems)).ok()
    }
}

impl Config {
    /// Checks every setting, and reads the files that they name.
    ///
    /// # Errors
    /// All that is wrong or unsafe, each in words that say what would be right.
    pub fn check(self) -> Result<Checked, Vec<String>> {
        let mut problems = Problems::default();
        let file = self.read_file(&mut problems);
        self.store.check(&mut problems);
        self.check_reach(&mut problems);
        self.check_times(&mut problems);
        if let Some(file) = &file {
            check_limits(&file.limits, &mut problems);
        }
        let tenants = file.as_ref().map_or(&[][..], |file| &file.tenants);
        let retention = problems.take_all(self.retention.rules(tenants)).unwrap_or_default();
        let page_token_keys = self.read_page_token_keys(&mut problems);
        let tls = self.read_tls(&mut problems);
        let auth = file.as_ref().map_or(Auth::none(), |file| self.read_auth(file, &mut problems));
        let own = match self.agent {
            AgentName::Demo => Demo.card(),
        };
        let (cards, card) = match &file {
            None => (Cards::default(), own),
            Some(file) => {
                let (listen, secure) = (self.listen, self.tls_cert.is_some());
                let retention = retention.clone();
                let scoped = &file.extended_card;
                let site = Site { own, auth: &auth, listen, secure, scoped, retention };
                self.card.read(&file.interfaces, site, &mut problems)
            }
        };
        if let Err(problem) = EnvFilter::try_new(&self.log) {
            problems.add(format!("--log: {problem}"));
        }
        let limits = match file {
            Some(file) if problems.0.is_empty() => file.limits,
            _ => return Err(problems.0),
        };
        let warnings = self.warnings();
        Ok(Checked {
            config: self,
            auth,
            page_token_keys,
            tls,
            cards,
            card,
            retention,
            limits,
            warnings,
        })
    }

    /// `None` if it cannot be read: then nothing is known of what it says.
    fn read_file(&self, problems: &mut Problems) -> Option<File> {
        problems.take(read_file(self.config.as_deref()))
    }

    /// What strangers could reach.
    fn check_reach(&self, problems: &mut Problems) {
        let reach = |flag: &str, address: &std::net::SocketAddr| {
            let safe = address.ip().is_loopback() || self.insecure || !self.is_open();
            (!safe).then(|| {
                format!(
                    "{flag} {address}: other machines reach this address, and --auth none lets \
                     everybody in; use another --auth, a loopback address, or --insecure if \
                     something else keeps strangers out"
                )
            })
        };
        problems.0.extend(reach("--listen", &self.listen));
        if let AdminListen::At(address) = &self.admin_listen {
            problems.0.extend(reach("--admin-listen", address));
            if address == &self.listen && address.port() != 0 {
                problems.add("--admin-listen: must not be the address of --listen");
            }
        }
    }

    fn check_times(&self, problems: &mut Problems) {
        let day = Duration::from_secs(86_400);
        let second = Duration::from_secs(1);
        for (flag, value, least, most) in [
            ("--lease", self.lease, second, Duration::from_secs(3600)),
            ("--dedupe-window", self.dedupe_window, second, 30 * day),
            ("--page-token-lifetime", self.page_token_lifetime, second, 7 * day),
            ("--cancel-grace", self.cancel_grace, Duration::ZERO, Duration::from_secs(600)),
            ("--grace", self.grace, Duration::ZERO, Duration::from_secs(3600)),
            ("--card-max-age", self.card.card_max_age, Duration::ZERO, 365 * day),
            ("--drain-delay", self.drain_delay, Duration::ZERO, Duration::from_secs(3600)),
        ] {
            if value < least || value > most {
                problems.add(format!(
                    "{flag} {}: must be from {} to {}",
                    duration_text(value),
                    duration_text(least),
                    duration_text(most)
                ));
            }
        }
    }

    fn read_page_token_keys(&self, problems: &mut Problems) -> Option<KeyRing> {
        match &self.page_token_keys {
            Some(text) => problems.take(
                KeyRing::parse(text.expose())
                    .map_err(|error| format!("--page-token-keys: {error}")),
            ),
            None => {
                if self.store.store.kind() == Some(StoreKind::Postgres) {
                    problems.add(
                        "--page-token-keys: needed with PostgreSQL, since every server must read \
                         the tokens of every other; `a2ad keys new` makes one",
                    );
                }
                None
            }
        }
    }

    fn read_tls(&self, problems: &mut Problems) -> Option<Tls> {
        let (chain, key) = match (&self.tls_cert, &self.tls_key) {
            (None, None) => {
                if self.tls_client_ca.is_some() {
                    problems.add("--tls-client-ca: needs --tls-cert and --tls-key as well");
                }
                return None;
            }
            (Some(_), None) => {
                problems.add("--tls-cert: needs --tls-key as well");
                return None;
            }
            (None, Some(_)) => {
                problems.add("--tls-key: needs --tls-cert as well");
                return None;
            }
            (Some(chain), Some(key)) => (chain, key),
        };
        let wanted = self.tls_client_certs;
        let clients = self.tls_client_ca.clone().map(|path| (path, wanted));
        let files = TlsFiles { chain: chain.clone(), key: key.clone(), clients };
        problems.take(Tls::from_files(files))
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings: Vec<_> = self.card.warnings().collect();
        if !self.is_open() && self.tls_cert.is_none() && !self.listen.ip().is_loopback() {
            warnings.push(
                "credentials cross the network in clear unless something in front of this server \
                 speaks TLS; --tls-cert and --tls-key make it do so itself"
                    .to_owned(),
            );
        }
        if self.insecure && self.is_open() && !self.listen.ip().is_loopback() {
            warnings.push(format!("everybody who reaches {} may call", self.listen));
        }
        warnings
    }
}

impl StoreArgs {
    /// What is wrong with the store's settings.
    ///
    /// # Errors
    /// All of it, in words.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Problems::default();
        self.check(&mut problems);
        problems.0
    }

    fn check(&self, problems: &mut Problems) {
        const FORMS: &str = "write sqlite:PATH, sqlite::memory: or postgres://user@host/database";
        let kind = self.store.kind();
        if kind.is_none() {
            problems.add(format!("--store: {FORMS}"));
        }
        if let Some(direct) = &self.store_direct
            && direct.kind() != Some(StoreKind::Postgres)
        {
            problems.add("--store-direct: write postgres://user@host/database");
        }
        if kind.is_some() && kind != Some(StoreKind::Postgres) {
            if self.store_direct.is_some() {
                problems.add("--store-direct: only PostgreSQL has one");
            }
            if self.statement_mode != StatementMode::Auto {
                problems.add("--statement-mode: only PostgreSQL has one");
            }
        }
    }
}

fn check_limits(limits: &Limits, problems: &mut Problems) {
    const MIB: usize = 1024 * 1024;
    let Limits {
        connections,
        streams_per_connection,
        receive_bytes,
        message_bytes,
        part_bytes,
        parts,
        status_bytes,
        chunk_bytes,
        page_bytes,
        task_bytes,
        unsent_bytes,
        unsent_bytes_per_connection,
        rates: _,
        caller: _,
        tenant: _,
    } = *limits;
    let streams = usize::try_from(streams_per_connection).unwrap_or(usize::MAX);
    for (name, value, least, most) in [
        ("connections", connections, 1, 1_000_000),
        ("streams_per_connection", streams, 1, 10_000),
        ("receive_bytes", receive_bytes, 1024, 256 * MIB),
        ("message_bytes", message_bytes, 1024, receive_bytes),
        ("part_bytes", part_bytes, 1024, message_bytes),
        ("parts", parts, 1, 1_000_000),
        ("status_bytes", status_bytes, 1024, 64 * MIB),
        ("chunk_bytes", chunk_bytes, 1024, 64 * MIB),
        ("page_bytes", page_bytes, 64 * 1024, 64 * MIB),
        ("task_bytes", task_bytes, 64 * 1024, 1024 * MIB),
        ("unsent_bytes", unsent_bytes, 4 * MIB, 1024 * 1024 * MIB),
        ("unsent_bytes_per_connection", unsent_bytes_per_connection, MIB, unsent_bytes),
    ] {
        if value < least || value > most {
            problems.add(format!("limits.{name} = {value}: must be from {least} to {most}"));
        }
    }
    problems.0.extend(limits.quotas().err().unwrap_or_default());
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))
}

/// The settings file, if one is named.
pub(super) fn read_file(path: Option<&Path>) -> Result<File, String> {
    let Some(path) = path else { return Ok(File::default()) };
    let text = read(path).and_then(|bytes| {
        String::from_utf8(bytes)
            .map_err(|error| format!("{} is not text: {}", path.display(), error.utf8_error()))
    });
    let file = text.and_then(|text| {
        File::parse(&text).map_err(|problem| format!("{}: {problem}", path.display()))
    });
    file.map_err(|problem| format!("--config: {problem}"))
}
