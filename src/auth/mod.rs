//! Credentials to [`Caller`]: who asks, and for which tenants.
//!
//! Identity comes from headers (on gRPC: metadata) and never from a request's body (AUTHN-03).
//! Every operation of the protocol asks here first. Health, reflection and the public agent card
//! need no credentials: load balancers, tools and discovery come without any.
//!
//! A server has one or more [`Mode`]s, in an order. The first that finds its own kind of credential
//! decides; one that is presented and bad is refused and never shown to the next. Which kind a
//! bearer token is of is told by its form alone (`token::is_jwt`).

mod api_keys;
mod audit;
mod certificates;
mod challenge;
mod claims;
mod fetch;
mod forwarded;
mod gateway;
mod jwks;
mod jwt;
mod keys;
mod peers;
mod refused;
mod schemes;
mod scopes;
mod token;

use std::net::SocketAddr;
use std::sync::Arc;

use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderName};

use crate::domain::{Caller, Clock, SystemClock};

pub use api_keys::{API_KEY_HEADER, ApiKey, ApiKeys};
pub use certificates::{Certificates, Holder, PeerCertificate};
pub use claims::{ClaimNames, Rules, tenants};
pub use fetch::{Fetched, Source, SourceError};
pub use gateway::Gateway;
pub use jwks::{Jwks, Timing};
pub use jwt::{Issuer, Jwt};
pub use keys::Algorithm;
pub use peers::Peer;
pub use refused::{Reason, Refused};
pub use scopes::{Class, Needed};

/// What a request shows of who makes it.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// Its headers; on gRPC its metadata.
    pub headers: &'a HeaderMap,
    /// The other end of its connection.
    pub peer: Option<SocketAddr>,
    /// The certificate that it has proven to hold.
    pub certificate: Option<&'a PeerCertificate>,
}

/// One way to prove who one is.
#[derive(Debug, Clone)]
pub enum Mode {
    /// By a key that the settings know the SHA-256 of.
    ApiKeys(ApiKeys),
    /// By a token that a trusted issuer has signed.
    Jwt(Jwt),
    /// By what a gateway says of them.
    Gateway(Gateway),
    /// By a certificate of their own.
    Certificates(Certificates),
}

impl Mode {
    /// As `--auth` calls it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::ApiKeys(_) => "api-key",
            Self::Jwt(_) => "jwt",
            Self::Gateway(_) => "gateway",
            Self::Certificates(_) => "mtls",
        }
    }
}

/// How callers prove who they are. Without any mode: not at all; every caller is `anonymous` and
/// may name any tenant.
#[derive(Debug, Clone)]
pub struct Auth {
    modes: Arc<[Mode]>,
    needed: Needed,
    clock: Arc<dyn Clock>,
}

impl Default for Auth {
    fn default() -> Self {
        Self::none()
    }
}

impl Auth {
    /// Everybody is let in, as one principal.
    #[must_use]
    pub fn none() -> Self {
        Self::of(Vec::new())
    }

    /// These modes, in this order.
    #[must_use]
    pub fn of(modes: Vec<Mode>) -> Self {
        Self { modes: modes.into(), needed: Needed::default(), clock: Arc::new(SystemClock) }
    }

    /// The mode `api-key` alone.
    #[must_use]
    pub fn api_keys(keys: ApiKeys) -> Self {
        Self::of(vec![Mode::ApiKeys(keys)])
    }

    /// Asks for these scopes.
    #[must_use]
    pub fn needing(self, needed: Needed) -> Self {
        Self { needed, ..self }
    }

    /// Takes the time from `clock`.
    #[must_use]
    pub fn timed_by(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// Whether everybody is let in.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.modes.is_empty()
    }

    /// The modes, in their order.
    #[must_use]
    pub fn modes(&self) -> &[Mode] {
        &self.modes
    }

    /// Who makes a request that shows this.
    ///
    /// # Errors
    /// Why nobody is let in: as the caller reads it, and as the log does.
    pub async fn caller(&self, seen: Seen<'_>) -> Result<Caller, Refused> {
        if self.is_none() {
            return Ok(Caller::anonymous());
        }
        let now_us = self.clock.now_us();
        for mode in self.modes.iter() {
            let found = match mode {
                Mode::ApiKeys(keys) => keys.caller(seen.headers, self.takes_jwts()),
                Mode::Jwt(jwt) => jwt.caller(seen.headers, self.takes_keys(), now_us).await,
                Mode::Gateway(gateway) => gateway.caller(seen, now_us),
                Mode::Certificates(of) => of.of_peer(seen.certificate),
            };
            match found {
                Ok(None) => {}
                Ok(Some(caller)) => return Ok(caller),
                Err(refused) => return Err(refused.by(mode.name())),
            }
        }
        let forged = |mode: &Mode| matches!(mode, Mode::Gateway(of) if of.is_forged(seen));
        let forged = self.modes.iter().any(forged);
        let reason = if forged { Reason::NoGateway } else { Reason::Missing };
        Err(Refused::new(reason, self.wanted()))
    }

    fn takes_jwts(&self) -> bool {
        self.modes.iter().any(|mode| matches!(mode, Mode::Jwt(_)))
    }

    fn takes_keys(&self) -> bool {
        self.modes.iter().any(|mode| matches!(mode, Mode::ApiKeys(_)))
    }

    /// What would be enough, in words.
    fn wanted(&self) -> String {
        let of = |mode: &Mode| match mode {
            Mode::ApiKeys(_) => api_keys::NEEDED,
            Mode::Jwt(_) => jwt::NEEDED,
            Mode::Gateway(_) => gateway::NEEDED,
            Mode::Certificates(_) => certificates::NEEDED,
        };
        self.modes.iter().map(of).collect::<Vec<_>>().join("; or ")
    }

    /// What keeps the keys of issuers fresh, each to be run until the server ends.
    #[must_use]
    pub fn upkeep(&self) -> Vec<Jwks> {
        let of = |mode: &Mode| match mode {
            Mode::ApiKeys(_) | Mode::Gateway(_) | Mode::Certificates(_) => Vec::new(),
            Mode::Jwt(jwt) => jwt.sets().cloned().collect(),
        };
        self.modes.iter().flat_map(of).collect()
    }
}

/// The value of a header that occurs at most once.
///
/// # Errors
/// It occurs twice, which proves nothing, or is not text.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Refused> {
    let mut values = headers.get_all(name).iter();
    let Some(first) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Refused::new(Reason::Twice, format!("send the header {name} once")));
    }
    match first.to_str() {
        Ok(text) => Ok(Some(text.trim())),
        Err(_not_text) => Err(Refused::new(Reason::Malformed, format!("{name} must be text"))),
    }
}

/// The bearer token of a request, if it has one.
///
/// # Errors
/// As [`only`].
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Refused> {
    let authorization = only(headers, &AUTHORIZATION)?;
    let parts = authorization.and_then(|text| text.split_once(' '));
    Ok(parts.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, t)| t.trim()))
}

/// First path segments of the HTTP+JSON binding, which no tenant may be called (TEN-08).
const RESERVED_TENANTS: [&str; 5] =
    ["tasks", "message:send", "message:stream", "extendedAgentCard", ".well-known"];

/// Whether a tenant of this name would hide a path of the HTTP+JSON binding (TEN-08).
#[must_use]
pub fn is_reserved_tenant(tenant: &str) -> bool {
    RESERVED_TENANTS.contains(&tenant)
}
