//! Another implementation of the contract in JSON, `prost-reflect`, says what is right.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use a2ad::contract::json::{self, JsonError, Kind as Wrong};
use a2ad::contract::{DESCRIPTOR_SET, v1};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use prost::Message;
use prost_reflect::{
    DescriptorPool, DeserializeOptions, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor,
    SerializeOptions,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::json::made::{cut, messages};
use crate::support::{rounds, seed};

/// One type of the contract, as our code knows it.
struct Ours {
    name: &'static str,
    /// From its encoded form to JSON text and to a JSON value.
    write: fn(&[u8]) -> (Vec<u8>, Value),
    /// From JSON text and from the same as a value, to the encoded form.
    read: fn(&[u8]) -> Result<Vec<u8>, JsonError>,
    read_value: fn(Value) -> Result<Vec<u8>, JsonError>,
    /// Whether two encoded forms are the same message; else both in words.
    compare: fn(&[u8], &[u8]) -> Result<(), String>,
}

/// A random message that is shown as JSON and not with all its descriptors.
struct Made(DynamicMessage);

impl fmt::Debug for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", theirs(&self.0, &SerializeOptions::new()))
    }
}

impl Ours {
    fn of<T: Message + Default + PartialEq + fmt::Debug + Serialize + DeserializeOwned>(
        name: &'static str,
    ) -> Self {
        Self {
            name,
            write: |bytes| {
                let message = T::decode(bytes).unwrap();
                (json::to_vec(&message).unwrap(), json::to_value(&message).unwrap())
            },
            read: |json| json::from_slice::<T>(json).map(|message| message.encode_to_vec()),
            read_value: |json| json::from_value::<T>(json).map(|message| message.encode_to_vec()),
            compare: |left, right| {
                let (left, right) = (T::decode(left).unwrap(), T::decode(right).unwrap());
                if left == right { Ok(()) } else { Err(format!("{left:?} is not {right:?}")) }
            },
        }
    }

    fn same(&self, left: &[u8], right: &DynamicMessage, about: &str) -> Result<(), TestCaseError> {
        (self.compare)(left, &right.encode_to_vec())
            .map_err(|difference| TestCaseError::fail(format!("{difference}: {about}")))
    }
}

macro_rules! types {
    ($($name:ident $(= $proto:literal)?),* $(,)?) => {
        fn types() -> Vec<Ours> {
            vec![$(Ours::of::<v1::$name>(types!(@name $name $($proto)?)),)*]
        }
    };
    (@name $name:ident) => { stringify!($name) };
    (@name $name:ident $proto:literal) => { $proto };
}

types! {
    SendMessageConfiguration, Task, TaskStatus, Part, Message, Artifact, TaskStatusUpdateEvent,
    TaskArtifactUpdateEvent, AuthenticationInfo, AgentInterface, AgentCard, AgentProvider,
    AgentCapabilities, AgentExtension, AgentSkill, AgentCardSignature, TaskPushNotificationConfig,
    StringList, SecurityRequirement, SecurityScheme, ApiKeySecurityScheme = "APIKeySecurityScheme",
    HttpAuthSecurityScheme = "HTTPAuthSecurityScheme", OAuth2SecurityScheme,
    OpenIdConnectSecurityScheme, MutualTlsSecurityScheme, OAuthFlows, AuthorizationCodeOAuthFlow,
    ClientCredentialsOAuthFlow, ImplicitOAuthFlow, PasswordOAuthFlow, DeviceCodeOAuthFlow,
    SendMessageRequest, GetTaskRequest, ListTasksRequest, ListTasksResponse, CancelTaskRequest,
    GetTaskPushNotificationConfigRequest, DeleteTaskPushNotificationConfigRequest,
    SubscribeToTaskRequest, ListTaskPushNotificationConfigsRequest, GetExtendedAgentCardRequest,
    SendMessageResponse, StreamResponse, ListTaskPushNotificationConfigsResponse,
}

fn pool() -> DescriptorPool {
    DescriptorPool::decode(DESCRIPTOR_SET).unwrap()
}

/// Every type with its descriptor.
fn described() -> Vec<(Ours, MessageDescriptor)> {
    let pool = pool();
    let describe = |ours: Ours| {
        let kind = pool.get_message_by_name(&format!("lf.a2a.v1.{}", ours.name)).unwrap();
        (ours, kind)
    };
    types().into_iter().map(describe).collect()
}

#[test]
fn every_type_of_the_contract_is_compared() {
    let pool = pool();
    let all: BTreeSet<_> = pool
        .all_messages()
        .filter(|kind| kind.package_name() == "lf.a2a.v1" && !kind.is_map_entry())
        .map(|kind| kind.name().to_owned())
        .collect();
    let compared: BTreeSet<_> = types().iter().map(|ours| ours.name.to_owned()).collect();
    assert_eq!(all, compared);
}

