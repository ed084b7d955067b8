//! What the bindings share: who calls and in which version, and how an error is told.
//!
//! A binding decodes, calls the one [`Service`](crate::service::Service), and encodes. Decisions
//! about tasks are not made here.

mod deadline;
mod failure;
pub mod grpc;
pub mod json;
mod jsonrpc;
pub mod measure;
mod operation;
mod rest;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::ConnectInfo;
use http::HeaderMap;
use http::request::Parts;
use percent_encoding::percent_decode_str;

use crate::auth::{Auth, PeerCertificate, Seen};
use crate::contract::fault::StatusTable;
use crate::contract::{A2A_EXTENSIONS, A2A_VERSION, PROTOCOL_VERSION};
use crate::domain::Error;
use crate::metrics::Metrics;
use crate::service::Call;
use crate::service::room::Room;

pub use deadline::deadline;
use deadline::until;
pub use failure::{Failure, log};
use failure::{Misfit, Refusal};
use operation::Operation;

/// What the bindings can be told, where the protocol leaves a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Settings {
    /// What a request without a version speaks (AMB-12).
    pub missing_version: MissingVersion,
    /// Which edition's statuses errors have.
    pub status_table: StatusTable,
    /// How a stream of JSON-RPC fails that has not begun (AMB-10).
    pub early_errors: EarlyErrors,
}

/// How a stream of JSON-RPC fails that has not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EarlyErrors {
    /// As any other call.
    #[default]
    Json,
    /// As a stream of one event, for clients that read nothing else.
    Events,
}

/// What a request without a version speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MissingVersion {
    /// 0.3, as the protocol says (VER-04); it is not spoken here.
    #[default]
    V0_3,
    /// 1.0, for callers that set no headers.
    V1_0,
}

/// The front door of every binding: headers in, [`Call`] out; errors out as [`Failure`]s.
#[derive(Debug, Clone)]
pub struct Door {
    auth: Arc<Auth>,
    offered: Arc<[String]>,
    settings: Settings,
    metrics: Metrics,
}

impl Door {
    /// Lets in whom `auth` knows. `offered` are the URIs of the card's extensions.
    #[must_use]
    pub fn new(auth: Auth, offered: Vec<String>, settings: Settings, metrics: Metrics) -> Self {
        Self { auth: Arc::new(auth), offered: offered.into(), settings, metrics }
    }

    /// Who calls, in which trace, with which extensions, and the room that the connection has for
    /// the answer. `query` is that of an HTTP request as it came, without its `?`. Credentials are
    /// looked at first: to a stranger nothing else is told. `operation` is what is asked for, as far
    /// as it is known before a body is read.
    ///
    /// # Errors
    /// [`Error::Unauthenticated`], [`Error::VersionNotSupported`]; [`Error::Unavailable`] when
    /// credentials cannot be checked.
    pub async fn enter(
        &self,
        operation: &'static str,
        parts: &Parts,
        query: Option<&str>,
    ) -> Result<Call, Error> {
        let headers = &parts.headers;
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0);
        let certificate = parts.extensions.get::<Arc<PeerCertificate>>().map(|one| &**one);
        let seen = Seen { headers, peer, certificate };
        let caller = self.auth.caller(seen).await.map_err(|refused| {
            self.auth.note_refused(operation, peer, &refused);
            let mode = refused.mode.unwrap_or("none");
            let labels = [("mode", mode), ("reason", refused.reason.name())];
            self.metrics.unauthenticated.one(labels);
            refused.error
        })?;
        check_version(headers, query, self.settings.missing_version)?;
        let extensions = self.activated(headers);
        let room = parts.extensions.get::<Room>().cloned();
        Ok(Call { caller, peer, trace: traceparent(headers), extensions, room })
    }

    /// `error` as callers of this server read it.
    #[must_use]
    pub fn failure(&self, error: &Error) -> Failure {
        let challenge = self.auth.challenge(error);
        Failure { challenge, ..Failure::in_table(error, self.settings.status_table) }
    }

    /// Which edition's statuses errors have.
    #[must_use]
    pub fn status_table(&self) -> StatusTable {
        self.settings.status_table
    }

    /// How a stream of JSON-RPC fails that has not begun.
    #[must_use]
    pub fn early_errors(&self) -> EarlyErrors {
        self.settings.early_errors
    }

    /// Whether the caller has the scope that `operation` needs.
    ///
    /// # Errors
    /// [`Error::ScopeMissing`].
    pub(crate) fn permit(&self, call: &Call, operation: Operation) -> Result<(), Error> {
        self.auth.permit(&call.caller, operation.class())
    }

    /// Notes a call that was denied, if this is the error of one.
    pub(crate) fn note_denied(&self, call: &Call, operation: &'static str, error: &Error) {
        let reason = if matches!(error, Error::ScopeMissing { .. }) {
            "scope_missing"
        } else if matches!(error, Error::Forbidden(_)) {
            "forbidden"
        } else {
            return;
        };
        self.auth.note_denied(operation, call.peer, &call.caller, reason);
    }

    /// The offered extensions that a request names, in the card's order. Others are ignored, and
    /// so is every other version of one, which has another URI (EXT-03, EXT-04). URIs are compared
    /// byte by byte.
    fn activated(&self, headers: &HeaderMap) -> Vec<String> {
        if self.offered.is_empty() || !headers.contains_key(A2A_EXTENSIONS) {
            return Vec::new();
        }
        let asked: Vec<_> = values(headers, A2A_EXTENSIONS).collect();
        self.offered.iter().filter(|uri| asked.contains(&uri.as_str())).cloned().collect()
    }
}

