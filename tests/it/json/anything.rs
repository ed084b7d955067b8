//! Whatever comes, the handlers answer it: without a panic, a 5xx or a hang.

use a2ad::contract::{CURSOR_EXTENSION, DESCRIPTOR_SET, fault};
use axum::body::Body;
use http::{HeaderValue, Method, Request};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use prost_reflect::{DescriptorPool, SerializeOptions};
use serde_json::{Value, json};

use crate::json::house::{Answer, EXTENSION, House, header, request};
use crate::json::made::{messages, texts};
use crate::json::oracle::spoil;
use crate::support::{rounds, seed};

/// Inputs of one house, whose live tasks end in time.
const HOUSE: u64 = 10_000;

/// Puts random inputs to houses, 10,000 or 1,000,000 of them.
fn put<S: Strategy>(
    made: impl Fn(&House) -> S,
    test: impl Fn(&House, S::Value) -> Result<(), TestCaseError>,
) {
    let seed = seed();
    for n in 0..rounds(1, 100) {
        put_to_one(seed.wrapping_add(n), &made, &test);
    }
}

fn put_to_one<S: Strategy>(
    seed: u64,
    made: impl Fn(&House) -> S,
    test: impl Fn(&House, S::Value) -> Result<(), TestCaseError>,
) {
    println!("A2AD_SEED={seed}");
    let house = House::lively();
    let cases = HOUSE.try_into().unwrap();
    // A failure is reported as it came: shrinking would put thousands of inputs more.
    let config =
        Config { cases, failure_persistence: None, max_shrink_iters: 200, ..Config::default() };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let made = made(&house);
    TestRunner::new_with_rng(config, rng)
        .run(&made, |input| test(&house, input))
        .unwrap_or_else(|failure| panic!("{failure}"));
    house.close();
}

/// An answer that a caller can be given: no fault of ours, and a body that is what it says.
fn is_fine(answer: &Answer) -> Result<(), TestCaseError> {
    prop_assert!(answer.status.as_u16() < 500, "{:?}", answer);
    if answer.body.is_empty() {
        return Ok(());
    }
    if answer.kind == "text/event-stream" {
        return events(answer).map(drop);
    }
    prop_assert!(matches!(&*answer.kind, "application/json" | "application/a2a+json"));
    let body: Value = match serde_json::from_slice(&answer.body) {
        Ok(body) => body,
        // An id goes back as it came, whatever this reader makes of its number.
        Err(error) if error.to_string().starts_with("number out of range") => return Ok(()),
        Err(error) => return Err(TestCaseError::fail(format!("{error}: {answer:?}"))),
    };
    let ours = [fault::INTERNAL_ERROR, fault::UNAVAILABLE];
    let code = body["error"]["code"].as_i64();
    prop_assert!(ours.iter().all(|fault| Some(i64::from(fault.jsonrpc)) != code), "{:?}", answer);
    Ok(())
}

/// The events of a stream: ids and data, each JSON that is no fault of ours.
fn events(answer: &Answer) -> Result<Vec<(Option<i64>, Value)>, TestCaseError> {
    let mut events = Vec::new();
    for block in answer.text().split_terminator("\n\n") {
        let line = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
        let Some(data) = line("data: ") else {
            prop_assert!(block.starts_with(':'), "{:?}", block);
            continue;
        };
        let data: Value = serde_json::from_str(data)
            .map_err(|error| TestCaseError::fail(format!("{error}: {data}")))?;
        let code = data["error"]["code"].as_i64().unwrap_or_default();
        prop_assert!(!matches!(code, -32603 | 500..), "{:?}", data);
        events.push((line("id: ").map(|id| id.parse().unwrap()), data));
    }
    Ok(events)
}

