//! The bytes themselves, where a library that reads them would hide a fault.

use std::time::Duration;

use a2ad::contract::DESCRIPTOR_SET;
use axum::body::{Body, Bytes};
use futures_util::{StreamExt as _, stream};
use http::Method;
use prost_reflect::{DescriptorPool, DeserializeOptions, DynamicMessage};
use serde_json::{Value, json};

use crate::json::house::{Answer, House, request};

/// The message in an answer, of either binding, as its bytes; it has no member that the contract
/// has not.
fn message(answer: &Answer, kind: &str) -> String {
    assert_eq!(answer.status, 200, "{answer:?}");
    let text = answer.text();
    let text = match text.strip_prefix(r#"{"jsonrpc":"2.0","id":1,"result":"#) {
        Some(result) => result.strip_suffix('}').unwrap(),
        None => text,
    };
    let pool = DescriptorPool::decode(DESCRIPTOR_SET).unwrap();
    let kind = pool.get_message_by_name(&format!("lf.a2a.v1.{kind}")).unwrap();
    let strict = DeserializeOptions::new().deny_unknown_fields(true);
    let mut reader = serde_json::Deserializer::from_str(text);
    DynamicMessage::deserialize_with_options(kind, &mut reader, &strict)
        .unwrap_or_else(|error| panic!("{error}: {text}"));
    reader.end().unwrap();
    text.to_owned()
}

/// The same listing over both bindings: equal bytes.
fn page(house: &House, query: &str, params: &Value) -> String {
    let rest = message(&house.get(&format!("/tasks{query}")), "ListTasksResponse");
    let rpc = message(&house.rpc("ListTasks", params), "ListTasksResponse");
    let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    if value(&rest)["nextPageToken"] == "" {
        assert_eq!(rest, rpc);
    }
    rest
}

/// Whether this is `"YYYY-MM-DDTHH:mm:ss.sssZ"`.
fn is_stamp(text: &str) -> bool {
    let shape = "dddd-dd-ddTdd:dd:dd.dddZ";
    text.len() == shape.len()
        && shape.bytes().zip(text.bytes()).all(|(wanted, found)| match wanted {
            b'd' => found.is_ascii_digit(),
            other => found == other,
        })
}

