//! What each special case becomes, in both directions.

use a2ad::contract::json::{self, JsonError, Kind as Wrong};
use a2ad::contract::v1::{self, part::Content};
use a2ad::contract::wkt::{self, Kind};
use serde_json::json;

fn read<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, JsonError> {
    json::from_slice(text.as_bytes())
}

fn written<T: serde::Serialize>(message: &T) -> String {
    String::from_utf8(json::to_vec(message).unwrap()).unwrap()
}

fn content(text: &str) -> Option<Content> {
    read::<v1::Part>(text).unwrap_or_else(|error| panic!("{text}: {error}")).content
}

fn kind(text: &str) -> Kind {
    match content(&format!(r#"{{"data": {text}}}"#)) {
        Some(Content::Data(value)) => value.kind.unwrap(),
        other => panic!("{text}: {other:?}"),
    }
}

/// Path and problem of JSON that is not the message.
fn shape<T: serde::de::DeserializeOwned + std::fmt::Debug>(text: &str) -> (String, String) {
    let error = read::<T>(text).expect_err(text);
    assert_eq!(error.kind, Wrong::Shape, "{text}: {error}");
    (error.path, error.problem)
}

fn nested(open: &str, close: &str, depth: usize) -> String {
    format!("{}1{}", open.repeat(depth), close.repeat(depth))
}

#[test]
fn required_members_are_written_empty_and_others_are_not() {
    let page = v1::ListTasksResponse::default();
    let text = r#"{"tasks":[],"nextPageToken":"","pageSize":0,"totalSize":0}"#;
    assert_eq!(written(&page), text);
    let task = v1::Task { status: Some(v1::TaskStatus::default()), ..Default::default() };
    let text = r#"{"id":"","status":{"state":"TASK_STATE_UNSPECIFIED"}}"#;
    assert_eq!(written(&task), text);
    // A message that is not there cannot be written empty: that would be another message.
    assert_eq!(written(&v1::Task::default()), r#"{"id":""}"#);
    let text = r#"{"messageId":"","role":"ROLE_UNSPECIFIED","parts":[]}"#;
    assert_eq!(written(&v1::Message::default()), text);
    let text = r#"{"tokenUrl":"","scopes":{}}"#;
    assert_eq!(written(&v1::ClientCredentialsOAuthFlow::default()), text);
    assert_eq!(written(&v1::ListTasksRequest::default()), "{}");
    assert_eq!(written(&wkt::Empty {}), "{}");
    let zero = v1::ListTasksRequest {
        history_length: Some(0),
        include_artifacts: Some(false),
        ..Default::default()
    };
    assert_eq!(written(&zero), r#"{"historyLength":0,"includeArtifacts":false}"#);
}

#[test]
fn null_is_unset_save_where_any_json_may_be() {
    let text = r#"{"tenant":null,"contextId":null,"status":null,"pageSize":null,
        "page_token":null,"historyLength":null,"statusTimestampAfter":null,
        "includeArtifacts":null}"#;
    assert_eq!(read::<v1::ListTasksRequest>(text).unwrap(), v1::ListTasksRequest::default());
    let text = r#"{"id":null,"status":null,"artifacts":null,"metadata":null}"#;
    assert_eq!(read::<v1::Task>(text).unwrap(), v1::Task::default());
    let text = r#"{"tasks":null,"pageSize":null}"#;
    assert_eq!(read::<v1::ListTasksResponse>(text).unwrap(), v1::ListTasksResponse::default());
    let text = r#"{"securitySchemes":null,"capabilities":{"streaming":null}}"#;
    assert_eq!(read::<v1::AgentCard>(text).unwrap().capabilities, Some(Default::default()));

    assert_eq!(kind("null"), Kind::NullValue(0));
    let part = read::<v1::Part>(r#"{"metadata":{"a":null,"b":[null,{"c":null}]}}"#).unwrap();
    assert_eq!(written(&part), r#"{"metadata":{"a":null,"b":[null,{"c":null}]}}"#);
    let part = v1::Part {
        content: Some(Content::Data(wkt::Value { kind: Some(Kind::NullValue(0)) })),
        ..Default::default()
    };
    assert_eq!(written(&part), r#"{"data":null}"#);

    assert_eq!(content(r#"{"text":null,"url":"u","raw":null}"#), Some(Content::Url("u".into())));
    assert_eq!(content(r#"{"text":null,"url":null}"#), None);
    for (text, path) in
        [(r#"{"extensions":["a",null]}"#, "extensions[1]"), (r#"{"parts":[null]}"#, "parts[0]")]
    {
        assert_eq!(shape::<v1::Message>(text), (path.into(), not_null(path).into()));
    }
    assert_eq!(shape::<v1::Message>("null"), (String::new(), "must be an object, not null".into()));
}

fn not_null(path: &str) -> &'static str {
    if path.starts_with("parts") {
        "must be an object, not null"
    } else {
        "must be a string, not null"
    }
}

#[test]
fn choices_are_made_once() {
    for text in [
        r#"{"text":"a","url":"b"}"#,
        r#"{"url":"b","data":null}"#,
        r#"{"data":null,"raw":""}"#,
        r#"{"data":1,"text":""}"#,
    ] {
        let (path, problem) = shape::<v1::Part>(text);
        assert!(problem.starts_with("must not stand beside"), "{text}: {path} {problem}");
    }
    assert_eq!(content(r#"{"text":""}"#), Some(Content::Text(String::new())));
    assert_eq!(content(r#"{"raw":""}"#), Some(Content::Raw(Default::default())));
}

#[test]
fn numbers_have_their_canonical_forms() {
    for (text, size) in [
        ("5", 5),
        ("5.0", 5),
        ("1e1", 10),
        ("\"7\"", 7),
        ("\"7.0\"", 7),
        ("\"1e1\"", 10),
        ("-0", 0),
        ("-2147483648", i32::MIN),
        ("2147483647", i32::MAX),
        ("2.147483647e9", i32::MAX),
    ] {
        let request = read::<v1::ListTasksRequest>(&format!(r#"{{"pageSize":{text}}}"#));
        assert_eq!(request.unwrap().page_size, Some(size), "{text}");
    }
    for text in [
        "5.5",
        "2147483648",
        "-2147483649",
        "1e300",
        "true",
        "[]",
        "{}",
        "\"\"",
        "\" 5\"",
        "\"5 \"",
        "\"0x5\"",
        "\"05\"",
        "\"+5\"",
        "\"5.5\"",
        "\"NaN\"",
        "\"five\"",
        "\"2147483648\"",
        "18446744073709551616",
        "1e999",
    ] {
        let (path, _) = shape::<v1::ListTasksRequest>(&format!(r#"{{"pageSize":{text}}}"#));
        assert_eq!(path, "page_size", "{text}");
    }
    for (text, number, back) in [
        ("3", 3.0, "3"),
        ("3.0", 3.0, "3"),
        ("-0", -0.0, "-0.0"),
        ("0.1", 0.1, "0.1"),
        ("1e21", 1e21, "1e21"),
        ("9007199254740991", 9_007_199_254_740_991.0, "9007199254740991"),
        ("9007199254740993", 9_007_199_254_740_992.0, "9007199254740992.0"),
        ("18446744073709551615", 18_446_744_073_709_551_616.0, "1.8446744073709552e19"),
        ("-9223372036854775809", -9_223_372_036_854_775_808.0, "-9.223372036854775808e18"),
        ("1e308", 1e308, "1e308"),
        ("5e-324", 5e-324, "5e-324"),
        ("1e-400", 0.0, "0"),
        ("1.7976931348623157e308", f64::MAX, "1.7976931348623157e308"),
        ("122.416294033786585", 122.416_294_033_786_58, "122.41629403378658"),
    ] {
        let Kind::NumberValue(found) = kind(text) else { panic!("{text}") };
        assert_eq!(found.to_bits(), number.to_bits(), "{text}: {found}");
        let json = json::to_value(&wkt::Value { kind: Some(Kind::NumberValue(found)) }).unwrap();
        let expected: serde_json::Value = serde_json::from_str(back).unwrap();
        assert_eq!(json, expected, "{text}");
    }
    let (path, problem) = shape::<v1::Part>(r#"{"data":[1e999]}"#);
    assert_eq!(
        (path.as_str(), problem.as_str()),
        ("data", "must be a number that a double can hold")
    );
}

#[test]
fn what_json_cannot_say_is_not_written() {
    let data = |kind| v1::Task {
        artifacts: vec![v1::Artifact {
            parts: vec![v1::Part {
                content: Some(Content::Data(wkt::Value { kind })),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let error = json::to_vec(&data(Some(Kind::NumberValue(number)))).unwrap_err();
        assert_eq!(error.path, "artifacts[0].parts[0].data");
        assert_eq!(error, json::to_value(&data(Some(Kind::NumberValue(number)))).unwrap_err());
    }
    assert_eq!(json::to_vec(&data(None)).unwrap_err().path, "artifacts[0].parts[0].data");
    assert!(json::to_vec(&data(Some(Kind::NullValue(1)))).is_err());
    let at = |seconds, nanos| v1::TaskStatus {
        timestamp: Some(wkt::Timestamp { seconds, nanos }),
        ..Default::default()
    };
    for time in [at(253_402_300_800, 0), at(-62_135_596_801, 0), at(0, -1), at(0, 1_000_000_000)] {
        assert_eq!(json::to_vec(&time).unwrap_err().path, "timestamp");
    }
    let status = v1::TaskStatus { state: 99, ..Default::default() };
    let task = v1::Task { status: Some(status), ..Default::default() };
    let error = json::to_vec(&task).unwrap_err();
    // The library's own; it names no field.
    assert_eq!((error.path.as_str(), error.problem.as_str()), ("status", "Invalid variant 99"));
}

#[test]
fn enums_are_read_by_name_or_number() {
    let state = |text: &str| read::<v1::TaskStatus>(&format!(r#"{{"state":{text}}}"#));
    for (text, expected) in [
        ("\"TASK_STATE_WORKING\"", v1::TaskState::Working),
        ("2", v1::TaskState::Working),
        ("2.0", v1::TaskState::Working),
        ("0", v1::TaskState::Unspecified),
        ("null", v1::TaskState::Unspecified),
    ] {
        assert_eq!(state(text).unwrap().state(), expected, "{text}");
    }
    for text in
        ["9", "-1", "99999999999", "1.5", "\"working\"", "\"TASK_STATE_NEW\"", "\"2\"", "[]"]
    {
        let error = state(text).unwrap_err();
        assert_eq!((error.kind, error.path.as_str()), (Wrong::Shape, "state"), "{text}");
    }
    let (_, problem) = shape::<v1::Message>(r#"{"role":"user"}"#);
    assert_eq!(problem, "must be one of ROLE_UNSPECIFIED, ROLE_USER, ROLE_AGENT");
}

#[test]
fn base64_is_read_in_both_alphabets_with_and_without_padding() {
    for (text, bytes) in [
        ("", &b""[..]),
        ("AA==", b"\0"),
        ("AA", b"\0"),
        ("AAE=", b"\0\x01"),
        ("AAE", b"\0\x01"),
        ("+/+/", b"\xfb\xff\xbf"),
        ("-_-_", b"\xfb\xff\xbf"),
        ("_w==", b"\xff"),
        ("_w", b"\xff"),
        ("-_8", b"\xfb\xff"),
        ("-_8=", b"\xfb\xff"),
        ("/w", b"\xff"),
    ] {
        let expected = Some(Content::Raw(bytes.to_vec().into()));
        assert_eq!(content(&format!(r#"{{"raw":"{text}"}}"#)), expected, "{text}");
    }
    for text in ["A", "AA=A", "A===", "=", "!!!!", "AAAA\\n", "-/-/", "AB==", "ÄÄ", "AAAAA"] {
        let (path, problem) = shape::<v1::Part>(&format!(r#"{{"raw":"{text}"}}"#));
        assert_eq!(path, "raw", "{text}");
        assert!(problem.starts_with("must be base64"), "{text}: {problem}");
    }
    let part =
        v1::Part { content: Some(Content::Raw(b"\xfb\xff".to_vec().into())), ..Default::default() };
    assert_eq!(written(&part), r#"{"raw":"+/8="}"#);
}

#[test]
fn members_are_known_by_both_names_and_others_are_passed_over() {
    let text = r#"{"id":"t","contextId":"c","kind":"task","x":{"deep":[1e999,{"id":1,"id":2}]},
        "history":[{"message_id":"m","role":"ROLE_USER","parts":[{"text":"hi","kind":"text"}],
        "referenceTaskIds":["r"]}]}"#;
    let task = read::<v1::Task>(text).unwrap();
    assert_eq!((task.id.as_str(), task.context_id.as_str()), ("t", "c"));
    let json = json!({"id": "t", "contextId": "c", "history": [{"messageId": "m", "role": "ROLE_USER",
        "parts": [{"text": "hi"}], "referenceTaskIds": ["r"]}]});
    assert_eq!(json::to_value(&task).unwrap(), json);
    assert_eq!(json::from_value::<v1::Task>(json).unwrap(), task);
    assert_eq!(read::<wkt::Empty>(r#"{"a":1}"#).unwrap(), wkt::Empty {});
    // No names but these two.
    assert_eq!(read::<v1::Task>(r#"{"ContextId":"c","ID":"t"}"#).unwrap(), v1::Task::default());
}

#[test]
fn a_member_stands_once() {
    for (text, path) in [
        (r#"{"id":"a","id":"a"}"#, "id"),
        (r#"{"contextId":"a","context_id":"a"}"#, "context_id"),
        (r#"{"contextId":null,"context_id":"a"}"#, "context_id"),
        (r#"{"status":{"state":1,"state":1}}"#, "status.state"),
        (r#"{"metadata":{"a":1,"a":1}}"#, "metadata"),
        (r#"{"history":[{"metadata":{"b":[{"a":1,"\u0061":1}]}}]}"#, "history[0].metadata"),
        (r#"{"history":[{"parts":[{},{"text":"a","text":null}]}]}"#, "history[0].parts[1].text"),
    ] {
        let (found, problem) = shape::<v1::Task>(text);
        assert_eq!(found, path, "{text}");
        assert!(problem.contains("twice"), "{problem}");
    }
    let text = r#"{"securitySchemes":{"a":{},"a":{}}}"#;
    assert_eq!(shape::<v1::AgentCard>(text).0, "security_schemes");
}

#[test]
fn shapes_are_refused_by_their_path() {
    for (text, path, problem) in [
        (r#"{"message":{"parts":{}}}"#, "message.parts", "must be an array, not an object"),
        (r#"{"message":{"messageId":7}}"#, "message.message_id", "must be a string, not a number"),
        (r#"{"message":[]}"#, "message", "must be an object, not an array"),
        (
            r#"{"message":{"parts":[{"text":true}]}}"#,
            "message.parts[0].text",
            "must be a string, not true",
        ),
        (
            r#"{"configuration":{"returnImmediately":"true"}}"#,
            "configuration.return_immediately",
            "must be true or false, not a string",
        ),
        (
            r#"{"configuration":{"returnImmediately":0}}"#,
            "configuration.return_immediately",
            "must be true or false, not a number",
        ),
        (r#"{"metadata":[]}"#, "metadata", "must be an object, not an array"),
        (r#"{"metadata":"x"}"#, "metadata", "must be an object, not a string"),
        ("[]", "", "must be an object, not an array"),
        ("7", "", "must be an object, not a number"),
    ] {
        let found = shape::<v1::SendMessageRequest>(text);
        assert_eq!(found, (path.to_owned(), problem.to_owned()), "{text}");
    }
    let text = r#"{"securityRequirements":[{"schemes":{"a":{"list":[1]}}}]}"#;
    assert_eq!(shape::<v1::AgentCard>(text).0, "security_requirements[0].schemes.a.list[0]");
    let text = r#"{"statusTimestampAfter":"yesterday"}"#;
    assert_eq!(shape::<v1::ListTasksRequest>(text).0, "status_timestamp_after");
    let error = read::<v1::Task>(r#"{"status":{"state":"x"}}"#).unwrap_err();
    assert!(error.to_string().starts_with("status.state must be one of"), "{error}");
}

#[test]
fn what_is_not_json_is_told_apart() {
    for text in [
        &b""[..],
        b" ",
        b"{",
        b"{\"id\":}",
        b"{'id':1}",
        b"{\"id\":\"a\"} x",
        b"{\"id\":\"a\",}",
        b"nul",
        b"{\"id\":01}",
        b"{\"x\":\"\xff\"}",
        b"{\"id\":\"\xc3\x28\"}",
        b"\xef\xbb\xbf{}",
        b"{\"id\":\"\n\"}",
        br#"{"id":"\ud800"}"#,
        br#"{"id":"\udc00x"}"#,
        br#"{"metadata":{"a":NaN}}"#,
    ] {
        let error = json::from_slice::<v1::Task>(text).unwrap_err();
        assert_eq!(error.kind, Wrong::Syntax, "{}", String::from_utf8_lossy(text));
        assert_eq!(error.path, "");
    }
    let task = read::<v1::Task>(r#"{"id":"\ud83d\ude00 ä \u00e4 \u0000"}"#).unwrap();
    assert_eq!(task.id, "😀 ä ä \0");
    assert_eq!(written(&task), r#"{"id":"😀 ä ä \u0000"}"#);
}

#[test]
fn nesting_ends_at_thirty() {
    for (open, close) in [("[", "]"), (r#"{"a":"#, "}"), (r#"[{"a":"#, "}]")] {
        let per = close.len();
        let fits = nested(open, close, 30 / per);
        let deep = nested(open, close, 30 / per + 1);
        let page = |value: &str| {
            format!(r#"{{"tasks":[{{"status":{{"message":{{"parts":[{{"data":{value}}}]}}}}}}]}}"#)
        };
        let response = read::<v1::ListTasksResponse>(&page(&fits)).unwrap();
        // What is taken comes back from its encoded form too, the deepest that it can stand.
        let bytes = prost::Message::encode_to_vec(&response);
        let back: v1::ListTasksResponse = prost::Message::decode(bytes.as_slice()).unwrap();
        assert_eq!(back, response);
        assert_eq!(read::<v1::ListTasksResponse>(&written(&response)).unwrap(), response);
        let (path, problem) = shape::<v1::ListTasksResponse>(&page(&deep));
        assert_eq!(path, "tasks[0].status.message.parts[0].data");
        assert_eq!(problem, "is nested deeper than 30 objects and arrays");
    }
    let metadata = |depth| format!(r#"{{"metadata":{}}}"#, nested(r#"{"a":"#, "}", depth));
    assert!(read::<v1::Task>(&metadata(30)).is_ok());
    assert_eq!(shape::<v1::Task>(&metadata(31)).0, "metadata");
    // No depth reaches the stack, wherever it is.
    for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
        for depth in [31, 127, 129, 1_000_000] {
            let deep = nested(open, close, depth);
            for member in ["metadata", "id", "contextId"] {
                shape::<v1::Task>(&format!(r#"{{"{member}":{deep}}}"#));
            }
            assert!(read::<v1::Task>(&format!(r#"{{"x":{deep}}}"#)).is_ok());
            assert_eq!(read::<v1::Task>(&"[".repeat(depth)).unwrap_err().path, "");
        }
    }
}
