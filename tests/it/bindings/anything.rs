//! Whatever arrives: no panic, no fault of ours, no hang.

use std::time::Duration;

use a2ad::auth::Auth;
use a2ad::bindings::json::{Json, Limits};
use a2ad::bindings::{Door, Settings};
use a2ad::contract::CURSOR_EXTENSION;
use axum::body::Body;
use http::Request;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::bindings::message;
use crate::rig::TestServer;
use crate::support::{Random, rounds, seed};

const METHODS: [&str; 14] = [
    "SendMessage",
    "SendStreamingMessage",
    "GetTask",
    "ListTasks",
    "CancelTask",
    "SubscribeToTask",
    "CreateTaskPushNotificationConfig",
    "GetTaskPushNotificationConfig",
    "ListTaskPushNotificationConfigs",
    "DeleteTaskPushNotificationConfig",
    "GetExtendedAgentCard",
    "message/send",
    "",
    "getTask",
];

const NAMES: [&str; 24] = [
    "id",
    "tenant",
    "taskId",
    "task_id",
    "message",
    "configuration",
    "metadata",
    "pageSize",
    "page_size",
    "pageToken",
    "historyLength",
    "status",
    "statusTimestampAfter",
    "lastUpdatedAfter",
    "includeArtifacts",
    "contextId",
    "parts",
    "data",
    "raw",
    "role",
    "messageId",
    "returnImmediately",
    "A2A-Version",
    "x",
];

const TEXTS: [&str; 20] = [
    "",
    "x",
    "hello",
    "ROLE_USER",
    "TASK_STATE_WORKING",
    "true",
    "0",
    "-1",
    "101",
    "1e309",
    "2147483648",
    "2026-01-01T00:00:00Z",
    "9999-99-99T99:99:99+99:99",
    "\u{0}",
    "\u{e9}\u{2028}",
    "AQEBAQ",
    "../..",
    "%",
    "a,b",
    "1.0",
];

/// What a random request is made of.
struct Maker {
    random: Random,
    task: String,
    token: String,
}

impl Maker {
    fn text(&mut self) -> String {
        match self.random.below(8) {
            0 => self.task.clone(),
            1 => self.bent(&self.token.clone()),
            2 => self.bent(&self.task.clone()),
            _ => (*self.random.pick(&TEXTS)).to_owned(),
        }
    }

    /// With one character changed, dropped or doubled.
    fn bent(&mut self, text: &str) -> String {
        let mut characters: Vec<char> = text.chars().collect();
        if characters.is_empty() {
            return String::new();
        }
        let at = self.random.below(characters.len());
        match self.random.below(4) {
            0 => characters[at] = *self.random.pick(&['A', '-', '{', '"', '\u{7f}', '\u{1f600}']),
            1 => drop(characters.remove(at)),
            2 => characters.insert(at, characters[at]),
            _ => {}
        }
        characters.into_iter().collect()
    }

    fn value(&mut self, depth: usize) -> Value {
        match self.random.below(if depth == 0 { 5 } else { 9 }) {
            0 => Value::Null,
            1 => Value::Bool(self.random.chance(2)),
            2 => json!(self.random.next() as i64),
            3 => json!(f64::from_bits(self.random.next())),
            4 => self.text().into(),
            5 => (0..self.random.below(3)).map(|_| self.value(depth - 1)).collect(),
            6 => message("hello"),
            _ => self.object(depth - 1),
        }
    }

    fn object(&mut self, depth: usize) -> Value {
        let members = (0..self.random.below(5)).map(|_| {
            let name = (*self.random.pick(&NAMES)).to_owned();
            (name, self.value(depth))
        });
        Value::Object(members.collect())
    }

    fn body(&mut self) -> String {
        let params = self.object(4);
        let text = if self.random.chance(3) {
            params.to_string()
        } else {
            let id = self.value(1);
            let method = *self.random.pick(&METHODS);
            json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
        };
        if self.random.chance(4) { self.bent(&text) } else { text }
    }

    fn encoded(&mut self, text: &str) -> String {
        if self.random.chance(6) {
            let plain = text.chars().filter(|c| c.is_ascii_alphanumeric() || "-_%:,".contains(*c));
            return plain.collect();
        }
        percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
    }

