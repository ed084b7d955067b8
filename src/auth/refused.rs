//! Why somebody is not let in.

use crate::domain::Error;

/// What was wrong with a credential: for the log, never more than its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// There was none.
    Missing,
    /// What only a gateway may say came from somebody else, and nothing else did.
    NoGateway,
    /// A header that counts once occurred more than once.
    Twice,
    /// It cannot be read.
    Malformed,
    /// The header is for another scheme.
    OtherScheme,
    /// It is no key of ours.
    UnknownApiKey,
    /// Nobody here trusts its issuer.
    UnknownIssuer,
    /// The issuer has no such key.
    UnknownKey,
    /// It names another algorithm than its key is for.
    WrongAlgorithm,
    /// The signature is not the key's.
    BadSignature,
    /// Its time is over.
    Expired,
    /// Its time has not come.
    NotYetValid,
    /// It is for somebody else.
    WrongAudience,
    /// It names nobody, or nobody who can be named here.
    NoSubject,
    /// The holder of the certificate is not listed.
    UnknownHolder,
    /// The issuer's keys cannot be had at the moment.
    KeysUnavailable,
}

impl Reason {
    /// Whether something was presented that RFC 6750 calls an invalid token.
    fn is_of_a_token(self) -> bool {
        match self {
            Self::Missing
            | Self::NoGateway
            | Self::Twice
            | Self::OtherScheme
            | Self::UnknownHolder
            | Self::KeysUnavailable => false,
            Self::Malformed
            | Self::UnknownApiKey
            | Self::UnknownIssuer
            | Self::UnknownKey
            | Self::WrongAlgorithm
            | Self::BadSignature
            | Self::Expired
            | Self::NotYetValid
            | Self::WrongAudience
            | Self::NoSubject => true,
        }
    }

    /// A word that stays.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::NoGateway => "no_gateway",
            Self::Twice => "twice",
            Self::Malformed => "malformed",
            Self::OtherScheme => "other_scheme",
            Self::UnknownApiKey => "unknown_api_key",
            Self::UnknownIssuer => "unknown_issuer",
            Self::UnknownKey => "unknown_key",
            Self::WrongAlgorithm => "wrong_algorithm",
            Self::BadSignature => "bad_signature",
            Self::Expired => "expired",
            Self::NotYetValid => "not_yet_valid",
            Self::WrongAudience => "wrong_audience",
            Self::NoSubject => "no_subject",
            Self::UnknownHolder => "unknown_holder",
            Self::KeysUnavailable => "keys_unavailable",
        }
    }
}

/// A credential that is missing or bad.
#[derive(Debug)]
pub struct Refused {
    /// The mode that it was for; `None` if there was none.
    pub mode: Option<&'static str>,
    /// The kind of fault.
    pub reason: Reason,
    /// As the caller reads it.
    pub error: Error,
}

impl Refused {
    /// A credential that is bad, in words that repeat nothing of it.
    pub(super) fn new(reason: Reason, text: impl Into<String>) -> Self {
        let error = if reason.is_of_a_token() {
            Error::InvalidToken(text.into())
        } else {
            Error::Unauthenticated(text.into())
        };
        Self { mode: None, reason, error }
    }

    /// One that cannot be checked for the moment.
    pub(super) fn unavailable(cause: impl Into<String>) -> Self {
        let error = Error::unavailable(cause.into());
        Self { mode: None, reason: Reason::KeysUnavailable, error }
    }

    pub(super) fn by(self, mode: &'static str) -> Self {
        Self { mode: Some(mode), ..self }
    }
}
