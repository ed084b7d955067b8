//! JSON-RPC 2.0 over HTTP POST (JRPC-01 to JRPC-12).

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::response::Response;
use http::request::Parts;
use http::{Method, StatusCode};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::bindings::json::sse::{self, Event, Say};
use crate::bindings::json::{
    Answer, Input, Json, Source, Terms, allow, jsonrpc_error, media, options, read_body,
    rest_error, with_extensions, write,
};
use crate::bindings::measure::{Code, Of};
use crate::bindings::operation::Operation;
use crate::bindings::{EarlyErrors, Failure, Misfit, Refusal};
use crate::contract::fault;
use crate::domain::Error;

/// The id of a response to a request whose own could not be read.
const NO_ID: &str = "null";
/// The most bytes of an id, since every event of a stream repeats it.
const ID_BYTES_MAX: usize = 1024;

/// Answers a request at `/`.
pub(super) async fn answer(json: &Json, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    if parts.method != Method::POST {
        return other_method(json, &parts);
    }
    let entered = json.door.enter("enter", &parts, parts.uri.query()).await;
    // The body of a stranger is not read.
    if let Err(
        error @ (Error::Unauthenticated(_) | Error::InvalidToken(_) | Error::Unavailable(_)),
    ) = entered
    {
        return fail(json, NO_ID, &json.failure("enter", error));
    }
    let body = match read(json, &parts, body).await {
        Ok(body) => body,
        Err(misfit) => return fail(json, NO_ID, &json.failure("read", misfit)),
    };
    let asked = match Asked::parse(&body) {
        Ok(asked) => asked,
        Err((id, misfit)) => return fail(json, id, &json.failure("read", misfit)),
    };
    let call = match entered {
        Ok(call) => call,
        Err(error) => return refuse(json, &asked, "enter", error.into()),
    };
    let operation = match asked.operation() {
        Ok(operation) => operation,
        Err(misfit) => return refuse(json, &asked, "read", misfit.into()),
    };
    let answered = match asked.input() {
        Ok(input) => match Terms::new(&parts.headers, &call) {
            Ok(terms) => json.call(operation, &call, input, terms).await,
            Err(violation) => Err(Error::from(violation).into()),
        },
        Err(error) => Err(error.into()),
    };
    let response = match answered {
        Err(refusal) if operation.streams() && json.door.early_errors() == EarlyErrors::Events => {
            return refuse_stream(json, &asked, operation.name(), refusal);
        }
        Err(refusal) => return refuse(json, &asked, operation.name(), refusal),
        Ok(_) if asked.id.is_none() => nothing(),
        Ok(Answer::Whole(result)) => {
            let id = asked.id.unwrap_or(NO_ID);
            json.respond(200, media::JSON, envelope(id, "result", &result), None)
        }
        Ok(Answer::Events(events)) => {
            let id = asked.id.unwrap_or(NO_ID).to_owned();
            sse::answer(events, say(json.clone(), id, operation.name(), call.wants_cursor()))
        }
    };
    of(with_extensions(response, &call), operation.name())
}

/// Says what the answer is of, for whoever counts it.
fn of(mut response: Response, operation: &'static str) -> Response {
    response.extensions_mut().insert(Of(operation));
    response
}

async fn read(json: &Json, parts: &Parts, body: Body) -> Result<Bytes, Misfit> {
    media::of_body(&parts.headers)?;
    read_body(body, json.limits).await
}

/// A request, taken apart; each text is JSON.
#[derive(Debug)]
struct Asked<'a> {
    /// As it came; a notification has none.
    id: Option<&'a str>,
    method: String,
    params: Option<&'a str>,
}

#[derive(Deserialize)]
struct Members<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    method: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    params: Option<&'a RawValue>,
}

/// A member that is there, null included.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

