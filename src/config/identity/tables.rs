//! The tables of identity in the settings file.

use std::path::PathBuf;

use serde::Deserialize;

/// An issuer whose tokens are believed.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JwtIssuer {
    /// What `iss` says, letter by letter.
    pub issuer: String,
    /// What `aud` must name one of.
    pub audiences: Vec<String>,
    /// A file, or a URL, of its JWK set; `--auth jwt` needs it.
    #[serde(default)]
    pub jwks: Option<String>,
    /// Where it describes itself, for the card: the URL of its discovery document.
    #[serde(default)]
    pub discovery: Option<String>,
    /// What its keys are for; without any, everything that is known here.
    #[serde(default)]
    pub algorithms: Vec<String>,
    /// How far two clocks may be apart: 30s without this.
    #[serde(default)]
    pub leeway: Option<String>,
    /// The claim that lists tenants: `tenants` without this, none if it is empty.
    #[serde(default)]
    pub tenants_claim: Option<String>,
    /// The claim that lists scopes: `scope`, else `scp`, without this.
    #[serde(default)]
    pub scopes_claim: Option<String>,
    /// The tenants of tokens that list none.
    #[serde(default)]
    pub tenants: Vec<String>,
    /// How long keys are fresh whose source does not say: 5m without this.
    #[serde(default)]
    pub refresh: Option<String>,
    /// The least time between two readings of them: 10s without this.
    #[serde(default)]
    pub refetch: Option<String>,
    /// How long the last ones are used while none can be read: 24h without this.
    #[serde(default)]
    pub keep: Option<String>,
}

/// Gateways that are believed.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gateway {
    /// `loopback`, addresses, networks, or `sha256:` and the hash of a client certificate.
    pub peers: Vec<String>,
    /// The header with verified claims: `x-jwt-payload` without this, none if it is empty.
    #[serde(default)]
    pub payload_header: Option<String>,
    /// Whether `x-forwarded-client-cert` is believed.
    #[serde(default)]
    pub forwarded_client_certs: bool,
}

/// The holder of client certificates.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    /// What its certificates call it: the first URI, else the first DNS name, else the common name.
    /// With `*` at the end, all that begin so.
    pub name: String,
    /// The tenants it may name. Without any: the default tenant.
    #[serde(default)]
    pub tenants: Vec<String>,
    /// What it may do beside.
    #[serde(default)]
    pub scopes: Vec<String>,
}

/// The scope that each class of operations needs.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scopes {
    /// GetTask, ListTasks and SubscribeToTask.
    pub read: Option<String>,
    /// SendMessage and SendStreamingMessage.
    pub send: Option<String>,
    /// CancelTask.
    pub cancel: Option<String>,
    /// GetExtendedAgentCard.
    pub card: Option<String>,
    /// The operations on webhooks.
    pub push: Option<String>,
}

/// An extended agent card for callers with a scope.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScopedCard {
    /// Which scope.
    pub scope: String,
    /// The card's file, in JSON or TOML.
    pub card: PathBuf,
}
