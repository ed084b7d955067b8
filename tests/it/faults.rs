//! Every error as a gRPC client reads it: code, text, reason, metadata, fields.

use std::fmt::Write as _;
use std::time::Duration;

use a2ad::bindings::grpc;
use a2ad::contract::v1::TaskState;
use a2ad::contract::{ERROR_DOMAIN, v1};
use a2ad::domain::{Error, Violation};
use tonic::Status;
use tonic_types::{ErrorDetail, StatusExt};

use crate::rig::{ANN, BOB, TestServer, send, task_of, two_callers};

/// One of each kind.
pub(crate) fn every() -> Vec<Error> {
    let text = |text: &str| text.to_owned();
    vec![
        Error::TaskNotFound,
        Error::TaskNotCancelable { state: TaskState::Completed },
        Error::PushNotSupported,
        Error::Unsupported(text("streaming is not supported")),
        Error::ContentTypeNotSupported {
            field: text("message.parts[0].media_type"),
            media_type: text("image/png"),
        },
        Error::InvalidAgentResponse(text("a second message")),
        Error::ExtendedCardNotConfigured,
        Error::ExtensionRequired(text("https://example.com/ext/v1")),
        Error::VersionNotSupported { asked: text("0.3") },
        Error::Invalid(vec![
            Violation::new("page_size", "must be from 0 to 100"),
            Violation::new("history_length", "must not be negative"),
        ]),
        Error::PageTokenInvalid,
        Error::PageTokenExpired,
        Error::Unauthenticated(text("an API key is needed")),
        Error::InvalidToken(text("the token has expired")),
        Error::Forbidden(text("this tenant is not among the caller's")),
        Error::ScopeMissing { scope: text("tasks:read") },
        Error::DeadlineExceeded,
        Error::Overloaded(text("earlier answers have not been read")),
        Error::TooMany {
            what: text("too many calls of the kind `list`; send them more slowly"),
            retry_in: Duration::from_millis(2_500),
        },
        Error::unavailable("connection refused by db.internal"),
        Error::ShuttingDown,
        Error::internal("syntax error at SELECT"),
    ]
}

/// Fails to compile when a variant is new, so that [`every`] gets it.
fn is_listed(error: &Error) {
    match error {
        Error::TaskNotFound
        | Error::TaskNotCancelable { .. }
        | Error::PushNotSupported
        | Error::Unsupported(_)
        | Error::ContentTypeNotSupported { .. }
        | Error::InvalidAgentResponse(_)
        | Error::ExtendedCardNotConfigured
        | Error::ExtensionRequired(_)
        | Error::VersionNotSupported { .. }
        | Error::Invalid(_)
        | Error::PageTokenInvalid
        | Error::PageTokenExpired
        | Error::Unauthenticated(_)
        | Error::InvalidToken(_)
        | Error::Forbidden(_)
        | Error::ScopeMissing { .. }
        | Error::DeadlineExceeded
        | Error::Overloaded(_)
        | Error::TooMany { .. }
        | Error::Unavailable(_)
        | Error::ShuttingDown
        | Error::Internal(_) => {}
    }
}

/// What a client makes of a status, in text, details in their order.
#[expect(clippy::wildcard_enum_match_arm, reason = "nobody sends the others")]
fn told(status: &Status) -> String {
    let mut out = format!("{:?}: {}\n", status.code(), status.message());
    for detail in status.check_error_details_vec().unwrap() {
        match detail {
            ErrorDetail::ErrorInfo(info) => {
                assert_eq!(info.domain, ERROR_DOMAIN);
                let mut metadata: Vec<_> = info.metadata.into_iter().collect();
                metadata.sort();
                let metadata: Vec<_> = metadata.iter().map(|(k, v)| format!(" {k}={v}")).collect();
                writeln!(out, "  reason {}{}", info.reason, metadata.concat()).unwrap();
            }
            ErrorDetail::BadRequest(bad) => {
                for violation in bad.field_violations {
                    writeln!(out, "  field {}: {}", violation.field, violation.description)
                        .unwrap();
                }
            }
            ErrorDetail::RetryInfo(retry) => {
                writeln!(out, "  retry in {:?}", retry.retry_delay.unwrap()).unwrap();
            }
            other => panic!("nobody sends {other:?}"),
        }
    }
    out
}

/// The status as it arrives, through HTTP headers.
fn over_the_wire(status: Status) -> (Status, usize) {
    let response = status.into_http::<()>();
    assert_eq!(response.status(), 200);
    let bytes = response.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
    (Status::from_header_map(response.headers()).unwrap(), bytes.sum())
}

const GOLDEN: &str = "\
NotFound: task not found
  reason TASK_NOT_FOUND
FailedPrecondition: the task has ended and cannot be canceled
  reason TASK_NOT_CANCELABLE state=TASK_STATE_COMPLETED
FailedPrecondition: push notifications are not supported
  reason PUSH_NOTIFICATION_NOT_SUPPORTED
FailedPrecondition: streaming is not supported
  reason UNSUPPORTED_OPERATION
