//! The well-known types that the contract uses, equal to `google.protobuf` on the wire.
//!
//! They are our own so that maps are ordered, which makes stored bytes and digests stable, and so
//! that time arithmetic and JSON rules can live beside them.

use std::collections::BTreeMap;

/// A JSON object.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Struct {
    /// The members by name.
    #[prost(btree_map = "string, message", tag = "1")]
    pub fields: BTreeMap<String, Value>,
}

/// Any JSON value.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Value {
    /// Which kind of value; none is not valid, JSON's null is a kind.
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5, 6")]
    pub kind: Option<Kind>,
}

/// The kinds of JSON value.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Kind {
    /// null.
    #[prost(enumeration = "NullValue", tag = "1")]
    NullValue(i32),
    /// A number; NaN and the infinities are not valid.
    #[prost(double, tag = "2")]
    NumberValue(f64),
    /// A string.
    #[prost(string, tag = "3")]
    StringValue(String),
    /// true or false.
    #[prost(bool, tag = "4")]
    BoolValue(bool),
    /// An object.
    #[prost(message, tag = "5")]
    StructValue(Struct),
    /// An array.
    #[prost(message, tag = "6")]
    ListValue(ListValue),
}

/// A JSON array.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListValue {
    /// The elements in order.
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<Value>,
}

/// JSON's null.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum NullValue {
    /// The only value.
    NullValue = 0,
}

/// Nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct Empty {}

/// A point in time, counted from 1970 in UTC.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct Timestamp {
    /// Whole seconds, negative before 1970.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// What comes on top of them; in a valid time never negative and below one second.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

impl Timestamp {
    /// The first second of the year 1.
    const FIRST_SECOND: i64 = -62_135_596_800;
    /// The last second of the year 9999.
    const LAST_SECOND: i64 = 253_402_300_799;

    /// The time `micros` microseconds after the start of 1970.
    #[must_use]
    pub fn from_micros(micros: i64) -> Self {
        let within = i32::try_from(micros.rem_euclid(1_000_000)).unwrap_or_default();
        Self { seconds: micros.div_euclid(1_000_000), nanos: within * 1_000 }
    }

    /// Microseconds since the start of 1970, cut and not rounded. `None` if this is not a valid
    /// time: outside of the years 1 to 9999, or with nanoseconds that are not part of a second.
    #[must_use]
    pub fn to_micros(self) -> Option<i64> {
        let known = (Self::FIRST_SECOND..=Self::LAST_SECOND).contains(&self.seconds)
            && (0..1_000_000_000).contains(&self.nanos);
        known.then(|| self.seconds * 1_000_000 + i64::from(self.nanos) / 1_000)
    }
}
