//! The compact form of a JWS (RFC 7515), read with care and believed only once it is verified.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

/// The longest token that is looked at, in bytes.
const BYTES_MAX: usize = 16 * 1024;
/// What `typ` may say (RFC 9068): other kinds of token are for other purposes.
const TYPES: [&str; 3] = ["jwt", "at+jwt", "application/at+jwt"];

/// Whether a bearer token has the form of a JWT: three parts in the letters of base64url, divided
/// by two dots. The last may be empty, so that a token without signature is refused as a token. An
/// API key of that form can only be sent as `x-api-key`, where tokens are taken as well.
#[must_use]
pub(super) fn is_jwt(text: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    text.bytes().all(letter) && text.bytes().filter(|byte| *byte == b'.').count() == 2
}

/// A token, taken apart. Nothing in it is believed.
pub(super) struct Token<'a> {
    pub(super) algorithm: String,
    pub(super) kid: Option<String>,
    pub(super) claims: Map<String, Value>,
    pub(super) signed: &'a str,
    pub(super) signature: Vec<u8>,
}

impl<'a> Token<'a> {
    /// `None` for what is no token.
    pub(super) fn read(text: &'a str) -> Option<Self> {
        if text.len() > BYTES_MAX || !is_jwt(text) {
            return None;
        }
        let (signed, signature) = text.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let header = object(header)?;
        // RFC 7515, 4.1.11: whoever does not understand it must not accept the rest.
        if header.contains_key("crit") {
            return None;
        }
        let word = |name: &str| match header.get(name) {
            None => Some(None),
            Some(Value::String(text)) => Some(Some(text.clone())),
            Some(_) => None,
        };
        let kind = word("typ")?;
        if kind.is_some_and(|kind| !TYPES.contains(&kind.to_ascii_lowercase().as_str())) {
            return None;
        }
        Some(Self {
            algorithm: word("alg")??,
            kid: word("kid")?,
            claims: object(claims)?,
            signed,
            signature: URL_SAFE_NO_PAD.decode(signature).ok()?,
        })
    }
}

/// A JSON object in base64url.
pub(super) fn object(text: &str) -> Option<Map<String, Value>> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    serde_json::from_slice(&bytes).ok()
}
