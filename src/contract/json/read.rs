//! Reading: serde's input, seen through the descriptors.
//!
//! A `Reader` stands between `serde_json` and what `pbjson-build` wrote. It knows what each value
//! must be, and hands on only what the generated code takes rightly; all else it refuses in words
//! of its own, with the path.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt;

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error, IgnoredAny, IntoDeserializer as _,
    MapAccess, SeqAccess, Visitor,
};
use serde_json::error::Category;

use crate::contract::json::name::Name;
use crate::contract::json::path::Path;
use crate::contract::json::schema::{self, Field, Kind, Message, Shape};
use crate::contract::json::{JsonError, Kind as Wrong, NESTING_MAX, values};

/// Reads one message.
pub(super) fn read<'de, T, D>(from: D) -> Result<T, JsonError>
where
    T: DeserializeOwned,
    D: Deserializer<'de, Error = serde_json::Error>,
{
    let notes = Notes::default();
    let some = Cell::new(false);
    let at = At { slot: Slot::Root, path: &Path::Root, notes: &notes, some: &some };
    let error = match T::deserialize(Reader { from, at }) {
        Ok(message) => return Ok(message),
        Err(error) => error,
    };
    // It is JSON, but no double can hold it.
    let too_large = error.to_string().starts_with("number out of range");
    if error.classify() != Category::Data && !too_large {
        return Err(JsonError::syntax(&error));
    }
    let (path, problem) =
        notes.0.into_inner().unwrap_or_else(|| (String::new(), without_place(&error)));
    let problem =
        if too_large { "must be a number that a double can hold".into() } else { problem };
    Err(JsonError { path, problem, kind: Wrong::Shape })
}

/// The first thing that was wrong, with its path: noted where it is found, since serde's errors
/// hold no path.
#[derive(Default)]
struct Notes(RefCell<Option<(String, String)>>);

fn without_place(error: &impl fmt::Display) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((text, _)) => text.to_owned(),
        None => text,
    }
}

/// What stands at a place.
#[derive(Clone, Copy)]
enum Slot {
    /// Whatever the type says that is read.
    Root,
    /// The value of a field; null is none.
    One(Kind),
    /// The same, where something must be.
    Item(Kind),
    Many(Kind),
    Map(Kind),
    /// Any JSON inside this many objects and arrays.
    Free(usize),
}

#[derive(Clone, Copy)]
struct At<'a> {
    slot: Slot,
    path: &'a Path<'a>,
    notes: &'a Notes,
    /// Set when a member that may be none is not.
    some: &'a Cell<bool>,
}

impl At<'_> {
    /// Notes what is wrong here, unless something was before.
    fn note(&self, problem: impl FnOnce() -> String) {
        let mut first = self.notes.0.borrow_mut();
        if first.is_none() {
            *first = Some((self.path.to_string(), problem()));
        }
    }

    fn refuse<E: Error>(&self, problem: impl Into<String>) -> E {
        let problem = problem.into();
        let error = E::custom(&problem);
        self.note(|| problem);
        error
    }

    /// For a value that is `found` where something else must be.
    fn mismatch<E: Error>(&self, found: &str) -> E {
        let kind = match self.slot {
            Slot::Many(_) => return self.refuse(format!("must be an array, not {found}")),
            Slot::Map(_) => return self.refuse(format!("must be an object, not {found}")),
            Slot::Root | Slot::Free(_) => return self.refuse(format!("must not be {found}")),
            Slot::One(kind) | Slot::Item(kind) => kind,
        };
        let wanted = match kind {
            Kind::Text | Kind::Time => "a string",
            Kind::Bytes => "a string with base64",
            Kind::Bool => "true or false",
            Kind::Int32 => "a whole number",
            Kind::Object | Kind::Message(_) => "an object",
            Kind::Enum(names) => return self.refuse(format!("must be {}", one_of(names))),
            Kind::Free => "JSON",
        };
        self.refuse(format!("must be {wanted}, not {found}"))
    }

    /// How deep the objects and arrays of free-form JSON are here, if it may stand here.
    fn free_depth(&self) -> Option<usize> {
        match self.slot {
            Slot::Free(depth) => Some(depth),
            Slot::One(Kind::Free) | Slot::Item(Kind::Free) => Some(0),
            Slot::Root | Slot::One(_) | Slot::Item(_) | Slot::Many(_) | Slot::Map(_) => None,
        }
    }

    fn deeper<E: Error>(self, depth: usize) -> Result<Self, E> {
        if depth >= NESTING_MAX {
            let problem = format!("is nested deeper than {NESTING_MAX} objects and arrays");
            return Err(self.refuse(problem));
        }
        Ok(Self { slot: Slot::Free(depth + 1), ..self })
    }

    fn whole<E: Error>(&self, number: f64) -> Result<i32, E> {
        if number.fract() == 0.0 && (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&number) {
            #[expect(clippy::cast_possible_truncation, reason = "whole and in range")]
            return Ok(number as i32);
        }
        Err(self.refuse(format!("must be a whole number from {} to {}", i32::MIN, i32::MAX)))
    }
}

