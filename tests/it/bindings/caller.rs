//! The same call over each binding, and what its caller reads, normalised to the contract.

use std::net::SocketAddr;

use a2ad::client::{Client, Connect};
use a2ad::contract::fault::{self, Fault};
use a2ad::contract::json::{from_value, to_value};
use a2ad::contract::v1;
use a2ad::contract::wkt::Empty;
use bytes::Bytes;
use http::Response;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tonic::Status;
use tonic_types::{ErrorDetail, StatusExt};

use crate::bindings::JSON;
use crate::rig::raw;

/// A client of one binding.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) binding: Binding,
    server: SocketAddr,
    client: Client,
    key: Option<String>,
    version: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binding {
    Grpc,
    JsonRpc,
    Rest,
}

/// An error as a caller reads it. The code is that of the binding.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    pub(crate) binding: Binding,
    pub(crate) code: i32,
    /// What all bindings have in common.
    pub(crate) common: (String, Value),
}

impl PartialEq for Told {
    fn eq(&self, other: &Self) -> bool {
        self.common == other.common
    }
}

/// Every row of the protocol's table.
pub(crate) const ROWS: [Fault; 22] = [
    fault::TASK_NOT_FOUND,
    fault::TASK_NOT_CANCELABLE,
    fault::PUSH_NOTIFICATION_NOT_SUPPORTED,
    fault::UNSUPPORTED_OPERATION,
    fault::CONTENT_TYPE_NOT_SUPPORTED,
    fault::INVALID_AGENT_RESPONSE,
    fault::EXTENDED_AGENT_CARD_NOT_CONFIGURED,
    fault::EXTENSION_SUPPORT_REQUIRED,
    fault::VERSION_NOT_SUPPORTED,
    fault::INVALID_JSON,
    fault::INVALID_REQUEST,
    fault::METHOD_NOT_FOUND,
    fault::INVALID_PARAMS,
    fault::INTERNAL_ERROR,
    fault::UNAUTHENTICATED,
    fault::PERMISSION_DENIED,
    fault::UNAVAILABLE,
    fault::RESOURCE_EXHAUSTED,
    fault::TOO_LARGE,
    fault::TOO_SLOW,
    fault::METHOD_NOT_ALLOWED,
    fault::DEADLINE_EXCEEDED,
];

impl Told {
    /// Whether one row of the table has all these codes, and their reason.
    pub(crate) fn have_one_row(told: &[Self]) -> bool {
        let reason = told.first().and_then(|first| first.common.1[0]["reason"].as_str());
        ROWS.iter().filter(|row| row.reason == reason).any(|row| {
            told.iter().all(|told| {
                told.code
                    == match told.binding {
                        Binding::Grpc => row.grpc,
                        Binding::JsonRpc => row.jsonrpc,
                        Binding::Rest => i32::from(row.http),
                    }
            })
        })
    }

    pub(crate) fn of_status(status: &Status) -> Self {
        let details = status.check_error_details_vec().unwrap().into_iter().map(detail);
        let details = Value::Array(details.collect());
        let common = (status.message().to_owned(), details);
        Self { binding: Binding::Grpc, code: status.code() as i32, common }
    }

    /// From the error object of a JSON-RPC response.
    pub(crate) fn of_jsonrpc(error: &Value) -> Self {
        Self::of(Binding::JsonRpc, error, "data")
    }

    /// From `error` in the body of an HTTP+JSON answer.
    pub(crate) fn of_rest(error: &Value) -> Self {
        Self::of(Binding::Rest, error, "details")
    }

    fn of(binding: Binding, error: &Value, details: &str) -> Self {
        let code = error["code"].as_i64().unwrap() as i32;
        let details = error.get(details).cloned().unwrap_or_else(|| json!([]));
        Self { binding, code, common: (error["message"].as_str().unwrap().to_owned(), details) }
    }
}