/// The body of a call, of which a byte or two may be others.
fn bodies(house: &House) -> BoxedStrategy<Vec<u8>> {
    let tasks = prop::sample::select([&house.tasks[..], &house.live].concat());
    let pool = DescriptorPool::decode(DESCRIPTOR_SET).unwrap();
    let service = pool.get_service_by_name("lf.a2a.v1.A2AService").unwrap();
    let calls: Vec<_> = service
        .methods()
        .map(|method| (Just(method.name().to_owned()), messages(&method.input())).boxed())
        .collect();
    let names = prop_oneof![
        8 => Just(None),
        1 => prop::sample::select(vec!["tasks/send", "ListTaskPushNotificationConfig", ""])
            .prop_map(|name| Some(name.to_owned())),
        1 => texts().prop_map(Some),
    ];
    let ids = prop::sample::select(vec!["1", "null", "\"a\"", "1.5", "[]", "-0", "true"]);
    let calls = proptest::strategy::Union::new(calls);
    let call = (calls, names, ids, tasks, any::<u64>());
    let whole = call.prop_map(|((method, params), name, id, task, dice)| {
        let options = SerializeOptions::new().use_proto_field_name(dice & 1 != 0);
        let mut params =
            params.serialize_with_options(serde_json::value::Serializer, &options).unwrap();
        if dice & 2 != 0 {
            make_plausible(&mut params, &task);
        }
        if dice & 4 != 0 {
            spoil(&mut params, dice / 8);
        }
        let method = Value::from(name.unwrap_or(method));
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{method},"params":{params}}}"#).into_bytes()
    });
    let slips = vec((any::<prop::sample::Index>(), any::<u8>()), 0..3);
    let slipped = (whole.clone(), slips).prop_map(|(mut body, slips)| {
        for (at, byte) in slips {
            let at = at.index(body.len());
            body[at] = byte;
        }
        body
    });
    prop_oneof![
        4 => whole,
        4 => slipped,
        1 => vec(any::<u8>(), 0..40),
        1 => "[\\[\\]{}\":,0-9a-z\\\\ ]{0,40}".prop_map(String::into_bytes),
    ]
    .boxed()
}

/// Gives a request what lets it get further than the first check.
fn make_plausible(params: &mut Value, task: &str) {
    let Some(params) = params.as_object_mut() else { return };
    for name in ["id", "taskId", "task_id"] {
        if let Some(id) = params.get_mut(name) {
            *id = task.into();
        }
    }
    for name in ["pageSize", "page_size", "pageToken", "page_token", "contextId", "context_id"] {
        params.remove(name);
    }
    if let Some(message) = params.get_mut("message").and_then(Value::as_object_mut) {
        message.insert("role".into(), "ROLE_USER".into());
        for name in ["contextId", "context_id", "taskId", "task_id"] {
            message.remove(name);
        }
    }
}

#[test]
fn any_body_of_json_rpc_is_answered() {
    put(bodies, |house, body| {
        let answer = house.ask(request(Method::POST, "/").body(body.clone().into()).unwrap());
        is_fine(&answer)?;
        prop_assert!(matches!(answer.status.as_u16(), 200 | 204), "{:?}", answer);
        let from = String::from_utf8_lossy(&body).into_owned();
        let read = serde_json::from_slice::<Value>(&answer.body).ok();
        if let Some(value) = read.filter(|_| answer.kind != "text/event-stream") {
            prop_assert_eq!(&value["jsonrpc"], "2.0", "{}", from);
            let outcomes = ["result", "error"].iter().filter(|name| value.get(name).is_some());
            prop_assert_eq!(outcomes.count(), 1, "{}", from);
        }
        Ok(())
    });
}

