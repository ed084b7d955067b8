//! An [`Error`] as every binding tells it: the protocol's row, the words, and the details.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::contract::PROTOCOL_VERSION;
use crate::contract::fault::{self, Fault, StatusTable};
use crate::domain::error::chain;
use crate::domain::{Error, Violation};

/// What a caller may read of an error. Each text is bounded, since on gRPC all of it travels in
/// headers, of which many clients read no more than 8 KiB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The protocol's row: reason, codes and statuses.
    pub fault: Fault,
    /// The message for people.
    pub text: String,
    /// `ErrorInfo.metadata`, keys in camelCase (AMB-32).
    pub metadata: BTreeMap<&'static str, String>,
    /// `BadRequest.field_violations`, fields by their proto path.
    pub violations: Vec<Violation>,
    /// `RetryInfo.retry_delay`, when the same call may succeed later.
    pub retry_in: Option<Duration>,
    /// What the caller is asked for, as in `WWW-Authenticate`.
    pub challenge: Option<String>,
}

/// The longest message for people, in bytes.
const TEXT_BYTES_MAX: usize = 1024;
/// The longest metadata value, field or problem, in bytes.
const DETAIL_BYTES_MAX: usize = 256;
/// The most violations that are told one by one.
const VIOLATIONS_MAX: usize = 8;
/// How long a caller rests before it tries again.
const RETRY_IN: Duration = Duration::from_secs(1);

impl Failure {
    /// As [`of`](Self::of), with the statuses of `table`.
    #[must_use]
    pub fn in_table(error: &Error, table: StatusTable) -> Self {
        let failure = Self::of(error);
        Self { fault: failure.fault.in_table(table), ..failure }
    }

    /// The row, words and details of `error`, with the statuses of the present table. Everything
    /// that could tell a foreign task from an absent one is left out: both are the same bytes
    /// (ERR-09).
    #[must_use]
    pub fn of(error: &Error) -> Self {
        let plain = |fault: Fault| Self {
            fault,
            text: cut(&error.to_string(), TEXT_BYTES_MAX),
            metadata: BTreeMap::new(),
            violations: Vec::new(),
            retry_in: None,
            challenge: None,
        };
        match error {
            Error::TaskNotFound => plain(fault::TASK_NOT_FOUND),
            Error::TaskNotCancelable { state } => {
                plain(fault::TASK_NOT_CANCELABLE).saying("state", state.as_str_name())
            }
            Error::PushNotSupported => plain(fault::PUSH_NOTIFICATION_NOT_SUPPORTED),
            Error::Unsupported(_) => plain(fault::UNSUPPORTED_OPERATION),
            Error::ContentTypeNotSupported { field, media_type } => {
                plain(fault::CONTENT_TYPE_NOT_SUPPORTED)
                    .saying("mediaType", media_type)
                    .naming(&[Violation::new(field, error.to_string())])
            }
            Error::InvalidAgentResponse(_) => plain(fault::INVALID_AGENT_RESPONSE),
            Error::ExtendedCardNotConfigured => plain(fault::EXTENDED_AGENT_CARD_NOT_CONFIGURED),
            Error::ExtensionRequired(uri) => {
                plain(fault::EXTENSION_SUPPORT_REQUIRED).saying("extension", uri)
            }
            Error::VersionNotSupported { asked } => plain(fault::VERSION_NOT_SUPPORTED)
                .saying("requestedVersion", asked)
                .saying("supportedVersions", PROTOCOL_VERSION),
            Error::Invalid(violations) => plain(fault::INVALID_PARAMS).naming(violations),
            Error::PageTokenInvalid => plain(fault::INVALID_PARAMS)
                .saying("pageToken", "invalid")
                .naming(&[Violation::new("page_token", error.to_string())]),
            Error::PageTokenExpired => plain(fault::INVALID_PARAMS)
                .saying("pageToken", "expired")
                .naming(&[Violation::new("page_token", error.to_string())]),
            Error::Unauthenticated(_) | Error::InvalidToken(_) => plain(fault::UNAUTHENTICATED),
            Error::Forbidden(_) | Error::ScopeMissing { .. } => plain(fault::PERMISSION_DENIED),
            Error::DeadlineExceeded => plain(fault::DEADLINE_EXCEEDED),
            Error::Overloaded(_) => plain(fault::RESOURCE_EXHAUSTED).retrying(),
            Error::TooMany { what: _, retry_in } => {
                // In whole seconds, as HTTP says it, and never too early.
                let seconds = retry_in.as_secs() + u64::from(retry_in.subsec_nanos() > 0);
                let retry_in = Some(Duration::from_secs(seconds.max(1)));
                Self { retry_in, ..plain(fault::RESOURCE_EXHAUSTED) }
            }
            Error::Unavailable(_) | Error::ShuttingDown => plain(fault::UNAVAILABLE).retrying(),
            Error::Internal(_) => plain(fault::INTERNAL_ERROR),
        }
    }

