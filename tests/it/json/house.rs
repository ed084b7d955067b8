//! The JSON bindings in this process: requests in, bytes out, without a network in between.

use std::sync::Arc;
use std::time::Duration;

use a2ad::agent::demo::Demo;
use a2ad::auth::Auth;
use a2ad::bindings::json::{Json, Limits};
use a2ad::bindings::{Door, Settings};
use a2ad::contract::CURSOR_EXTENSION;
use a2ad::service;
use axum::body::Body;
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::bench::Bench;

/// No answer may take longer, however busy the machine is.
const AT_LAST: Duration = Duration::from_secs(30);

/// An extension that the card of this house offers.
pub(super) const EXTENSION: &str = "https://extension.example/one";

/// How long a stream may be silent before what it has told is taken for its whole answer.
const SILENCE: Duration = Duration::from_millis(5);
/// The most pieces of a stream that are read.
const PIECES_MAX: usize = 32;

/// The bindings over a store in memory with the demo agent, three tasks that have ended.
pub(super) struct House {
    runtime: Runtime,
    bench: Bench,
    json: Json,
    /// The ids of the tasks that have ended.
    pub(super) tasks: Vec<String>,
    /// The ids of tasks that wait for input.
    pub(super) live: Vec<String>,
    /// A page token of a listing with pages of one task.
    pub(super) token: String,
}

/// What came back; of a stream what it told before it ended or fell silent.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) kind: String,
    pub(super) body: Vec<u8>,
}

impl Answer {
    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(super) fn value(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {:?}", String::from_utf8_lossy(&self.body)))
    }
}

impl House {
    pub(super) fn new() -> Self {
        Self::within(AT_LAST)
    }

    /// One that gives a body up after this time.
    pub(super) fn within(within: Duration) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap();
        let settings = service::Settings::default();
        let bench = runtime.block_on(Bench::playing(Arc::new(Demo), settings));
        let door = Door::new(
            Auth::none(),
            vec![EXTENSION.to_owned(), CURSOR_EXTENSION.to_owned()],
            Settings::default(),
            a2ad::metrics::Metrics::default(),
        );
        let limits = Limits { bytes: 1 << 20, within };
        let json = Json::new(bench.service.clone(), door, limits);
        let mut house = Self {
            runtime,
            bench,
            json,
            tasks: Vec::new(),
            live: Vec::new(),
            token: String::new(),
        };
        for _ in 0..3 {
            let id = house.begin("hi");
            house.tasks.push(id);
        }
        let page = house.get("/tasks?pageSize=1").value();
        page["nextPageToken"].as_str().unwrap().clone_into(&mut house.token);
        house
    }

    /// One with tasks that wait for input as well.
    pub(super) fn lively() -> Self {
        let mut house = Self::new();
        house.live = (0..50).map(|_| house.begin("ask which?")).collect();
        house
    }

    /// Sends a message, and returns the id of its task.
    fn begin(&self, text: &str) -> String {
        let id = uuid::Uuid::new_v4().to_string();
        let message = json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": text}]});
        let sent = self.post("/message:send", &json!({"message": message})).value();
        sent["task"]["id"].as_str().unwrap().to_owned()
    }

    pub(super) fn get(&self, path: &str) -> Answer {
        self.ask(request(Method::GET, path).body(Body::empty()).unwrap())
    }

    pub(super) fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask(request(Method::POST, path).body(body.to_string().into()).unwrap())
    }

    /// A JSON-RPC call.
    pub(super) fn rpc(&self, method: &str, params: &Value) -> Answer {
        self.post("/", &json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))
    }

    pub(super) fn ask(&self, request: Request<Body>) -> Answer {
        let json = self.json.clone();
        let shown = format!("{request:?}");
        let answer = async {
            let response = json.answer(request).await;
            let status = response.status();
            let kind = response.headers().get("content-type");
            let kind = kind.map_or("", |kind| kind.to_str().unwrap()).to_owned();
            let body = if kind == "text/event-stream" {
                let (mut body, mut told) = (response.into_body(), Vec::new());
                for _ in 0..PIECES_MAX {
                    let Ok(Some(frame)) = timeout(SILENCE, body.frame()).await else { break };
                    told.extend(frame.unwrap().into_data().unwrap());
                }
                told.into()
            } else {
                response.into_body().collect().await.unwrap().to_bytes()
            };
            Answer { status, kind, body: body.to_vec() }
        };
        let answer = self.runtime.block_on(async { timeout(AT_LAST, answer).await });
        answer.unwrap_or_else(|_| panic!("no answer to {shown}"))
    }

    pub(super) fn close(self) {
        self.runtime.block_on(self.bench.close());
    }
}

/// A request in the usual headers.
pub(super) fn request(method: Method, path: &str) -> http::request::Builder {
    let builder = Request::builder().method(method).uri(path);
    builder.header("content-type", "application/json").header("a2a-version", "1.0")
}

/// Bytes as a header's value, but for those that HTTP itself does not let in.
pub(super) fn header(bytes: &[u8]) -> HeaderValue {
    let plain: Vec<_> = bytes.iter().copied().filter(|byte| *byte >= 32 && *byte != 127).collect();
    HeaderValue::from_bytes(&plain).unwrap()
}
