//! The bindings that speak JSON, and what all bindings have in common.

pub(crate) mod caller;
mod cuts;
mod errors;
mod events;
mod follow;
mod jsonrpc;
mod matrix;
mod rest;
mod web;

use std::net::SocketAddr;

use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};

use crate::rig::raw;

pub(crate) const JSON: (&str, &str) = ("content-type", "application/json");
const V1: (&str, &str) = ("a2a-version", "1.0");

/// A JSON-RPC call with id 1.
async fn rpc(server: SocketAddr, method: &str, params: &Value) -> Value {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let response = post(server, body.to_string()).await;
    assert_eq!(response.status(), 200, "{response:?}");
    assert_eq!(response.headers()["content-type"], "application/json");
    parsed(&response)
}

/// What is posted to `/`, in the usual headers.
async fn post(server: SocketAddr, body: impl Into<Bytes>) -> Response<Bytes> {
    raw::http(server, "POST", "/", &[JSON, V1], body).await
}

/// An HTTP+JSON call in the usual headers.
async fn rest(server: SocketAddr, method: &str, path: &str, body: &str) -> Response<Bytes> {
    raw::http(server, method, path, &[JSON, V1], body.to_owned()).await
}

/// A JSON body.
fn parsed(response: &Response<Bytes>) -> Value {
    serde_json::from_slice(response.body())
        .unwrap_or_else(|error| panic!("{error}: {:?}", response.body()))
}

/// A message in JSON.
fn message(text: &str) -> Value {
    json!({"messageId": uuid(), "role": "ROLE_USER", "parts": [{"text": text}]})
}

fn uuid() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// A task that waits for input.
async fn asked(server: SocketAddr) -> String {
    let body = json!({"message": message("ask me")}).to_string();
    let sent = parsed(&rest(server, "POST", "/message:send", &body).await);
    sent["task"]["id"].as_str().unwrap().to_owned()
}

async fn answer(server: SocketAddr, task: &str) {
    let mut message = message("the red one");
    message["taskId"] = task.into();
    let body = json!({ "message": message }).to_string();
    assert_eq!(rest(server, "POST", "/message:send", &body).await.status(), 200);
}