#[test]
fn answers_are_right_to_the_byte() {
    let house = House::new();

    let lean = page(&house, "", &json!({}));
    let tail = r#""nextPageToken":"","pageSize":50,"totalSize":3}"#;
    assert!(lean.ends_with(tail), "{lean}");
    for absent in ["artifacts", "history", "null", "metadata"] {
        assert!(!lean.contains(&format!("\"{absent}\"")) && !lean.contains(":null"), "{lean}");
    }
    let stamps: Vec<_> = lean.split("\"timestamp\":\"").skip(1).collect();
    assert_eq!(stamps.len(), 3);
    assert!(stamps.iter().all(|rest| is_stamp(rest.split('"').next().unwrap())), "{lean}");

    let empty = page(&house, "?contextId=none", &json!({"contextId": "none"}));
    assert_eq!(empty, r#"{"tasks":[],"nextPageToken":"","pageSize":50,"totalSize":0}"#);

    let first = page(&house, "?pageSize=2", &json!({"pageSize": 2}));
    assert!(!first.contains(r#""nextPageToken":"""#) && first.contains(r#""totalSize":3"#));

    let whole = page(
        &house,
        "?includeArtifacts=true&historyLength=1",
        &json!({"includeArtifacts": true, "historyLength": 1}),
    );
    assert_eq!(whole.matches("\"artifacts\":[{").count(), 3, "{whole}");
    assert_eq!(whole.matches("\"history\":[{").count(), 3, "{whole}");
    let none = page(
        &house,
        "?includeArtifacts=false&historyLength=0",
        &json!({"includeArtifacts": false, "historyLength": 0}),
    );
    assert_eq!(none, lean);

    let id = &house.tasks[0];
    let task = message(&house.get(&format!("/tasks/{id}?historyLength=0")), "Task");
    assert_eq!(
        task,
        message(&house.rpc("GetTask", &json!({"id": id, "historyLength": 0})), "Task")
    );
    assert!(!task.contains("\"history\"") && task.contains("\"artifacts\":[{"), "{task}");
    let task = message(&house.get(&format!("/tasks/{id}")), "Task");
    assert!(task.starts_with(&format!(r#"{{"id":"{id}","contextId":""#)), "{task}");
    assert!(task.contains(r#""state":"TASK_STATE_COMPLETED""#), "{task}");
    assert!(!task.contains("\"kind\""), "{task}");
    house.close();
}

#[test]
fn any_json_comes_back_as_it_went() {
    let house = House::new();
    for (n, data) in [
        "null",
        "0",
        "-1.5",
        "1e+300",
        "9007199254740991",
        "true",
        "\"\"",
        "\"ä😀\\u0000\\\"\"",
        "[]",
        "{}",
        "[null,[],{}]",
        r#"{"":null,"a":{"b":[1,"2",false]}}"#,
    ]
    .into_iter()
    .enumerate()
    {
        let body = format!(
            r#"{{"message":{{"messageId":"d{n}","role":"ROLE_USER","parts":[{{"data":{data}}}],
            "metadata":{{"m":{data}}}}}}}"#
        );
        let body: Value = serde_json::from_str(&body).unwrap();
        let sent = house.post("/message:send", &body);
        let task = message(&sent, "SendMessageResponse");
        let id = sent.value()["task"]["id"].as_str().unwrap().to_owned();
        for text in [task, message(&house.get(&format!("/tasks/{id}")), "Task")] {
            let kept = format!(r#""parts":[{{"data":{data}}}],"metadata":{{"m":{data}}}"#);
            assert!(text.contains(&kept), "{data}: {text}");
        }
    }
    house.close();
}

/// The body begins and never ends.
#[test]
fn a_body_that_stalls_is_given_up_in_the_words_of_its_binding() {
    let house = House::within(Duration::from_millis(50));
    let begun = || {
        let first = stream::iter([Ok::<_, std::convert::Infallible>(Bytes::from_static(b"{"))]);
        Body::from_stream(first.chain(stream::pending()))
    };
    for path in ["/", "/message:send"] {
        let answer = house.ask(request(Method::POST, path).body(begun()).unwrap());
        assert_eq!(answer.status, 408, "{answer:?}");
        let error = &answer.value()["error"];
        assert!(error["message"].as_str().unwrap().contains("to arrive"), "{error}");
        let code = if path == "/" { -32600 } else { 408 };
        assert_eq!(error["code"], code);
    }
    house.close();
}

/// The forms that the protocol shows, with what varies put in by name (P-007, P-008).
#[test]
fn a_listing_looks_as_the_protocol_shows_it() {
    let house = House::new();
    let sent = |id: &str| json!({"messageId": id, "contextId": "ctx-7", "role": "ROLE_USER", "parts": [{"text": "hi"}]});
    for id in ["a", "b"] {
        house.post("/message:send", &json!({"message": sent(id)}));
    }
    let listed = house.get("/tasks?contextId=ctx-7").value();
    let task = |n: usize| {
        let task = &listed["tasks"][n];
        let (id, at) = (&task["id"], &task["status"]["timestamp"]);
        format!(
            r#"{{"id":{id},"contextId":"ctx-7","status":{{"state":"TASK_STATE_COMPLETED","timestamp":{at}}}}}"#
        )
    };
    let body = format!(
        r#"{{"tasks":[{},{}],"nextPageToken":"","pageSize":50,"totalSize":2}}"#,
        task(0),
        task(1)
    );
    let call = r#"{"jsonrpc": "2.0", "id": "q1", "method": "ListTasks",
        "params": {"contextId": "ctx-7", "pageSize": 50, "historyLength": 0}}"#;
    let by_rpc = house.ask(request(Method::POST, "/").body(call.into()).unwrap());
    let envelope = format!(r#"{{"jsonrpc":"2.0","id":"q1","result":{body}}}"#);
    assert_eq!((by_rpc.status.as_u16(), by_rpc.text()), (200, envelope.as_str()));
    let by_rest = house.get("/tasks?contextId=ctx-7&pageSize=50&historyLength=0");
    assert_eq!((by_rest.status.as_u16(), by_rest.text()), (200, body.as_str()));
    // Names of other protocols are no names here, and are passed over (G-026).
    let strange = house.get("/tasks?contextId=ctx-7&cursor=x&limit=1&nextCursor=y");
    assert_eq!(strange.text(), body);
    let strange = json!({"contextId": "ctx-7", "cursor": "x", "limit": 1, "nextCursor": "y"});
    assert_eq!(message(&house.rpc("ListTasks", &strange), "ListTasksResponse"), body);
    // The bound itself is within (G-027), by whichever name (N-019).
    let at = listed["tasks"][1]["status"]["timestamp"].as_str().unwrap();
    for name in ["statusTimestampAfter", "lastUpdatedAfter"] {
        let since = house.get(&format!("/tasks?contextId=ctx-7&{name}={at}"));
        assert_eq!(since.text(), body, "{name}");
    }
    house.close();
}
