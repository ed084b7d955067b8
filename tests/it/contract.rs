//! The contract is what it was, what the protocol says, and what other stacks read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use a2ad::contract::fault::{self, Fault};
use a2ad::contract::wkt::{self, Kind, NullValue};
use a2ad::contract::{DESCRIPTOR_SET, v1};
use prost::Message as _;
use prost_reflect::{
    Cardinality, DescriptorPool, DynamicMessage, EnumDescriptor, FieldDescriptor, FileDescriptor,
    MessageDescriptor, MethodDescriptor, ReflectMessage as _, Value,
};

const PACKAGE: &str = "lf.a2a.v1";
const FACTS: &str = include_str!("contract.facts.txt");

/// The contract as it was when it was last looked at. Run with `UPDATE_SNAPSHOT=1` to accept a
/// change, and read the difference before committing it.
#[test]
fn descriptors_equal_the_snapshot() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/contract.snapshot.txt");
    let now = snapshot();
    if std::env::var_os("UPDATE_SNAPSHOT").is_some_and(|value| value == "1") {
        std::fs::write(&path, &now).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap();
    assert_same(&stored, &now);
    assert_eq!(stored, now, "the same lines in another order");
}

#[test]
fn proto_agrees_with_the_facts() {
    let pool = pool();
    let file = a2a(&pool);
    let mut rows = header(&file);
    for service in file.services() {
        rows.push(format!("service {}", service.full_name()));
        rows.extend(service.methods().map(|method| {
            format!(
                "rpc {} {} {} {} {} signature={}",
                method.name(),
                short(method.input().full_name()),
                short(method.output().full_name()),
                if method.is_server_streaming() { "stream" } else { "unary" },
                http(&method),
                signature(&method),
            )
        }));
    }
    for message in messages(&pool) {
        rows.extend(
            message
                .fields()
                .map(|field| format!("field {} {}", short(message.full_name()), describe(&field))),
        );
    }
    for kind in enums(&pool) {
        rows.extend(kind.values().map(|value| {
            let (kind, name) = (kind.name(), value.name());
            format!("enum {kind} {name} {} {}", value.number(), class(name))
        }));
    }
    assert_same(&facts(|kind| kind != "fault"), &rows.join("\n"));
}

#[test]
fn faults_agree_with_the_facts() {
    let table = [
        ("TaskNotFoundError", fault::TASK_NOT_FOUND),
        ("TaskNotCancelableError", fault::TASK_NOT_CANCELABLE),
        ("PushNotificationNotSupportedError", fault::PUSH_NOTIFICATION_NOT_SUPPORTED),
        ("UnsupportedOperationError", fault::UNSUPPORTED_OPERATION),
        ("ContentTypeNotSupportedError", fault::CONTENT_TYPE_NOT_SUPPORTED),
        ("InvalidAgentResponseError", fault::INVALID_AGENT_RESPONSE),
        ("ExtendedAgentCardNotConfiguredError", fault::EXTENDED_AGENT_CARD_NOT_CONFIGURED),
        ("ExtensionSupportRequiredError", fault::EXTENSION_SUPPORT_REQUIRED),
        ("VersionNotSupportedError", fault::VERSION_NOT_SUPPORTED),
    ];
    let rows = table.map(|(name, Fault { reason, grpc, http, jsonrpc, .. })| {
        format!("fault {name} {} {jsonrpc} {grpc} {http}", reason.unwrap_or("-"))
    });
    assert_same(&facts(|kind| kind == "fault"), &rows.join("\n"));
}

/// Gateways and reflection find all they need in the one set.
#[test]
fn the_set_holds_error_details_and_page_tokens() {
    let pool = pool();
    for name in [
        "google.rpc.Status",
        "google.rpc.ErrorInfo",
        "google.rpc.BadRequest",
        "google.rpc.RetryInfo",
        "a2ad.page.v1.PageToken",
    ] {
        assert!(pool.get_message_by_name(name).is_some(), "{name} is missing");
    }
}

