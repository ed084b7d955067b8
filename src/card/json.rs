//! A card in JSON: the contract's own, with problems in words.

use serde_json::Value;

use crate::contract::json::{self, JsonError};
use crate::contract::v1;

pub(super) fn to_vec(card: &v1::AgentCard) -> Result<Vec<u8>, String> {
    json::to_vec(card).map_err(words)
}

pub(super) fn to_value(card: &v1::AgentCard) -> Result<Value, String> {
    json::to_value(card).map_err(words)
}

pub(super) fn from_value(value: Value) -> Result<v1::AgentCard, String> {
    json::from_value(value).map_err(words)
}

/// From text, in which a member that is there twice is a fault.
pub(super) fn from_slice(text: &[u8]) -> Result<v1::AgentCard, String> {
    json::from_slice(text).map_err(words)
}

/// The member as JSON has it, and what is wrong with it.
fn words(error: JsonError) -> String {
    let JsonError { path, problem, .. } = error;
    if path.is_empty() {
        return problem;
    }
    let mut member = String::with_capacity(path.len());
    let mut raise = false;
    for letter in path.chars() {
        if letter == '_' {
            raise = true;
        } else {
            member.push(if raise { letter.to_ascii_uppercase() } else { letter });
            raise = false;
        }
    }
    format!("{member}: {problem}")
}
