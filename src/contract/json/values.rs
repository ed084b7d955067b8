//! The well-known types in serde's terms. Only `read` bounds how deep they nest.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde::ser::{Error as _, Serialize, SerializeStruct as _, Serializer};

use crate::contract::json::time;
use crate::contract::wkt::{Empty, Kind, ListValue, NullValue, Struct, Timestamp, Value};

/// Below it every whole number is a double of its own.
const EXACT: f64 = 9_007_199_254_740_992.0;

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.kind {
            None => Err(S::Error::custom("has no kind")),
            Some(Kind::NullValue(0)) => serializer.serialize_unit(),
            Some(Kind::NullValue(_)) => Err(S::Error::custom("is an unknown null")),
            Some(Kind::NumberValue(number)) => write_number(*number, serializer),
            Some(Kind::StringValue(text)) => serializer.serialize_str(text),
            Some(Kind::BoolValue(bool)) => serializer.serialize_bool(*bool),
            Some(Kind::StructValue(object)) => object.serialize(serializer),
            Some(Kind::ListValue(list)) => list.serialize(serializer),
        }
    }
}

fn write_number<S: Serializer>(number: f64, serializer: S) -> Result<S::Ok, S::Error> {
    if !number.is_finite() {
        return Err(S::Error::custom(format!("is {number}, which JSON cannot say")));
    }
    let minus_zero = number == 0.0 && number.is_sign_negative();
    if number.fract() == 0.0 && number.abs() < EXACT && !minus_zero {
        #[expect(clippy::cast_possible_truncation, reason = "whole and below 2^53")]
        return serializer.serialize_i64(number as i64);
    }
    serializer.serialize_f64(number)
}

impl Serialize for Struct {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(&self.fields)
    }
}

impl Serialize for ListValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(&self.values)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.to_micros().is_none() {
            return Err(S::Error::custom("is not a time of the years 1 to 9999"));
        }
        serializer.collect_str(&time::Written(*self))
    }
}

impl Serialize for Empty {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_struct("google.protobuf.Empty", 0)?.end()
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyVisitor).map(|kind| Self { kind: Some(kind) })
    }
}

impl<'de> Deserialize<'de> for Struct {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TimeVisitor)
    }
}

impl<'de> Deserialize<'de> for Empty {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_struct("google.protobuf.Empty", &[], EmptyVisitor)
    }
}

struct AnyVisitor;

impl<'de> Visitor<'de> for AnyVisitor {
    type Value = Kind;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Kind, E> {
        Ok(Kind::NullValue(NullValue::NullValue.into()))
    }

    fn visit_bool<E>(self, bool: bool) -> Result<Kind, E> {
        Ok(Kind::BoolValue(bool))
    }

    // A double is all that the contract has for numbers (JSON-16).
    fn visit_i64<E>(self, number: i64) -> Result<Kind, E> {
        Ok(Kind::NumberValue(number as f64))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Kind, E> {
        Ok(Kind::NumberValue(number as f64))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Kind, E> {
        Ok(Kind::NumberValue(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Kind, E> {
        Ok(Kind::StringValue(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Kind, E> {
        Ok(Kind::StringValue(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Kind, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = seq.next_element()? {
            values.push(value);
        }
        Ok(Kind::ListValue(ListValue { values }))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Kind, A::Error> {
        ObjectVisitor.visit_map(map).map(Kind::StructValue)
    }
}

struct ObjectVisitor;

impl<'de> Visitor<'de> for ObjectVisitor {
    type Value = Struct;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Struct, A::Error> {
        let mut fields = BTreeMap::new();
        while let Some(key) = map.next_key::<String>()? {
            if fields.contains_key(&key) {
                return Err(A::Error::custom(twice(&key)));
            }
            let value = map.next_value()?;
            fields.insert(key, value);
        }
        Ok(Struct { fields })
    }
}

/// What is wrong with an object that has `key` twice.
pub(super) fn twice(key: &str) -> String {
    // It is the caller's, of any length.
    let shown: String = key.chars().take(64).collect();
    format!("must have each member once, has {shown:?} twice")
}

struct TimeVisitor;

impl Visitor<'_> for TimeVisitor {
    type Value = Timestamp;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Timestamp, E> {
        time::parse(text).ok_or_else(|| E::custom(time::NO_TIME))
    }
}

struct EmptyVisitor;

impl<'de> Visitor<'de> for EmptyVisitor {
    type Value = Empty;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Empty, A::Error> {
        while map.next_entry::<serde::de::IgnoredAny, serde::de::IgnoredAny>()?.is_some() {}
        Ok(Empty {})
    }
}