#[test]
fn json_values_equal_google_protobuf_on_the_wire() {
    let ours = our_struct();
    let theirs = their_struct();
    assert_eq!(ours.encode_to_vec(), theirs.encode_to_vec());
    assert_eq!(wkt::Struct::decode(&*theirs.encode_to_vec()).unwrap(), ours);
    assert_eq!(prost_types::Struct::decode(&*ours.encode_to_vec()).unwrap(), theirs);

    let unset = prost_types::Value { kind: None };
    assert_eq!(wkt::Value::decode(&*unset.encode_to_vec()).unwrap(), wkt::Value { kind: None });
}

#[test]
fn timestamps_equal_google_protobuf_on_the_wire() {
    for (seconds, nanos) in
        [(0, 0), (1_774_000_000, 123_000_000), (-1, 999_999_999), (i64::MAX, -1), (i64::MIN, 7)]
    {
        let ours = wkt::Timestamp { seconds, nanos };
        let theirs = prost_types::Timestamp { seconds, nanos };
        assert_eq!(ours.encode_to_vec(), theirs.encode_to_vec());
        assert_eq!(wkt::Timestamp::decode(&*theirs.encode_to_vec()).unwrap(), ours);
        assert_eq!(prost_types::Timestamp::decode(&*ours.encode_to_vec()).unwrap(), theirs);
    }
}

#[test]
fn timestamps_count_microseconds() {
    let micros = |seconds, nanos| wkt::Timestamp { seconds, nanos }.to_micros();
    assert_eq!(micros(0, 0), Some(0));
    assert_eq!(micros(1, 1_999), Some(1_000_001));
    assert_eq!(micros(-1, 999_999_999), Some(-1));
    assert_eq!(micros(-1, 0), Some(-1_000_000));
    assert_eq!(micros(0, -1), None);
    assert_eq!(micros(0, 1_000_000_000), None);

    let (first, last) = (-62_135_596_800, 253_402_300_799);
    assert_eq!(micros(first, 0), Some(-62_135_596_800_000_000));
    assert_eq!(micros(first - 1, 999_999_999), None);
    assert_eq!(micros(last, 999_999_999), Some(253_402_300_799_999_999));
    assert_eq!(micros(last + 1, 0), None);

    for micros in [0, 1, -1, 999_999, 1_000_000, -1_000_001, 1_774_000_000_123_456] {
        assert_eq!(wkt::Timestamp::from_micros(micros).to_micros(), Some(micros));
    }
    let early = wkt::Timestamp::from_micros(i64::MIN);
    assert!((0..1_000_000_000).contains(&early.nanos));
    assert_eq!(early.to_micros(), None);
}

fn pool() -> DescriptorPool {
    DescriptorPool::decode(DESCRIPTOR_SET).expect("the descriptor set is whole")
}

fn a2a(pool: &DescriptorPool) -> FileDescriptor {
    pool.get_file_by_name("lf/a2a/v1/a2a.proto").expect("the contract is in the set")
}

fn messages(pool: &DescriptorPool) -> Vec<MessageDescriptor> {
    let own = |m: &MessageDescriptor| m.package_name() == PACKAGE && !m.is_map_entry();
    pool.all_messages().filter(own).collect()
}

fn enums(pool: &DescriptorPool) -> Vec<EnumDescriptor> {
    pool.all_enums().filter(|e| e.package_name() == PACKAGE).collect()
}

/// Every file, type, field and rpc of the package, one line each.
fn snapshot() -> String {
    let pool = pool();
    let mut lines = Vec::new();
    for file in pool.files().filter(|file| file.package_name() == PACKAGE) {
        lines.push(format!("file {}", file.name()));
        lines.extend(header(&file));
        for service in file.services() {
            lines.push(format!("service {}", service.full_name()));
            lines.extend(service.methods().map(|method| {
                let (input, output) = (method.input(), method.output());
                format!(
                    "method {} {}{} -> {}{} {} signature={}",
                    method.full_name(),
                    if method.is_client_streaming() { "stream " } else { "" },
                    input.full_name(),
                    if method.is_server_streaming() { "stream " } else { "" },
                    output.full_name(),
                    http(&method),
                    signature(&method),
                )
            }));
        }
    }
    for message in messages(&pool) {
        lines.push(format!("message {}", message.full_name()));
        lines.extend(message.oneofs().filter(|oneof| !oneof.is_synthetic()).map(|oneof| {
            let numbers: Vec<u32> = oneof.fields().map(|field| field.number()).collect();
            format!("oneof {} {numbers:?}", oneof.full_name())
        }));
        lines.extend(message.fields().map(|field| {
            let label = match field.cardinality() {
                Cardinality::Optional => "singular",
                Cardinality::Required => "proto2-required",
                Cardinality::Repeated => "repeated",
            };
            format!("field {} {label} {}", field.full_name(), describe(&field))
        }));
    }
    for kind in enums(&pool) {
        lines.push(format!("enum {}", kind.full_name()));
        let values = kind.values();
        lines.extend(values.map(|value| format!("value {} {}", value.full_name(), value.number())));
    }
    lines.join("\n") + "\n"
}

