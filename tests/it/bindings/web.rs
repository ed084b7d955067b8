//! gRPC-Web: the same service, for callers that have no trailers.

use a2ad::contract::v1;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost::Message as _;

use crate::bindings::V1;
use crate::rig::{TestServer, raw, send};

const SERVICE: &str = "/lf.a2a.v1.A2AService";

/// The frames of a body: the first byte of each, and what it holds.
fn frames(mut body: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut frames = Vec::new();
    while let [flag, a, b, c, d, rest @ ..] = body {
        let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        let (frame, after) = rest.split_at(length);
        frames.push((*flag, frame.to_vec()));
        body = after;
    }
    assert!(body.is_empty(), "half a frame");
    frames
}

#[tokio::test]
async fn a_call_over_http_1_has_its_trailers_in_the_body() {
    let server = TestServer::start().await;
    let body = raw::frame(&send("hello"));
    for (kind, text) in [("application/grpc-web+proto", false), ("application/grpc-web-text", true)]
    {
        let headers = [("content-type", kind), ("accept", kind), V1, ("x-grpc-web", "1")];
        let sent = if text { STANDARD.encode(&body).into() } else { body.clone() };
        let path = format!("{SERVICE}/SendMessage");
        let response = raw::http(server.addr(), "POST", &path, &headers, sent).await;
        assert_eq!(response.status(), 200);
        let told = response.headers()["content-type"].to_str().unwrap();
        assert!(told.starts_with("application/grpc-web"), "{told}");
        let bytes = response.body();
        // Each frame is padded by itself.
        let decoded = || bytes.chunks(4).flat_map(|four| STANDARD.decode(four).unwrap()).collect();
        let bytes: Vec<u8> = if text { decoded() } else { bytes.to_vec() };
        let frames = frames(&bytes);
        assert_eq!(frames.len(), 2, "{frames:?}");
        let answer = v1::SendMessageResponse::decode(frames[0].1.as_slice()).unwrap();
        assert!(answer.payload.is_some());
        assert_eq!(frames[1].0, 0x80);
        assert!(String::from_utf8_lossy(&frames[1].1).contains("grpc-status:0"));
    }
}

#[tokio::test]
async fn errors_have_their_status_and_details() {
    let server = TestServer::start().await;
    let kind = "application/grpc-web+proto";
    let answer = async |path: &str, version: (&str, &str), body| {
        let headers = [("content-type", kind), version];
        raw::http(server.addr(), "POST", &format!("{SERVICE}/{path}"), &headers, body).await
    };
    let get = raw::frame(&v1::GetTaskRequest::default());
    for (path, version, status) in
        [("GetTask", V1, "3"), ("GetTask", ("a2a-version", "0.3"), "9"), ("NoSuch", V1, "12")]
    {
        let response = answer(path, version, get.clone()).await;
        assert_eq!(response.status(), 200, "{path}");
        let in_body = String::from_utf8_lossy(response.body()).into_owned();
        let told = response.headers().get("grpc-status").map(|v| v.to_str().unwrap().to_owned());
        let told = told.unwrap_or(in_body);
        assert!(
            told == status || told.contains(&format!("grpc-status:{status}")),
            "{path}: {told}"
        );
        let kind = response.headers()["content-type"].to_str().unwrap();
        assert!(kind.starts_with("application/grpc-web"), "{kind}");
    }
    let late = [("content-type", kind), V1, ("grpc-timeout", "100m")];
    let path = format!("{SERVICE}/SendMessage");
    let body = raw::frame(&send("slow 60"));
    let response = raw::http(server.addr(), "POST", &path, &late, body).await;
    assert_eq!(response.headers()["grpc-status"], "4");
}
