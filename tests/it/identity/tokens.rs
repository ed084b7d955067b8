//! Bearer tokens: which are believed.

use std::time::Duration;

use a2ad::auth::Timing;
use a2ad::card::keys::Algorithm;
use a2ad::contract::v1;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use ring::rand::SystemRandom;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::bindings::caller::Caller;
use crate::identity::issuer::{Signer, Url, but, claims, fixed, now, set, trusting, unsigned};
use crate::rig::{TestServer, send, task_of};

/// Asks for a listing with this token.
async fn ask(server: &TestServer, token: &str) -> Result<i32, Status> {
    let mut client = server.client_of(token).await;
    let page = client.list_tasks(v1::ListTasksRequest::default()).await?;
    Ok(page.into_inner().total_size)
}

#[tokio::test]
async fn a_good_token_of_either_kind_is_believed() {
    let (ec, ed) = (Signer::es256("ec"), Signer::new("ed", Algorithm::EdDsa));
    let auth = trusting(fixed(&[ec.jwk(), ed.jwk()]));
    let server = TestServer::with(|server| server.auth(auth)).await;
    let mut ann = server.client_of(&ec.token(&claims("ann"))).await;
    task_of(ann.send_message(send("hello")).await.unwrap());
    // The caller is who the token names, whichever key signed it.
    assert_eq!(ask(&server, &ed.token(&claims("ann"))).await.unwrap(), 1);
    assert_eq!(ask(&server, &ed.token(&claims("bob"))).await.unwrap(), 0);
    let audiences = json!(["other", "a2ad"]);
    assert_eq!(ask(&server, &ec.token(&but(claims("ann"), "aud", audiences))).await.unwrap(), 1);
}

#[tokio::test]
async fn a_token_that_is_not_verified_is_refused_in_one_text() {
    let (good, other) = (Signer::es256("one"), Signer::es256("one"));
    let auth = trusting(fixed(&[good.jwk()]));
    let server = TestServer::with(|server| server.auth(auth)).await;
    let ann = claims("ann");
    let header = |alg: &str| json!({"alg": alg, "kid": "one"});
    let mut texts = Vec::new();
    for (what, token) in [
        ("another key", other.token(&ann)),
        ("an unknown key", Signer::es256("two").token(&ann)),
        ("another issuer", good.token(&but(ann.clone(), "iss", "https://evil.example/"))),
        ("no issuer", good.token(&json!({"sub": "ann"}))),
        ("no signature", format!("{}.", unsigned(&header("none"), &ann))),
        ("a secret", good.with_header(&header("HS256"), &ann)),
        ("another algorithm", good.with_header(&header("EdDSA"), &ann)),
        ("critical", good.with_header(&json!({"alg": "ES256", "kid": "one", "crit": ["x"]}), &ann)),
        ("no token", "eyJhbGciOiJFUzI1NiJ9.e30.x".to_owned()),
        ("something else", "abc".to_owned()),
    ] {
        let status = ask(&server, &token).await.expect_err(what);
        assert_eq!(status.code(), Code::Unauthenticated, "{what}");
        texts.push(status.message().to_owned());
    }
    texts.dedup();
    assert_eq!(texts, ["the token was not accepted"]);
}

/// A token of the RSA key that only tests have, and the key as a set has it.
fn rsa(algorithm: &str, claims: &Value) -> (String, Value) {
    use ring::signature::{RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaKeyPair};
    let pem = include_bytes!("rsa.pem");
    let der = PrivatePkcs8KeyDer::from_pem_slice(pem).unwrap();
    let key = RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).unwrap();
    let public = ring::rsa::PublicKeyComponents::<Vec<u8>>::from(key.public());
    let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let jwk = json!({"kty": "RSA", "kid": "rsa", "n": text(&public.n), "e": text(&public.e)});
    let signed = unsigned(&json!({"alg": algorithm, "kid": "rsa"}), claims);
    let mut signature = vec![0; key.public().modulus_len()];
    if algorithm == "HS256" {
        // What a server would take for a secret that confuses the two.
        let secret = hmac::Key::new(hmac::HMAC_SHA256, jwk["n"].as_str().unwrap().as_bytes());
        signature = hmac::sign(&secret, signed.as_bytes()).as_ref().to_vec();
    } else {
        let how: &dyn ring::signature::RsaEncoding =
            if algorithm == "PS256" { &RSA_PSS_SHA256 } else { &RSA_PKCS1_SHA256 };
        key.sign(how, &SystemRandom::new(), signed.as_bytes(), &mut signature).unwrap();
    }
    (format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)), jwk)
}

#[tokio::test]
async fn a_key_is_for_one_algorithm_and_no_secret() {
    let ann = claims("ann");
    let (_, plain) = rsa("RS256", &ann);
    for (alg, believed) in [(None, "RS256"), (Some("RS256"), "RS256"), (Some("PS256"), "PS256")] {
        let mut jwk = plain.clone();
        if let Some(alg) = alg {
            jwk["alg"] = alg.into();
        }
        let auth = trusting(fixed(&[jwk]));
        let server = TestServer::with(|server| server.auth(auth)).await;
        for algorithm in ["RS256", "PS256", "HS256"] {
            let (token, _) = rsa(algorithm, &ann);
            let asked = ask(&server, &token).await;
            assert_eq!(asked.is_ok(), algorithm == believed, "{alg:?} {algorithm}");
        }
    }
}

