//! Every way an operation can fail.
//!
//! `Display` is what the caller may read; `source()` is what the log may read. So `Internal`
//! says "internal error" and keeps the driver's words as its source.

use crate::contract::v1::TaskState;

/// The boxed cause of a failure, for the log alone.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// One field of a request and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The proto path in `snake_case`, on every binding.
    pub field: String,
    /// What is wrong, and what would be right.
    pub problem: String,
}

impl Violation {
    /// Names `field` as the cause of `problem`.
    #[must_use]
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }
}

/// What ends an operation. Expected outcomes of store methods are values of their own.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such task for this caller: absent, expired, or somebody else's (ERR-09).
    #[error("task not found")]
    TaskNotFound,
    /// The task has ended already (CAN-02).
    #[error("the task has ended and cannot be canceled")]
    TaskNotCancelable {
        /// How it ended.
        state: TaskState,
    },
    /// Webhooks are not offered (CAP-02, CAP-03).
    #[error("push notifications are not supported")]
    PushNotSupported,
    /// The operation, or this use of it, is not offered.
    #[error("{0}")]
    Unsupported(String),
    /// A part's media type is not among the agent's input modes (SEND-10).
    #[error("the agent does not take {media_type}")]
    ContentTypeNotSupported {
        /// The proto path of the part's media type.
        field: String,
        /// The type that was sent.
        media_type: String,
    },
    /// The agent broke the protocol.
    #[error("the agent's answer was not valid: {0}")]
    InvalidAgentResponse(String),
    /// Declared in the card but not set up (CAP-05).
    #[error("the extended agent card is not configured")]
    ExtendedCardNotConfigured,
    /// A required extension was not named (EXT-05).
    #[error("the extension {0} is required")]
    ExtensionRequired(String),
    /// The protocol version asked for is not offered (VER-03).
    #[error("A2A version {asked} is not supported; supported: 1.0{}", no_version(asked))]
    VersionNotSupported {
        /// What was asked for; `0.3` when nothing was.
        asked: String,
    },
    /// One or more fields are wrong; all that are known, together.
    #[error("invalid parameters: {}", list(.0))]
    Invalid(Vec<Violation>),
    /// The page token cannot be used here: one text, whatever the reason.
    #[error("the page token is not valid for this request; start again with an empty page_token")]
    PageTokenInvalid,
    /// The page token was good and is too old.
    #[error("the page token has expired; start again with an empty page_token")]
    PageTokenExpired,
    /// No credentials, or bad ones.
    #[error("{0}")]
    Unauthenticated(String),
    /// Credentials that were presented and are bad.
    #[error("{0}")]
    InvalidToken(String),
    /// Good credentials without the scope that an operation needs.
    #[error("this operation needs the scope {scope}")]
    ScopeMissing {
        /// Which.
        scope: String,
    },
    /// Good credentials that do not reach this far.
    #[error("{0}")]
    Forbidden(String),
    /// The deadline of the call passed; work that was accepted goes on.
    #[error("the deadline passed; the task goes on")]
    DeadlineExceeded,
    /// More was asked for than the caller takes; it may ask again when it has.
    #[error("{0}")]
    Overloaded(String),
    /// The caller has what it may have for now (P-066).
    #[error("{what}")]
    TooMany {
        /// Of what, and what to do.
        what: String,
        /// When the same call may be admitted.
        retry_in: std::time::Duration,
    },
    /// A temporary fault; the same call may be made again.
    #[error("the service is unavailable for the moment; try again")]
    Unavailable(#[source] Cause),
    /// The server ends; clients connect again.
    #[error("the server is shutting down; try again")]
    ShuttingDown,
    /// A fault of ours.
    #[error("internal error")]
    Internal(#[source] Cause),
}

/// An error and its causes, in one line: for the log, and for whoever starts the program. Not for
/// callers, who read no more than the `Display` of an [`enum@Error`].
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// What most who are told of 0.3 have done: named no version, which stands for it (VER-04).
fn no_version(asked: &str) -> &'static str {
    match asked {
        "0.3" => ". A call without A2A-Version speaks 0.3: send A2A-Version: 1.0",
        _ => "",
    }
}

fn list(violations: &[Violation]) -> String {
    let lines: Vec<_> = violations.iter().map(|v| format!("{}: {}", v.field, v.problem)).collect();
    lines.join("; ")
}

impl Error {
    /// One wrong field.
    #[must_use]
    pub fn invalid(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Invalid(vec![Violation::new(field, problem)])
    }

    /// A fault of ours, with its cause for the log.
    #[must_use]
    pub fn internal(cause: impl Into<Cause>) -> Self {
        Self::Internal(cause.into())
    }

    /// A temporary fault, with its cause for the log.
    #[must_use]
    pub fn unavailable(cause: impl Into<Cause>) -> Self {
        Self::Unavailable(cause.into())
    }
}

impl From<Violation> for Error {
    fn from(violation: Violation) -> Self {
        Self::Invalid(vec![violation])
    }
}
