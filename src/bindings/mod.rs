//! What the bindings share: who calls and in which version, and how an error is told.
//!
//! A binding decodes, calls the one [`Service`](crate::service::Service), and encodes. Decisions
//! about tasks are not made here.

mod failure;
pub mod grpc;

use std::sync::Arc;

use http::HeaderMap;

use crate::auth::Auth;
use crate::contract::{A2A_VERSION, PROTOCOL_VERSION};
use crate::domain::Error;
use crate::service::Call;

pub use failure::{Failure, log};

/// The front door of every binding: headers in, [`Call`] out.
#[derive(Debug, Clone)]
pub struct Door {
    auth: Arc<Auth>,
}

impl Door {
    /// Lets in whom `auth` knows.
    #[must_use]
    pub fn new(auth: Auth) -> Self {
        Self { auth: Arc::new(auth) }
    }

    /// Who calls, in which trace. Credentials are looked at first: to a stranger nothing else is
    /// told. `a2a-extensions` is read by nobody yet: no extension is offered, and a call that
    /// names one proceeds without it (EXT-03).
    ///
    /// # Errors
    /// [`Error::Unauthenticated`], [`Error::VersionNotSupported`].
    pub fn enter(&self, headers: &HeaderMap) -> Result<Call, Error> {
        let caller = self.auth.caller(headers)?;
        check_version(headers)?;
        Ok(Call { caller, trace: traceparent(headers) })
    }

    /// What a refused caller is asked for, as in `WWW-Authenticate`.
    #[must_use]
    pub fn challenge(&self) -> Option<&'static str> {
        self.auth.challenge()
    }
}

/// Holds a request to the version spoken here (VER-01 to VER-07). Entries and comma-separated
/// values count alike (SP-05); all that are named must be spoken, none at all is 0.3.
///
/// # Errors
/// [`Error::VersionNotSupported`].
pub fn check_version(headers: &HeaderMap) -> Result<(), Error> {
    let mut asked = Vec::new();
    for value in headers.get_all(A2A_VERSION) {
        let text = value.to_str().unwrap_or("(not text)");
        asked.extend(text.split(',').map(str::trim).filter(|version| !version.is_empty()));
    }
    if asked.is_empty() {
        return Err(Error::VersionNotSupported { asked: "0.3".to_owned() });
    }
    match asked.iter().find(|version| !is_spoken(version)) {
        Some(other) => Err(Error::VersionNotSupported { asked: other.chars().take(32).collect() }),
        None => Ok(()),
    }
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
        match check_version(&headers) {
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
