//! HTTP+JSON by hand: paths, queries, types, and what is refused.

use a2ad::config::file::Limits;
use serde_json::{Value, json};

use crate::bindings::{JSON, V1, message, parsed, rest, rpc};
use crate::rig::{ANN, TestServer, raw, two_callers};

#[tokio::test]
async fn a_task_is_sent_read_listed_and_canceled() {
    let server = TestServer::start().await;
    let addr = server.addr();
    let body = json!({"message": message("hello")}).to_string();
    let sent = rest(addr, "POST", "/message:send", &body).await;
    assert_eq!(sent.status(), 200);
    assert_eq!(sent.headers()["content-type"], "application/json");
    let task = parsed(&sent)["task"].clone();
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
    let id = task["id"].as_str().unwrap();
    assert_eq!(parsed(&rest(addr, "GET", &format!("/tasks/{id}"), "").await), task);
    let listed = parsed(&rest(addr, "GET", "/tasks", "").await);
    assert_eq!((&listed["tasks"][0]["id"], &listed["nextPageToken"]), (&task["id"], &json!("")));
    for body in ["", "{}", r#"{"metadata":{"why":"enough"}}"#] {
        let canceled = rest(addr, "POST", &format!("/tasks/{id}:cancel"), body).await;
        assert_eq!(canceled.status(), 400);
        let error = parsed(&canceled)["error"].clone();
        assert_eq!(error["code"], 400);
        assert_eq!(error["status"], "FAILED_PRECONDITION");
        assert_eq!(error["details"][0]["reason"], "TASK_NOT_CANCELABLE");
    }
}

#[tokio::test]
async fn a_query_is_the_request() {
    let server = TestServer::start().await;
    let addr = server.addr();
    for text in ["hello", "ask me", "hello again"] {
        let body = json!({"message": message(text)}).to_string();
        assert_eq!(rest(addr, "POST", "/message:send", &body).await.status(), 200);
    }
    let list = async |query: &str| parsed(&rest(addr, "GET", &format!("/tasks?{query}"), "").await);
    let first = list("pageSize=2&includeArtifacts=true&historyLength=1").await;
    assert_eq!(first["tasks"].as_array().unwrap().len(), 2);
    assert_eq!((&first["pageSize"], &first["totalSize"]), (&json!(2), &json!(3)));
    assert!(first["tasks"][0]["artifacts"].is_array());
    assert_eq!(first["tasks"][0]["history"].as_array().unwrap().len(), 1);
    let token = first["nextPageToken"].as_str().unwrap();
    let more = format!("page_size=2&include_artifacts=true&history_length=1&page_token={token}");
    let second = list(&more).await;
    assert_eq!(second["tasks"].as_array().unwrap().len(), 1);
    assert_eq!(second["nextPageToken"], "");
    assert_eq!(list("status=TASK_STATE_INPUT_REQUIRED").await["totalSize"], 1);
    assert_eq!(list("status=6&cursor=x&A2A-Version=1.0").await["totalSize"], 1);
    assert_eq!(list("lastUpdatedAfter=2026-01-01T00:00:00+01:00").await["totalSize"], 3);
    assert_eq!(list("statusTimestampAfter=9999-01-01T00:00:00Z").await["totalSize"], 0);

    let bad = rest(addr, "GET", "/tasks?pageSize=101&historyLength=-1", "").await;
    assert_eq!(bad.status(), 400);
    let violations = &parsed(&bad)["error"]["details"][1]["fieldViolations"];
    assert_eq!(violations[0]["field"], "page_size");
    assert_eq!(violations[1]["field"], "history_length");
    for query in ["pageSize=x", "status=DONE", "statusTimestampAfter=today", "includeArtifacts=1"] {
        let bad = rest(addr, "GET", &format!("/tasks?{query}"), "").await;
        assert_eq!(bad.status(), 400, "{query}");
        assert_eq!(parsed(&bad)["error"]["details"][0]["reason"], "INVALID_PARAMS", "{query}");
    }
}