/// What a file says before its first type.
fn header(file: &FileDescriptor) -> Vec<String> {
    let proto = file.file_descriptor_proto();
    let mut lines =
        vec![format!("syntax {}", proto.syntax()), format!("package {}", file.package_name())];
    lines.extend(proto.dependency.iter().map(|name| format!("import {name}")));
    let options = file.options();
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    lines.extend(
        options.fields().map(|(field, value)| format!("option {} = {}", field.name(), text(value))),
    );
    lines
}

/// Number, name, JSON name, type, presence and whether the field is required.
fn describe(field: &FieldDescriptor) -> String {
    let (number, name, json) = (field.number(), field.name(), field.json_name());
    let required = if is_required(field) { "required" } else { "-" };
    format!("{number} {name} {json} {} {} {required}", type_name(field), presence(field))
}

fn type_name(field: &FieldDescriptor) -> String {
    let kind = field.kind();
    if let Some(entry) = kind.as_message().filter(|_| field.is_map()) {
        let (key, value) = (entry.map_entry_key_field(), entry.map_entry_value_field());
        return format!("map<{},{}>", type_name(&key), type_name(&value));
    }
    let proto = field.field_descriptor_proto();
    if proto.type_name().is_empty() {
        proto.r#type().as_str_name().trim_start_matches("TYPE_").to_lowercase()
    } else {
        short(proto.type_name().trim_start_matches('.')).to_owned()
    }
}

fn presence(field: &FieldDescriptor) -> String {
    match field.containing_oneof() {
        Some(oneof) if oneof.is_synthetic() => "optional".to_owned(),
        Some(oneof) => format!("oneof:{}", oneof.name()),
        None if field.is_map() => "map".to_owned(),
        None if field.is_list() => "repeated".to_owned(),
        None if field.supports_presence() => "message".to_owned(),
        None => "implicit".to_owned(),
    }
}

fn is_required(field: &FieldDescriptor) -> bool {
    let behavior = option(&field.options(), "google.api.field_behavior");
    behavior.as_list().expect("a list").iter().any(|value| value.as_enum_number() == Some(2))
}

/// The HTTP form, the form with a tenant, and the body that both have.
fn http(method: &MethodDescriptor) -> String {
    let rule = option(&method.options(), "google.api.http");
    let rule = rule.as_message().expect("a rule");
    let more = rule.get_field_by_name("additional_bindings").expect("a field");
    let rules = std::iter::once(rule)
        .chain(more.as_list().expect("a list").iter().filter_map(Value::as_message));
    let (mut forms, mut bodies) = (Vec::new(), BTreeSet::new());
    for rule in rules {
        let verb = ["get", "put", "post", "delete", "patch"]
            .into_iter()
            .find(|verb| rule.has_field_by_name(verb))
            .expect("a rule has a verb");
        forms.push(format!("{} {}", verb.to_uppercase(), text(rule, verb)));
        bodies.insert(text(rule, "body"));
        assert_eq!(text(rule, "response_body"), "", "{}", method.name());
    }
    let bodies: Vec<String> = bodies.into_iter().collect();
    let body = bodies.join(" or ");
    format!("{} body={}", forms.join(" "), if body.is_empty() { "-" } else { &body })
}

fn signature(method: &MethodDescriptor) -> String {
    let value = option(&method.options(), "google.api.method_signature");
    let all = value.as_list().expect("a list").iter().filter_map(Value::as_str);
    let joined = all.collect::<Vec<_>>().join(";");
    if joined.is_empty() { "-".to_owned() } else { joined }
}