    fn path(&mut self) -> String {
        const SEGMENTS: [&str; 8] = [
            "tasks",
            "message:send",
            "message:stream",
            "extendedAgentCard",
            "pushNotificationConfigs",
            "blue",
            "",
            "%FF",
        ];
        let mut path = String::new();
        for _ in 0..=self.random.below(4) {
            path.push('/');
            if self.random.chance(3) {
                let text = self.text();
                path += &self.encoded(&text);
            } else {
                path += *self.random.pick(&SEGMENTS);
            }
        }
        if self.random.chance(3) {
            path += *self.random.pick(&[":cancel", ":subscribe", ":", "%3Acancel", ":x"]);
        }
        if self.random.chance(2) {
            path.push('?');
            for _ in 0..self.random.below(4) {
                let value = self.text();
                path += *self.random.pick(&NAMES);
                path.push('=');
                path += &self.encoded(&value);
                path.push('&');
            }
        }
        path
    }

    fn request(&mut self) -> Request<Body> {
        let is_rpc = self.random.chance(2);
        let verb = if is_rpc {
            "POST"
        } else {
            *self.random.pick(&["GET", "POST", "DELETE", "HEAD", "PUT", "OPTIONS"])
        };
        let path = if is_rpc { "/".to_owned() } else { self.path() };
        let mut request = Request::builder().method(verb).uri(&path);
        let version = if self.random.chance(10) { self.text() } else { "1.0".to_owned() };
        let after = self.text();
        for (name, value, chance) in [
            ("a2a-version", version.as_str(), 1),
            ("last-event-id", after.as_str(), 3),
            ("last-event-id", "1", 6),
            ("a2a-extensions", CURSOR_EXTENSION, 2),
            ("a2a-extensions", ",,\u{e9}, x", 6),
            ("content-type", "application/json", 2),
            ("content-type", "application/a2a+json; x", 6),
            ("accept", "application/a2a+json;q=x, */*;q=", 6),
            ("grpc-timeout", "50S", 3),
            ("grpc-timeout", after.as_str(), 20),
        ] {
            // What no header can hold is not sent.
            if self.random.chance(chance)
                && let Ok(value) = http::HeaderValue::from_bytes(value.as_bytes())
            {
                request = request.header(name, value);
            }
        }
        let body = if self.random.chance(4) { String::new() } else { self.body() };
        request.body(Body::from(body)).unwrap_or_else(|_| Request::new(Body::empty()))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_arrives_is_answered_and_is_no_fault_of_ours() {
    let server = TestServer::start().await;
    let service = server.server().service().clone();
    let door = Door::new(Auth::None, service.offers().extensions(), Settings::default());
    let limits = Limits { bytes: 1 << 20, within: Duration::from_secs(5) };
    let json = Json::new(service, door, limits);
    let listed = crate::bindings::rpc(server.addr(), "ListTasks", &json!({"pageSize": 1})).await;
    assert_eq!(listed["result"]["totalSize"], 0);
    let task = crate::bindings::asked(server.addr()).await;
    crate::bindings::asked(server.addr()).await;
    let listed = crate::bindings::rpc(server.addr(), "ListTasks", &json!({"pageSize": 1})).await;
    let token = listed["result"]["nextPageToken"].as_str().unwrap().to_owned();
    let seed = seed();
    println!("A2AD_SEED={seed}");
    let mut maker = Maker { random: Random(seed), task, token };
    let mut statuses = std::collections::BTreeMap::<u16, usize>::new();
    for n in 0..rounds(10_000, 1_000_000) {
        let request = maker.request();
        let told = format!("{n}: {request:?}");
        let answered = tokio::time::timeout(Duration::from_secs(60), json.clone().answer(request));
        let response = answered.await.unwrap_or_else(|_| panic!("no answer: {told}"));
        let status = response.status().as_u16();
        *statuses.entry(status).or_default() += 1;
        assert!(status < 500, "{status}: {told}");
        let kind = response.headers().get("content-type").cloned();
        if kind.is_some_and(|kind| kind.to_str().unwrap().ends_with("json")) {
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let body: Value =
                if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap() };
            let internal = [json!(-32603), json!(500)].contains(&body["error"]["code"]);
            assert!(!internal, "{body}: {told}");
        }
    }
    for expected in [200, 204, 400, 404, 405] {
        assert!(statuses.contains_key(&expected), "{statuses:?}");
    }
}