#[tokio::test]
async fn a_tenant_comes_by_path_query_or_body_and_is_one() {
    let server = TestServer::start().await;
    let addr = server.addr();
    let with = |tenant: &str| {
        let mut body = json!({"message": message("hello")});
        if !tenant.is_empty() {
            body["tenant"] = tenant.into();
        }
        body.to_string()
    };
    for (path, tenant) in [
        ("/blue/message:send", ""),
        ("/blue/message:send", "blue"),
        ("/message:send?tenant=blue", ""),
        ("/message:send", "blue"),
        ("/bl%75e/message:send?tenant=blue", "blue"),
    ] {
        assert_eq!(rest(addr, "POST", path, &with(tenant)).await.status(), 200, "{path}");
    }
    for (path, tenant) in [
        ("/blue/message:send", "red"),
        ("/blue/message:send?tenant=red", ""),
        ("/message:send?tenant=red", "blue"),
    ] {
        let refused = rest(addr, "POST", path, &with(tenant)).await;
        assert_eq!(refused.status(), 400, "{path}");
        let details = parsed(&refused)["error"]["details"].clone();
        assert_eq!(details[1]["fieldViolations"][0]["field"], "tenant");
    }
    for path in ["/blue/tasks", "/tasks?tenant=blue", "/blue/tasks?tenant=blue"] {
        assert_eq!(parsed(&rest(addr, "GET", path, "").await)["totalSize"], 5, "{path}");
    }
    assert_eq!(rest(addr, "GET", "/blue/tasks?tenant=red", "").await.status(), 400);
    assert_eq!(parsed(&rest(addr, "GET", "/tasks", "").await)["totalSize"], 0);
    let over_rpc = rpc(addr, "ListTasks", &json!({"tenant": "blue"})).await;
    assert_eq!(over_rpc["result"]["totalSize"], 5);
}

#[tokio::test]
async fn the_type_of_an_answer_is_the_one_that_was_asked_for() {
    let server = TestServer::start().await;
    let get = async |accept: &str, path: &str| {
        let response = raw::get(server.addr(), path, &[("accept", accept), V1]).await;
        assert_eq!(response.headers()["vary"], "accept");
        response.headers()["content-type"].to_str().unwrap().to_owned()
    };
    let (plain, a2a) = ("application/json", "application/a2a+json");
    assert_eq!(get("*/*", "/tasks").await, plain);
    assert_eq!(get(a2a, "/tasks").await, a2a);
    assert_eq!(get(a2a, "/nothing").await, a2a);
    assert_eq!(get("application/a2a+json, */*", "/tasks/x").await, plain, "an error");
    let body = json!({"message": message("hello")}).to_string();
    let kind = ("content-type", a2a);
    let sent = raw::http(server.addr(), "POST", "/message:send", &[kind, V1], body).await;
    assert_eq!(sent.headers()["content-type"], a2a);
    let wrong = ("content-type", "text/plain");
    let refused = raw::http(server.addr(), "POST", "/message:send", &[wrong, V1], "hello").await;
    assert_eq!(refused.status(), 400);
    assert_eq!(parsed(&refused)["error"]["details"][0]["reason"], "CONTENT_TYPE_NOT_SUPPORTED");
}

