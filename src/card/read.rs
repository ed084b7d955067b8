//! A card from a file: JSON, or TOML by the name's ending. Members are those of the contract, in
//! camelCase or `snake_case`.

use std::path::Path;

use prost_reflect::{DescriptorPool, FieldDescriptor, MessageDescriptor};
use serde_json::Value;

use crate::card::json;
use crate::contract::{DESCRIPTOR_SET, v1};

/// Reads a card. `name` is the file's, for its ending.
///
/// # Errors
/// All that cannot be read as a member of a card, each with its path. A member that a card does not
/// have is a fault: it is a mistake of the author's, and would be lost.
pub fn from_file(name: &Path, bytes: &[u8]) -> Result<v1::AgentCard, Vec<String>> {
    let one = |problem| vec![problem];
    let is_toml = name.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("toml"));
    let value = if is_toml { from_toml(bytes) } else { from_json(bytes) }.map_err(one)?;
    if !value.is_object() {
        return Err(vec!["must be an object with the members of an AgentCard".to_owned()]);
    }
    let pool = DescriptorPool::decode(DESCRIPTOR_SET).map_err(|error| one(error.to_string()))?;
    let mut problems = Vec::new();
    if let Some(card) = pool.get_message_by_name("lf.a2a.v1.AgentCard") {
        unknown_members(&value, &card, "", &mut problems);
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    if is_toml { json::from_value(value) } else { json::from_slice(bytes) }.map_err(one)
}

fn from_toml(bytes: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| format!("is not text: {error}"))?;
    toml::from_str(text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        format!("is not TOML: line {line}: {}", error.message())
    })
}

fn from_json(bytes: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(bytes).map_err(|error| format!("is not JSON: {error}"))
}

/// Every member that the message does not have, with its path.
fn unknown_members(
    value: &Value,
    message: &MessageDescriptor,
    path: &str,
    problems: &mut Vec<String>,
) {
    // Free-form values, whose members are their own; and lists and scalars in the wrong place,
    // which the reader of the card tells better.
    let Value::Object(members) = value else { return };
    if message.full_name().starts_with("google.protobuf.") {
        return;
    }
    for (name, value) in members {
        let here = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let Some(field) =
            message.get_field_by_json_name(name).or_else(|| message.get_field_by_name(name))
        else {
            problems.push(format!("{here}: there is no such member; {}", known(message)));
            continue;
        };
        let Some(inner) = message_of(&field) else { continue };
        if let (Value::Array(items), true) = (value, field.is_list()) {
            for (n, item) in items.iter().enumerate() {
                unknown_members(item, &inner, &format!("{here}[{n}]"), problems);
            }
        } else if let (Value::Object(entries), true) = (value, field.is_map()) {
            for (key, item) in entries {
                unknown_members(item, &inner, &format!("{here}.{key}"), problems);
            }
        } else {
            unknown_members(value, &inner, &here, problems);
        }
    }
}

/// The message that a field holds: once, in a list, or as the value of a map.
fn message_of(field: &FieldDescriptor) -> Option<MessageDescriptor> {
    let kind = field.kind();
    let message = kind.as_message()?;
    if field.is_map() {
        return message.map_entry_value_field().kind().as_message().cloned();
    }
    Some(message.clone())
}

fn known(message: &MessageDescriptor) -> String {
    let names: Vec<_> = message.fields().map(|field| field.json_name().to_owned()).collect();
    format!("{} has {}", message.name(), names.join(", "))
}
