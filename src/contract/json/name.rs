//! The names of members.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, Visitor};

use crate::contract::json::schema::{Field, Message};

/// A member's name: its bit and the field, if the message has one of this name.
pub(super) struct Name(pub(super) &'static Message);

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Option<(u64, &'static Field)>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for Name {
    type Value = Option<(u64, &'static Field)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a member's name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        let mut fields = self.0.fields.iter().enumerate();
        let found = fields.find(|(_, field)| field.json == name || field.name == name);
        Ok(found.map(|(index, field)| (1 << index, field)))
    }
}