fn one_of(names: &[(&str, i32)]) -> String {
    let names: Vec<_> = names.iter().map(|(name, _)| *name).collect();
    format!("one of {}", names.join(", "))
}

/// A deserializer for the value at `at`.
struct Reader<'a, D> {
    from: D,
    at: At<'a>,
}

macro_rules! by_slot {
    ($($method:ident($($argument:ty),*);)*) => {$(
        fn $method<V: Visitor<'de>>(self, $(_: $argument,)* visitor: V) -> Result<V::Value, D::Error> {
            self.deserialize_any(visitor)
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Reader<'_, D> {
    type Error = D::Error;

    // What the caller asks for plays no part: the descriptors say what must be here.
    fn deserialize_any<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, D::Error> {
        if matches!(self.at.slot, Slot::Root) {
            self.at.slot = Slot::Free(0);
        }
        self.from.deserialize_any(Seen { at: self.at, visitor })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        mut self,
        name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        if matches!(self.at.slot, Slot::Root) {
            match schema::message(name) {
                Some(message) => self.at.slot = Slot::Item(Kind::Message(message)),
                None => {
                    return Err(self.at.refuse(format!("is no message of the contract: {name}")));
                }
            }
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        if self.at.free_depth().is_some() {
            // null is a value there.
            self.at.some.set(true);
            return visitor.visit_some(self);
        }
        self.from.deserialize_option(Maybe { at: self.at, visitor })
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.from.deserialize_ignored_any(visitor)
    }

    by_slot! {
        deserialize_bool(); deserialize_i8(); deserialize_i16(); deserialize_i32();
        deserialize_i64(); deserialize_u8(); deserialize_u16(); deserialize_u32();
        deserialize_u64(); deserialize_f32(); deserialize_f64(); deserialize_char();
        deserialize_str(); deserialize_string(); deserialize_bytes(); deserialize_byte_buf();
        deserialize_unit(); deserialize_unit_struct(&'static str);
        deserialize_newtype_struct(&'static str); deserialize_seq(); deserialize_tuple(usize);
        deserialize_tuple_struct(&'static str, usize); deserialize_map();
        deserialize_enum(&'static str, &'static [&'static str]); deserialize_identifier();
    }
}

/// A member that may be null.
struct Maybe<'a, V> {
    at: At<'a>,
    visitor: V,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Maybe<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(f)
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_none()
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<V::Value, D::Error> {
        self.at.some.set(true);
        self.visitor.visit_some(Reader { from, at: self.at })
    }
}

/// A value that was seen, on its way to the visitor that asked.
struct Seen<'a, V> {
    at: At<'a>,
    visitor: V,
}

impl<'de, V: Visitor<'de>> Seen<'_, V> {
    fn number<E: Error>(
        self,
        number: f64,
        hand_on: impl FnOnce(V) -> Result<V::Value, E>,
    ) -> Result<V::Value, E> {
        match self.at.slot {
            Slot::One(Kind::Int32) | Slot::Item(Kind::Int32) => {
                self.visitor.visit_i32(self.at.whole(number)?)
            }
            Slot::One(Kind::Enum(names)) | Slot::Item(Kind::Enum(names)) => {
                let number = self.at.whole(number)?;
                if names.iter().all(|(_, known)| *known != number) {
                    return Err(self.at.refuse(format!("must be {}", one_of(names))));
                }
                self.visitor.visit_i32(number)
            }
            Slot::Root
            | Slot::One(_)
            | Slot::Item(_)
            | Slot::Many(_)
            | Slot::Map(_)
            | Slot::Free(_) => match self.at.free_depth() {
                Some(_) => hand_on(self.visitor),
                None => Err(self.at.mismatch("a number")),
            },
        }
    }

    /// `hand_on` gives the text to the visitor.
    fn text<E: Error>(
        self,
        text: &str,
        hand_on: impl FnOnce(V) -> Result<V::Value, E>,
    ) -> Result<V::Value, E> {
        let (Slot::One(kind) | Slot::Item(kind)) = self.at.slot else {
            return match self.at.free_depth() {
                Some(_) => hand_on(self.visitor),
                None => Err(self.at.mismatch("a string")),
            };
        };
        match kind {
            Kind::Text | Kind::Free | Kind::Time => hand_on(self.visitor),
            Kind::Bytes => hand_on(self.visitor).map_err(|error: E| {
                self.at.refuse(format!("must be base64: {}", without_place(&error)))
            }),
            Kind::Int32 => {
                // The same grammar as without the quotes; no blanks.
                let blank = text.contains(|char: char| char.is_ascii_whitespace());
                let number = serde_json::from_str::<f64>(text).ok().filter(|_| !blank);
                self.visitor.visit_i32(self.at.whole(number.unwrap_or(f64::NAN))?)
            }
            Kind::Enum(names) => {
                if names.iter().all(|(known, _)| *known != text) {
                    return Err(self.at.refuse(format!("must be {}", one_of(names))));
                }
                hand_on(self.visitor)
            }
            Kind::Bool | Kind::Object | Kind::Message(_) => Err(self.at.mismatch("a string")),
        }
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Seen<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(f)
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        let visitor = self.visitor;
        match self.at.slot {
            _ if self.at.free_depth().is_some() => visitor.visit_unit(),
            Slot::One(Kind::Text | Kind::Bytes) => visitor.visit_str(""),
            Slot::One(Kind::Bool) => visitor.visit_bool(false),
            Slot::One(Kind::Int32 | Kind::Enum(_)) => visitor.visit_i32(0),
            Slot::Many(_) => {
                visitor.visit_seq(SeqDeserializer::<_, E>::new(std::iter::empty::<u8>()))
            }
            Slot::Map(_) => {
                visitor.visit_map(MapDeserializer::<_, E>::new(std::iter::empty::<(u8, u8)>()))
            }
            Slot::One(_) | Slot::Item(_) | Slot::Root | Slot::Free(_) => {
                Err(self.at.mismatch("null"))
            }
        }
    }

    fn visit_bool<E: Error>(self, bool: bool) -> Result<V::Value, E> {
        let wanted = matches!(self.at.slot, Slot::One(Kind::Bool) | Slot::Item(Kind::Bool));
        if wanted || self.at.free_depth().is_some() {
            return self.visitor.visit_bool(bool);
        }
        Err(self.at.mismatch(if bool { "true" } else { "false" }))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<V::Value, E> {
        self.number(number as f64, |visitor| visitor.visit_i64(number))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<V::Value, E> {
        self.number(number as f64, |visitor| visitor.visit_u64(number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<V::Value, E> {
        self.number(number, |visitor| visitor.visit_f64(number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<V::Value, E> {
        self.text(text, |visitor| visitor.visit_str(text))
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<V::Value, E> {
        self.text(text, |visitor| visitor.visit_borrowed_str(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, from: A) -> Result<V::Value, A::Error> {
        let (at, indexed) = match (self.at.slot, self.at.free_depth()) {
            (Slot::Many(kind), _) => (At { slot: Slot::Item(kind), ..self.at }, true),
            (_, Some(depth)) => (self.at.deeper(depth)?, false),
            (_, None) => return Err(self.at.mismatch("an array")),
        };
        self.visitor.visit_seq(Items { from, at, index: 0, indexed })
    }

    fn visit_map<A: MapAccess<'de>>(self, from: A) -> Result<V::Value, A::Error> {
        let At { slot, .. } = self.at;
        match slot {
            Slot::One(Kind::Message(message)) | Slot::Item(Kind::Message(message)) => {
                let members = Members {
                    from,
                    at: self.at,
                    message,
                    seen: 0,
                    chosen: Vec::new(),
                    current: None,
                };
                self.visitor.visit_map(members)
            }
            Slot::Map(kind) => {
                let at = At { slot: Slot::Item(kind), ..self.at };
                let entries = Entries { from, at, seen: BTreeSet::new(), key: String::new() };
                self.visitor.visit_map(entries)
            }
            Slot::One(Kind::Object) | Slot::Item(Kind::Object) => {
                self.visitor.visit_map(FreeMembers { from, at: self.at.deeper(0)? })
            }
            Slot::Root | Slot::One(_) | Slot::Item(_) | Slot::Many(_) | Slot::Free(_) => {
                match self.at.free_depth() {
                    Some(depth) => {
                        self.visitor.visit_map(FreeMembers { from, at: self.at.deeper(depth)? })
                    }
                    None => Err(self.at.mismatch("an object")),
                }
            }
        }
    }
}

/// A value, to be read at `at`; what goes wrong in it is noted.
struct Place<'a, S> {
    seed: S,
    at: At<'a>,
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Place<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<S::Value, D::Error> {
        let at = self.at;
        let result = self.seed.deserialize(Reader { from, at });
        result.inspect_err(|error| at.note(|| without_place(error)))
    }
}

/// The items of an array.
struct Items<'a, A> {
    from: A,
    at: At<'a>,
    index: usize,
    /// Free-form JSON has no paths inside: gRPC names none either.
    indexed: bool,
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Items<'_, A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        if !self.indexed {
            return self.from.next_element_seed(Place { seed, at: self.at });
        }
        let path = Path::Index(self.at.path, self.index);
        self.index += 1;
        self.from.next_element_seed(Place { seed, at: At { path: &path, ..self.at } })
    }
}

/// The members of free-form JSON.
struct FreeMembers<'a, A> {
    from: A,
    at: At<'a>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for FreeMembers<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        self.from.next_key_seed(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.from.next_value_seed(Place { seed, at: self.at })
    }
}

/// The entries of a map.
struct Entries<'a, A> {
    from: A,
    at: At<'a>,
    seen: BTreeSet<String>,
    key: String,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Entries<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        let Some(key) = self.from.next_key::<String>()? else { return Ok(None) };
        if !self.seen.insert(key.clone()) {
            return Err(self.at.refuse(values::twice(&key)));
        }
        self.key.clone_from(&key);
        seed.deserialize(key.into_deserializer()).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        let path = Path::Key(self.at.path, &self.key);
        self.from.next_value_seed(Place { seed, at: At { path: &path, ..self.at } })
    }
}

/// The members of a message that the contract knows, each once.
struct Members<'a, A> {
    from: A,
    at: At<'a>,
    message: &'static Message,
    /// A bit for each field.
    seen: u64,
    /// Which members of choices are there.
    chosen: Vec<&'static Field>,
    current: Option<&'static Field>,
}

impl<'de, A: MapAccess<'de>> Members<'_, A> {
    /// Whether the choice that `field` is part of is made already; if it is, null alone may follow.
    fn is_chosen(&mut self, field: &'static Field) -> Result<bool, A::Error> {
        let same = |other: &&&Field| field.oneof.is_some() && other.oneof == field.oneof;
        let Some(other) = self.chosen.iter().find(same).map(|other| other.name) else {
            return Ok(false);
        };
        let value = self.from.next_value::<Option<IgnoredAny>>()?;
        if value.is_some() || matches!(field.shape, Shape::One(Kind::Free)) {
            let path = Path::Field(self.at.path, field.name);
            let problem = format!("must not stand beside {other}: only one of them can be set");
            return Err(At { path: &path, ..self.at }.refuse(problem));
        }
        Ok(true)
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Members<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        loop {
            let Some(index) = self.from.next_key_seed(Name(self.message))? else { return Ok(None) };
            let Some((bit, field)) = index else {
                // Unknown members are for others (JSON-09).
                self.from.next_value::<IgnoredAny>()?;
                continue;
            };
            if self.seen & bit != 0 {
                let path = Path::Field(self.at.path, field.name);
                return Err(At { path: &path, ..self.at }.refuse("must be there once, is twice"));
            }
            self.seen |= bit;
            if !self.is_chosen(field)? {
                self.current = Some(field);
                return seed.deserialize(field.json.into_deserializer()).map(Some);
            }
        }
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        let Some(field) = self.current.take() else {
            return Err(A::Error::custom("a value before its key"));
        };
        let path = Path::Field(self.at.path, field.name);
        let some = Cell::new(false);
        let slot = match field.shape {
            Shape::One(kind) => Slot::One(kind),
            Shape::Many(kind) => Slot::Many(kind),
            Shape::Map(kind) => Slot::Map(kind),
        };
        let at = At { slot, path: &path, notes: self.at.notes, some: &some };
        let value = self.from.next_value_seed(Place { seed, at })?;
        if field.oneof.is_some() && some.get() {
            self.chosen.push(field);
        }
        Ok(value)
    }
}