/// Segments of paths, of tasks and of other things.
fn segments(house: &House) -> impl Strategy<Value = String> + use<> {
    const KNOWN: &str = "tasks message:send message:stream extendedAgentCard \
        pushNotificationConfigs . .. %2e%2e %00 %ff % %zz %2F a:b:c : tasks:cancel blue";
    let mut known: Vec<_> = KNOWN.split(' ').map(str::to_owned).collect();
    known.push(String::new());
    for id in house.tasks.iter().chain(&house.live[..3]) {
        known.extend([id.clone(), format!("{id}:cancel"), format!("{id}:subscribe")]);
        known.extend([id.to_uppercase(), format!("{id}:"), format!("{id}%3Acancel")]);
    }
    prop_oneof![
        6 => prop::sample::select(known),
        1 => texts().prop_map(|text| encoded(&text)),
    ]
}

/// Query parameters.
fn pairs(house: &House) -> impl Strategy<Value = String> + use<> {
    const NAMES: &str = "pageSize page_size pageToken historyLength status contextId tenant \
        statusTimestampAfter lastUpdatedAfter includeArtifacts A2A-Version id metadata \
        message.parts configuration.historyLength %";
    const VALUES: &str = "0 1 -1 101 5.0 1e1 2147483648 true TASK_STATE_WORKING 6 99 \
        2024-01-01T00:00:00Z 2024-01-01T00:00:00+02:00 1.0 0.3 null {} % %ff a,b";
    let names: Vec<_> = NAMES.split(' ').chain([""]).collect();
    let values: Vec<_> = VALUES.split(' ').chain([""]).map(str::to_owned).collect();
    let values = prop_oneof![
        4 => prop::sample::select(values),
        1 => Just(house.token.clone()),
        1 => texts().prop_map(|text| encoded(&text)),
    ];
    let pair = (prop::sample::select(names), values, prop::bool::weighted(0.9));
    pair.prop_map(
        |(name, value, equals)| {
            if equals { format!("{name}={value}") } else { format!("{name}{value}") }
        },
    )
}

/// Paths and queries that a client could send, and some that none would.
fn targets(house: &House) -> impl Strategy<Value = (Method, String)> + use<> {
    let methods = prop_oneof![
        4 => Just(Method::GET),
        3 => Just(Method::POST),
        1 => Just(Method::DELETE),
        1 => Just(Method::HEAD),
        1 => Just(Method::OPTIONS),
        1 => Just(Method::PUT),
    ];
    let made = (methods, vec(segments(house), 1..6), vec(pairs(house), 0..4));
    made.prop_map(|(method, segments, pairs)| {
        let query = if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) };
        (method, format!("/{}{query}", segments.join("/")))
    })
}

/// Percent-encoded, all but letters and digits.
fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
            other => format!("%{other:02X}"),
        })
        .collect()
}

#[test]
fn any_path_and_query_is_answered() {
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]});
    let bodies =
        vec![json!({"message": message}).to_string(), "{}".into(), String::new(), "[".into()];
    let made = |house: &House| (targets(house), prop::sample::select(bodies.clone()));
    put(made, |house, ((method, target), body)| {
        // What is no URI does not get past HTTP itself.
        if target.parse::<http::Uri>().is_err() {
            return Ok(());
        }
        is_fine(&house.ask(request(method, &target).body(body.into()).unwrap()))
    });
}

#[test]
fn any_page_token_is_answered() {
    let made = |house: &House| {
        let token = house.token.clone();
        let slips = vec((any::<prop::sample::Index>(), any::<char>()), 1..3);
        let slipped = (Just(token.clone()), slips).prop_map(|(token, slips)| {
            let mut chars: Vec<_> = token.chars().collect();
            for (at, char) in slips {
                let at = at.index(chars.len());
                chars[at] = char;
            }
            String::from_iter(chars)
        });
        let cut = (Just(token.clone()), any::<prop::sample::Index>())
            .prop_map(|(token, at)| token[..at.index(token.len())].to_owned());
        let token = prop_oneof![
            4 => slipped,
            2 => cut,
            2 => "[A-Za-z0-9_-]{0,120}",
            1 => texts(),
            1 => (Just(token.clone()), texts()).prop_map(|(token, more)| token + &more),
            1 => Just(token),
        ];
        (token, any::<bool>())
    };
    put(made, |house, (token, by_rpc)| {
        let good = token == house.token || token.is_empty();
        let answer = if by_rpc {
            house.rpc("ListTasks", &json!({"pageSize": 1, "pageToken": token}))
        } else {
            house.get(&format!("/tasks?pageSize=1&pageToken={}", encoded(&token)))
        };
        is_fine(&answer)?;
        let body = answer.value();
        prop_assert_eq!(body.get("error").is_none(), good, "{}", token);
        if !good {
            let details = if by_rpc { &body["error"]["data"] } else { &body["error"]["details"] };
            prop_assert_eq!(&details[0]["metadata"]["pageToken"], "invalid", "{}", body);
        }
        Ok(())
    });
}

