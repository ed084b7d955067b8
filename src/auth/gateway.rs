//! The mode `gateway`: identity that a gateway in front of this server has verified and says in a
//! header.
//!
//! It is believed from listed peers alone. From any other peer the headers are nothing: they give
//! no identity, and whoever sends them is let in only by another credential. So a gateway must take
//! them out of what its own clients send, and set them itself.

use http::HeaderMap;
use http::header::HeaderName;
use serde_json::Value;

use crate::auth::claims::REFUSED;
use crate::auth::peers::Peer;
use crate::auth::{Certificates, Reason, Refused, Rules, Seen, forwarded, only, token};
use crate::domain::Caller;

/// The most bytes of a header that is read.
const BYTES_MAX: usize = 16 * 1024;
const XFCC: HeaderName = HeaderName::from_static("x-forwarded-client-cert");

pub(super) const NEEDED: &str = "an identity is needed that the gateway in front of this server has \
                                 verified";

/// What gateways say, and who they are.
#[derive(Debug, Clone)]
pub struct Gateway {
    /// Who is believed.
    pub peers: Vec<Peer>,
    /// The header with the claims of a token that was verified, as JSON in base64url.
    pub payload: Option<HeaderName>,
    /// What these claims must say, by issuer.
    pub rules: Vec<Rules>,
    /// Whose forwarded certificates are taken, if any are.
    pub certificates: Option<Certificates>,
}

impl Gateway {
    /// Whom a gateway names, if one does. The claims of a token come before a certificate: the
    /// certificate may be that of another gateway.
    pub(super) fn caller(&self, seen: Seen<'_>, now_us: i64) -> Result<Option<Caller>, Refused> {
        if !self.is_peer(seen) {
            return Ok(None);
        }
        if let Some(name) = &self.payload
            && let Some(text) = only(seen.headers, name)?
        {
            return self.of_claims(text, now_us).map(Some);
        }
        if let Some(certificates) = &self.certificates
            && let Some(text) = only(seen.headers, &XFCC)?
        {
            let name = (text.len() <= BYTES_MAX).then(|| forwarded::name(text)).flatten();
            return certificates.caller(name.as_deref()).map(Some);
        }
        Ok(None)
    }

    fn is_peer(&self, seen: Seen<'_>) -> bool {
        self.peers.iter().any(|peer| peer.is(seen.peer, seen.certificate))
    }

    /// Whether somebody says what only a gateway may say.
    pub(super) fn is_forged(&self, seen: Seen<'_>) -> bool {
        let holds = |headers: &HeaderMap, name: &HeaderName| headers.contains_key(name);
        !self.is_peer(seen)
            && (self.payload.as_ref().is_some_and(|name| holds(seen.headers, name))
                || self.certificates.is_some() && holds(seen.headers, &XFCC))
    }

    /// The gateway has verified the signature; everything else is checked here again.
    fn of_claims(&self, text: &str, now_us: i64) -> Result<Caller, Refused> {
        let refuse = |reason| Refused::new(reason, REFUSED);
        // Gateways may or may not pad.
        let text = (text.len() <= BYTES_MAX).then(|| text.trim_end_matches('='));
        let claims = text.and_then(token::object).ok_or_else(|| refuse(Reason::Malformed))?;
        let named = claims.get("iss").and_then(Value::as_str);
        let rules = self.rules.iter().find(|rules| Some(rules.issuer.as_str()) == named);
        rules.ok_or_else(|| refuse(Reason::UnknownIssuer))?.caller(&claims, now_us)
    }
}
