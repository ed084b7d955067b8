//! Signed cards: made, served, verified by others, and refused when they should be.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use a2ad::card::canonical::Form;
use a2ad::card::jws::{self, Signer, Verdict};
use a2ad::card::keys::{Algorithm, Keys, SigningKey};
use a2ad::card::{self, JWKS_PATH};
use serde_json::{Value, json};

use crate::rig::raw;
use crate::support::program::{Program, command};

fn run(folder: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command(folder, arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

/// A folder with a key of each algorithm.
fn keys() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, algorithm) in [("es.pem", "es256"), ("ed.pem", "eddsa")] {
        let arguments = ["keys", "new", "--card", name, "--algorithm", algorithm];
        let (code, public, _) = run(folder.path(), &arguments);
        assert_eq!(code, Some(0));
        fs::write(folder.path().join(name).with_extension("jwks"), public).unwrap();
    }
    folder
}

const KEYS: &str = "es.pem,ed.pem";

#[test]
fn a_key_is_made_for_its_user_alone_and_never_told() {
    let folder = keys();
    for name in ["es.pem", "ed.pem"] {
        let path = folder.path().join(name);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let text = fs::read_to_string(&path).unwrap();
        let mut keys = Keys::default();
        keys.add(text.as_bytes()).unwrap();
        let inside: String = text.lines().filter(|line| !line.starts_with('-')).collect();
        let printed = format!("{keys:?}{:?}", keys.signing[0]);
        assert!(!printed.contains("signature::") && !printed.contains(&inside), "{printed}");
        let public: Value =
            serde_json::from_slice(&fs::read(path.with_extension("jwks")).unwrap()).unwrap();
        assert!(public["keys"][0].get("d").is_none() && public == keys.to_jwks());
    }
    let (code, _, said) = run(folder.path(), &["keys", "new", "--card", "es.pem"]);
    assert!(code == Some(78) && said.contains("es.pem"), "a file is never overwritten: {said}");
    fs::set_permissions(folder.path().join("es.pem"), fs::Permissions::from_mode(0o644)).unwrap();
    let check = ["check", "--public-url", "https://a.example", "--card-keys", KEYS];
    let (code, said, _) = run(folder.path(), &check);
    assert_eq!(code, Some(0));
    assert!(said.contains("everybody on this machine can read es.pem"), "{said}");
    assert!(said.contains("https://a.example/.well-known/jwks.json"), "{said}");
}

#[test]
fn keys_are_read_in_each_of_their_forms_and_faults_repeat_nothing() {
    let read = |text: &str| {
        let mut keys = Keys::default();
        keys.add(text.as_bytes()).map(|()| (keys.signing.len(), keys.public.len()))
    };
    // RFC 8037, A.1 and RFC 7515, A.3.1.
    let ed = json!({"kty": "OKP", "crv": "Ed25519",
        "d": "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A",
        "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"});
    let ec = json!({"kty": "EC", "crv": "P-256", "kid": "mine", "use": "sig", "alg": "ES256",
        "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
        "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
        "d": "jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI"});
    assert_eq!(read(&ed.to_string()), Ok((1, 1)));
    assert_eq!(read(&json!({ "keys": [ed, ec] }).to_string()), Ok((2, 2)));
    let without = |of: &Value, name: &str| {
        let mut jwk = of.clone();
        jwk.as_object_mut().unwrap().remove(name);
        jwk
    };
    assert_eq!(read(&without(&ec, "d").to_string()), Ok((0, 1)), "published alone");

    let mut thumb = Keys::default();
    thumb.add(ed.to_string().as_bytes()).unwrap();
    let of_the_rfc = "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k";
    assert_eq!(thumb.public[0].kid(), of_the_rfc, "RFC 8037, A.3");

    let with = |of: &Value, name: &str, value: &str| {
        let mut jwk = of.clone();
        jwk[name] = value.into();
        jwk.to_string()
    };
    for (text, words) in [
        (with(&ec, "alg", "RS256"), "alg: must be ES256"),
        (with(&ec, "crv", "P-384"), "kty and crv: must be"),
        (with(&ec, "use", "enc"), "use: must be sig"),
        (with(&ec, "x", "AA"), "x: must be 32 bytes"),
        (with(&ec, "d", ed["d"].as_str().unwrap()), "d: does not belong"),
        (with(&ed, "d", ec["d"].as_str().unwrap()), "d: does not belong"),
        (json!({ "keys": [ec, ec] }).to_string(), "keys[1].kid: two keys are called mine"),
        ("{\"kty\": s3cret}".to_owned(), "is not JSON: line 1"),
        ("s3cret".to_owned(), "must be an EC P-256 or Ed25519"),
        ("-----BEGIN PRIVATE KEY-----\ns3cret\n-----END PRIVATE KEY-----".to_owned(), "must be"),
    ] {
        let said = read(&text).unwrap_err();
        assert!(said.contains(words), "{words} is not in {said}");
        assert!(!said.contains("s3cret") && !said.contains("nWGxne") && !said.contains("jpsQnn"));
    }
}

