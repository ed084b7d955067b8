//! The public agent card at its well-known path, by which clients find the interfaces, and the keys
//! that signed it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::header::{
    CACHE_CONTROL, CONTENT_TYPE, ETAG, HOST, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED, VARY,
};
use http::{HeaderMap, HeaderValue, StatusCode};
use sha2::{Digest, Sha256};

use crate::card::keys::Keys;
use crate::card::{self, Place};
use crate::contract::v1;

/// The card, written once unless it depends on who asks.
#[derive(Debug, Clone)]
pub(crate) struct Card {
    card: v1::AgentCard,
    place: Place,
    written: Written,
    /// The keys that signed it, if any did.
    keys: Option<Written>,
    cache_control: HeaderValue,
    /// The second in which this card began to be told.
    since: SystemTime,
    last_modified: HeaderValue,
}

/// The bytes that are sent, and their name.
#[derive(Debug, Clone)]
struct Written {
    body: Bytes,
    tag: HeaderValue,
}

impl Written {
    fn of(card: &v1::AgentCard) -> Result<Self, String> {
        let body = card::to_json(card)?;
        if card.signatures.is_empty() {
            return Self::named(body.clone(), &body, "");
        }
        // Most signatures are other bytes each time that they are made, and mean the same. So all
        // servers of an agent have one tag, which is weak: it names what the card says.
        let mut unsigned = card.clone();
        unsigned.signatures.iter_mut().for_each(|one| one.signature.clear());
        Self::named(body, &card::to_json(&unsigned)?, "W/")
    }

    fn of_keys(keys: &Keys) -> Result<Self, String> {
        let body = serde_json::to_vec(&keys.to_jwks()).map_err(|error| error.to_string())?;
        Self::named(body.clone(), &body, "")
    }

    fn named(body: Vec<u8>, content: &[u8], weak: &str) -> Result<Self, String> {
        let digest = hex::encode(Sha256::digest(content).get(..16).unwrap_or_default());
        let tag =
            HeaderValue::try_from(format!("{weak}\"{digest}\"")).map_err(|e| e.to_string())?;
        Ok(Self { body: body.into(), tag })
    }
}

impl Card {
    /// Whether there are keys to be told.
    pub(crate) fn has_keys(&self) -> bool {
        self.keys.is_some()
    }

    /// A completed card, which clients may keep for `max_age` and which is told since `now_us`.
    ///
    /// # Errors
    /// When it holds what JSON cannot say.
    pub(crate) fn new(
        card: v1::AgentCard,
        place: Place,
        keys: &Keys,
        (max_age, now_us): (Duration, i64),
    ) -> Result<Self, String> {
        let seconds = u64::try_from(now_us / 1_000_000).unwrap_or_default();
        let since = UNIX_EPOCH + Duration::from_secs(seconds);
        let header = |text: String| HeaderValue::try_from(text).map_err(|error| error.to_string());
        Ok(Self {
            written: Written::of(&card)?,
            keys: (!keys.public.is_empty()).then(|| Written::of_keys(keys)).transpose()?,
            card,
            place,
            cache_control: header(format!("public, max-age={}", max_age.as_secs()))?,
            since,
            last_modified: header(httpdate::fmt_http_date(since))?,
        })
    }

    /// The card for somebody who asked for it under this name. `true` if it is one of several.
    fn at(&self, authority: Option<&str>) -> Result<(Written, bool), String> {
        match self.place.interfaces_at(authority) {
            None => Ok((self.written.clone(), false)),
            Some(supported_interfaces) => {
                let card = v1::AgentCard { supported_interfaces, ..self.card.clone() };
                Ok((Written::of(&card)?, true))
            }
        }
    }

    /// `written`, or 304 to a client that has it already.
    fn cached(&self, written: Written, sent: &HeaderMap, kind: &'static str) -> Response {
        let Written { body, tag } = written;
        let known = self.is_known(sent, &tag);
        let mut headers = HeaderMap::new();
        headers.insert(CACHE_CONTROL, self.cache_control.clone());
        headers.insert(ETAG, tag);
        headers.insert(LAST_MODIFIED, self.last_modified.clone());
        if known {
            return (StatusCode::NOT_MODIFIED, headers).into_response();
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        (headers, body).into_response()
    }

    /// Whether a client that sent `headers` has what `tag` names. A date counts only where no tags
    /// are sent (RFC 9110, 13.1.3).
    fn is_known(&self, headers: &HeaderMap, tag: &HeaderValue) -> bool {
        let strong = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
        if headers.contains_key(IF_NONE_MATCH) {
            let tag = tag.to_str().map(strong).unwrap_or_default();
            let sent = headers.get_all(IF_NONE_MATCH).iter().filter_map(|sent| sent.to_str().ok());
            return sent.flat_map(|s| s.split(',')).map(strong).any(|s| s == tag || s == "*");
        }
        let date = headers.get(IF_MODIFIED_SINCE).and_then(|date| date.to_str().ok());
        let date = date.and_then(|date| httpdate::parse_http_date(date).ok());
        date.is_some_and(|date| self.since <= date)
    }
}

/// Answers the card, or 304 to whoever has it already (CACHE-01 to CACHE-04). It needs neither
/// credentials nor a protocol version (CARD-15).
pub(crate) async fn answer(State(card): State<Card>, request: Request) -> Response {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    // HTTP/2 has the authority in its URI.
    let asked = request.uri().authority().map(|authority| authority.as_str()).or(host);
    let (written, is_one_of_several) = match card.at(asked) {
        Ok(written) => written,
        Err(problem) => {
            tracing::error!(error.text = problem, "the agent card cannot be written");
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
    };
    let mut response = card.cached(written, request.headers(), "application/json");
    if is_one_of_several {
        response.headers_mut().insert(VARY, HeaderValue::from_static("host"));
    }
    response
}

/// Answers the keys that verify the card's signatures (SIGN-12).
pub(crate) async fn answer_keys(State(card): State<Card>, request: Request) -> Response {
    match card.keys.clone() {
        Some(keys) => card.cached(keys, request.headers(), "application/jwk-set+json"),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