/// Bytes that a header may hold.
fn headers(likely: &'static [&'static str]) -> impl Strategy<Value = HeaderValue> {
    prop_oneof![
        2 => vec(any::<u8>(), 0..40).prop_map(|bytes| header(&bytes)),
        2 => vec(prop::sample::select(likely), 0..5).prop_map(|parts| header(parts.concat().as_bytes())),
        1 => texts().prop_map(|text| header(text.as_bytes())),
        1 => (0..3000_usize).prop_map(|n| header(&vec![b'a'; n])),
    ]
}

#[test]
fn any_last_event_id_is_answered() {
    const LIKELY: &[&str] =
        &["0", "1", "3", "-1", "99", "9223372036854775808", " ", "1.0", "+", "x"];
    let made = |house: &House| {
        let tasks = prop::sample::select([&house.tasks[..], &house.live[..3]].concat());
        (headers(LIKELY), tasks, 0..4_u8, any::<bool>())
    };
    put(made, |house, (value, task, way, cursor)| {
        let (method, path, body) = match way {
            0 => (Method::GET, format!("/tasks/{task}:subscribe"), String::new()),
            1 => (Method::POST, format!("/tasks/{task}:subscribe"), "{}".to_owned()),
            2 => (Method::GET, format!("/tasks/{task}"), String::new()),
            _ => {
                let call = json!({"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask",
                    "params": {"id": task}});
                (Method::POST, "/".to_owned(), call.to_string())
            }
        };
        let after = value.to_str().ok().and_then(|value| value.parse::<i64>().ok());
        let mut request = request(method, &path).header("last-event-id", value);
        if cursor {
            request = request.header("a2a-extensions", CURSOR_EXTENSION);
        }
        let answer = house.ask(request.body(Body::from(body)).unwrap());
        is_fine(&answer)?;
        if answer.kind != "text/event-stream" {
            return Ok(());
        }
        let mut last = after.filter(|_| cursor);
        for (id, event) in events(&answer)? {
            prop_assert_eq!(id.is_some(), cursor, "{}", event);
            prop_assert!(id.is_none_or(|id| last.is_none_or(|last| id > last)), "{}", event);
            last = id;
        }
        Ok(())
    });
}

#[test]
fn any_list_of_extensions_is_answered() {
    const LIKELY: &[&str] =
        &[EXTENSION, ",", ", ", "\"", "https://other.example/x", ";", "\t", "="];
    let made = |_: &House| (vec(headers(LIKELY), 0..4), any::<bool>());
    put(made, |house, (values, by_rpc)| {
        let (method, path, body) = if by_rpc {
            let call = json!({"jsonrpc": "2.0", "id": 1, "method": "ListTasks"});
            (Method::POST, "/", call.to_string())
        } else {
            (Method::GET, "/tasks", String::new())
        };
        let mut request: Request<Body> = request(method, path).body(body.into()).unwrap();
        for value in values {
            request.headers_mut().append("a2a-extensions", value);
        }
        let answer = house.ask(request);
        is_fine(&answer)?;
        prop_assert_eq!(answer.status, 200, "{:?}", answer);
        Ok(())
    });
}