#[test]
fn the_examples_of_the_standards_verify() {
    // RFC 8037, A.4 and RFC 7515, A.3.1: a payload, and who signed it how.
    let mut keys = Keys::default();
    let set = json!({"keys": [
        {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"},
        {"kty": "EC", "crv": "P-256", "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
            "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]});
    keys.add(set.to_string().as_bytes()).unwrap();
    use base64::Engine;
    let decode =
        |text: &str| base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(text).unwrap();
    let ed = decode(
        "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg",
    );
    let message = b"eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc";
    assert!(keys.public[0].verifies(message, &ed) && !keys.public[1].verifies(message, &ed));
    assert!(!keys.public[0].verifies(b"x", &ed));
    let es = decode(
        "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q",
    );
    let message = b"eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    assert!(keys.public[1].verifies(message, &es) && !keys.public[0].verifies(message, &es));
}

fn python(url: &str, sdk: &str) -> String {
    let package = |path: &str| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path);
    let python = package("target/interop/venv/bin/python");
    assert!(python.exists(), "{} is missing: run `make setup`", python.display());
    let output = Command::new(python)
        .arg(package("tests/interop/python/signed_card.py"))
        .args([url, sdk])
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A settings file with an API key, so that the card names schemes without scopes.
fn with_callers(folder: &Path) {
    let hash = "a43aaf1c4077defac5846640ff6ba8ad2281985477607e71ad8ea01b792149ac";
    let text = format!("[[api_keys]]\nname = \"ann\"\nsha256 = \"{hash}\"\n");
    fs::write(folder.join("a2ad.toml"), text).unwrap();
}

#[test]
fn the_python_sdk_and_plain_cryptography_verify_what_is_served() {
    let folder = keys();
    let public = ["--public-url", "https://a2a.example", "--card-keys", KEYS];
    let program = Program::serve(folder.path(), &public);
    assert_eq!(python(&program.url(), "good").trim(), "2 signatures");
    drop(program);

    // The SDK leaves out what the protocol keeps, so it needs signatures of its own form.
    with_callers(folder.path());
    let callers = ["--config", "a2ad.toml", "--auth", "api-key"];
    let program = Program::serve(folder.path(), &[&public[..], &callers].concat());
    assert_eq!(python(&program.url(), "good").trim(), "4 signatures");
    drop(program);
    let strict = ["--card-forms", "protocol"];
    let program = Program::serve(folder.path(), &[&public[..], &callers, &strict].concat());
    assert_eq!(python(&program.url(), "bad").trim(), "2 signatures");
}

#[tokio::test]
async fn a_signed_card_has_one_tag_on_every_server_and_its_keys_beside_it() {
    let folder = keys();
    let arguments = ["--public-url", "https://a2a.example", "--card-keys", KEYS];
    let mut cards = Vec::new();
    for _ in 0..2 {
        let program = Program::serve(folder.path(), &arguments);
        let card = raw::get(program.address(), card::PATH, &[]).await;
        let keys = raw::get(program.address(), JWKS_PATH, &[]).await;
        assert_eq!(keys.headers()["content-type"], "application/jwk-set+json");
        let tag = keys.headers()["etag"].to_str().unwrap();
        let again = raw::get(program.address(), JWKS_PATH, &[("if-none-match", tag)]).await;
        assert_eq!(again.status(), 304);
        let mut known = Keys::default();
        known.add(keys.body()).unwrap();
        assert!(known.signing.is_empty() && known.public.len() == 2);
        let value: Value = serde_json::from_slice(card.body()).unwrap();
        let verdicts = jws::verify(&value, &known.public).unwrap();
        let good =
            |verdict: &Verdict| matches!(verdict, Verdict::Good { form: Form::Protocol, .. });
        assert!(verdicts.len() == 2 && verdicts.iter().all(good), "{verdicts:?}");
        cards.push(card);
    }
    assert_ne!(cards[0].body(), cards[1].body(), "ES256 is random");
    let tag = cards[0].headers()["etag"].to_str().unwrap();
    assert!(tag.starts_with("W/") && cards[1].headers()["etag"] == tag);

    let folder = tempfile::tempdir().unwrap();
    let program = Program::serve(folder.path(), &[]);
    assert_eq!(raw::get(program.address(), JWKS_PATH, &[]).await.status(), 404, "without keys");
}

#[test]
fn cards_are_signed_and_verified_by_hand() {
    let folder = keys();
    let at = folder.path();
    let (code, shown, _) = run(at, &["card", "show", "--public-url", "https://a2a.example"]);
    assert_eq!(code, Some(0));
    fs::write(at.join("shown.json"), &shown).unwrap();
    let (code, signed, said) = run(at, &["card", "sign", "shown.json", "--keys", KEYS]);
    assert_eq!(code, Some(0), "{said}");
    fs::write(at.join("signed.json"), &signed).unwrap();
    let verify = |card: &str, keys: &str| run(at, &["card", "verify", card, "--keys", keys]);
    let (code, said, _) = verify("signed.json", "es.jwks,ed.jwks");
    assert_eq!((code, said.matches(": good, by the key").count()), (Some(0), 2), "{said}");
    let (code, said, _) = verify("signed.json", "ed.jwks");
    assert_eq!(code, Some(0), "one is enough");
    assert!(said.contains("signatures[0]: bad: kid: the key"), "{said}");
    let (code, _, said) = verify("shown.json", "ed.jwks");
    assert!(code == Some(78) && said.contains("has no signatures"), "{said}");

    let mut card: Value = serde_json::from_str(&signed).unwrap();
    card["skills"][0]["name"] = "other".into();
    fs::write(at.join("changed.json"), card.to_string()).unwrap();
    let (code, said, _) = verify("changed.json", "es.jwks,ed.jwks");
    assert_eq!((code, said.matches(": bad: it is not the signature").count()), (Some(1), 2));

    // The server keeps signatures that were made elsewhere, if the card is what it would tell.
    let serves =
        |arguments: &[&str]| run(at, &[&["check", "--card", "signed.json"], arguments].concat());
    let (code, _, said) = serves(&["--public-url", "https://a2a.example"]);
    assert_eq!(code, Some(0), "{said}");
    let (code, _, said) = serves(&["--public-url", "https://b.example"]);
    assert_eq!(code, Some(78));
    assert!(said.contains("--card: signatures: they cover another card"), "{said}");
}

#[test]
fn what_should_not_be_signed_is_refused() {
    let folder = keys();
    let check = |arguments: &[&str]| {
        let (code, _, said) = run(folder.path(), &[&["check"][..], arguments].concat());
        assert_eq!(code, Some(78), "{arguments:?}");
        said
    };
    let keys = ["--card-keys", "es.pem"];
    let said = check(&[&keys[..], &["--listen", "0.0.0.0:1", "--insecure"]].concat());
    assert!(said.contains("--card-keys: needs --public-url"), "{said}");
    let said = check(&["--card-keys", "es.jwks"]);
    assert!(said.contains("none of the files holds a private key"), "{said}");
    let said = check(&["--card-keys", "es.pem,es.pem"]);
    assert!(said.contains("kid: two keys are called"), "{said}");
    let said = check(&["--card-jku", "http://x.example/keys"]);
    assert!(said.contains("--card-jku: needs --card-keys"), "{said}");
    assert!(said.contains("--card-jku: must begin with https://"), "{said}");

    let mut empty = a2ad::contract::v1::AgentCard::default();
    let (key, _) = SigningKey::generate(Algorithm::EdDsa).unwrap();
    let keys = Keys { public: vec![key.public().clone()], signing: vec![key] };
    let refused = Signer { keys, ..Signer::default() }.sign(&mut empty).unwrap_err();
    assert!(refused.iter().any(|problem| problem.starts_with("skills: ")), "{refused:?}");
    assert!(empty.signatures.is_empty());
}

#[test]
fn a_signature_is_held_to_its_key_and_not_to_its_word() {
    let (key, _) = SigningKey::generate(Algorithm::EdDsa).unwrap();
    let keys = [key.public().clone()];
    use base64::Engine;
    let encode = |text: &str| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text);
    let payload = encode(r#"{"name":"a"}"#);
    let kid = key.public().kid();
    let verdict = |header: Value, by: Option<&str>| {
        let protected = encode(&header.to_string());
        let signature = key.sign(format!("{protected}.{payload}").as_bytes()).unwrap();
        let signature = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(signature);
        let signature = by.map_or(signature, str::to_owned);
        let card = json!({ "name": "a", "signatures": [{ "protected": protected, "signature": signature }] });
        match jws::verify(&card, &keys).unwrap().remove(0) {
            Verdict::Good { .. } => "good".to_owned(),
            Verdict::Bad(why) => why,
        }
    };
    assert_eq!(verdict(json!({ "alg": "EdDSA", "kid": kid }), None), "good");
    for (header, words) in [
        (json!({ "alg": "none", "kid": kid }), "alg: \"none\" is not what"),
        (json!({ "alg": "HS256", "kid": kid }), "alg: \"HS256\" is not what"),
        (json!({ "alg": "ES256", "kid": kid }), "alg: \"ES256\" is not what"),
        (json!({ "alg": "EdDSA", "kid": "other" }), "kid: the key \"other\" is not known"),
        (json!({ "alg": "EdDSA" }), "must hold alg and kid"),
        (json!([]), "must hold alg and kid"),
        (json!({ "alg": "EdDSA", "kid": kid, "crit": ["b64"], "b64": false }), "crit names"),
    ] {
        let said = verdict(header, None);
        assert!(said.contains(words), "{words} is not in {said}");
    }
    let good = json!({ "alg": "EdDSA", "kid": kid });
    for bad in ["", "AA", "*", &"A".repeat(86)] {
        assert_ne!(verdict(good.clone(), Some(bad)), "good", "{bad}");
    }
}
