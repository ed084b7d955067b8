//! The agent card: how clients find out who an agent is, what it offers and where it is.
//!
//! An agent, or a file, says what only its authors know ([`read`]); the server adds what only it
//! knows: where it is, and how callers prove who they are ([`Place`]). What comes of it is checked
//! ([`check`]) and may be signed ([`jws`]) before anybody sees it.

pub mod canonical;
pub mod check;
pub mod interfaces;
mod json;
pub mod jws;
pub mod keys;
mod place;
pub mod read;
pub mod tools;

use crate::contract::v1;

pub use interfaces::Address;
pub use place::Place;

/// Where the card is (CARD-02).
pub const PATH: &str = "/.well-known/agent-card.json";

/// Where the public halves of the keys are that signed it (RFC 7517).
pub const JWKS_PATH: &str = "/.well-known/jwks.json";

/// The card as clients read it: canonical `ProtoJSON`, required members included (CARD-14).
///
/// # Errors
/// Where it holds what JSON cannot say, in words.
pub fn to_json(card: &v1::AgentCard) -> Result<Vec<u8>, String> {
    json::to_vec(card)
}