impl<'a> Asked<'a> {
    /// A request object, or the id to answer with and what is wrong.
    fn parse(body: &'a [u8]) -> Result<Self, (&'a str, Misfit)> {
        let invalid = |text: &str| Misfit::new(fault::INVALID_REQUEST, text);
        if let Err(error) = serde_json::from_slice::<&RawValue>(body) {
            let text = format!("{}: {error}", fault::INVALID_JSON.text);
            return Err((NO_ID, Misfit::new(fault::INVALID_JSON, text)));
        }
        match body.trim_ascii_start().first() {
            Some(b'{') => {}
            Some(b'[') => {
                return Err((NO_ID, invalid("batches are not part of A2A: send one request")));
            }
            _ => return Err((NO_ID, invalid("a request is an object"))),
        }
        let members: Members<'_> = match serde_json::from_slice(body) {
            Ok(members) => members,
            Err(error) => return Err((NO_ID, invalid(&format!("not a request: {error}")))),
        };
        let id = members.id.map(RawValue::get);
        let Some(id) = id.map_or(Some(None), |id| is_id(id).then_some(Some(id))) else {
            let text = format!("id must be a string, a number or null, of {ID_BYTES_MAX} bytes");
            return Err((NO_ID, invalid(&text)));
        };
        let answer_to = id.unwrap_or(NO_ID);
        let text = |member: Option<&RawValue>| {
            member.and_then(|raw| serde_json::from_str::<String>(raw.get()).ok())
        };
        if text(members.jsonrpc).as_deref() != Some("2.0") {
            return Err((answer_to, invalid("jsonrpc must be \"2.0\"")));
        }
        let Some(method) = text(members.method) else {
            return Err((answer_to, invalid("method must be a string")));
        };
        Ok(Self { id, method, params: members.params.map(RawValue::get) })
    }

    fn operation(&self) -> Result<Operation, Misfit> {
        // The one name that differs in some clients (AMB-49).
        let name = match self.method.as_str() {
            "ListTaskPushNotificationConfig" => "ListTaskPushNotificationConfigs",
            name => name,
        };
        Operation::named(name).ok_or_else(|| {
            let name: String = self.method.chars().take(64).collect();
            let mut text = format!("{}: {name:?}", fault::METHOD_NOT_FOUND.text);
            // Names of 0.3 (JRPC-12).
            if name.contains('/') {
                text += "; methods of A2A 1.0 have names such as SendMessage";
            }
            Misfit::new(fault::METHOD_NOT_FOUND, text)
        })
    }

    fn input(&self) -> Result<Input<'a>, Error> {
        let params = match self.params {
            None | Some("null") => "",
            Some(params) if params.starts_with('{') => params,
            Some(_) => return Err(Error::invalid("params", "must be an object")),
        };
        Ok(Input { source: Source::Body(params.as_bytes()), fields: Vec::new() })
    }
}

/// Whether this JSON can be the id of a request.
fn is_id(json: &str) -> bool {
    let kind = matches!(json.bytes().next(), Some(b'"' | b'-' | b'0'..=b'9' | b'n'));
    kind && json.len() <= ID_BYTES_MAX
}

/// A response object. `id` goes back as it came (JRPC-10).
fn envelope(id: &str, member: &str, json: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(json.len() + id.len() + 48);
    for part in
        [br#"{"jsonrpc":"2.0","id":"#, id.as_bytes(), b",\"", member.as_bytes(), b"\":", json, b"}"]
    {
        body.extend_from_slice(part);
    }
    body
}

/// Each event is a whole response (JRPC-06), and so is an error, without a name (SSE-04).
fn say(json: Json, id: String, operation: &'static str, cursor: bool) -> Say {
    Box::new(move |item| {
        let written = item.and_then(|item| Ok((item.generation, write(&item.response)?)));
        let (place, data) = match written {
            Ok((place, data)) => (Some(place), envelope(&id, "result", &data)),
            Err(error) => {
                let error = jsonrpc_error(&json.failure(operation, error)).to_string();
                (None, envelope(&id, "error", error.as_bytes()))
            }
        };
        Event { name: None, id: place.filter(|_| cursor), data }
    })
}

/// The answer to a notification (JRPC-11).
fn nothing() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

/// The answer to a request that failed; a notification is told nothing.
fn refuse(json: &Json, asked: &Asked<'_>, operation: &'static str, refusal: Refusal) -> Response {
    let failure = json.failure(operation, refusal);
    let response = match asked.id {
        Some(id) => fail(json, id, &failure),
        None => nothing(),
    };
    of(response, operation)
}

/// The same as a stream, for clients that take an answer of any other type for an empty one.
fn refuse_stream(
    json: &Json,
    asked: &Asked<'_>,
    operation: &'static str,
    refusal: Refusal,
) -> Response {
    let Some(id) = asked.id else { return refuse(json, asked, operation, refusal) };
    let failure = json.failure(operation, refusal);
    let error = jsonrpc_error(&failure).to_string();
    let data = envelope(id, "error", error.as_bytes());
    let mut response = sse::one(Event { name: None, id: None, data });
    response.extensions_mut().insert(Code(failure.fault.status_name()));
    of(response, operation)
}

fn fail(json: &Json, id: &str, failure: &Failure) -> Response {
    let error = jsonrpc_error(failure).to_string();
    let body = envelope(id, "error", error.as_bytes());
    json.respond(failure.fault.jsonrpc_http(), media::JSON, body, Some(failure))
}

/// What is not a POST is not JSON-RPC, so it is answered as HTTP.
fn other_method(json: &Json, parts: &Parts) -> Response {
    if parts.method == Method::OPTIONS {
        return options(&[Method::POST]);
    }
    let text = "JSON-RPC is asked by POST; the operations of HTTP+JSON have paths of their own";
    let failure = Failure::of_fault(fault::METHOD_NOT_ALLOWED, text);
    let body = rest_error(&failure).to_string().into_bytes();
    let body = if parts.method == Method::HEAD { Vec::new() } else { body };
    let mut response = json.respond(failure.fault.http, media::JSON, body, Some(&failure));
    allow(&mut response, &[Method::POST]);
    response
}