/// A detail as JSON has it.
#[expect(clippy::wildcard_enum_match_arm, reason = "nobody sends the others")]
fn detail(detail: ErrorDetail) -> Value {
    let kind = |name: &str| format!("type.googleapis.com/google.rpc.{name}");
    match detail {
        ErrorDetail::ErrorInfo(info) => {
            let mut json = json!({
                "@type": kind("ErrorInfo"), "reason": info.reason, "domain": info.domain,
            });
            if !info.metadata.is_empty() {
                json["metadata"] = json!(info.metadata);
            }
            json
        }
        ErrorDetail::BadRequest(bad) => {
            let violation = |v: &tonic_types::FieldViolation| json!({"field": v.field, "description": v.description});
            let violations: Vec<_> = bad.field_violations.iter().map(violation).collect();
            json!({"@type": kind("BadRequest"), "fieldViolations": violations})
        }
        ErrorDetail::RetryInfo(retry) => {
            let delay = format!("{}s", retry.retry_delay.unwrap().as_secs());
            json!({"@type": kind("RetryInfo"), "retryDelay": delay})
        }
        other => panic!("nobody sends {other:?}"),
    }
}

/// A request, and how it travels.
pub(crate) trait Ask: Serialize + Clone {
    type Answer: DeserializeOwned + Serialize + PartialEq + std::fmt::Debug;
    const METHOD: &'static str;
    /// The method of HTTP, and the path with its fields in braces.
    const ROUTE: (&'static str, &'static str);
    async fn ask(self, client: &mut Client) -> Result<Self::Answer, Status>;
}

macro_rules! ask {
    ($($kind:ident -> $answer:ty: $name:literal $call:ident $verb:literal $path:literal;)*) => {$(
        impl Ask for v1::$kind {
            type Answer = $answer;
            const METHOD: &'static str = $name;
            const ROUTE: (&'static str, &'static str) = ($verb, $path);
            async fn ask(self, client: &mut Client) -> Result<$answer, Status> {
                client.$call(self).await.map(tonic::Response::into_inner)
            }
        }
    )*};
}

ask! {
    SendMessageRequest -> v1::SendMessageResponse: "SendMessage" send_message "POST" "/message:send";
    GetTaskRequest -> v1::Task: "GetTask" get_task "GET" "/tasks/{id}";
    ListTasksRequest -> v1::ListTasksResponse: "ListTasks" list_tasks "GET" "/tasks";
    CancelTaskRequest -> v1::Task: "CancelTask" cancel_task "POST" "/tasks/{id}:cancel";
    TaskPushNotificationConfig -> v1::TaskPushNotificationConfig: "CreateTaskPushNotificationConfig"
        create_task_push_notification_config "POST" "/tasks/{taskId}/pushNotificationConfigs";
    GetTaskPushNotificationConfigRequest -> v1::TaskPushNotificationConfig:
        "GetTaskPushNotificationConfig" get_task_push_notification_config
        "GET" "/tasks/{taskId}/pushNotificationConfigs/{id}";
    ListTaskPushNotificationConfigsRequest -> v1::ListTaskPushNotificationConfigsResponse:
        "ListTaskPushNotificationConfigs" list_task_push_notification_configs
        "GET" "/tasks/{taskId}/pushNotificationConfigs";
    DeleteTaskPushNotificationConfigRequest -> Empty: "DeleteTaskPushNotificationConfig"
        delete_task_push_notification_config
        "DELETE" "/tasks/{taskId}/pushNotificationConfigs/{id}";
    GetExtendedAgentCardRequest -> v1::AgentCard: "GetExtendedAgentCard" get_extended_agent_card
        "GET" "/extendedAgentCard";
}

