//! Writing: serde's output, completed by the descriptors.
//!
//! A `Writer` stands between what `pbjson-build` wrote and `serde_json`. It adds the REQUIRED
//! members that the generated code leaves out because they are empty (JSON-07).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use serde::ser::{Serialize, SerializeMap, SerializeSeq, SerializeStruct, Serializer};

use crate::contract::json::schema::{self, Field, Kind, Message, Shape};
use crate::contract::json::{JsonError, Kind as Wrong};

/// Writes one message.
pub(super) fn write<T, S>(message: &T, to: S) -> Result<S::Ok, JsonError>
where
    T: Serialize,
    S: Serializer<Error = serde_json::Error>,
{
    let trail = Trail::default();
    message.serialize(Writer { to, trail: &trail }).map_err(|error| JsonError {
        path: trail.path(),
        problem: error.to_string(),
        kind: Wrong::Shape,
    })
}

/// The way back from what could not be written, the innermost step first.
#[derive(Default)]
struct Trail(RefCell<Vec<Step>>);

enum Step {
    Name(&'static str),
    Key(String),
    Index(usize),
}

impl Trail {
    fn path(&self) -> String {
        let mut path = String::new();
        for step in self.0.borrow().iter().rev() {
            let dot = if path.is_empty() { "" } else { "." };
            let written = match step {
                Step::Name(name) => write!(path, "{dot}{name}"),
                Step::Key(key) => write!(path, "{dot}{key}"),
                Step::Index(index) => write!(path, "[{index}]"),
            };
            written.expect("a string takes all that is written");
        }
        path
    }

    fn step<T, E>(&self, result: Result<T, E>, step: impl FnOnce() -> Step) -> Result<T, E> {
        if result.is_err() {
            self.0.borrow_mut().push(step());
        }
        result
    }
}

/// A value whose parts are written by a `Writer` too.
struct Part<'a, T: ?Sized>(&'a T, &'a Trail);

impl<T: Serialize + ?Sized> Serialize for Part<'_, T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(Writer { to, trail: self.1 })
    }
}

struct Writer<'a, S> {
    to: S,
    trail: &'a Trail,
}

macro_rules! as_is {
    ($($method:ident($($name:ident: $argument:ty),*);)*) => {$(
        fn $method(self, $($name: $argument),*) -> Result<S::Ok, S::Error> {
            self.to.$method($($name),*)
        }
    )*};
}

impl<'a, S: Serializer> Serializer for Writer<'a, S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Items<'a, S::SerializeSeq>;
    type SerializeTuple = S::SerializeTuple;
    type SerializeTupleStruct = S::SerializeTupleStruct;
    type SerializeTupleVariant = S::SerializeTupleVariant;
    type SerializeMap = Entries<'a, S::SerializeMap>;
    type SerializeStruct = Members<'a, S::SerializeStruct>;
    type SerializeStructVariant = S::SerializeStructVariant;

    as_is! {
        serialize_bool(v: bool); serialize_i8(v: i8); serialize_i16(v: i16);
        serialize_i32(v: i32); serialize_i64(v: i64); serialize_u8(v: u8); serialize_u16(v: u16);
        serialize_u32(v: u32); serialize_u64(v: u64); serialize_f32(v: f32);
        serialize_f64(v: f64); serialize_char(v: char); serialize_str(v: &str);
        serialize_bytes(v: &[u8]); serialize_none(); serialize_unit();
        serialize_unit_struct(name: &'static str);
        serialize_unit_variant(name: &'static str, index: u32, variant: &'static str);
    }

    fn collect_str<T: fmt::Display + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.to.collect_str(value)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.to.serialize_some(&Part(value, self.trail))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        self.to.serialize_newtype_struct(name, &Part(value, self.trail))
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        self.to.serialize_newtype_variant(name, index, variant, &Part(value, self.trail))
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<Self::SerializeSeq, S::Error> {
        Ok(Items { to: self.to.serialize_seq(len)?, trail: self.trail, index: 0 })
    }

    fn serialize_map(self, len: Option<usize>) -> Result<Self::SerializeMap, S::Error> {
        Ok(Entries { to: self.to.serialize_map(len)?, trail: self.trail })
    }

    fn serialize_struct(
        self,
        name: &'static str,
        len: usize,
    ) -> Result<Self::SerializeStruct, S::Error> {
        let message = schema::message(name);
        // An upper bound: with 0 the object would be closed at once.
        let len = message.map_or(len, |message| message.fields.len());
        Ok(Members {
            to: self.to.serialize_struct(name, len)?,
            trail: self.trail,
            message,
            next: 0,
        })
    }

    // The contract has none of these.

    fn serialize_tuple(self, len: usize) -> Result<Self::SerializeTuple, S::Error> {
        self.to.serialize_tuple(len)
    }

    fn serialize_tuple_struct(
        self,
        name: &'static str,
        len: usize,
    ) -> Result<Self::SerializeTupleStruct, S::Error> {
        self.to.serialize_tuple_struct(name, len)
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeTupleVariant, S::Error> {
        self.to.serialize_tuple_variant(name, index, variant, len)
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeStructVariant, S::Error> {
        self.to.serialize_struct_variant(name, index, variant, len)
    }
}

/// An array.
struct Items<'a, S> {
    to: S,
    trail: &'a Trail,
    index: usize,
}

impl<S: SerializeSeq> SerializeSeq for Items<'_, S> {
    type Ok = S::Ok;
    type Error = S::Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), S::Error> {
        let written = self.to.serialize_element(&Part(value, self.trail));
        self.index += 1;
        self.trail.step(written, || Step::Index(self.index - 1))
    }

    fn end(self) -> Result<S::Ok, S::Error> {
        self.to.end()
    }
}

