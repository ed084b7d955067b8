//! The real program with a settings file: tokens, and what its log says of them.

use std::fs;

use a2ad::contract::v1;
use tonic::Code;

use a2ad::client::Connect;

use crate::identity::issuer::{Signer, but, claims, now, set};
use crate::rig::raw;
use crate::support::program::{Program, command};

const SETTINGS: &str = r#"
[[jwt]]
issuer = "https://issuer.example/"
audiences = ["a2ad"]
jwks = "jwks.json"
tenants = ["blue"]

[scopes]
send = "tasks:send"
"#;

async fn list(program: &Program, token: &str, tenant: &str) -> Result<(), Code> {
    let mut client = Connect::to(program.url()).bearer(token).unwrap().connect().await.unwrap();
    let request = v1::ListTasksRequest { tenant: tenant.to_owned(), ..Default::default() };
    client.list_tasks(request).await.map(|_page| ()).map_err(|status| status.code())
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_and_denials_are_noted_without_any_credential() {
    let folder = tempfile::tempdir().unwrap();
    let signer = Signer::es256("one");
    fs::write(folder.path().join("a2ad.toml"), SETTINGS).unwrap();
    fs::write(folder.path().join("jwks.json"), set(&[signer.jwk()]).to_string()).unwrap();
    let program = Program::serve(folder.path(), &["--auth", "jwt", "--config", "a2ad.toml"]);
    let good = signer.token(&claims("ann"));
    let expired = signer.token(&but(claims("ann"), "exp", now() - 3600));
    let forged = Signer::es256("one").token(&claims("ann"));
    assert_eq!(list(&program, &good, "blue").await, Ok(()));
    assert_eq!(list(&program, &good, "red").await, Err(Code::PermissionDenied));
    assert_eq!(list(&program, &expired, "blue").await, Err(Code::Unauthenticated));
    assert_eq!(list(&program, &forged, "blue").await, Err(Code::Unauthenticated));
    let mut client = Connect::to(program.url()).bearer(&good).unwrap().connect().await.unwrap();
    let refused = client.send_message(crate::rig::send("hello")).await.unwrap_err();
    assert_eq!(refused.message(), "this operation needs the scope tasks:send");

    let output = program.output();
    let audit: Vec<_> = output.lines().filter(|line| line.contains("event=")).collect();
    assert_eq!(audit.len(), 4, "{output}");
    for (line, words) in audit.iter().zip([
        &["denied", "forbidden", "https://issuer.example/|ann", "ListTasks", "127.0.0.1:"][..],
        &["unauthenticated", "jwt", "expired", "ListTasks", "127.0.0.1:"],
        &["unauthenticated", "jwt", "bad_signature", "ListTasks"],
        &["denied", "scope_missing", "https://issuer.example/|ann", "SendMessage"],
    ]) {
        assert!(words.iter().all(|word| line.contains(word)), "{words:?} in {line}");
    }
    for token in [&good, &expired, &forged] {
        for part in token.split('.') {
            assert!(!output.contains(part), "part of a token in the log");
        }
    }
}

#[test]
fn settings_of_identity_that_cannot_work_are_refused_together() {
    let folder = tempfile::tempdir().unwrap();
    let settings = r#"
        [[jwt]]
        issuer = "https://a|b"
        audiences = ["a2ad"]
        jwks = "jwks.json"

        [[jwt]]
        issuer = "https://one.example/"
        audiences = []
        jwks = "jwks.json"

        [[jwt]]
        issuer = "https://two.example/"
        audiences = ["a2ad"]
        jwks = "http://two.example/jwks.json"

        [[jwt]]
        issuer = "https://three.example/"
        audiences = ["a2ad"]
        jwks = "https://three.example/jwks.json"
        algorithms = ["HS256"]

        [[jwt]]
        issuer = "https://four.example/"
        audiences = ["a2ad"]
        jwks = "missing.json"

        [gateway]
        peers = ["0.0.0.0/0"]

        [scopes]
        read = "two words"
    "#;
    fs::write(folder.path().join("a2ad.toml"), settings).unwrap();
    let arguments = ["check", "--auth", "jwt,gateway,mtls,jwt", "--config", "a2ad.toml"];
    let output = command(folder.path(), &arguments).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    for words in [
        "--auth: jwt stands there twice",
        "--auth mtls: needs --tls-client-ca",
        "must have 1 to 200 bytes and no |",
        "audiences: name at least one",
        "jwks: must begin with https://",
        "algorithms: \"HS256\" is none of ES256, ES384, RS256, PS256, EdDSA",
        "missing.json cannot be read",
        "0.0.0.0/0 is everybody",
        "scopes.read: \"two words\" is no scope",
    ] {
        assert!(said.contains(words), "{words} is not in: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_extended_card_is_that_of_the_callers_scope() {
    let folder = tempfile::tempdir().unwrap();
    let signer = Signer::es256("one");
    let card = |name: &str| {
        let mut card = a2ad::agent::Agent::card(&a2ad::agent::demo::Demo);
        name.clone_into(&mut card.name);
        a2ad::contract::json::to_value(&card).unwrap().to_string()
    };
    for name in ["all", "staff"] {
        fs::write(folder.path().join(format!("{name}.json")), card(name)).unwrap();
    }
    let settings = r#"
        [[jwt]]
        issuer = "https://issuer.example/"
        audiences = ["a2ad"]
        jwks = "jwks.json"

        [[extended_card]]
        scope = "staff"
        card = "staff.json"
    "#;
    fs::write(folder.path().join("a2ad.toml"), settings).unwrap();
    fs::write(folder.path().join("jwks.json"), set(&[signer.jwk()]).to_string()).unwrap();
    let arguments = ["--auth", "jwt", "--config", "a2ad.toml", "--extended-card", "all.json"];
    let program = Program::serve(folder.path(), &arguments);
    for (scopes, name) in [("", "all"), ("tasks:read staff", "staff"), ("staffing", "all")] {
        let token = signer.token(&but(claims("ann"), "scope", scopes));
        let headers = [("a2a-version", "1.0"), ("authorization", &format!("Bearer {token}"))];
        let told = raw::get(program.address(), "/extendedAgentCard", &headers).await;
        let card: serde_json::Value = serde_json::from_slice(told.body()).unwrap();
        assert_eq!(card["name"], name, "{scopes}");
        assert_eq!(card["securitySchemes"]["jwt"]["httpAuthSecurityScheme"]["bearerFormat"], "JWT");
        let of = |name: &str| told.headers()[name].to_str().unwrap();
        assert_eq!(of("cache-control"), "private, no-cache");
        assert!(of("vary").contains("authorization"));
    }
}
