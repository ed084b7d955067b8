//! The settings file.

use serde::Deserialize;

use crate::auth::{ApiKey, ApiKeys};
use crate::service;

/// What the settings file may hold. Unknown keys are refused.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct File {
    /// Keys of callers, for `--auth api-key`.
    pub api_keys: Vec<ApiKeyEntry>,
    /// Sizes of what goes in and out.
    pub limits: LimitsEntry,
}

/// One `[[api_keys]]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApiKeyEntry {
    /// Names the principal: `key:<name>`.
    pub name: String,
    /// The SHA-256 of the key, in hex.
    pub sha256: String,
    /// The tenants it reaches; the default tenant if there are none.
    #[serde(default)]
    pub tenants: Vec<String>,
}

/// `[limits]`, in bytes.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsEntry {
    /// A client's message.
    pub message_bytes: Option<usize>,
    /// An agent's status message with its metadata.
    pub status_bytes: Option<usize>,
    /// One update of an artifact.
    pub chunk_bytes: Option<usize>,
    /// A page of a listing.
    pub page_bytes: Option<usize>,
    /// A task in any other answer.
    pub task_bytes: Option<usize>,
}

impl File {
    /// Reads TOML.
    ///
    /// # Errors
    /// Where and what is wrong, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error| error.message().to_owned())
    }

    /// The keys.
    ///
    /// # Errors
    /// All that is wrong with them, in words.
    pub fn keys(&self) -> Result<ApiKeys, Vec<String>> {
        let mut problems = Vec::new();
        let mut keys = Vec::new();
        for entry in &self.api_keys {
            let mut hash = [0; 32];
            if hex::decode_to_slice(&entry.sha256, &mut hash).is_err() {
                let name = &entry.name;
                problems.push(format!("API key {name}: sha256 must be 64 hex digits"));
                continue;
            }
            match ApiKey::new(&entry.name, hash, &entry.tenants) {
                Ok(key) => keys.push(key),
                Err(problem) => problems.push(problem),
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        ApiKeys::new(keys).map_err(|problem| vec![problem])
    }
}

impl LimitsEntry {
    /// The limits, with defaults for what is not set.
    #[must_use]
    pub fn service(&self) -> service::Limits {
        let default = service::Limits::default();
        service::Limits {
            message_bytes: self.message_bytes.unwrap_or(default.message_bytes),
            status_bytes: self.status_bytes.unwrap_or(default.status_bytes),
            chunk_bytes: self.chunk_bytes.unwrap_or(default.chunk_bytes),
            page_bytes: self.page_bytes.unwrap_or(default.page_bytes),
            task_bytes: self.task_bytes.unwrap_or(default.task_bytes),
            nesting: default.nesting,
        }
    }
}
