//! HTTP+JSON: paths and methods of HTTP to operations, bare messages back (REST-01 to REST-17).

mod query;
mod route;

use axum::body::{Body, HttpBody as _};
use axum::extract::Request;
use axum::response::Response;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, VARY};
use http::request::Parts;
use http::{HeaderValue, Method};
use serde_json::Value;

use crate::bindings::json::media::{self, Wanted};
use crate::bindings::json::sse::{self, Event, Say};
use crate::bindings::json::{
    Answer, Input, Json, Source, Terms, allow, options, read_body, rest_error, with_extensions,
    write,
};
use crate::bindings::measure::Of;
use crate::bindings::operation::Operation;
use crate::bindings::rest::route::{Found, Target, find};
use crate::bindings::{Failure, Refusal};
use crate::contract::fault;
use crate::domain::Error;
use crate::service::Call;

/// Answers a request at any path but `/`.
pub(super) async fn answer(json: &Json, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let target = match find(&parts.method, parts.uri.path()) {
        Found::Target(target) => target,
        Found::Other(methods) => return other_method(json, &parts, &methods),
        Found::Nothing => {
            let text = "there is nothing at this path";
            return fail(json, &parts, &Failure::of_fault(fault::METHOD_NOT_FOUND, text));
        }
    };
    let name = target.operation.name();
    let mut response = answer_of(json, parts, body, target).await;
    // For whoever counts it.
    response.extensions_mut().insert(Of(name));
    response
}

async fn answer_of(json: &Json, parts: Parts, body: Body, target: Target) -> Response {
    let name = target.operation.name();
    let call = match json.door.enter(name, &parts, parts.uri.query()).await {
        Ok(call) => call,
        Err(error) => return fail(json, &parts, &json.failure("enter", error)),
    };
    let response = match ask(json, &parts, body, &call, target).await {
        Ok(Answer::Whole(body)) => json.respond(200, wanted(&parts).answer(), body, None),
        Ok(Answer::Events(events)) => {
            sse::answer(events, say(json.clone(), name, call.wants_cursor()))
        }
        Err(refusal) => return fail(json, &parts, &json.failure(name, refusal)),
    };
    let mut response = varied(with_extensions(response, &call));
    if name == Operation::GetExtendedAgentCard.name() {
        // XCARD-05: what it says depends on who asks.
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
        headers.insert(VARY, HeaderValue::from_static("accept, authorization, x-api-key"));
    }
    if parts.method == Method::HEAD { without_body(response) } else { response }
}

/// Takes the request apart and calls its operation.
async fn ask(
    json: &Json,
    parts: &Parts,
    body: Body,
    call: &Call,
    target: Target,
) -> Result<Answer, Refusal> {
    let Target { operation, mut fields, has_body } = target;
    let terms = Terms::new(&parts.headers, call).map_err(Error::from)?;
    let kind = operation.input().ok_or_else(|| Error::internal("an operation has no input"))?;
    let mut object =
        query::read(parts.uri.query().unwrap_or_default(), &kind).map_err(Error::Invalid)?;
    if !has_body {
        let input = Input { source: Source::Object(object), fields };
        return json.call(operation, call, input, terms).await;
    }
    // Beside a body, a query says the tenant and nothing else.
    if let Some(Value::String(tenant)) = object.remove("tenant") {
        fields.push(("tenant", tenant));
    }
    let body = read_body(body, json.limits).await?;
    if !body.is_empty() {
        media::of_body(&parts.headers)?;
    }
    let input = Input { source: Source::Body(&body), fields };
    json.call(operation, call, input, terms).await
}

/// Each event is a bare message (REST-11); an error has a name, which is what some clients look
/// at (SSE-04).
fn say(json: Json, operation: &'static str, cursor: bool) -> Say {
    Box::new(move |item| {
        let written = item.and_then(|item| Ok((item.generation, write(&item.response)?)));
        match written {
            Ok((place, data)) => Event { name: None, id: cursor.then_some(place), data },
            Err(error) => {
                let error = rest_error(&json.failure(operation, error)).to_string();
                Event { name: Some("error"), id: None, data: error.into_bytes() }
            }
        }
    })
}

/// A path that is known, and a method that it does not take.
fn other_method(json: &Json, parts: &Parts, methods: &[Method]) -> Response {
    if parts.method == Method::OPTIONS {
        return options(methods);
    }
    let names: Vec<_> = methods.iter().map(Method::as_str).collect();
    let text = format!("this path takes {}", names.join(", "));
    let failure = Failure::of_fault(fault::METHOD_NOT_ALLOWED, text);
    let mut response = fail(json, parts, &failure);
    allow(&mut response, methods);
    response
}

fn fail(json: &Json, parts: &Parts, failure: &Failure) -> Response {
    let body = rest_error(failure).to_string().into_bytes();
    let response = json.respond(failure.fault.http, wanted(parts).error(), body, Some(failure));
    let response = varied(response);
    if parts.method == Method::HEAD { without_body(response) } else { response }
}

fn wanted(parts: &Parts) -> Wanted {
    Wanted::new(&parts.headers, media::of_body(&parts.headers).unwrap_or(media::Body::Json))
}

/// Says that the answer's type depends on what was asked for (AMB-09).
fn varied(mut response: Response) -> Response {
    response.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
    response
}

/// What HEAD answers: how long the body would be.
fn without_body(response: Response) -> Response {
    let length = response.body().size_hint().exact();
    let mut response = response.map(|_| Body::empty());
    if let Some(length) = length {
        response.headers_mut().insert(CONTENT_LENGTH, length.into());
    }
    response
}
