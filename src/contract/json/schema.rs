//! What the descriptors say of the contract's messages, as `build.rs` wrote it down.

include!(concat!(env!("OUT_DIR"), "/json.schema.rs"));

/// A message.
#[derive(Debug)]
pub(super) struct Message {
    /// Its full name.
    name: &'static str,
    /// Its fields in the order of the file, at most 64.
    pub(super) fields: &'static [Field],
}

/// A field.
#[derive(Debug)]
pub(super) struct Field {
    /// Its name in the proto.
    pub(super) name: &'static str,
    /// Its name in JSON.
    pub(super) json: &'static str,
    pub(super) shape: Shape,
    /// Always written.
    pub(super) required: bool,
    /// The choice that it is part of.
    pub(super) oneof: Option<&'static str>,
}

/// How many values a field has.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shape {
    One(Kind),
    Many(Kind),
    /// By text keys.
    Map(Kind),
}

/// What a value is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Text,
    Bool,
    Int32,
    Bytes,
    /// A `Timestamp`.
    Time,
    /// A `Struct`.
    Object,
    /// A `Value`.
    Free,
    /// The names and their numbers.
    Enum(&'static [(&'static str, i32)]),
    Message(&'static Message),
}

/// The message of this full name.
pub(super) fn message(name: &str) -> Option<&'static Message> {
    let at = MESSAGES.binary_search_by(|message| message.name.cmp(name)).ok()?;
    MESSAGES.get(at).copied()
}
