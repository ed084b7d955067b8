//! The contract's messages as canonical `ProtoJSON`, and back (JSON-01 to JSON-16).
//!
//! The serde implementations come from `pbjson-build`. What those miss of the canonical form is
//! done on the way through them, by two adapters that know the contract's descriptors: `read` and
//! `write`. So `T` is any message of `lf.a2a.v1` or one of `contract::wkt`; serde alone, without
//! these functions, would neither read nor write all of it rightly.
//!
//! Out: camelCase; REQUIRED members always, those that hold a message or a time only when set;
//! others only when they are set or not empty; times in UTC with `Z` and exactly three fraction
//! digits, cut; whole numbers below 2^53 without a point.
//!
//! In: camelCase and the proto's own names; `null` for any member is the same as leaving it out,
//! save where the member is any JSON value; whole numbers as `5`, `5.0`, `1e1` or in quotes; enums
//! by name or number; both alphabets of base64, padded or not; unknown members are passed over
//! unread. Refused with their path: a member twice, by either of its names; two members of a
//! choice; enum values that the contract does not know; free-form JSON deeper than
//! [`NESTING_MAX`].

mod name;
mod path;
mod read;
mod schema;
mod time;
mod values;
mod write;

use std::error::Error;
use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The deepest that objects and arrays in free-form JSON may nest. Deeper ones would not come back
/// from their encoded form, whose readers stop at 100 messages.
pub const NESTING_MAX: usize = 30;

/// A message as JSON text.
///
/// # Errors
/// A value in it has no JSON form: an enum's number without a name, a number that is not finite, a
/// value without a kind, a time outside of the years 1 to 9999.
pub fn to_vec<T: Serialize>(message: &T) -> Result<Vec<u8>, JsonError> {
    let mut json = Vec::with_capacity(256);
    write::write(message, &mut serde_json::Serializer::new(&mut json))?;
    Ok(json)
}

/// A message as a JSON value.
///
/// # Errors
/// As [`to_vec`].
pub fn to_value<T: Serialize>(message: &T) -> Result<serde_json::Value, JsonError> {
    write::write(message, serde_json::value::Serializer)
}

/// A message from JSON text.
///
/// # Errors
/// The text is not JSON in UTF-8, or JSON that is not this message: see [`Kind`].
pub fn from_slice<T: DeserializeOwned>(json: &[u8]) -> Result<T, JsonError> {
    // Before all else: members that are passed over would not be looked at.
    let text = std::str::from_utf8(json).map_err(|error| JsonError {
        path: String::new(),
        problem: format!("is not UTF-8 after byte {}", error.valid_up_to()),
        kind: Kind::Syntax,
    })?;
    let mut reader = serde_json::Deserializer::from_str(text);
    let message = read::read(&mut reader)?;
    reader.end().map_err(|error| JsonError::syntax(&error))?;
    Ok(message)
}

/// A message from a JSON value. A member that was there twice is not seen any more: prefer
/// [`from_slice`] on the text.
///
/// # Errors
/// The value is not this message; always [`Kind::Shape`].
pub fn from_value<T: DeserializeOwned>(json: serde_json::Value) -> Result<T, JsonError> {
    read::read(json)
}

/// Why JSON and a message do not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonError {
    /// The member by its names in the proto, such as `message.parts[0].raw`; empty for the whole.
    pub path: String,
    /// What is wrong with it, to be read after its name.
    pub problem: String,
    /// Which of the two ways to be wrong.
    pub kind: Kind,
}

/// The two ways to be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Not JSON at all.
    Syntax,
    /// JSON, but not this message.
    Shape,
}

impl JsonError {
    fn syntax(error: &serde_json::Error) -> Self {
        let problem = format!("is not JSON: {error}");
        Self { path: String::new(), problem, kind: Kind::Syntax }
    }
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "the body" } else { &self.path };
        write!(f, "{path} {}", self.problem)
    }
}

impl Error for JsonError {}
