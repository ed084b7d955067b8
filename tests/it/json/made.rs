//! Random messages of any type, made from its descriptor.

use std::collections::HashMap;

use a2ad::contract::wkt::{self, Kind as Free, ListValue, Struct};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use prost_reflect::{
    DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, ReflectMessage as _, Value,
};

/// Messages of this type. All of them are valid in the protocol's eyes but for what REQUIRED asks.
pub(super) fn messages(kind: &MessageDescriptor) -> BoxedStrategy<DynamicMessage> {
    match kind.full_name() {
        "google.protobuf.Timestamp" => of_ours(kind, times()),
        "google.protobuf.Value" => of_ours(kind, values()),
        "google.protobuf.Struct" => of_ours(kind, objects()),
        _ => {
            let kind = kind.clone();
            let fields: Vec<_> = kind
                .fields()
                .map(|field| {
                    let values = fields(&field).prop_map(move |value| (field.clone(), value));
                    prop::option::weighted(0.6, values).boxed()
                })
                .collect();
            fields
                .prop_map(move |fields| {
                    let mut message = DynamicMessage::new(kind.clone());
                    for (field, value) in fields.into_iter().flatten() {
                        message.set_field(&field, value);
                    }
                    message
                })
                .boxed()
        }
    }
}

fn fields(field: &FieldDescriptor) -> BoxedStrategy<Value> {
    if let Some(entry) = field.kind().as_message().filter(|_| field.is_map()) {
        let entries = btree_map(texts(), one(&entry.map_entry_value_field()), 0..3);
        let map = |entries: std::collections::BTreeMap<String, Value>| {
            entries.into_iter().map(|(key, value)| (MapKey::String(key), value))
        };
        return entries.prop_map(move |made| Value::Map(HashMap::from_iter(map(made)))).boxed();
    }
    if field.is_list() {
        return vec(one(field), 0..3).prop_map(Value::List).boxed();
    }
    one(field)
}

fn one(field: &FieldDescriptor) -> BoxedStrategy<Value> {
    match field.kind() {
        Kind::String => texts().prop_map(Value::String).boxed(),
        Kind::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        Kind::Int32 => any::<i32>().prop_map(Value::I32).boxed(),
        Kind::Bytes => vec(any::<u8>(), 0..9).prop_map(|b| Value::Bytes(b.into())).boxed(),
        Kind::Enum(kind) => {
            let numbers: Vec<_> = kind.values().map(|value| value.number()).collect();
            prop::sample::select(numbers).prop_map(Value::EnumNumber).boxed()
        }
        Kind::Message(kind) => messages(&kind).prop_map(Value::Message).boxed(),
        other => panic!("{}: no values of {other:?}", field.full_name()),
    }
}

fn of_ours<M>(
    kind: &MessageDescriptor,
    made: impl Strategy<Value = M> + 'static,
) -> BoxedStrategy<DynamicMessage>
where
    M: prost::Message,
{
    let kind = kind.clone();
    made.prop_map(move |message| {
        DynamicMessage::decode(kind.clone(), message.encode_to_vec().as_slice()).unwrap()
    })
    .boxed()
}

pub(super) fn texts() -> BoxedStrategy<String> {
    prop_oneof![
        2 => vec(any::<char>(), 0..6).prop_map(String::from_iter),
        1 => "[a-z]{0,6}",
        1 => prop::sample::select(vec!["\0", "\u{2028}", "\"\\/", "😀", "null", "1e1", "contextId"])
            .prop_map(str::to_owned),
    ]
    .boxed()
}

fn times() -> impl Strategy<Value = wkt::Timestamp> {
    let seconds = prop_oneof![-62_135_596_800..=253_402_300_799_i64, -3..3_i64];
    let nanos = prop_oneof![0..1_000_000_000_i32, Just(0), Just(999_999_999), Just(123_000_000)];
    (seconds, nanos).prop_map(|(seconds, nanos)| wkt::Timestamp { seconds, nanos })
}

fn numbers() -> impl Strategy<Value = f64> {
    use prop::num::f64;
    prop_oneof![
        f64::NORMAL | f64::SUBNORMAL | f64::ZERO | f64::NEGATIVE | f64::POSITIVE,
        (-9..9_i32).prop_map(f64::from),
        (-3..3_i32).prop_map(|n| 9_007_199_254_740_992.0 + f64::from(n)),
        Just(1e21),
    ]
}

fn values() -> BoxedStrategy<wkt::Value> {
    let leaf = prop_oneof![
        Just(Free::NullValue(0)),
        numbers().prop_map(Free::NumberValue),
        texts().prop_map(Free::StringValue),
        any::<bool>().prop_map(Free::BoolValue),
    ]
    .prop_map(|kind| wkt::Value { kind: Some(kind) });
    leaf.prop_recursive(4, 12, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(|values| Free::ListValue(ListValue { values })),
            btree_map(texts(), inner, 0..3).prop_map(|fields| Free::StructValue(Struct { fields })),
        ]
        .prop_map(|kind| wkt::Value { kind: Some(kind) })
    })
    .boxed()
}

fn objects() -> impl Strategy<Value = Struct> {
    btree_map(texts(), values(), 0..3).prop_map(|fields| Struct { fields })
}

/// The same message as it is after its times were written: cut to milliseconds.
pub(super) fn cut(message: &mut DynamicMessage) {
    if message.descriptor().full_name() == "google.protobuf.Timestamp" {
        let nanos = message.get_field_by_name("nanos").and_then(|nanos| nanos.as_i32()).unwrap();
        message.set_field_by_name("nanos", Value::I32(nanos / 1_000_000 * 1_000_000));
        return;
    }
    for (_, value) in message.fields_mut() {
        match value {
            Value::Message(message) => cut(message),
            Value::List(values) => {
                values.iter_mut().filter_map(Value::as_message_mut).for_each(cut);
            }
            Value::Map(entries) => {
                entries.values_mut().filter_map(Value::as_message_mut).for_each(cut);
            }
            _ => {}
        }
    }
}