/// The values of a service parameter: entries and comma-separated values count alike, blanks and
/// empty ones do not (SP-05).
fn values<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = &'a str> {
    let texts = headers.get_all(name).into_iter().map(|v| v.to_str().unwrap_or("(not text)"));
    texts.flat_map(|text| text.split(',')).map(str::trim).filter(|value| !value.is_empty())
}

/// Holds a request to the version spoken here (VER-01 to VER-07).
///
/// All versions that its headers name must be spoken; if they name none, those of its query; if
/// that names none either, the one that `missing` says.
///
/// # Errors
/// [`Error::VersionNotSupported`].
pub fn check_version(
    headers: &HeaderMap,
    query: Option<&str>,
    missing: MissingVersion,
) -> Result<(), Error> {
    let not_spoken =
        |asked: &str| Error::VersionNotSupported { asked: asked.chars().take(32).collect() };
    let mut named = values(headers, A2A_VERSION).peekable();
    if named.peek().is_some() {
        return named.find(|version| !is_spoken(version)).map_or(Ok(()), |v| Err(not_spoken(v)));
    }
    let in_query = query.map_or_else(Vec::new, versions_in);
    match in_query.iter().find(|version| !is_spoken(version)) {
        Some(other) => Err(not_spoken(other)),
        None if in_query.is_empty() && missing == MissingVersion::V0_3 => Err(not_spoken("0.3")),
        None => Ok(()),
    }
}

/// The versions that a query names: its parameter `A2A-Version`, in any case (VER-06, SP-01).
fn versions_in(query: &str) -> Vec<String> {
    let mut versions = Vec::new();
    for pair in query.split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if name.eq_ignore_ascii_case(A2A_VERSION) {
            let value = percent_decode_str(value).decode_utf8_lossy();
            let named = value.split(',').map(str::trim).filter(|version| !version.is_empty());
            versions.extend(named.map(str::to_owned));
        }
    }
    versions
}

/// Whether `version` is ours, with or without a patch number.
fn is_spoken(version: &str) -> bool {
    let Some(rest) = version.strip_prefix(PROTOCOL_VERSION) else { return false };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    rest.is_empty() || rest.strip_prefix('.').is_some_and(is_number)
}

