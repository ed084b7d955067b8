//! The agent card: how clients find out who an agent is, what it offers and where it is.
//!
//! An agent, or a file, says what only its authors know ([`read`]); the server adds what only it
//! knows: where it is, and how callers prove who they are ([`Place`]). What comes of it is checked
//! ([`check`]) before anybody sees it.

pub mod check;
pub mod interfaces;
mod json;
mod place;
pub mod read;

use crate::contract::v1;

pub use interfaces::Address;
pub use place::Place;

/// Where the card is (CARD-02).
pub const PATH: &str = "/.well-known/agent-card.json";

/// The card as clients read it: canonical `ProtoJSON`, required members included (CARD-14).
///
/// # Errors
/// Where it holds what JSON cannot say, in words.
pub fn to_json(card: &v1::AgentCard) -> Result<Vec<u8>, String> {
    json::to_vec(card)
}