fn option(options: &DynamicMessage, name: &str) -> Value {
    let pool = options.descriptor().parent_pool().clone();
    let extension = pool.get_extension_by_name(name).expect("the set defines its options");
    options.get_extension(&extension).into_owned()
}

fn text(message: &DynamicMessage, field: &str) -> String {
    let value = message.get_field_by_name(field).expect("a field");
    value.as_str().expect("a string").to_owned()
}

/// A name without the package that all of them share.
fn short(name: &str) -> &str {
    name.strip_prefix(PACKAGE).and_then(|rest| rest.strip_prefix('.')).unwrap_or(name)
}

/// What the code takes a task state for.
fn class(name: &str) -> &'static str {
    match v1::TaskState::from_str_name(name) {
        None => "-",
        Some(v1::TaskState::Unspecified) => "unknown",
        Some(state) if state.is_terminal() => "terminal",
        Some(state) if state.is_interrupted() => "interrupted",
        Some(_) => "in_progress",
    }
}

/// The facts whose first word `wanted` takes.
fn facts(wanted: impl Fn(&str) -> bool) -> String {
    let kind = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    let facts = FACTS.lines().filter(|line| !line.starts_with('#') && wanted(&kind(line)));
    facts.collect::<Vec<_>>().join("\n")
}

/// Both texts hold the same lines; a failure names those that only one of them has.
#[track_caller]
fn assert_same(expected: &str, actual: &str) {
    let (expected, actual): (BTreeSet<_>, BTreeSet<_>) =
        (expected.lines().collect(), actual.lines().collect());
    let missing: Vec<_> = expected.difference(&actual).collect();
    let surplus: Vec<_> = actual.difference(&expected).collect();
    assert!(
        missing.is_empty() && surplus.is_empty(),
        "expected and not found: {missing:#?}\nfound and not expected: {surplus:#?}"
    );
    assert!(!expected.is_empty(), "nothing was compared");
}

fn our_struct() -> wkt::Struct {
    let value = |kind| wkt::Value { kind: Some(kind) };
    let inner = wkt::Struct {
        fields: BTreeMap::from([("ß".to_owned(), value(Kind::StringValue("Straße".to_owned())))]),
    };
    let list = wkt::ListValue {
        values: vec![
            value(Kind::NullValue(NullValue::NullValue.into())),
            value(Kind::NumberValue(0.0)),
            value(Kind::ListValue(wkt::ListValue { values: vec![] })),
        ],
    };
    let fields = [
        ("null", Kind::NullValue(0)),
        ("zero", Kind::NumberValue(0.0)),
        ("number", Kind::NumberValue(-1.5e300)),
        ("text", Kind::StringValue(String::new())),
        ("no", Kind::BoolValue(false)),
        ("yes", Kind::BoolValue(true)),
        ("object", Kind::StructValue(inner)),
        ("list", Kind::ListValue(list)),
    ];
    wkt::Struct { fields: fields.map(|(name, kind)| (name.to_owned(), value(kind))).into() }
}

fn their_struct() -> prost_types::Struct {
    use prost_types::value::Kind;
    let value = |kind| prost_types::Value { kind: Some(kind) };
    let inner = prost_types::Struct {
        fields: BTreeMap::from([("ß".to_owned(), value(Kind::StringValue("Straße".to_owned())))]),
    };
    let list = prost_types::ListValue {
        values: vec![
            value(Kind::NullValue(0)),
            value(Kind::NumberValue(0.0)),
            value(Kind::ListValue(prost_types::ListValue { values: vec![] })),
        ],
    };
    let fields = [
        ("null", Kind::NullValue(0)),
        ("zero", Kind::NumberValue(0.0)),
        ("number", Kind::NumberValue(-1.5e300)),
        ("text", Kind::StringValue(String::new())),
        ("no", Kind::BoolValue(false)),
        ("yes", Kind::BoolValue(true)),
        ("object", Kind::StructValue(inner)),
        ("list", Kind::ListValue(list)),
    ];
    prost_types::Struct { fields: fields.map(|(name, kind)| (name.to_owned(), value(kind))).into() }
}