/// A map, or an object of free-form JSON.
struct Entries<'a, S> {
    to: S,
    trail: &'a Trail,
}

impl<S: SerializeMap> SerializeMap for Entries<'_, S> {
    type Ok = S::Ok;
    type Error = S::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), S::Error> {
        self.to.serialize_key(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), S::Error> {
        self.to.serialize_value(&Part(value, self.trail))
    }

    fn serialize_entry<K: Serialize + ?Sized, T: Serialize + ?Sized>(
        &mut self,
        key: &K,
        value: &T,
    ) -> Result<(), S::Error> {
        let written = self.to.serialize_entry(key, &Part(value, self.trail));
        self.trail.step(written, || {
            let key = serde_json::to_value(key).ok();
            Step::Key(key.as_ref().and_then(|key| key.as_str()).unwrap_or_default().to_owned())
        })
    }

    fn end(self) -> Result<S::Ok, S::Error> {
        self.to.end()
    }
}

/// A message.
struct Members<'a, S> {
    to: S,
    trail: &'a Trail,
    message: Option<&'static Message>,
    /// The fields before it are written, or need not be.
    next: usize,
}

impl<S: SerializeStruct> Members<'_, S> {
    /// Writes the required fields that were passed over on the way to field number `end`.
    fn complete(&mut self, end: usize) -> Result<(), S::Error> {
        let fields = self.message.map_or::<&[Field], _>(&[], |message| message.fields);
        for field in fields.iter().take(end).skip(self.next).filter(|field| field.required) {
            self.empty(field)?;
        }
        self.next = self.next.max(end + 1);
        Ok(())
    }

    fn empty(&mut self, field: &'static Field) -> Result<(), S::Error> {
        match field.shape {
            Shape::Many(_) => self.to.serialize_field(field.json, &[(); 0]),
            Shape::Map(_) => self.to.serialize_field(field.json, &BTreeMap::<(), ()>::new()),
            Shape::One(Kind::Text | Kind::Bytes) => self.to.serialize_field(field.json, ""),
            Shape::One(Kind::Bool) => self.to.serialize_field(field.json, &false),
            Shape::One(Kind::Int32) => self.to.serialize_field(field.json, &0),
            Shape::One(Kind::Enum(names)) => {
                let zero = names.iter().find(|(_, number)| *number == 0);
                self.to.serialize_field(field.json, zero.map_or("", |(name, _)| name))
            }
            // These can be absent, and an empty one would be something else.
            Shape::One(Kind::Message(_) | Kind::Object | Kind::Free | Kind::Time) => Ok(()),
        }
    }
}

impl<S: SerializeStruct> SerializeStruct for Members<'_, S> {
    type Ok = S::Ok;
    type Error = S::Error;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), S::Error> {
        let fields = self.message.map_or::<&[Field], _>(&[], |message| message.fields);
        let mut numbered = fields.iter().enumerate();
        let field = numbered.find(|(_, field)| field.json == name);
        // Members of a choice come last, whatever their place in the file.
        if let Some((index, Field { oneof: None, .. })) = field {
            self.complete(index)?;
        }
        let written = self.to.serialize_field(name, &Part(value, self.trail));
        self.trail.step(written, || Step::Name(field.map_or(name, |(_, field)| field.name)))
    }

    fn end(mut self) -> Result<S::Ok, S::Error> {
        self.complete(usize::MAX - 1)?;
        self.to.end()
    }
}
