//! The agent card at its well-known address.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH};
use prost_reflect::{DescriptorPool, DynamicMessage, SerializeOptions};
use sha2::{Digest as _, Sha256};

use crate::contract::{DESCRIPTOR_SET, PROTOCOL_VERSION, v1};

/// Where every A2A client looks first (CARD-02).
pub(crate) const PATH: &str = "/.well-known/agent-card.json";

/// The card with the one interface there is, gRPC at `address` (`host:port`, CARD-08).
pub(crate) fn complete(mut card: v1::AgentCard, address: &str) -> v1::AgentCard {
    card.supported_interfaces = vec![v1::AgentInterface {
        url: address.to_owned(),
        protocol_binding: "GRPC".to_owned(),
        tenant: String::new(),
        protocol_version: PROTOCOL_VERSION.to_owned(),
    }];
    card
}

/// A message of the contract as JSON, by the contract's own descriptors.
fn json(name: &str, message: &impl prost::Message) -> Result<Vec<u8>, String> {
    let pool = DescriptorPool::decode(DESCRIPTOR_SET).map_err(|error| error.to_string())?;
    let kind = pool.get_message_by_name(name).ok_or("the contract lacks a message")?;
    let dynamic = DynamicMessage::decode(kind, message.encode_to_vec().as_slice())
        .map_err(|error| error.to_string())?;
    let mut text = serde_json::Serializer::new(Vec::new());
    dynamic
        .serialize_with_options(&mut text, &SerializeOptions::new())
        .map_err(|error| error.to_string())?;
    Ok(text.into_inner())
}

/// Serves the card. It needs neither credentials nor a protocol version (CARD-15), and a client
/// that has it already gets 304 (CACHE-04).
///
/// # Errors
/// When the card cannot be written as JSON.
pub(crate) fn routes(card: &v1::AgentCard) -> Result<Router, String> {
    let body: Arc<[u8]> = json("lf.a2a.v1.AgentCard", card)?.into();
    let digest = Sha256::digest(&body);
    let tag = format!("\"{}\"", hex::encode(digest.get(..16).unwrap_or(&digest)));
    let tag = HeaderValue::from_str(&tag).map_err(|error| error.to_string())?;
    let answer = async move |request: Request| answer(&request, &body, &tag);
    Ok(Router::new().route(PATH, get(answer)))
}

fn answer(request: &Request, body: &Arc<[u8]>, tag: &HeaderValue) -> Response {
    let known = request.headers().get_all(IF_NONE_MATCH).iter().any(|value| {
        let tags = value.to_str().unwrap_or_default().split(',').map(str::trim);
        tags.map(|known| known.trim_start_matches("W/"))
            .any(|known| known == "*" || known.as_bytes() == tag.as_bytes())
    });
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (CACHE_CONTROL, HeaderValue::from_static("public, max-age=300")),
        (ETAG, tag.clone()),
    ];
    if known {
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    (headers, body.to_vec()).into_response()
}