/// Runs `test` on random messages of every type, in `short` or `long` cases in all.
fn with_all(
    short: u64,
    long: u64,
    test: impl Fn(&Ours, &DynamicMessage, u64) -> Result<(), TestCaseError>,
) {
    let seed = seed();
    println!("A2AD_SEED={seed}");
    let types = described();
    let cases = rounds(short, long).div_ceil(types.len() as u64).try_into().unwrap();
    for (n, (ours, kind)) in types.iter().enumerate() {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        bytes[8] = n as u8;
        let config = Config { cases, failure_persistence: None, ..Config::default() };
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let made = (messages(kind).prop_map(Made), any::<u64>());
        TestRunner::new_with_rng(config, rng)
            .run(&made, |(Made(message), dice)| test(ours, &message, dice))
            .unwrap_or_else(|failure| panic!("{}: {failure}", ours.name));
    }
}

fn theirs(message: &DynamicMessage, options: &SerializeOptions) -> Value {
    message.serialize_with_options(serde_json::value::Serializer, options).unwrap()
}

fn read_by_them(
    kind: MessageDescriptor,
    json: &str,
    strict: bool,
) -> Result<DynamicMessage, String> {
    let options = DeserializeOptions::new().deny_unknown_fields(strict);
    let mut reader = serde_json::Deserializer::from_str(json);
    DynamicMessage::deserialize_with_options(kind, &mut reader, &options)
        .map_err(|error| error.to_string())
}

/// What we write is what they write, but for the documented differences; and they read it back as
/// the same message, without a member that they do not know.
#[test]
fn what_we_write_is_what_they_read() {
    with_all(10_000, 1_000_000, |ours, message, _| {
        let kind = prost_reflect::ReflectMessage::descriptor(message);
        let (text, value) = (ours.write)(&message.encode_to_vec());
        let text = String::from_utf8(text).unwrap();
        let parsed: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(floats(parsed.clone()), floats(value.clone()));
        let mut expected = theirs(message, &SerializeOptions::new());
        complete(&mut expected, &kind);
        prop_assert_eq!(floats(parsed), floats(expected));
        let mut cut_message = message.clone();
        cut(&mut cut_message);
        let back = read_by_them(kind.clone(), &text, true);
        let back = back.map_err(|error| TestCaseError::fail(format!("{error}: {text}")))?;
        ours.same(&back.encode_to_vec(), &cut_message, &text)?;
        // And so do we.
        for bytes in [(ours.read)(text.as_bytes()), (ours.read_value)(value)] {
            ours.same(&bytes.unwrap(), &cut_message, &text)?;
        }
        Ok(())
    });
}

/// What they write, in each of their ways, we read as the same message.
#[test]
fn what_they_write_is_what_we_read() {
    with_all(10_000, 1_000_000, |ours, message, dice| {
        let options = SerializeOptions::new()
            .use_proto_field_name(dice & 1 != 0)
            .use_enum_numbers(dice & 2 != 0)
            .skip_default_fields(dice & 4 != 0);
        let json = theirs(message, &options);
        let text = serde_json::to_string(&json).unwrap();
        for bytes in [(ours.read)(text.as_bytes()), (ours.read_value)(json)] {
            let bytes = bytes.map_err(|error| TestCaseError::fail(format!("{error}: {text}")))?;
            ours.same(&bytes, message, &text)?;
        }
        Ok(())
    });
}

/// All numbers as doubles: a whole one is written without a point by us and with one by them.
fn floats(json: Value) -> Value {
    match json {
        Value::Number(number) => Value::from(number.as_f64().unwrap()),
        Value::Array(values) => values.into_iter().map(floats).collect(),
        Value::Object(members) => {
            members.into_iter().map(|(name, value)| (name, floats(value))).collect()
        }
        other => other,
    }
}