/// Path and body of a request over HTTP+JSON: fields in the path, the rest in a body or a query.
pub(crate) fn http_of(route: (&str, &str), request: Value) -> (String, String) {
    let (verb, template) = route;
    let Value::Object(mut fields) = request else { panic!("{request:?}") };
    let mut path = template.to_owned();
    let encode = |text: &str| {
        percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
    };
    for name in ["id", "taskId"] {
        let slot = format!("{{{name}}}");
        if path.contains(&slot) {
            let value = fields.remove(name);
            // An empty segment would be another path.
            let value = value.as_ref().and_then(Value::as_str).filter(|value| !value.is_empty());
            path = path.replace(&slot, &encode(value.unwrap_or("-")));
        }
    }
    if verb == "POST" {
        return (path, Value::Object(fields).to_string());
    }
    let pairs = fields.iter().map(|(name, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{name}={}", encode(&value))
    });
    let query = pairs.collect::<Vec<_>>().join("&");
    (if query.is_empty() { path } else { format!("{path}?{query}") }, String::new())
}

impl Caller {
    pub(crate) async fn new(binding: Binding, server: SocketAddr, key: Option<&str>) -> Self {
        let mut connect = Connect::to(format!("http://{server}"));
        if let Some(key) = key {
            connect = connect.bearer(key).unwrap();
        }
        let client = connect.connect().await.unwrap();
        Self { binding, server, client, key: key.map(str::to_owned), version: "1.0" }
    }

    /// One client of each binding.
    pub(crate) async fn all(server: SocketAddr, key: Option<&str>) -> [Self; 3] {
        let of = |binding| Self::new(binding, server, key);
        [of(Binding::Grpc).await, of(Binding::JsonRpc).await, of(Binding::Rest).await]
    }

    pub(crate) fn headers(&self) -> Vec<(&'static str, String)> {
        let mut headers =
            vec![(JSON.0, JSON.1.to_owned()), ("a2a-version", self.version.to_owned())];
        headers.extend(self.key.as_ref().map(|key| ("authorization", format!("Bearer {key}"))));
        headers
    }

    async fn http(&self, verb: &str, path: &str, body: String) -> Response<Bytes> {
        let headers = self.headers();
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        raw::http(self.server, verb, path, &headers, body).await
    }

    /// The call, over this caller's binding.
    pub(crate) async fn ask<A: Ask>(&mut self, request: A) -> Result<A::Answer, Told> {
        match self.binding {
            Binding::Grpc => {
                request.ask(&mut self.client).await.map_err(|status| Told::of_status(&status))
            }
            Binding::JsonRpc => {
                let params = to_value(&request).unwrap();
                let body = envelope(A::METHOD, &params);
                let response = self.http("POST", "/", body).await;
                let answer: Value = serde_json::from_slice(response.body()).unwrap();
                // The body of a stranger is not read.
                let unread = response.status() == 401 && answer["id"].is_null();
                assert!(unread || answer["id"] == 7, "{answer}");
                assert_eq!(answer["jsonrpc"], "2.0");
                match answer.get("error") {
                    Some(error) => Err(Told::of_jsonrpc(error)),
                    None => Ok(exactly(answer["result"].clone())),
                }
            }
            Binding::Rest => {
                let (path, body) = http_of(A::ROUTE, to_value(&request).unwrap());
                let response = self.http(A::ROUTE.0, &path, body).await;
                let answer: Value = serde_json::from_slice(response.body())
                    .unwrap_or_else(|_| panic!("{path}: {response:?}"));
                if response.status() == 200 {
                    return Ok(exactly(answer));
                }
                let told = Told::of_rest(&answer["error"]);
                assert_eq!(i32::from(response.status().as_u16()), told.code);
                Err(told)
            }
        }
    }
}

/// A JSON-RPC request with the id that is looked for in its answers.
pub(crate) fn envelope(method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).to_string()
}

/// The message that this JSON is: no member is outside of the contract, and none is missing.
pub(crate) fn exactly<T: DeserializeOwned + Serialize>(json: Value) -> T {
    let message: T = from_value(json.clone()).unwrap();
    assert_eq!(to_value(&message).unwrap(), json);
    message
}