InvalidArgument: the agent does not take image/png
  reason CONTENT_TYPE_NOT_SUPPORTED mediaType=image/png
  field message.parts[0].media_type: the agent does not take image/png
Internal: the agent's answer was not valid: a second message
  reason INVALID_AGENT_RESPONSE
FailedPrecondition: the extended agent card is not configured
  reason EXTENDED_AGENT_CARD_NOT_CONFIGURED
FailedPrecondition: the extension https://example.com/ext/v1 is required
  reason EXTENSION_SUPPORT_REQUIRED extension=https://example.com/ext/v1
FailedPrecondition: A2A version 0.3 is not supported; supported: 1.0. A call without A2A-Version speaks 0.3: send A2A-Version: 1.0
  reason VERSION_NOT_SUPPORTED requestedVersion=0.3 supportedVersions=1.0
InvalidArgument: invalid parameters: page_size: must be from 0 to 100; history_length: must not be negative
  reason INVALID_PARAMS
  field page_size: must be from 0 to 100
  field history_length: must not be negative
InvalidArgument: the page token is not valid for this request; start again with an empty page_token
  reason INVALID_PARAMS pageToken=invalid
  field page_token: the page token is not valid for this request; start again with an empty page_token
InvalidArgument: the page token has expired; start again with an empty page_token
  reason INVALID_PARAMS pageToken=expired
  field page_token: the page token has expired; start again with an empty page_token
Unauthenticated: an API key is needed
  reason UNAUTHENTICATED
Unauthenticated: the token has expired
  reason UNAUTHENTICATED
PermissionDenied: this tenant is not among the caller's
PermissionDenied: this operation needs the scope tasks:read
DeadlineExceeded: the deadline passed; the task goes on
ResourceExhausted: earlier answers have not been read
  retry in 1s
ResourceExhausted: too many calls of the kind `list`; send them more slowly
  retry in 3s
Unavailable: the service is unavailable for the moment; try again
  retry in 1s
Unavailable: the server is shutting down; try again
  retry in 1s
Internal: internal error
  reason INTERNAL_ERROR
";

#[test]
fn every_error_has_the_codes_and_details_of_the_protocol() {
    let mut all = String::new();
    for error in every() {
        is_listed(&error);
        all += &told(&over_the_wire(grpc::status(&error)).0);
    }
    assert_eq!(all, GOLDEN);
}

#[test]
fn no_error_outgrows_what_clients_take_as_headers() {
    let long = "\u{e9}".repeat(100_000);
    let many = (0..1000).map(|i| Violation::new(format!("parts[{i}]{long}"), long.clone()));
    for error in [
        Error::Unsupported(long.clone()),
        Error::ContentTypeNotSupported { field: long.clone(), media_type: long.clone() },
        Error::InvalidAgentResponse(long.clone()),
        Error::ExtensionRequired(long.clone()),
        Error::VersionNotSupported { asked: long.clone() },
        Error::Invalid(many.collect()),
        Error::Unauthenticated(long.clone()),
    ] {
        let (status, bytes) = over_the_wire(grpc::status(&error));
        assert!(bytes < 12_000, "{bytes} bytes of {}", status.message());
        assert!(status.message().ends_with("..."));
    }
}

/// The bytes of an error's details and its text: all that a caller can compare.
async fn get(client: &mut a2ad::client::Client, request: v1::GetTaskRequest) -> Status {
    client.get_task(request).await.unwrap_err()
}

#[tokio::test]
async fn a_foreign_task_and_an_absent_one_are_the_same_bytes() {
    let server = TestServer::with(|server| server.auth(two_callers())).await;
    let mut ann = server.client_of(ANN).await;
    let mut bob = server.client_of(BOB).await;
    let task = task_of(ann.send_message(send("hello")).await.unwrap());
    let request = |id: &str, tenant: &str| v1::GetTaskRequest {
        id: id.to_owned(),
        tenant: tenant.to_owned(),
        ..Default::default()
    };
    assert!(ann.get_task(request(&task.id, "")).await.is_ok());

    let absent = get(&mut bob, request("0198c0de-0000-7000-8000-000000000000", "")).await;
    for (what, other) in [
        ("foreign", get(&mut bob, request(&task.id, "")).await),
        ("in another tenant", get(&mut ann, request(&task.id, "blue")).await),
        ("in a forbidden tenant", get(&mut ann, request(&task.id, "red")).await),
        ("no id", get(&mut bob, request("x", "")).await),
        ("upper case", get(&mut ann, request(&task.id.to_uppercase(), "")).await),
    ] {
        assert_eq!(other.code(), absent.code(), "{what}");
        assert_eq!(other.message(), absent.message(), "{what}");
        assert_eq!(other.details(), absent.details(), "{what}");
    }
    let cancel = v1::CancelTaskRequest { id: task.id.clone(), ..Default::default() };
    let foreign = bob.cancel_task(cancel).await.unwrap_err();
    assert_eq!(foreign.details(), absent.details());
    assert_eq!(foreign.message(), absent.message());
}
