//! What every request passes: deadlines, panics, and errors that speak the caller's language.
//!
//! An error on gRPC is always HTTP 200 with `grpc-status` in the headers and no body; anything
//! else reaches clients as UNKNOWN.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, StatusCode};
use tokio::time::Instant;
use tonic::{Code, Status};
use tonic_web::GrpcWebLayer;
use tower::{Layer as _, ServiceExt as _};

use crate::bindings::grpc;
use crate::bindings::json::Json;
use crate::bindings::measure::Asked;
use crate::bindings::{deadline, log};
use crate::contract::fault;
use crate::domain::Error;
use crate::metrics::Metrics;
use crate::server::arrival::in_time;

/// How long the body of a request may take to arrive.
pub(crate) const BODY_WITHIN: Duration = Duration::from_secs(60);

/// Whether these are the headers of a gRPC request.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let Some(kind) = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()) else {
        return false;
    };
    let rest = kind.strip_prefix("application/grpc");
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['+', ';']))
}

/// Whether these are the headers of a gRPC-Web request.
fn is_grpc_web(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let rest = kind.strip_prefix(b"application/grpc-web").unwrap_or(b"?");
    matches!(rest, b"" | b"+proto" | b"-text" | b"-text+proto")
}

/// Makes gRPC of gRPC-Web before anything else looks at a request, and the reverse of its answer.
pub(crate) async fn web(request: Request, next: Next) -> Response {
    if !is_grpc_web(request.headers()) {
        return next.run(request).await;
    }
    let inner = tower::service_fn(move |request: http::Request<tonic::body::Body>| {
        let next = next.clone();
        async move { Ok::<_, Infallible>(next.run(request.map(Body::new)).await) }
    });
    match GrpcWebLayer::new().layer(inner).oneshot(request).await {
        Ok(response) => response.map(Body::new),
        Err(never) => match never {},
    }
}

/// Counts every answer. gRPC-Web has become gRPC by then.
pub(crate) async fn counted(
    State(metrics): State<Metrics>,
    request: Request,
    next: Next,
) -> Response {
    let asked = Asked::at(request.uri().path(), is_grpc(request.headers()));
    let began = Instant::now();
    let response = next.run(request).await;
    asked.count(&metrics, &response, began.elapsed());
    response
}

/// Bounds a request by its own deadline, and turns a panic into an answer.
///
/// A call that passes its deadline is dropped here; what it has begun to write goes on, and so
/// does the work of the agent (GRPC-09).
pub(crate) async fn guard(request: Request, next: Next) -> Response {
    let is_grpc = is_grpc(request.headers());
    let deadline = match is_grpc.then(|| deadline(request.headers())).transpose() {
        Ok(deadline) => deadline.flatten(),
        Err(violation) => return told(grpc::status(&violation.into())),
    };
    let answer = AssertUnwindSafe(next.run(request)).catch_unwind();
    let answer = match deadline {
        None => answer.await,
        Some(within) => match tokio::time::timeout(within, answer).await {
            Ok(answer) => answer,
            Err(_) => return told(grpc::status(&Error::DeadlineExceeded)),
        },
    };
    match answer {
        Ok(response) => own_words(response),
        Err(panic) => {
            let error = Error::internal(format!("panic: {}", words_of(&*panic)));
            log("panic", &error);
            if is_grpc {
                told(grpc::status(&error))
            } else {
                json(500, "INTERNAL", "internal error")
            }
        }
    }
}

fn words_of(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

/// Rewrites the answers that the gRPC library gives by itself. Those are told from ours by their
/// lack of details, and by codes that we do not use.
fn own_words(response: Response) -> Response {
    let headers = response.headers();
    if !headers.contains_key(Status::GRPC_STATUS) || headers.contains_key("grpc-status-details-bin")
    {
        return response;
    }
    let Some(status) = Status::from_header_map(headers) else { return response };
    if let Code::OutOfRange = status.code() {
        // GRPC-11.
        let text = format!("the request is too large: {}", limit_in(status.message()));
        return told(grpc::status_of_fault(fault::RESOURCE_EXHAUSTED, &text));
    }
    if let Code::Internal = status.code() {
        let text = "the request cannot be read as a message of this call; compare it with the \
                    contract, and nest no deeper than 30 levels";
        return told(grpc::status(&Error::invalid("request", text)));
    }
    if let (Code::Unimplemented, "") = (status.code(), status.message()) {
        return told(unknown_method());
    }
    response
}

/// The numbers in the library's sentence, the second of which is the limit.
fn limit_in(message: &str) -> String {
    let mut numbers =
        message.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
    match (numbers.next(), numbers.next()) {
        (Some(found), Some(limit)) => format!("{found} bytes, where at most {limit} are taken"),
        _ => "it has more bytes than are taken".to_owned(),
    }
}

fn unknown_method() -> Status {
    grpc::status_of_fault(fault::METHOD_NOT_FOUND, "there is no such method here")
}

/// For whatever no route takes: the bindings whose paths are in the contract, but for gRPC.
pub(crate) async fn others(json: Json, request: Request) -> Response {
    if is_grpc(request.headers()) {
        return told(unknown_method());
    }
    json.answer(request).await
}

/// Lets only gRPC to its paths. A request of the protocol is given up when its body does not
/// arrive; tools are left alone, since reflection is a stream that stays open while its client asks.
pub(crate) async fn only_grpc(request: Request, next: Next) -> Response {
    const SERVICE: &str = "/lf.a2a.v1.A2AService/";
    if is_grpc(request.headers()) {
        let request = if request.uri().path().starts_with(SERVICE) {
            request.map(|body| in_time(body, BODY_WITHIN))
        } else {
            request
        };
        return next.run(request).await;
    }
    json(415, "INVALID_ARGUMENT", "this path takes gRPC: send content-type application/grpc")
}

/// A gRPC error: trailers alone, with HTTP 200.
fn told(status: Status) -> Response {
    status.into_http()
}

/// An error in the shape of the HTTP+JSON binding.
fn json(code: u16, status: &'static str, message: &'static str) -> Response {
    let body =
        format!(r#"{{"error":{{"code":{code},"status":"{status}","message":"{message}"}}}}"#);
    let kind = (CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let code = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (code, [kind], body).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn answer_of_a_panic(content_type: &'static str) -> Response {
        let app = axum::Router::new()
            .route("/", axum::routing::any(async || -> StatusCode { panic!("s3cret") }))
            .layer(axum::middleware::from_fn(guard));
        let request = Request::builder().header(CONTENT_TYPE, content_type);
        app.oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
    }

    #[tokio::test]
    async fn a_panic_is_an_internal_error_in_the_callers_language() {
        let grpc = answer_of_a_panic("application/grpc").await;
        assert_eq!(grpc.status(), StatusCode::OK);
        let status = Status::from_header_map(grpc.headers()).unwrap();
        assert_eq!((status.code(), status.message()), (Code::Internal, "internal error"));
        let json = answer_of_a_panic("application/json").await;
        assert_eq!(json.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(json.headers()[CONTENT_TYPE], "application/json");
    }

    #[test]
    fn grpc_is_known_by_its_content_type() {
        let is = |kind: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            is_grpc(&headers)
        };
        assert!(is("application/grpc") && is("application/grpc+proto") && is("application/grpc;x"));
        assert!(!is("application/grpc-web") && !is("application/json") && !is(""));
        assert!(!is_grpc(&HeaderMap::new()));
    }
}
