//! The settings file: what has structure.
//!
//! ```
//! # let text = r#"
//! ## Made with `a2ad keys new --api-key ann`, which prints the key once.
//! [[api_keys]]
//! name = "ann"
//! sha256 = "f80ae5d1be38607e1fff38fde00a587e12b1ec080213fd22f0ce57b83a7d320f"
//! tenants = ["", "blue"]
//!
//! [limits]
//! connections = 1000
//! # "#;
//! # let file = a2ad::config::file::File::parse(text).unwrap();
//! # assert_eq!(file.api_keys.len(), 1);
//! ```

use serde::Deserialize;

use crate::config::quotas::{self, Rates, Shares};
use crate::config::retention::TenantSettings;
use crate::service;

pub use crate::config::identity::tables::{Certificate, Gateway, JwtIssuer, ScopedCard, Scopes};

/// All that the file may hold. Members that it does not know are refused.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct File {
    /// The keys of `--auth api-key`.
    pub api_keys: Vec<ApiKey>,
    /// The issuers of `--auth jwt`, and of what gateways forward.
    pub jwt: Vec<JwtIssuer>,
    /// Who is believed by `--auth gateway`, and about what.
    pub gateway: Option<Gateway>,
    /// The holders of client certificates.
    pub certificates: Vec<Certificate>,
    /// The scopes that operations need.
    pub scopes: Scopes,
    /// Extended agent cards for callers with a scope; the first that fits counts.
    pub extended_card: Vec<ScopedCard>,
    /// What the agent card says clients connect to, the preferred one first.
    pub interfaces: Vec<Interface>,
    /// What tenants have of their own.
    pub tenants: Vec<TenantSettings>,
    /// How much is taken.
    pub limits: Limits,
}

/// One API key.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApiKey {
    /// Its tasks belong to the principal `key:<name>`.
    pub name: String,
    /// The SHA-256 of the key in hex; the key itself stands nowhere.
    pub sha256: String,
    /// The tenants it may name. Without any: the default tenant, which is the empty text.
    #[serde(default)]
    pub tenants: Vec<String>,
    /// What its holder may do beside.
    #[serde(default)]
    pub scopes: Vec<String>,
}

impl std::fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, sha256: _, tenants, scopes } = self;
        f.debug_struct("ApiKey")
            .field("name", name)
            .field("tenants", tenants)
            .field("scopes", scopes)
            .finish_non_exhaustive()
    }
}

/// One interface of the agent card.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interface {
    /// `GRPC`, `JSONRPC`, `HTTP+JSON`, or the URI of another binding.
    pub binding: String,
    /// `host:port` for gRPC, an absolute URL for the others.
    pub url: String,
    /// The tenant that clients of this interface name in each request.
    #[serde(default)]
    pub tenant: String,
}

/// How much is taken.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Connections at a time; further ones wait.
    pub connections: usize,
    /// Calls at a time on one HTTP/2 connection.
    pub streams_per_connection: u32,
    /// Bytes of one request.
    pub receive_bytes: usize,
    /// Bytes of a client's message.
    pub message_bytes: usize,
    /// Bytes of one part of it.
    pub part_bytes: usize,
    /// Parts of it.
    pub parts: usize,
    /// Bytes of an agent's status message with its metadata.
    pub status_bytes: usize,
    /// Bytes of one update of an artifact.
    pub chunk_bytes: usize,
    /// Bytes of a page of a listing.
    pub page_bytes: usize,
    /// Bytes of a task in any other answer.
    pub task_bytes: usize,
    /// Bytes of answers that clients have not read yet.
    pub unsent_bytes: usize,
    /// Bytes of such answers on one connection.
    pub unsent_bytes_per_connection: usize,
    /// Calls of each caller, by kind.
    pub rates: Rates,
    /// What each caller may have at a time.
    pub caller: Shares,
    /// What each tenant may have at a time.
    pub tenant: Shares,
}

impl Default for Limits {
    fn default() -> Self {
        let service::Limits {
            message_bytes,
            part_bytes,
            parts,
            status_bytes,
            chunk_bytes,
            page_bytes,
            task_bytes,
            nesting: _,
        } = service::Limits::default();
        Self {
            connections: 10_000,
            streams_per_connection: 250,
            receive_bytes: 16 * 1024 * 1024,
            message_bytes,
            part_bytes,
            parts,
            status_bytes,
            chunk_bytes,
            page_bytes,
            task_bytes,
            unsent_bytes: 256 * 1024 * 1024,
            unsent_bytes_per_connection: 64 * 1024 * 1024,
            rates: Rates::default(),
            caller: Shares::default(),
            tenant: Shares::default(),
        }
    }
}

impl Limits {
    /// How much may be on its way to clients.
    #[must_use]
    pub fn of_answers(&self) -> service::room::Limits {
        service::room::Limits {
            bytes: self.unsent_bytes,
            bytes_per_connection: self.unsent_bytes_per_connection,
        }
    }

    /// What each caller may ask for.
    ///
    /// # Errors
    /// All that is wrong, each with its name.
    pub fn quotas(&self) -> Result<service::quotas::Quotas, Vec<String>> {
        quotas::read(&self.rates, self.caller, self.tenant)
    }

    /// The service's part of them.
    #[must_use]
    pub fn of_service(&self) -> service::Limits {
        let Self {
            connections: _,
            streams_per_connection: _,
            receive_bytes: _,
            message_bytes,
            part_bytes,
            parts,
            status_bytes,
            chunk_bytes,
            page_bytes,
            task_bytes,
            unsent_bytes: _,
            unsent_bytes_per_connection: _,
            rates: _,
            caller: _,
            tenant: _,
        } = *self;
        let nesting = service::Limits::default().nesting;
        service::Limits {
            message_bytes,
            part_bytes,
            parts,
            status_bytes,
            chunk_bytes,
            page_bytes,
            task_bytes,
            nesting,
        }
    }
}

impl File {
    /// Reads the file's text.
    ///
    /// # Errors
    /// Where it is wrong and how. The words name keys and lines but repeat no line, since a line
    /// may hold what should not be printed.
    pub fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error: toml::de::Error| {
            let line = error
                .span()
                .map(|span| text.get(..span.start).unwrap_or_default().matches('\n').count() + 1);
            let message = error.message();
            match line {
                Some(line) => format!("line {line}: {message}"),
                None => message.to_owned(),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_is_all_defaults() {
        let file = File::parse("").unwrap();
        assert!(file.api_keys.is_empty());
        assert_eq!(file.limits, Limits::default());
    }

    #[test]
    fn unknown_members_are_refused_by_line_and_name() {
        for (text, line, word) in [
            ("apikeys = 1", "line 1", "apikeys"),
            ("[limits]\nconections = 1", "line 2", "conections"),
            ("[[api_keys]]\nname = 'a'\nsha256 = ''\nkey = 's3cret'", "line 4", "key"),
        ] {
            let error = File::parse(text).unwrap_err();
            assert!(error.contains(line) && error.contains(word), "{error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn what_is_printed_holds_no_hash() {
        let file = File::parse("[[api_keys]]\nname = 'a'\nsha256 = 'abcd'").unwrap();
        assert!(!format!("{file:?}").contains("abcd"));
    }
}
