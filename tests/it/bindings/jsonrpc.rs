//! JSON-RPC by hand: envelopes, ids, and what is refused.

use serde_json::{Value, json};

use crate::bindings::{JSON, V1, message, parsed, post, rpc};
use crate::rig::{ANN, TestServer, raw, two_callers};

#[tokio::test]
async fn a_task_is_sent_read_listed_and_canceled() {
    let server = TestServer::start().await;
    let addr = server.addr();
    let sent = rpc(addr, "SendMessage", &json!({"message": message("hello")})).await;
    assert_eq!(sent["jsonrpc"], "2.0");
    assert_eq!(sent["id"], 1);
    let task = &sent["result"]["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
    let read = rpc(addr, "GetTask", &json!({"id": task["id"]})).await;
    assert_eq!(&read["result"], task);
    let listed = rpc(addr, "ListTasks", &json!({})).await;
    assert_eq!(listed["result"]["tasks"][0]["id"], task["id"]);
    assert_eq!(listed["result"]["totalSize"], 1);
    assert_eq!(listed["result"]["nextPageToken"], "");
    assert_eq!(listed["result"]["tasks"][0].get("artifacts"), None);
    let canceled = rpc(addr, "CancelTask", &json!({"id": task["id"]})).await;
    assert_eq!(canceled["error"]["code"], -32002);
    let data = &canceled["error"]["data"][0];
    assert_eq!(data["@type"], "type.googleapis.com/google.rpc.ErrorInfo");
    assert_eq!(data["reason"], "TASK_NOT_CANCELABLE");
    assert_eq!(data["metadata"]["state"], "TASK_STATE_COMPLETED");
}

#[tokio::test]
async fn an_id_goes_back_as_it_came() {
    let server = TestServer::start().await;
    let addr = server.addr();
    for id in [
        r#""a""#,
        r#""""#,
        "1",
        "0",
        "-7",
        "1.50",
        "1e3",
        "null",
        "12345678901234567890123",
        r#""\u00e9\n""#,
    ] {
        let body = format!(r#"{{"method":"ListTasks","id": {id} ,"jsonrpc":"2.0"}}"#);
        let response = post(addr, body).await;
        let text = String::from_utf8(response.body().to_vec()).unwrap();
        assert!(text.starts_with(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"#)), "{text}");
    }
    let long = "x".repeat(2000);
    for id in ["{}", "[]", "true", "[1]", &format!("\"{long}\"")] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ListTasks"}}"#);
        let answer = parsed(&post(addr, body).await);
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&Value::Null, &json!(-32600)));
    }
}

#[tokio::test]
async fn a_notification_is_done_and_not_answered() {
    let server = TestServer::start().await;
    let addr = server.addr();
    for params in [json!({"message": message("hello")}), json!({"message": {}})] {
        let body = json!({"jsonrpc": "2.0", "method": "SendMessage", "params": params});
        let response = post(addr, body.to_string()).await;
        assert_eq!(response.status(), 204);
        assert!(response.body().is_empty());
    }
    let body = json!({"jsonrpc": "2.0", "method": "NoSuch"});
    assert_eq!(post(addr, body.to_string()).await.status(), 204);
    let listed = rpc(addr, "ListTasks", &json!({})).await;
    assert_eq!(listed["result"]["totalSize"], 1);
}

#[tokio::test]
async fn what_is_no_request_is_refused_by_its_code() {
    let server = TestServer::start().await;
    let addr = server.addr();
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "ListTasks"}).to_string();
    let many = format!("[{call}]");
    for (body, code, id) in [
        ("", -32700, Value::Null),
        ("{", -32700, Value::Null),
        ("[1,", -32700, Value::Null),
        (r#"{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":}}"#, -32700, Value::Null),
        (&many, -32600, Value::Null),
        ("[]", -32600, Value::Null),
        ("7", -32600, Value::Null),
        (r#"["2.0",1,"ListTasks",{}]"#, -32600, Value::Null),
        (r#"{"id":"x"}"#, -32600, json!("x")),
        (r#"{"id":"x","method":"ListTasks"}"#, -32600, json!("x")),
        (r#"{"jsonrpc":"1.0","id":"x","method":"ListTasks"}"#, -32600, json!("x")),
        (r#"{"jsonrpc":2.0,"id":"x","method":"ListTasks"}"#, -32600, json!("x")),
        (r#"{"jsonrpc":"2.0","id":"x","method":7}"#, -32600, json!("x")),
        (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ListTasks"}"#, -32600, Value::Null),
        (r#"{"jsonrpc":"2.0","id":"x","method":"NoSuch"}"#, -32601, json!("x")),
        (r#"{"jsonrpc":"2.0","id":"x","method":"message/send"}"#, -32601, json!("x")),
        (r#"{"jsonrpc":"2.0","id":"x","method":"listTasks"}"#, -32601, json!("x")),
        (r#"{"jsonrpc":"2.0","id":"x","method":"ListTasks","params":[]}"#, -32602, json!("x")),
        (r#"{"jsonrpc":"2.0","id":"x","method":"ListTasks","params":1}"#, -32602, json!("x")),
        (
            r#"{"jsonrpc":"2.0","id":"x","method":"ListTasks","params":{"pageSize":"x"}}"#,
            -32602,
            json!("x"),
        ),
    ] {
        let response = post(addr, body.to_owned()).await;
        assert_eq!(response.status(), 200);
        let answer = parsed(&response);
        assert_eq!((&answer["error"]["code"], &answer["id"]), (&json!(code), &id), "{body}");
        let members: Vec<_> = answer["error"].as_object().unwrap().keys().collect();
        assert_eq!(members, ["code", "data", "message"], "{body}");
    }
    let not_utf8 = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}".to_vec();
    assert_eq!(parsed(&post(addr, not_utf8).await)["error"]["code"], -32700);
}

#[tokio::test]
async fn parameters_may_be_left_out_and_slashes_doubled() {
    let server = TestServer::start().await;
    for body in [
        r#"{"jsonrpc":"2.0","id":1,"method":"ListTasks"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":null}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{},"more":[{}]}"#,
        r#"  {"jsonrpc":"2.0","id":1,"method":"List\u0054asks","params": {"page_size":3}}  "#,
    ] {
        for path in ["/", "//", "/?A2A-Version=1.0"] {
            let response = raw::http(server.addr(), "POST", path, &[JSON, V1], body).await;
            assert!(parsed(&response)["result"]["tasks"].is_array(), "{body}: {response:?}");
        }
    }
}

#[tokio::test]
async fn types_and_versions_are_held_to_and_ids_kept() {
    let server = TestServer::start().await;
    let addr = server.addr();
    let body = r#"{"jsonrpc":"2.0","id":"x","method":"ListTasks"}"#;
    let answer = async |headers: &[(&str, &str)]| {
        let response = raw::http(addr, "POST", "/", headers, body).await;
        assert_eq!(response.status(), 200);
        let answer = parsed(&response);
        (answer["error"]["code"].as_i64(), answer["id"].clone())
    };
    let x = json!("x");
    for kind in ["application/json; charset=utf-8", "application/a2a+json", "APPLICATION/JSON"] {
        assert_eq!(answer(&[("content-type", kind), V1]).await, (None, x.clone()), "{kind}");
    }
    assert_eq!(answer(&[V1]).await, (None, x.clone()));
    assert_eq!(answer(&[("content-type", "text/plain"), V1]).await, (Some(-32005), Value::Null));
    assert_eq!(answer(&[JSON]).await, (Some(-32009), x.clone()), "no version is 0.3");
    assert_eq!(answer(&[JSON, ("a2a-version", "0.3")]).await, (Some(-32009), x));
}

#[tokio::test]
async fn only_post_is_asked_for() {
    let server = TestServer::start().await;
    for method in ["GET", "HEAD", "PUT", "DELETE"] {
        let response = raw::http(server.addr(), method, "/", &[V1], "").await;
        assert_eq!(response.status(), 405, "{method}");
        assert_eq!(response.headers()["allow"], "POST, OPTIONS");
        if method != "HEAD" {
            assert_eq!(parsed(&response)["error"]["code"], 405);
        }
    }
    let response = raw::http(server.addr(), "OPTIONS", "/", &[], "").await;
    assert_eq!(
        (response.status().as_u16(), &response.headers()["allow"]),
        (204, &"POST, OPTIONS".parse().unwrap())
    );
}

#[tokio::test]
async fn a_stranger_is_told_by_status_and_code() {
    let server = TestServer::with(|server| server.auth(two_callers())).await;
    let call = |tenant: &str| {
        let params = json!({"tenant": tenant});
        json!({"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": params}).to_string()
    };
    let bearer = format!("Bearer {ANN}");
    let response = post(server.addr(), call("")).await;
    assert_eq!(response.status(), 401);
    assert!(response.headers()["www-authenticate"].to_str().unwrap().starts_with("Bearer"));
    assert_eq!(parsed(&response)["error"]["code"], -31401);
    let as_ann = [JSON, V1, ("authorization", bearer.as_str())];
    let response = raw::http(server.addr(), "POST", "/", &as_ann, call("red")).await;
    assert_eq!(response.status(), 403);
    assert_eq!(parsed(&response)["error"]["code"], -31403);
    assert_eq!(parsed(&response)["id"], 1);
    let response = raw::http(server.addr(), "POST", "/", &as_ann, call("blue")).await;
    assert_eq!(response.status(), 200);
}
