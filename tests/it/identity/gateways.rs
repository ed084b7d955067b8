//! Identity that a gateway says in a header, and who is believed about it.

use a2ad::auth::{
    ApiKey, ApiKeys, Auth, Certificates, Gateway, Holder, Issuer, Jwt, Mode, tenants,
};
use a2ad::contract::v1;
use base64::Engine;
use base64::engine::general_purpose::{URL_SAFE, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use tonic::{Code, Request, Status};

use crate::identity::issuer::{Signer, but, claims, fixed, now, rules};
use crate::rig::TestServer;

const PAYLOAD: &str = "x-jwt-payload";
const XFCC: &str = "x-forwarded-client-cert";

fn gateway(peers: &[&str]) -> Gateway {
    let blue = tenants(&["blue".to_owned()]).unwrap();
    Gateway {
        peers: peers.iter().map(|peer| peer.parse().unwrap()).collect(),
        payload: Some(PAYLOAD.parse().unwrap()),
        rules: vec![rules()],
        certificates: Some(Certificates::new(vec![Holder::new(
            "spiffe://mesh/*",
            blue,
            [].into(),
        )])),
    }
}

async fn behind(peers: &[&str]) -> TestServer {
    let auth = Auth::of(vec![Mode::Gateway(gateway(peers))]);
    TestServer::with(|server| server.auth(auth)).await
}

fn payload(claims: &Value) -> String {
    URL_SAFE_NO_PAD.encode(claims.to_string())
}

/// Lists the tasks of a tenant, with these headers.
async fn ask(
    server: &TestServer,
    tenant: &str,
    headers: &[(&'static str, &str)],
) -> Result<(), Status> {
    let tenant = tenant.to_owned();
    let mut request = Request::new(v1::ListTasksRequest { tenant, ..Default::default() });
    for (name, value) in headers {
        request.metadata_mut().append(*name, value.parse().unwrap());
    }
    server.client().await.list_tasks(request).await.map(|_page| ())
}

#[tokio::test]
async fn a_listed_gateway_is_believed() {
    let server = behind(&["loopback"]).await;
    let ann = claims("ann");
    ask(&server, "", &[(PAYLOAD, &payload(&ann))]).await.unwrap();
    ask(&server, "", &[(PAYLOAD, &URL_SAFE.encode(ann.to_string()))]).await.unwrap();
    let red = payload(&but(ann.clone(), "tenants", json!(["red"])));
    ask(&server, "red", &[(PAYLOAD, &red)]).await.unwrap();
    assert_eq!(
        ask(&server, "", &[(PAYLOAD, &red)]).await.unwrap_err().code(),
        Code::PermissionDenied
    );
    ask(&server, "blue", &[(XFCC, "Hash=ab;URI=spiffe://mesh/ann")]).await.unwrap();
}

#[tokio::test]
async fn a_gateway_that_is_not_listed_is_nobody() {
    let server = behind(&["10.0.0.0/8"]).await;
    let ann = payload(&claims("ann"));
    let nothing = ask(&server, "", &[]).await.unwrap_err();
    for forged in [
        &[(PAYLOAD, ann.as_str())][..],
        &[(XFCC, "URI=spiffe://mesh/ann")],
        &[(PAYLOAD, &ann), (PAYLOAD, &ann)],
    ] {
        let status = ask(&server, "", forged).await.unwrap_err();
        // It is told what somebody without any credential is told.
        assert_eq!((status.code(), status.message()), (Code::Unauthenticated, nothing.message()));
    }
}

#[tokio::test]
async fn what_a_gateway_says_is_held_to_the_rules_of_its_issuer() {
    let server = behind(&["loopback"]).await;
    let ann = claims("ann");
    for (claims, text) in [
        (but(ann.clone(), "exp", now() - 60), "the token has expired"),
        (but(ann.clone(), "nbf", now() + 60), "the token is not valid yet"),
        (but(ann.clone(), "aud", "other"), "the token is for another audience"),
        (but(ann.clone(), "iss", "https://evil.example/"), "the token was not accepted"),
        (json!({}), "the token was not accepted"),
        (json!("ann"), "the token was not accepted"),
    ] {
        let status = ask(&server, "", &[(PAYLOAD, &payload(&claims))]).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::Unauthenticated, text), "{claims}");
    }
    let stranger = ask(&server, "", &[(XFCC, "URI=spiffe://other/ann")]).await.unwrap_err();
    assert_eq!(stranger.message(), "the holder of the certificate is not known here");
}

#[tokio::test]
async fn headers_that_stand_twice_prove_nothing() {
    let server = behind(&["loopback"]).await;
    let ann = payload(&claims("ann"));
    for twice in [
        &[(PAYLOAD, ann.as_str()), (PAYLOAD, &ann)],
        &[(XFCC, "URI=spiffe://mesh/ann"), (XFCC, "URI=spiffe://mesh/ann")],
    ] {
        let status = ask(&server, "blue", twice).await.unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated);
        assert!(status.message().ends_with("once"), "{}", status.message());
    }
}

#[tokio::test]
async fn the_first_mode_that_finds_its_credential_decides() {
    let signer = Signer::es256("one");
    let issuer = Issuer { rules: rules(), keys: fixed(&[signer.jwk()]), discovery: None };
    let key = ApiKey::new("ann", ApiKey::hash("a-key"), &[]).unwrap();
    let auth = Auth::of(vec![
        Mode::Gateway(gateway(&["loopback"])),
        Mode::Jwt(Jwt::new(vec![issuer]).unwrap()),
        Mode::ApiKeys(ApiKeys::new(vec![key]).unwrap()),
    ]);
    let server = TestServer::with(|server| server.auth(auth)).await;
    let good = format!("Bearer {}", signer.token(&claims("ann")));
    let bad = format!("Bearer {}", Signer::es256("one").token(&claims("ann")));
    for fine in [
        &[("authorization", good.as_str())][..],
        &[("authorization", "Bearer a-key")],
        &[("x-api-key", "a-key")],
        &[("authorization", &good), ("x-api-key", "wrong")],
    ] {
        ask(&server, "", fine).await.unwrap();
    }
    // A credential that is bad is not made good by another one behind it.
    for wrong in [
        &[("authorization", bad.as_str()), ("x-api-key", "a-key")][..],
        &[("authorization", "Bearer b-key"), ("x-api-key", "a-key")],
        &[(PAYLOAD, "x"), ("authorization", &good)],
        &[("authorization", &good), ("authorization", &good)],
        &[],
    ] {
        let status = ask(&server, "", wrong).await.unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated, "{wrong:?}");
    }
}
