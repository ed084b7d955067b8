//! What callers may ask for, by their scopes, and how those who may not are told.

use a2ad::auth::{ApiKey, ApiKeys, Auth, Class, Needed};
use a2ad::contract::{fault, v1};
use bytes::Bytes;
use http::Response;

use crate::bindings::caller::{Ask, Binding, Caller, Told};
use crate::rig::raw;
use crate::rig::{TestServer, send};

const V1: (&str, &str) = ("a2a-version", "1.0");

fn needed() -> Needed {
    Class::ALL.into_iter().map(|class| (class, format!("tasks:{}", class.name()))).collect()
}

/// A key for each class alone, named by it, and one without any scope.
fn auth() -> Auth {
    let of = |name: &str, scopes: &[&str]| {
        let scopes = scopes.iter().map(|scope| format!("tasks:{scope}")).collect();
        ApiKey::new(name, ApiKey::hash(name), &[]).unwrap().with_scopes(scopes)
    };
    let mut keys: Vec<_> =
        Class::ALL.into_iter().map(|one| of(one.name(), &[one.name()])).collect();
    keys.push(of("none", &[]));
    Auth::api_keys(ApiKeys::new(keys).unwrap()).needing(needed())
}

/// The scope that this caller lacks for the call, if it lacks one.
async fn lacks(caller: &mut Caller, request: impl Ask) -> Option<String> {
    let Told { binding, code, common } = caller.ask(request).await.err()?;
    let scope = common.0.strip_prefix("this operation needs the scope ")?.to_owned();
    let row = fault::PERMISSION_DENIED;
    let expected = match binding {
        Binding::Grpc => row.grpc,
        Binding::JsonRpc => row.jsonrpc,
        Binding::Rest => row.http.into(),
    };
    assert_eq!(code, expected);
    Some(scope)
}

/// What each unary operation lacks, in the order of the contract.
async fn all_lack(caller: &mut Caller) -> [Option<String>; 9] {
    let text = |text: &str| text.to_owned();
    let (id, task_id) = (text("0198c0de-0000-7000-8000-000000000000"), text("t"));
    let config = v1::TaskPushNotificationConfig {
        task_id: task_id.clone(),
        url: text("https://x.example/"),
        ..Default::default()
    };
    let get = v1::GetTaskPushNotificationConfigRequest {
        task_id: task_id.clone(),
        id: text("c"),
        ..Default::default()
    };
    let delete = v1::DeleteTaskPushNotificationConfigRequest {
        task_id: task_id.clone(),
        id: text("c"),
        ..Default::default()
    };
    let list = v1::ListTaskPushNotificationConfigsRequest { task_id, ..Default::default() };
    [
        lacks(caller, send("hello")).await,
        lacks(caller, v1::GetTaskRequest { id: id.clone(), ..Default::default() }).await,
        lacks(caller, v1::ListTasksRequest::default()).await,
        lacks(caller, v1::CancelTaskRequest { id, ..Default::default() }).await,
        lacks(caller, config).await,
        lacks(caller, get).await,
        lacks(caller, list).await,
        lacks(caller, delete).await,
        lacks(caller, v1::GetExtendedAgentCardRequest::default()).await,
    ]
}

#[tokio::test]
async fn each_operation_needs_the_scope_of_its_class_on_every_binding() {
    use Class::{Cancel, Card, Push, Read, Send};
    let classes = [Send, Read, Read, Cancel, Push, Push, Push, Push, Card];
    let server = TestServer::with(|server| server.auth(auth())).await;
    for key in ["read", "send", "cancel", "card", "push", "none"] {
        let expected =
            classes.map(|class| (class.name() != key).then(|| format!("tasks:{}", class.name())));
        for mut caller in Caller::all(server.addr(), Some(key)).await {
            assert_eq!(all_lack(&mut caller).await, expected, "{key} {:?}", caller.binding);
        }
    }
}

#[tokio::test]
async fn streams_need_theirs_before_they_begin() {
    let server = TestServer::with(|server| server.auth(auth())).await;
    for (key, allowed) in [("send", [true, false]), ("read", [false, true])] {
        let mut client = server.client_of(key).await;
        let id = "0198c0de-0000-7000-8000-000000000000".to_owned();
        let subscribe = v1::SubscribeToTaskRequest { id, ..Default::default() };
        let sent = client.send_streaming_message(send("hello")).await.err();
        let subscribed = client.subscribe_to_task(subscribe).await.err();
        let may = [sent, subscribed].map(|status| {
            status.is_none_or(|status| status.code() != tonic::Code::PermissionDenied)
        });
        assert_eq!(may, allowed, "{key}");
    }
}

fn challenge(response: &Response<Bytes>) -> &str {
    response.headers()["www-authenticate"].to_str().unwrap()
}

#[tokio::test]
async fn a_challenge_says_what_would_do_and_what_was_wrong() {
    let server = TestServer::with(|server| server.auth(auth())).await;
    let addr = server.addr();
    let key = "ApiKey realm=\"a2ad\", header=\"x-api-key\"";
    let of = |detail: &str| format!("Bearer realm=\"a2ad\"{detail}, {key}");
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"ListTasks"}"#;
    for (credential, status, detail) in [
        (None, 401, ""),
        (
            Some("Bearer wrong"),
            401,
            ", error=\"invalid_token\", error_description=\"the API key is not known here\"",
        ),
        (Some("Bearer send"), 403, ", error=\"insufficient_scope\", scope=\"tasks:read\""),
    ] {
        let mut headers = vec![V1, ("content-type", "application/json")];
        headers.extend(credential.map(|credential| ("authorization", credential)));
        let rest = raw::http(addr, "GET", "/tasks", &headers, "").await;
        assert_eq!((rest.status().as_u16(), challenge(&rest)), (status, of(detail).as_str()));
        let jsonrpc = raw::http(addr, "POST", "/", &headers, body).await;
        assert_eq!((jsonrpc.status().as_u16(), challenge(&jsonrpc)), (status, of(detail).as_str()));
        headers.retain(|(name, _)| *name == "authorization");
        let path = "/lf.a2a.v1.A2AService/ListTasks";
        let grpc = raw::grpc(addr, path, &headers, Bytes::from_static(&[0; 5])).await;
        assert_eq!((grpc.status().as_u16(), challenge(&grpc)), (200, of(detail).as_str()));
    }
}