#[tokio::test]
async fn paths_and_methods_that_are_not_there_say_so() {
    let server = TestServer::start().await;
    let addr = server.addr();
    let missing = rest(addr, "GET", "/nothing/at/all", "").await;
    assert_eq!(missing.status(), 404);
    let error = parsed(&missing)["error"].clone();
    assert_eq!((&error["code"], &error["status"]), (&json!(404), &json!("NOT_FOUND")));
    assert_eq!(error["details"][0]["reason"], "METHOD_NOT_FOUND");
    for (method, path, allow) in [
        ("DELETE", "/tasks", "GET, HEAD, OPTIONS"),
        ("GET", "/message:send", "POST, OPTIONS"),
        ("PUT", "/tasks/1:subscribe", "GET, POST, OPTIONS"),
        ("GET", "/tasks/1:cancel", "POST, OPTIONS"),
    ] {
        let refused = rest(addr, method, path, "").await;
        assert_eq!(refused.status(), 405, "{method} {path}");
        assert_eq!(refused.headers()["allow"], allow);
        let options = raw::http(addr, "OPTIONS", path, &[], "").await;
        assert_eq!(
            (options.status().as_u16(), &options.headers()["allow"]),
            (204, &refused.headers()["allow"])
        );
    }
    let head = rest(addr, "HEAD", "/tasks", "").await;
    assert_eq!(head.status(), 200);
    let get = rest(addr, "GET", "/tasks", "").await;
    assert_eq!(head.headers()["content-length"], get.body().len().to_string());
    assert_eq!(rest(addr, "HEAD", "/tasks/x", "").await.status(), 404);
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_refused_in_words() {
    let server = TestServer::with(|server| {
        server.limits(Limits { receive_bytes: 65536, ..Limits::default() })
    })
    .await;
    let addr = server.addr();
    let send = async |body: &str| rest(addr, "POST", "/message:send", body).await;
    for (body, reason) in [
        ("{", "INVALID_REQUEST"),
        ("{}", "INVALID_PARAMS"),
        ("", "INVALID_PARAMS"),
        ("[]", "INVALID_PARAMS"),
        ("null", "INVALID_PARAMS"),
        (r#"{"message":7}"#, "INVALID_PARAMS"),
        (r#"{"message":{"role":"ROLE_NOBODY"}}"#, "INVALID_PARAMS"),
    ] {
        let refused = send(body).await;
        assert_eq!(refused.status(), 400, "{body}");
        assert_eq!(parsed(&refused)["error"]["details"][0]["reason"], reason, "{body}");
        assert_eq!(parsed(&refused)["error"]["status"], "INVALID_ARGUMENT", "{body}");
    }
    let large = "x".repeat(70_000);
    let refused = send(&large).await;
    assert_eq!(refused.status(), 413);
    let error = parsed(&refused)["error"].clone();
    assert_eq!(error["status"], "RESOURCE_EXHAUSTED");
    assert!(error["message"].as_str().unwrap().contains("65536"), "{error}");
    let refused = raw::http(addr, "POST", "/", &[JSON, V1], large).await;
    assert_eq!(refused.status(), 413);
    assert_eq!(parsed(&refused)["error"]["code"], -32600);
}

#[tokio::test]
async fn the_fields_of_a_path_are_not_said_twice() {
    let server = TestServer::start().await;
    let addr = server.addr();
    let body = json!({"message": message("ask me")}).to_string();
    let sent = parsed(&rest(addr, "POST", "/message:send", &body).await);
    let id = sent["task"]["id"].as_str().unwrap();
    let cancel = |id: &Value| json!({"id": id}).to_string();
    let path = format!("/tasks/{id}:cancel");
    let refused = rest(addr, "POST", &path, &cancel(&json!("other"))).await;
    assert_eq!(refused.status(), 400);
    let details = parsed(&refused)["error"]["details"].clone();
    assert_eq!(details[1]["fieldViolations"][0]["field"], "id");
    let canceled = rest(addr, "POST", &path, &cancel(&json!(id))).await;
    assert_eq!(parsed(&canceled)["status"]["state"], "TASK_STATE_CANCELED");
}

#[tokio::test]
async fn a_stranger_is_challenged_and_a_version_held_to() {
    let server = TestServer::with(|server| server.auth(two_callers())).await;
    let addr = server.addr();
    let refused = rest(addr, "GET", "/tasks", "").await;
    assert_eq!(refused.status(), 401);
    assert!(refused.headers()["www-authenticate"].to_str().unwrap().starts_with("Bearer"));
    assert_eq!(parsed(&refused)["error"]["status"], "UNAUTHENTICATED");
    let bearer = format!("Bearer {ANN}");
    let key = ("authorization", bearer.as_str());
    let refused = raw::get(addr, "/red/tasks", &[key, V1]).await;
    assert_eq!(refused.status(), 403);
    assert_eq!(parsed(&refused)["error"]["status"], "PERMISSION_DENIED");
    assert_eq!(raw::get(addr, "/blue/tasks", &[key, V1]).await.status(), 200);
    assert_eq!(raw::get(addr, "/blue/tasks?A2A-Version=1.0", &[key]).await.status(), 200);
    let refused = raw::get(addr, "/tasks", &[key]).await;
    assert_eq!(refused.status(), 400);
    assert_eq!(parsed(&refused)["error"]["details"][0]["reason"], "VERSION_NOT_SUPPORTED");
}
