//! The public agent card at its well-known path, by which clients find the other interfaces.

use std::net::SocketAddr;

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HOST, IF_NONE_MATCH, VARY};
use http::{HeaderMap, HeaderValue, StatusCode};
use prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage};
use sha2::{Digest, Sha256};

use crate::auth::{API_KEY_HEADER, Auth};
use crate::config::authority;
use crate::contract::v1::security_scheme::Scheme;
use crate::contract::{DESCRIPTOR_SET, PROTOCOL_VERSION, v1};

/// Where the card is (CARD-02).
pub(crate) const PATH: &str = "/.well-known/agent-card.json";

/// How long clients may keep it without asking again (CACHE-01).
const CACHE: HeaderValue = HeaderValue::from_static("public, max-age=60");

/// Where clients connect, for the card to say.
#[derive(Debug, Clone)]
pub(crate) enum Address {
    /// Always here, as `host:port`.
    Fixed(String),
    /// Where this caller did: the server listens on every address of the machine and cannot know
    /// which one others use. This is the port, for callers that name none.
    AsAsked(u16),
}

impl Address {
    /// The public address if there is one, else the one that the server is bound to.
    pub(crate) fn new(public: Option<&str>, bound: SocketAddr) -> Self {
        match public.and_then(authority) {
            Some(public) => Self::Fixed(public),
            None if bound.ip().is_unspecified() => Self::AsAsked(bound.port()),
            None => Self::Fixed(bound.to_string()),
        }
    }

    fn of(&self, request: &Request) -> String {
        match self {
            Self::Fixed(address) => address.clone(),
            Self::AsAsked(port) => {
                let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
                // HTTP/2 has the authority in its URI.
                let asked = request.uri().authority().map(|authority| authority.as_str()).or(host);
                let with_port = asked.and_then(|asked| {
                    authority(asked).or_else(|| authority(&format!("{asked}:{port}")))
                });
                with_port.unwrap_or_else(|| format!("localhost:{port}"))
            }
        }
    }
}

/// The card, but for the address, and where that comes from.
#[derive(Debug, Clone)]
pub(crate) struct Card {
    card: v1::AgentCard,
    address: Address,
}

impl Card {
    /// Completes what the agent says of itself with what the server knows.
    pub(crate) fn new(mut card: v1::AgentCard, auth: &Auth, address: Address) -> Self {
        match auth {
            Auth::None => {}
            Auth::ApiKeys(_) => say_how_keys_are_sent(&mut card),
        }
        Self { card, address }
    }

    /// The card as clients at `address` read it: canonical `ProtoJSON`, required members
    /// included.
    fn json(&self, address: String) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
        let mut card = self.card.clone();
        card.supported_interfaces = vec![v1::AgentInterface {
            url: address,
            protocol_binding: "GRPC".to_owned(),
            protocol_version: PROTOCOL_VERSION.to_owned(),
            tenant: String::new(),
        }];
        let pool = DescriptorPool::decode(DESCRIPTOR_SET)?;
        let kind = pool
            .get_message_by_name("lf.a2a.v1.AgentCard")
            .ok_or("the contract has no AgentCard")?;
        let message = DynamicMessage::decode(kind, card.encode_to_vec().as_slice())?;
        Ok(serde_json::to_vec(&message)?)
    }
}

/// Two ways, either of which is enough (CARD-10).
fn say_how_keys_are_sent(card: &mut v1::AgentCard) {
    let bearer = Scheme::HttpAuthSecurityScheme(v1::HttpAuthSecurityScheme {
        description: "An API key as a bearer token.".to_owned(),
        scheme: "Bearer".to_owned(),
        ..Default::default()
    });
    let header = Scheme::ApiKeySecurityScheme(v1::ApiKeySecurityScheme {
        description: "An API key by itself.".to_owned(),
        location: "header".to_owned(),
        name: API_KEY_HEADER.as_str().to_owned(),
    });
    for (name, scheme) in [("bearer", bearer), ("apiKey", header)] {
        let scheme = v1::SecurityScheme { scheme: Some(scheme) };
        card.security_schemes.insert(name.to_owned(), scheme);
        let mut alternative = v1::SecurityRequirement::default();
        alternative.schemes.insert(name.to_owned(), v1::StringList::default());
        card.security_requirements.push(alternative);
    }
}

/// Answers the card, or 304 to whoever has it already (CACHE-02, CACHE-04). It needs neither
/// credentials nor a protocol version (CARD-15).
pub(crate) async fn answer(State(card): State<Card>, request: Request) -> Response {
    let body = match card.json(card.address.of(&request)) {
        Ok(body) => body,
        Err(error) => {
            tracing::error!(error.text = %error, "the agent card cannot be written");
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
    };
    let digest = hex::encode(Sha256::digest(&body).get(..16).unwrap_or_default());
    let tag = format!("\"{digest}\"");
    let mut headers = HeaderMap::new();
    headers.insert(CACHE_CONTROL, CACHE);
    headers.insert(VARY, HeaderValue::from_static("host"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(ETAG, tag);
    }
    let known = request.headers().get_all(IF_NONE_MATCH).iter().any(|value| {
        value.to_str().is_ok_and(|value| {
            value
                .split(',')
                .any(|t| matches!(t.trim().trim_start_matches("W/"), t if t == tag || t == "*"))
        })
    });
    if known {
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    (headers, Bytes::from(body)).into_response()
}