/// Adds what we write beyond `ProtoJSON`: REQUIRED members that are empty, and three digits of a
/// second.
fn complete(json: &mut Value, kind: &MessageDescriptor) {
    match kind.full_name() {
        "google.protobuf.Timestamp" => {
            let text = json.as_str().unwrap().trim_end_matches('Z');
            let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
            *json = format!("{whole}.{:0<3}Z", fraction.get(..3).unwrap_or(fraction)).into();
            return;
        }
        "google.protobuf.Struct" | "google.protobuf.Value" => return,
        _ => {}
    }
    let members = json.as_object_mut().unwrap();
    for field in kind.fields() {
        let inner = match field.kind() {
            Kind::Message(entry) if field.is_map() => entry.map_entry_value_field().kind(),
            kind => kind,
        };
        match (members.get_mut(field.json_name()), inner.as_message()) {
            (Some(value), Some(kind)) if field.is_list() => {
                value.as_array_mut().unwrap().iter_mut().for_each(|item| complete(item, kind));
            }
            (Some(value), Some(kind)) if field.is_map() => {
                value.as_object_mut().unwrap().values_mut().for_each(|item| complete(item, kind));
            }
            (Some(value), Some(kind)) => complete(value, kind),
            (Some(_), None) => {}
            (None, _) if !is_required(&field) => {}
            (None, _) if field.is_list() => insert(members, &field, Value::Array(vec![])),
            (None, _) if field.is_map() => {
                insert(members, &field, Value::Object(serde_json::Map::new()));
            }
            (None, Some(_)) => {}
            (None, None) => {
                let empty = match inner {
                    Kind::String => "".into(),
                    Kind::Int32 => 0.into(),
                    Kind::Bool => false.into(),
                    Kind::Enum(kind) => kind.default_value().name().into(),
                    other => panic!("{}: {other:?}", field.full_name()),
                };
                insert(members, &field, empty);
            }
        }
    }
}

fn insert(members: &mut serde_json::Map<String, Value>, field: &FieldDescriptor, value: Value) {
    members.insert(field.json_name().to_owned(), value);
}

fn is_required(field: &FieldDescriptor) -> bool {
    let pool = field.parent_pool();
    let behavior = pool.get_extension_by_name("google.api.field_behavior").unwrap();
    let options = field.options();
    let behaviors = options.get_extension(&behavior);
    behaviors.as_list().unwrap().iter().any(|value| value.as_enum_number() == Some(2))
}

/// JSON that is a little wrong: we and they take it as the same message or both refuse it, but for
/// the documented differences.
#[test]
fn what_is_a_little_wrong_is_judged_alike() {
    let disputes = RefCell::new(BTreeMap::new());
    with_all(10_000, 1_000_000, |ours, message, dice| {
        let kind = prost_reflect::ReflectMessage::descriptor(message);
        let mut json = theirs(message, &SerializeOptions::new());
        spoil(&mut json, dice);
        let text = serde_json::to_string(&json).unwrap();
        let we = (ours.read)(text.as_bytes());
        prop_assert_eq!(&we, &(ours.read_value)(json));
        let dispute = match (we, read_by_them(kind, &text, false)) {
            (Ok(bytes), Ok(they)) => return ours.same(&bytes, &they, &text),
            (Err(error), Err(_)) => {
                prop_assert_eq!(error.kind, Wrong::Shape);
                return Ok(());
            }
            // Quoted integers in all forms, and 5.0 for an enum, are ours alone (0010).
            (Ok(_), Err(error))
                if error.contains("invalid digit found in string")
                    || error.contains("expected a string or integer") =>
            {
                return Ok(());
            }
            (Ok(_), Err(error)) => {
                format!("we alone: {}", error.split(" at line").next().unwrap_or_default())
            }
            // Enums and the last bits of base64 may be anything for them (0010).
            (Err(error), Ok(_))
                if error.problem.starts_with("must be one of")
                    || error.problem.starts_with("must be base64: Invalid last symbol") =>
            {
                return Ok(());
            }
            (Err(error), Ok(_)) => format!("they alone: {}", error.problem),
        };
        disputes.borrow_mut().insert(dispute, text);
        Ok(())
    });
    assert_eq!(*disputes.borrow(), BTreeMap::new());
}

/// Puts something else at one place.
pub(super) fn spoil(json: &mut Value, dice: u64) {
    const OTHERS: [&str; 18] = [
        "null",
        "true",
        "0",
        "5.0",
        "1.5",
        "-1",
        "1e1",
        "99",
        "3000000000",
        "\"\"",
        "\"5\"",
        "\"1e1\"",
        "\"AA\"",
        "\"-_\"",
        "\"TASK_STATE_WORKING\"",
        "\"2024-01-01T00:00:00+02:00\"",
        "[]",
        "{}",
    ];
    let count = places(json);
    let mut left = dice / 64 % count;
    let other = serde_json::from_str(OTHERS[(dice % 64) as usize % OTHERS.len()]).unwrap();
    put(json, &mut left, other);
}

fn places(json: &Value) -> u64 {
    1 + match json {
        Value::Array(values) => values.iter().map(places).sum(),
        Value::Object(members) => members.values().map(places).sum(),
        _ => 0,
    }
}

fn put(json: &mut Value, left: &mut u64, other: Value) -> bool {
    if *left == 0 {
        *json = other;
        return true;
    }
    *left -= 1;
    match json {
        Value::Array(values) => values.iter_mut().any(|inner| put(inner, left, other.clone())),
        Value::Object(members) => members.values_mut().any(|inner| put(inner, left, other.clone())),
        _ => false,
    }
}
