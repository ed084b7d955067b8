//! The public agent card at its well-known path, by which clients find the interfaces.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::header::{
    CACHE_CONTROL, CONTENT_TYPE, ETAG, HOST, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED, VARY,
};
use http::{HeaderMap, HeaderValue, StatusCode};
use sha2::{Digest, Sha256};

use crate::card::{self, Place};
use crate::contract::v1;

/// The card, written once unless it depends on who asks.
#[derive(Debug, Clone)]
pub(crate) struct Card {
    card: v1::AgentCard,
    place: Place,
    written: Written,
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
        let digest = hex::encode(Sha256::digest(&body).get(..16).unwrap_or_default());
        let tag = HeaderValue::try_from(format!("\"{digest}\"")).map_err(|e| e.to_string())?;
        Ok(Self { body: body.into(), tag })
    }
}

impl Card {
    /// A completed card, which clients may keep for `max_age` and which is told since `now_us`.
    ///
    /// # Errors
    /// When it holds what JSON cannot say.
    pub(crate) fn new(
        card: v1::AgentCard,
        place: Place,
        (max_age, now_us): (Duration, i64),
    ) -> Result<Self, String> {
        let seconds = u64::try_from(now_us / 1_000_000).unwrap_or_default();
        let since = UNIX_EPOCH + Duration::from_secs(seconds);
        let header = |text: String| HeaderValue::try_from(text).map_err(|error| error.to_string());
        Ok(Self {
            written: Written::of(&card)?,
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
    let (Written { body, tag }, is_one_of_several) = match card.at(asked) {
        Ok(written) => written,
        Err(problem) => {
            tracing::error!(error.text = problem, "the agent card cannot be written");
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
    };
    let known = card.is_known(request.headers(), &tag);
    let mut headers = HeaderMap::new();
    headers.insert(CACHE_CONTROL, card.cache_control);
    headers.insert(ETAG, tag);
    headers.insert(LAST_MODIFIED, card.last_modified);
    if is_one_of_several {
        headers.insert(VARY, HeaderValue::from_static("host"));
    }
    if known {
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    (headers, body).into_response()
}