/// The W3C trace context of a call, if it is well formed.
fn traceparent(headers: &HeaderMap) -> Option<String> {
    const LENGTHS: [usize; 4] = [2, 32, 16, 2];
    let text = headers.get("traceparent")?.to_str().ok()?;
    let is_hex = |part: &str| part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let well_formed = text.split('-').count() == LENGTHS.len()
        && text.split('-').zip(LENGTHS).all(|(part, length)| part.len() == length && is_hex(part));
    (well_formed && !text.starts_with("ff")).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(values: &[&str]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(A2A_VERSION, value.parse().unwrap());
        }
        told(check_version(&headers, None, MissingVersion::V0_3))
    }

    fn told(outcome: Result<(), Error>) -> Option<String> {
        match outcome {
            Err(Error::VersionNotSupported { asked }) => Some(asked),
            other => other.map(|()| None).unwrap(),
        }
    }

    #[test]
    fn version_1_0_is_spoken_with_any_patch_number() {
        for good in
            [&["1.0"][..], &["1.0.0"], &["1.0.17"], &[" 1.0 ,"], &["1.0", "1.0.1"], &["", "1.0"]]
        {
            assert_eq!(asked(good), None, "{good:?}");
        }
    }

    #[test]
    fn no_version_is_0_3_and_no_other_is_spoken() {
        for none in [&[][..], &[""], &[" , "]] {
            assert_eq!(asked(none).as_deref(), Some("0.3"), "{none:?}");
        }
        for bad in
            ["0.3", "1.1", "2.0", "1", "1.", "1.00", "1.0.", "1.0.x", "1.0.1.2", "v1.0", "10"]
        {
            assert_eq!(asked(&[bad]).as_deref(), Some(bad));
        }
        assert_eq!(asked(&["1.0, 0.3"]).as_deref(), Some("0.3"));
        assert_eq!(asked(&[&"9".repeat(1000)]).map(|text| text.len()), Some(32));
    }

    #[test]
    fn the_query_counts_where_the_headers_name_no_version() {
        let none = HeaderMap::new();
        let query = |text: &str| told(check_version(&none, Some(text), MissingVersion::V0_3));
        for good in [
            "A2A-Version=1.0",
            "x=1&a2a-version=1.0.1",
            "A2A-Version=1%2E0,",
            "A2A-Version=&A2A-Version=1.0",
        ] {
            assert_eq!(query(good), None, "{good}");
        }
        for (bad, asked) in [
            ("A2A-Version=0.3", "0.3"),
            ("A2A-Version", "0.3"),
            ("version=1.0", "0.3"),
            ("A2A-Version=%FF", "\u{fffd}"),
            ("a2a-version=1.0&A2A-VERSION=2", "2"),
        ] {
            assert_eq!(query(bad).as_deref(), Some(asked), "{bad}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(A2A_VERSION, "1.0".parse().unwrap());
        assert!(check_version(&headers, Some("A2A-Version=0.3"), MissingVersion::V0_3).is_ok());
        headers.insert(A2A_VERSION, "0.3".parse().unwrap());
        assert!(check_version(&headers, Some("A2A-Version=1.0"), MissingVersion::V0_3).is_err());
    }

    #[test]
    fn a_missing_version_is_what_the_settings_say() {
        let with = |text: Option<&str>, missing| {
            let mut headers = HeaderMap::new();
            if let Some(text) = text {
                headers.insert(A2A_VERSION, text.parse().unwrap());
            }
            told(check_version(&headers, None, missing))
        };
        for none in [None, Some(""), Some(",")] {
            assert_eq!(with(none, MissingVersion::V1_0), None);
            assert_eq!(with(none, MissingVersion::V0_3).as_deref(), Some("0.3"));
        }
        assert_eq!(with(Some("0.3"), MissingVersion::V1_0).as_deref(), Some("0.3"));
    }

    #[tokio::test]
    async fn extensions_that_are_offered_and_named_are_activated() {
        let (one, two) = ("https://x.example/one/v1", "https://x.example/two/v1");
        let door = Door::new(
            Auth::none(),
            vec![one.to_owned(), two.to_owned()],
            Settings::default(),
            Metrics::default(),
        );
        let activated = async |values: &[&str]| {
            let mut request = http::Request::builder().header(A2A_VERSION, "1.0");
            for value in values {
                request = request.header(A2A_EXTENSIONS, *value);
            }
            let (parts, ()) = request.body(()).unwrap().into_parts();
            door.enter("test", &parts, None).await.unwrap().extensions
        };
        assert_eq!(activated(&[]).await, [""; 0]);
        assert_eq!(activated(&[two]).await, [two]);
        assert_eq!(activated(&[&format!(" {two},,{one} ,{two}")]).await, [one, two], "each once");
        assert_eq!(activated(&[two, one]).await, [one, two], "entries count as values do");
        let other = ["https://x.example/one/v2", "https://x.example/ONE/v1", "one", ""];
        assert_eq!(activated(&other).await, [""; 0], "no other version, no other case");
    }

    #[test]
    fn only_a_well_formed_trace_is_taken_over() {
        let of = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("traceparent", text.parse().unwrap());
            traceparent(&headers)
        };
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(of(good).as_deref(), Some(good));
        for bad in
            ["", "00", &good.to_uppercase(), &format!("{good}-x"), &good.replace("00-", "ff-")]
        {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}