    /// A row of the protocol's table that no [`Error`] stands for, in these words.
    #[must_use]
    pub fn of_fault(fault: Fault, text: impl AsRef<str>) -> Self {
        Self {
            fault,
            text: cut(text.as_ref(), TEXT_BYTES_MAX),
            metadata: BTreeMap::new(),
            violations: Vec::new(),
            retry_in: None,
            challenge: None,
        }
    }

    fn saying(mut self, key: &'static str, value: &str) -> Self {
        self.metadata.insert(key, cut(value, DETAIL_BYTES_MAX));
        self
    }

    fn naming(mut self, violations: &[Violation]) -> Self {
        let short = |v: &Violation| {
            Violation::new(cut(&v.field, DETAIL_BYTES_MAX), cut(&v.problem, DETAIL_BYTES_MAX))
        };
        self.violations = violations.iter().take(VIOLATIONS_MAX).map(short).collect();
        self
    }

    fn retrying(mut self) -> Self {
        self.retry_in = Some(RETRY_IN);
        self
    }
}

/// A request that cannot become a call: a row of the protocol's table that no [`Error`] stands
/// for, in words of its own.
#[derive(Debug)]
pub(crate) struct Misfit {
    /// The row, as the present table has it.
    pub(super) fault: Fault,
    /// The message for people.
    pub(super) text: String,
}

impl Misfit {
    pub(super) fn new(fault: Fault, text: impl Into<String>) -> Self {
        Self { fault, text: text.into() }
    }
}

/// Why a request is not answered as it asked to be.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// An operation failed, or would.
    Of(Error),
    /// It never came to be one.
    Before(Misfit),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Of(error)
    }
}

impl From<Misfit> for Refusal {
    fn from(misfit: Misfit) -> Self {
        Self::Before(misfit)
    }
}

/// Logs a failed call, once, with what the caller may not read: the chain of causes.
pub fn log(operation: &'static str, error: &Error) {
    match error {
        Error::Internal(_) => {
            tracing::error!(rpc.operation = operation, error.chain = chain(error), "call failed");
        }
        Error::Unavailable(_) | Error::InvalidAgentResponse(_) => {
            tracing::warn!(rpc.operation = operation, error.chain = chain(error), "call failed");
        }
        // These are noted for the audit as well.
        Error::Unauthenticated(_)
        | Error::InvalidToken(_)
        | Error::Forbidden(_)
        | Error::ScopeMissing { .. } => {
            tracing::debug!(rpc.operation = operation, error.text = %error, "call refused");
        }
        // The texts of these may repeat what the caller sent, so only their kind is told.
        Error::TaskNotFound
        | Error::TaskNotCancelable { .. }
        | Error::PushNotSupported
        | Error::Unsupported(_)
        | Error::ContentTypeNotSupported { .. }
        | Error::ExtendedCardNotConfigured
        | Error::ExtensionRequired(_)
        | Error::VersionNotSupported { .. }
        | Error::Invalid(_)
        | Error::PageTokenInvalid
        | Error::PageTokenExpired
        | Error::DeadlineExceeded
        | Error::Overloaded(_)
        | Error::TooMany { .. }
        | Error::ShuttingDown => {
            let failure = Failure::of(error);
            let fields: Vec<_> = failure.violations.iter().map(|v| v.field.as_str()).collect();
            tracing::debug!(
                rpc.operation = operation,
                error.reason = failure.fault.reason,
                error.fields = ?fields,
                "call refused"
            );
        }
    }
}

/// At most `max` bytes of `text`, at a character's edge, and a sign that something is missing.
fn cut(text: &str, max: usize) -> String {
    const MORE: &str = "...";
    if text.len() <= max {
        return text.to_owned();
    }
    let head = (0..=max - MORE.len()).rev().find_map(|end| text.get(..end)).unwrap_or_default();
    head.to_owned() + MORE
}