#[tokio::test]
async fn every_binding_tells_one_kind_of_fault_in_the_same_words() {
    let signer = Signer::es256("one");
    let auth = trusting(fixed(&[signer.jwk()]));
    let server = TestServer::with(|server| server.auth(auth)).await;
    for (token, text) in [
        (signer.token(&but(claims("ann"), "exp", now() - 60)), "the token has expired"),
        (signer.token(&but(claims("ann"), "aud", "x")), "the token is for another audience"),
        (Signer::es256("one").token(&claims("ann")), "the token was not accepted"),
        (Signer::es256("two").token(&claims("ann")), "the token was not accepted"),
    ] {
        let mut told = Vec::new();
        for mut caller in Caller::all(server.addr(), Some(&token)).await {
            told.push(caller.ask(v1::ListTasksRequest::default()).await.unwrap_err());
            told.push(caller.ask(v1::GetExtendedAgentCardRequest::default()).await.unwrap_err());
        }
        assert!(told.iter().all(|one| one.common.0 == text), "{told:?}");
        assert!(told.windows(2).all(|two| two[0] == two[1]), "{told:?}");
    }
}

#[tokio::test]
async fn a_verified_token_must_be_for_now_and_for_here() {
    let signer = Signer::es256("one");
    let auth = trusting(fixed(&[signer.jwk()]));
    let server = TestServer::with(|server| server.auth(auth)).await;
    let told = async |name: &str, value: Value| {
        let token = signer.token(&but(claims("ann"), name, value));
        ask(&server, &token).await.map_err(|status| status.message().to_owned())
    };
    let (expired, early) = ("the token has expired", "the token is not valid yet");
    for (name, value, text) in [
        ("exp", json!(now() - 60), expired),
        ("exp", json!(0), expired),
        ("nbf", json!(now() + 60), early),
        ("iat", json!(now() + 60), early),
        ("aud", json!("other"), "the token is for another audience"),
        ("aud", json!([]), "the token is for another audience"),
        ("sub", json!(""), "the token names no subject of use here"),
        ("sub", json!("x".repeat(300)), "the token names no subject of use here"),
        ("exp", Value::Null, "the token holds a claim of another type than is expected"),
        ("exp", json!("soon"), "the token holds a claim of another type than is expected"),
    ] {
        assert_eq!(told(name, value.clone()).await, Err(text.to_owned()), "{name} {value}");
    }
    // Clocks are a little apart.
    assert_eq!(told("exp", json!(now() - 2)).await, Ok(0));
    assert_eq!(told("nbf", json!(now() + 2)).await, Ok(0));
}

#[tokio::test]
async fn a_rotated_key_is_read_when_a_token_names_it() {
    let (old, new) = (Signer::es256("old"), Signer::es256("new"));
    let url = Url::telling(Some(set(&[old.jwk()]))).await;
    let timing = Timing { refetch: Duration::ZERO, ..Timing::default() };
    let auth = trusting(url.keys(timing));
    let server = TestServer::with(|server| server.auth(auth)).await;
    assert_eq!(ask(&server, &old.token(&claims("ann"))).await.unwrap(), 0);
    url.tell(Some(set(&[new.jwk()])));
    assert_eq!(ask(&server, &new.token(&claims("ann"))).await.unwrap(), 0);
    // What the issuer has taken back is believed no longer.
    let status = ask(&server, &old.token(&claims("ann"))).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
}

#[tokio::test]
async fn keys_go_on_while_their_url_fails_and_come_back_with_it() {
    let (one, two) = (Signer::es256("one"), Signer::es256("two"));
    let url = Url::telling(None).await;
    let timing = Timing { refetch: Duration::ZERO, ..Timing::default() };
    let auth = trusting(url.keys(timing));
    let server = TestServer::with(|server| server.auth(auth)).await;
    // Nobody can be told from a stranger yet: that is no fault of the caller.
    let status = ask(&server, &one.token(&claims("ann"))).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    url.tell(Some(set(&[one.jwk()])));
    assert_eq!(ask(&server, &one.token(&claims("ann"))).await.unwrap(), 0);
    url.tell(None);
    let status = ask(&server, &two.token(&claims("ann"))).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
    assert_eq!(ask(&server, &one.token(&claims("ann"))).await.unwrap(), 0);
}

#[tokio::test]
async fn strangers_cannot_make_the_server_ask_an_issuer_often() {
    let signer = Signer::es256("one");
    let url = Url::telling(Some(set(&[signer.jwk()]))).await;
    let timing = Timing { refetch: Duration::from_secs(600), ..Timing::default() };
    let auth = trusting(url.keys(timing));
    let server = TestServer::with(|server| server.auth(auth)).await;
    assert_eq!(ask(&server, &signer.token(&claims("ann"))).await.unwrap(), 0);
    for n in 0..20 {
        let token = Signer::es256(&format!("made up {n}")).token(&claims("ann"));
        assert_eq!(ask(&server, &token).await.unwrap_err().code(), Code::Unauthenticated);
    }
    assert_eq!(url.asked(), 1);
}
