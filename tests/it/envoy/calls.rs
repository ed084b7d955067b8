//! Calls through Envoy: every binding, who may call, limits, and what Envoy adds.

use std::collections::BTreeSet;

use a2ad::client::Connect;
use a2ad::contract::v1;
use prost::Message as _;
use serde_json::{Value, json};
use tonic::Code;

use super::{Gateway, borrowed, message};
use crate::bindings::caller::Caller;
use crate::rig::{raw, send, task_of};
use crate::support::envoy::validate;
use crate::support::eventually;
use crate::support::issuer::{Issuer, claims};

fn list(page_token: &str) -> v1::ListTasksRequest {
    v1::ListTasksRequest {
        page_size: Some(4),
        page_token: page_token.to_owned(),
        ..Default::default()
    }
}

fn parsed(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap_or_else(|_| panic!("{:?}", String::from_utf8_lossy(body)))
}

#[test]
fn the_configuration_is_valid_as_it_stands() {
    let (good, words) = validate(&Issuer::new("idp-1"));
    assert!(good, "{words}");
}

#[tokio::test]
async fn one_walk_goes_over_every_binding_and_every_error_keeps_its_details() {
    let gateway = Gateway::start(&[]).await;
    let token = gateway.issuer.token("ann");
    let mut callers = Caller::all(gateway.envoy.edge(), Some(&token)).await;
    let mut sent = BTreeSet::new();
    for n in 0..4 {
        for caller in &mut callers {
            let answer = caller.ask(send(&format!("hello {n}"))).await.unwrap();
            let Some(v1::send_message_response::Payload::Task(task)) = answer.payload else {
                panic!("{answer:?}")
            };
            sent.insert(task.id);
        }
    }
    let mut seen = Vec::new();
    let mut token = String::new();
    for caller in &mut callers {
        let page = caller.ask(list(&token)).await.unwrap();
        assert_eq!(page.total_size, 12);
        seen.extend(page.tasks.into_iter().map(|task| task.id));
        token = page.next_page_token;
    }
    assert_eq!(token, "");
    assert_eq!((seen.len(), seen.into_iter().collect::<BTreeSet<_>>()), (12, sent));
    let mut told = Vec::new();
    for caller in &mut callers {
        told.push(caller.ask(list("nonsense")).await.unwrap_err());
        let absent = v1::GetTaskRequest { id: "absent".to_owned(), ..Default::default() };
        assert!(caller.ask(absent).await.unwrap_err().common.0.contains("not found"));
    }
    assert!(told.iter().all(|one| one == &told[0]), "{told:?}");
    assert_eq!(told[0].common.1[1]["fieldViolations"][0]["field"], "page_token", "{told:?}");
}

