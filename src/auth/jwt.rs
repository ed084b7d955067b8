//! The mode `jwt`: bearer tokens that a trusted issuer has signed (RFC 7519, RFC 9068).
//!
//! The issuer that a token names is looked up among those of the settings, its key by `kid` in that
//! issuer's own set, and the algorithm is the key's. What the token says of its algorithm must be
//! the same and decides nothing.

use http::HeaderMap;
use serde_json::Value;

use crate::auth::claims::REFUSED;
use crate::auth::jwks::Missing;
use crate::auth::token::{Token, is_jwt};
use crate::auth::{Jwks, Reason, Refused, Rules, bearer};
use crate::domain::Caller;

pub(super) const NEEDED: &str =
    "a token is needed: send `authorization: Bearer <JWT>` of an issuer that is trusted here";

/// Whose tokens are believed, and what they mean.
#[derive(Debug, Clone)]
pub struct Issuer {
    /// What its tokens must say.
    pub rules: Rules,
    /// Its keys.
    pub keys: Jwks,
    /// Where it describes itself (its discovery document), for the card.
    pub discovery: Option<String>,
}

/// The issuers of the mode `jwt`.
#[derive(Debug, Clone)]
pub struct Jwt(Vec<Issuer>);

impl Jwt {
    /// All issuers that are trusted.
    ///
    /// # Errors
    /// In words: none, or one that occurs twice.
    pub fn new(issuers: Vec<Issuer>) -> Result<Self, String> {
        if issuers.is_empty() {
            return Err("no issuers are set: add [[jwt]] to the settings file".to_owned());
        }
        for (n, issuer) in issuers.iter().enumerate() {
            let name = &issuer.rules.issuer;
            if issuers.iter().take(n).any(|other| &other.rules.issuer == name) {
                return Err(format!("two [[jwt]] have the issuer {name}"));
            }
        }
        Ok(Self(issuers))
    }

    /// The issuers, in the order of the settings.
    pub fn issuers(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|issuer| issuer.rules.issuer.as_str())
    }

    pub(super) fn all(&self) -> &[Issuer] {
        &self.0
    }

    pub(super) fn sets(&self) -> impl Iterator<Item = &Jwks> {
        self.0.iter().map(|issuer| &issuer.keys)
    }

    /// Whose token a request bears, if it bears one. Where `others` are taken as well, a bearer
    /// token of another form is not looked at.
    pub(super) async fn caller(
        &self,
        headers: &HeaderMap,
        others: bool,
        now_us: i64,
    ) -> Result<Option<Caller>, Refused> {
        let Some(text) = bearer(headers)? else { return Ok(None) };
        if others && !is_jwt(text) {
            return Ok(None);
        }
        self.verified(text, now_us).await.map(Some)
    }

    async fn verified(&self, text: &str, now_us: i64) -> Result<Caller, Refused> {
        let refuse = |reason| Refused::new(reason, REFUSED);
        let token = Token::read(text).ok_or_else(|| refuse(Reason::Malformed))?;
        let named = token.claims.get("iss").and_then(Value::as_str);
        let issuer = self.0.iter().find(|issuer| Some(issuer.rules.issuer.as_str()) == named);
        let issuer = issuer.ok_or_else(|| refuse(Reason::UnknownIssuer))?;
        let key = issuer.keys.key(token.kid.as_deref()).await.map_err(|missing| match missing {
            Missing::Unknown => refuse(Reason::UnknownKey),
            Missing::NoKeys => Refused::unavailable(format!("no keys of {}", issuer.rules.issuer)),
        })?;
        if token.algorithm != key.algorithm.name() {
            return Err(refuse(Reason::WrongAlgorithm));
        }
        if !key.verifies(token.signed.as_bytes(), &token.signature) {
            return Err(refuse(Reason::BadSignature));
        }
        issuer.rules.caller(&token.claims, now_us)
    }
}
