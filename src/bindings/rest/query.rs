//! Query parameters, read as the fields that the contract gives the request.
//!
//! Names are camelCase or those of the proto; repeated fields are repeated parameters or lists
//! with commas; what names no field is ignored (REST-04 to REST-08, REST-17). Objects do not come
//! in queries (REST-03).

use percent_encoding::percent_decode_str;
use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value};

use crate::domain::Violation;

/// Another name under which a Go client sends a field (REST-15).
const ALIASES: [(&str, &str); 2] = [
    ("lastUpdatedAfter", "status_timestamp_after"),
    ("last_updated_after", "status_timestamp_after"),
];

/// The request that `query` describes, as JSON of the message `kind`.
///
/// # Errors
/// Every parameter that cannot be read, by its proto path.
pub(super) fn read(
    query: &str,
    kind: &MessageDescriptor,
) -> Result<Map<String, Value>, Vec<Violation>> {
    let mut object = Map::new();
    let mut problems = Vec::new();
    for (name, value) in pairs(query) {
        let Some(field) = field(kind, &name) else { continue };
        let Some(value) = value else {
            problems.push(Violation::new(field.name(), "must be percent-encoded UTF-8"));
            continue;
        };
        // As if it were not there, for clients that send every parameter.
        if value.is_empty() {
            continue;
        }
        match add(&mut object, &field, &value) {
            Ok(()) => {}
            Err(problem) => problems.push(Violation::new(field.name(), problem)),
        }
    }
    if problems.is_empty() { Ok(object) } else { Err(problems) }
}

/// Names and values; a value that is not text is `None`.
fn pairs(query: &str) -> impl Iterator<Item = (String, Option<String>)> {
    let decode = |text: &str| {
        let text = text.replace('+', " ");
        percent_decode_str(&text).decode_utf8().map(String::from).ok()
    };
    query.split('&').filter_map(move |pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Some((decode(name)?, decode(value)))
    })
}

fn field(kind: &MessageDescriptor, name: &str) -> Option<FieldDescriptor> {
    let alias = ALIASES.iter().find(|(alias, _)| *alias == name);
    if let Some((alias, name)) = alias {
        tracing::debug!(query.alias = alias, query.field = name, "a parameter by another name");
    }
    let name = alias.map_or(name, |(_, name)| name);
    let field = kind.get_field_by_json_name(name).or_else(|| kind.get_field_by_name(name))?;
    let kind = field.kind();
    let is_object = kind.as_message().is_some_and(|kind| kind.full_name() != TIMESTAMP);
    (!is_object).then_some(field)
}

const TIMESTAMP: &str = "google.protobuf.Timestamp";

fn add(
    object: &mut Map<String, Value>,
    field: &FieldDescriptor,
    text: &str,
) -> Result<(), &'static str> {
    let name = field.json_name().to_owned();
    if field.is_list() {
        let values =
            text.split(',').map(|text| value(field, text)).collect::<Result<Vec<_>, _>>()?;
        let list = object.entry(name).or_insert_with(|| Value::Array(Vec::new()));
        list.as_array_mut().ok_or("must be a list")?.extend(values);
        return Ok(());
    }
    let value = value(field, text)?;
    match object.insert(name, value.clone()) {
        Some(before) if before != value => Err("must be given once"),
        _ => Ok(()),
    }
}

fn value(field: &FieldDescriptor, text: &str) -> Result<Value, &'static str> {
    let kind = field.kind();
    if matches!(kind, Kind::Bool) {
        return match text {
            "true" => Ok(Value::Bool(true)),
            "false" => Ok(Value::Bool(false)),
            _ => Err("must be true or false"),
        };
    }
    // By number as well, as in a body.
    if let (Kind::Enum(_), Ok(number)) = (&kind, text.parse::<i32>()) {
        return Ok(Value::from(number));
    }
    if matches!(kind, Kind::Message(_)) {
        return Ok(Value::from(with_sign(text)));
    }
    // Numbers may be strings in JSON.
    Ok(Value::from(text))
}

/// A time whose offset has lost its plus sign, as it stands for a blank in queries.
fn with_sign(text: &str) -> String {
    match text.rsplit_once(' ') {
        Some((time, offset)) if time.contains(['T', 't']) => format!("{time}+{offset}"),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::bindings::operation::Operation;

    fn list(query: &str) -> Result<Value, String> {
        let kind = Operation::ListTasks.input().unwrap();
        let violations = |bad: Vec<Violation>| {
            bad.iter().map(|v| format!("{}: {}", v.field, v.problem)).collect::<Vec<_>>().join("; ")
        };
        read(query, &kind).map(Value::Object).map_err(violations)
    }

    #[test]
    fn parameters_are_fields_in_either_spelling() {
        for (query, expected) in [
            ("", json!({})),
            ("pageSize=5", json!({"pageSize": "5"})),
            ("page_size=5", json!({"pageSize": "5"})),
            ("pageSize=&contextId=", json!({})),
            ("includeArtifacts=true", json!({"includeArtifacts": true})),
            ("include_artifacts=false", json!({"includeArtifacts": false})),
            ("status=TASK_STATE_WORKING", json!({"status": "TASK_STATE_WORKING"})),
            ("status=2", json!({"status": 2})),
            ("contextId=a%20b+c%2Bd", json!({"contextId": "a b c+d"})),
            (
                "statusTimestampAfter=2026-01-01T00:00:00%2B01:00",
                json!({"statusTimestampAfter": "2026-01-01T00:00:00+01:00"}),
            ),
            (
                "lastUpdatedAfter=2026-01-01T00:00:00+01:00",
                json!({"statusTimestampAfter": "2026-01-01T00:00:00+01:00"}),
            ),
            ("unknown=1&cursor=2&limit=3&A2A-Version=1.0&%FF=1&&=", json!({})),
            ("tenant=blue&pageSize=1&pageSize=1", json!({"tenant": "blue", "pageSize": "1"})),
        ] {
            assert_eq!(list(query), Ok(expected), "{query}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_named_by_its_proto_path_all_together() {
        for (query, expected) in [
            ("includeArtifacts=yes", "include_artifacts: must be true or false"),
            ("contextId=%FF", "context_id: must be percent-encoded UTF-8"),
            (
                "pageSize=1&pageSize=2&includeArtifacts=TRUE",
                "page_size: must be given once; include_artifacts: must be true or false",
            ),
        ] {
            assert_eq!(list(query), Err(expected.to_owned()), "{query}");
        }
    }

    #[test]
    fn repeated_fields_are_lists_or_repeated_and_objects_are_left_out() {
        let kind = Operation::methods()[0].1.parent_pool().get_message_by_name("lf.a2a.v1.Message");
        let read = |query: &str| read(query, kind.as_ref().unwrap()).map(Value::Object);
        let expected = json!({"extensions": ["a", "b", "c"]});
        assert_eq!(read("extensions=a,b&extensions=c"), Ok(expected));
        assert_eq!(read("metadata=%7B%7D&parts=1"), Ok(json!({})));
    }
}