#[tokio::test]
async fn grpc_web_and_the_transcoder_reach_the_same_tasks() {
    let gateway = Gateway::start(&[]).await;
    let mut ann = gateway.client("ann").await;
    let task = task_of(ann.send_message(send("hello")).await.unwrap());
    let mut headers = gateway.headers("ann");
    // What Envoy translates itself.
    let transcoder = gateway.envoy.transcoder();
    let path = format!("/tasks/{}", task.id);
    let got = raw::http(transcoder, "GET", &path, &borrowed(&headers), "").await;
    assert_eq!(parsed(got.body())["id"], task.id, "{got:?}");
    let listed = raw::http(transcoder, "GET", "/tasks?pageSize=5", &borrowed(&headers), "").await;
    let listed = parsed(listed.body());
    assert_eq!((&listed["totalSize"], &listed["nextPageToken"]), (&json!(1), &json!("")));
    let body = message("hello").to_string();
    let sent = raw::http(transcoder, "POST", "/message:send", &borrowed(&headers), body).await;
    assert_eq!(parsed(sent.body())["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    let absent = raw::http(transcoder, "GET", "/tasks/absent", &borrowed(&headers), "").await;
    assert_eq!(absent.status(), 404);
    assert_eq!(parsed(absent.body())["details"][0]["reason"], "TASK_NOT_FOUND");
    // What browsers speak.
    headers[0].1 = "application/grpc-web+proto".to_owned();
    let frame = raw::frame(&v1::GetTaskRequest { id: task.id.clone(), ..Default::default() });
    let path = "/lf.a2a.v1.A2AService/GetTask";
    let answer = raw::http(gateway.envoy.edge(), "POST", path, &borrowed(&headers), frame).await;
    assert_eq!(answer.status(), 200);
    let body = answer.body();
    let length = u32::from_be_bytes(body[1..5].try_into().unwrap()) as usize;
    assert_eq!(v1::Task::decode(&body[5..5 + length]).unwrap().id, task.id);
    assert!(String::from_utf8_lossy(body).contains("grpc-status:0"));
    let origin = [("origin", "https://app.example"), ("access-control-request-method", "POST")];
    let flight = raw::http(gateway.envoy.edge(), "OPTIONS", path, &origin, "").await;
    assert_eq!(flight.headers()["access-control-allow-origin"], "https://app.example");
}

#[tokio::test]
async fn strangers_are_refused_in_the_form_of_their_binding() {
    let gateway = Gateway::start(&[]).await;
    let edge = gateway.envoy.edge();
    let other = Issuer::new("idp-1");
    let expired = gateway.issuer.sign(&claims("ann", -3600));
    for token in [None, Some(other.token("ann")), Some(expired)] {
        let mut connect = Connect::to(gateway.envoy.url());
        if let Some(token) = &token {
            connect = connect.bearer(token).unwrap();
        }
        let mut client = connect.connect().await.unwrap();
        let refused = client.list_tasks(list("")).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated, "{refused:?}");
        let bearer = token.map_or_else(String::new, |token| format!("Bearer {token}"));
        let headers = [("a2a-version", "1.0"), ("authorization", bearer.as_str())];
        for (method, path) in [("GET", "/tasks"), ("POST", "/")] {
            let answer = raw::http(edge, method, path, &headers, "{}").await;
            assert_eq!(answer.status(), 401);
            assert!(answer.headers()["www-authenticate"].to_str().unwrap().contains("Bearer"));
            let body = parsed(answer.body());
            assert_eq!(
                (&body["error"]["code"], &body["error"]["status"]),
                (&json!(401), &json!("UNAUTHENTICATED"))
            );
        }
    }
    let card = raw::get(edge, "/.well-known/agent-card.json", &[]).await;
    assert_eq!(card.status(), 200);
    let schemes = &parsed(card.body())["securitySchemes"];
    assert!(schemes.as_object().is_some_and(|schemes| !schemes.is_empty()), "{schemes}");
}

/// Whether `subject` finds Ann's task, with these headers on top of his own.
async fn finds(
    gateway: &Gateway,
    subject: &str,
    task: &str,
    more: &[(&'static str, String)],
) -> bool {
    let mut headers = gateway.headers(subject);
    headers.extend_from_slice(more);
    let path = format!("/tasks/{task}");
    let answer = raw::http(gateway.envoy.edge(), "GET", &path, &borrowed(&headers), "").await;
    assert!(matches!(answer.status().as_u16(), 200 | 404), "{answer:?}");
    answer.status() == 200
}

#[tokio::test]
async fn callers_are_told_apart_and_nobody_can_claim_to_be_another() {
    let forged = [
        ("x-jwt-payload", base64_of(&claims("ann", 3600))),
        ("x-forwarded-client-cert", "URI=spiffe://ann".to_owned()),
    ];
    for auth in ["jwt", "gateway"] {
        let gateway = Gateway::with(&[], auth).await;
        let mut ann = gateway.client("ann").await;
        let task = task_of(ann.send_message(send("hello")).await.unwrap()).id;
        assert!(finds(&gateway, "ann", &task, &[]).await, "{auth}");
        assert!(!finds(&gateway, "bob", &task, &[]).await, "{auth}");
        // Bob says in a header that he is Ann; it ends at Envoy.
        assert!(!finds(&gateway, "bob", &task, &forged).await, "{auth}");
    }
    // Where no token is asked for, the header ends there as well.
    let open = ("requires: { provider_name: idp }", "requires: { allow_missing: {} }");
    let gateway = Gateway::with(&[open], "gateway").await;
    let headers = [("a2a-version", "1.0"), ("x-jwt-payload", forged[0].1.as_str())];
    let answer = raw::get(gateway.envoy.edge(), "/tasks", &headers).await;
    assert_eq!(answer.status(), 401, "{answer:?}");
}

fn base64_of(claims: &Value) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(claims.to_string())
}

#[tokio::test]
async fn what_is_too_much_for_envoy_is_refused_with_a_time_to_wait() {
    let bucket = "max_tokens: 20000, tokens_per_fill: 10000, fill_interval: 1s";
    let little = "max_tokens: 3, tokens_per_fill: 1, fill_interval: 3600s";
    let gateway = Gateway::start(&[(bucket, little)]).await;
    let mut ann = gateway.client("ann").await;
    for _ in 0..3 {
        ann.list_tasks(list("")).await.unwrap();
    }
    let refused = ann.list_tasks(list("")).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
    let headers = gateway.headers("ann");
    let answer = raw::http(gateway.envoy.edge(), "GET", "/tasks", &borrowed(&headers), "").await;
    assert_eq!(
        (answer.status().as_u16(), &answer.headers()["retry-after"]),
        (429, &"1".parse().unwrap())
    );
    assert_eq!(parsed(answer.body())["error"]["status"], "RESOURCE_EXHAUSTED");
}

#[tokio::test]
async fn envoy_counts_calls_by_method_and_logs_each_without_secrets() {
    let gateway = Gateway::start(&[]).await;
    let mut ann = gateway.client("ann").await;
    task_of(ann.send_message(send("hello")).await.unwrap());
    ann.list_tasks(list("nonsense")).await.unwrap_err();
    let count = "cluster.a2ad.grpc.lf.a2a.v1.A2AService.SendMessage.success";
    assert_eq!(gateway.envoy.stat(count).await, Some(1));
    let failed = "cluster.a2ad.grpc.lf.a2a.v1.A2AService.ListTasks.3";
    assert_eq!(gateway.envoy.stat(failed).await, Some(1));
    let healthy = raw::get(gateway.envoy.edge(), "/-/healthy", &[]).await;
    assert_eq!(healthy.status(), 200);
    let headers = gateway.headers("ann");
    let path = "/tasks?pageToken=s3cret";
    raw::http(gateway.envoy.edge(), "GET", path, &borrowed(&headers), "").await;
    let line = eventually("the call is logged", || async {
        let log = gateway.envoy.access_log();
        log.lines().find(|line| line.contains("\"/tasks\"")).map(str::to_owned)
    })
    .await;
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&line["status"], &line["method"]), (&json!(400), &json!("GET")));
    let log = gateway.envoy.access_log();
    let token = headers[2].1.trim_start_matches("Bearer ");
    assert!(!log.contains("s3cret") && !log.contains(token), "{log}");
}
