//! The agent card: from a file, completed, cached, and what it steers.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use a2ad::agent::Agent;
use a2ad::agent::demo::Demo;
use a2ad::card;
use a2ad::config::Cards;
use a2ad::contract::v1;
use bytes::Bytes;
use http::{Request, Response};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tonic::Code;

use crate::rig::{ANN, TestServer, raw, two_callers};
use crate::support::program::command;

const DOCUMENT: &str = include_str!("../../docs/card.md");

/// The card of `docs/card.md`.
fn example() -> &'static str {
    DOCUMENT.split("```toml\n").nth(1).unwrap().split("```").next().unwrap()
}

fn read(text: &str) -> v1::AgentCard {
    card::read::from_file(Path::new("card.toml"), text.as_bytes()).unwrap()
}

fn public(card: v1::AgentCard) -> Cards {
    Cards { public: Some(card), ..Cards::default() }
}

async fn served(server: SocketAddr) -> Value {
    let response = raw::get(server, card::PATH, &[]).await;
    assert_eq!(response.status(), 200);
    serde_json::from_slice(response.body()).unwrap()
}

/// What `a2ad check` says of a card in a file of this name.
fn complaints(name: &str, text: &str, more: &[&str]) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(name), text).unwrap();
    let arguments = [&["check", "--card", name][..], more].concat();
    let output = command(folder.path(), &arguments).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[tokio::test]
async fn a_card_from_a_file_is_served_with_what_the_server_knows() {
    let server = TestServer::with(|server| {
        let cards = public(read(example()));
        server.cards(cards).public_address(Some("https://a2a.example/recipes".to_owned()))
    })
    .await;
    let card = served(server.addr()).await;
    assert_eq!(card["name"], "Recipe agent");
    assert_eq!(card["documentationUrl"], "https://recipes.example/docs");
    assert_eq!(card["skills"][0]["tags"], json!(["cooking", "search"]));
    assert_eq!(card["capabilities"]["extendedAgentCard"], false);
    let extension = &card["capabilities"]["extensions"][0];
    assert_eq!(extension["uri"], "https://recipes.example/ext/units/v1");
    for interface in card["supportedInterfaces"].as_array().unwrap() {
        let url = match interface["protocolBinding"].as_str().unwrap() {
            "GRPC" => "a2a.example:443",
            _ => "https://a2a.example/recipes",
        };
        assert_eq!(
            (&interface["url"], &interface["protocolVersion"]),
            (&json!(url), &json!("1.0"))
        );
    }
    assert!(card.get("signatures").is_none());
}

#[tokio::test]
async fn interfaces_come_from_the_settings_before_the_file_before_the_socket() {
    let named = |url: &str, tenant: &str| v1::AgentInterface {
        url: url.to_owned(),
        protocol_binding: "GRPC".to_owned(),
        protocol_version: "1.0".to_owned(),
        tenant: tenant.to_owned(),
    };
    let of_file =
        v1::AgentCard { supported_interfaces: vec![named("file.example:1", "")], ..Demo.card() };
    let urls = async |server: TestServer| {
        let card = served(server.addr()).await;
        let interfaces = card["supportedInterfaces"].as_array().unwrap().clone();
        let of = |one: &Value| (one["url"].clone(), one["tenant"].clone());
        interfaces.iter().map(of).collect::<Vec<_>>()
    };

    let from_file =
        TestServer::with(|server| server.cards(public(of_file.clone())).listen(([0, 0, 0, 0], 0)));
    assert_eq!(urls(from_file.await).await, [(json!("file.example:1"), Value::Null)]);

    let address = Some("public.example:2".to_owned());
    let from_address =
        TestServer::with(|server| server.cards(public(of_file.clone())).public_address(address));
    assert_eq!(urls(from_address.await).await[0], (json!("public.example:2"), Value::Null));

    let interfaces = vec![named("one.example:3", ""), named("two.example:4", "blue")];
    let listed = Cards { interfaces, ..public(of_file) };
    let listed = TestServer::with(|server| {
        server.cards(listed).public_address(Some("public.example:2".to_owned()))
    });
    let expected = [(json!("one.example:3"), Value::Null), (json!("two.example:4"), json!("blue"))];
    assert_eq!(urls(listed.await).await, expected, "in their order");
}

async fn request(server: SocketAddr, method: &str, headers: &[(&str, &str)]) -> Response<Bytes> {
    let mut request = Request::builder().method(method).uri(card::PATH);
    request = request.header("host", server.to_string());
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let stream = TcpStream::connect(server).await.unwrap();
    raw::over_http1(stream, request.body(Bytes::new()).unwrap()).await
}

#[tokio::test]
async fn whoever_has_the_card_already_is_told_so() {
    let age = std::time::Duration::from_secs(90);
    let server = TestServer::with(|server| server.card_max_age(age)).await;
    let addr = server.addr();
    let whole = request(addr, "GET", &[]).await;
    let header = |response: &Response<Bytes>, name: &str| {
        response.headers().get(name).map(|value| value.to_str().unwrap().to_owned())
    };
    assert_eq!(header(&whole, "cache-control").as_deref(), Some("public, max-age=90"));
    let (tag, date) = (header(&whole, "etag").unwrap(), header(&whole, "last-modified").unwrap());

    let head = request(addr, "HEAD", &[]).await;
    assert_eq!((head.status().as_u16(), head.body().len()), (200, 0));
    for name in ["etag", "last-modified", "cache-control", "content-type", "content-length"] {
        assert_eq!(header(&head, name), header(&whole, name), "{name}");
    }

    let past = "Thu, 01 Jan 1970 00:00:00 GMT";
    let weak = format!("W/{tag}");
    let among = format!("\"x\", {tag}");
    for (headers, status) in [
        (&[("if-none-match", tag.as_str())][..], 304),
        (&[("if-none-match", weak.as_str())], 304),
        (&[("if-none-match", among.as_str())], 304),
        (&[("if-none-match", "*")], 304),
        (&[("if-none-match", "\"x\"")], 200),
        (&[("if-modified-since", date.as_str())], 304),
        (&[("if-modified-since", past)], 200),
        (&[("if-modified-since", "yesterday")], 200),
        // A tag says more than a date.
        (&[("if-none-match", "\"x\""), ("if-modified-since", date.as_str())], 200),
        (&[("if-none-match", tag.as_str()), ("if-modified-since", past)], 304),
    ] {
        for method in ["GET", "HEAD"] {
            let answer = request(addr, method, headers).await;
            assert_eq!(answer.status().as_u16(), status, "{method} {headers:?}");
            assert_eq!(answer.body().is_empty(), status == 304 || method == "HEAD");
            for name in ["etag", "last-modified", "cache-control"] {
                assert_eq!(header(&answer, name), header(&whole, name), "{name}");
            }
        }
    }
}

#[test]
fn a_card_with_faults_is_refused_by_its_members() {
    let (code, said) = complaints("card.toml", example(), &[]);
    assert_eq!((code, said.as_str()), (Some(0), ""), "the document's own is good");

    let with = |from: &str, to: &str| {
        assert!(example().contains(from), "{from}");
        example().replacen(from, to, 1)
    };
    for (text, words) in [
        (with("name = \"Recipe agent\"", "name = \"\""), &["name: must be set"][..]),
        (with("name = \"Recipe agent\"\n", ""), &["name: must be set"]),
        (with("version = \"1.4.0\"", "verison = \"1.4.0\""), &["verison: there is no such member"]),
        (with("version = \"1.4.0\"", "version = 1.4"), &["version: "]),
        (with("tags = [", "tgas = ["), &["skills[0].tgas: there is no such member"]),
        (with("tags = [\"cooking\", \"search\"]", "tags = []"), &["skills[0].tags: must hold"]),
        (with("[\"text/plain\"]", "[\"text\"]"), &["defaultInputModes[0]: must be a media type"]),
        (with("version = ", "version = = "), &["is not TOML: line"]),
        (
            with("required = false", "required = false\nparams = {}"),
            &["capabilities.extensions[0].params: must not be empty"],
        ),
        (
            with(
                "[[capabilities.extensions]]",
                "[capabilities]\nstreaming = \"yes\"\n[[capabilities.extensions]]",
            ),
            &["capabilities.streaming: "],
        ),
        (
            with(
                "[[capabilities.extensions]]",
                "[capabilities]\npush_notifications = true\n[[capabilities.extensions]]",
            ),
            &["capabilities.pushNotifications: this server does not offer that"],
        ),
        (with("/units/v1\"", "/units v1\""), &["capabilities.extensions[0].uri: must be a URI"]),
        (
            with("[provider]", "[[security_requirements]]\nschemes = { oauth = { } }\n[provider]"),
            &["securityRequirements[0].schemes.oauth: must be a name of securitySchemes"],
        ),
        (
            with("[provider]", "[security_schemes.oauth]\n[provider]"),
            &["securitySchemes.oauth: must hold one kind of scheme"],
        ),
        (
            with(
                "[provider]",
                "[[supported_interfaces]]\nurl = \"https://x.example\"\nprotocol_binding = \"GRPC\"\nprotocol_version = \"0.3\"\n[provider]",
            ),
            &[
                "supportedInterfaces[0].url: must be host:port",
                "supportedInterfaces[0].protocolVersion",
            ],
        ),
    ] {
        let (code, said) = complaints("card.toml", &text, &[]);
        assert_eq!(code, Some(78), "{text}\n{said}");
        for words in words {
            assert!(said.contains(words), "{words} is not in: {said}");
        }
    }
    for (text, words) in [
        ("{", "is not JSON"),
        ("[]", "must be an object"),
        ("{}", "skills: must"),
        (r#"{"name": "a", "name": "b"}"#, "name"),
    ] {
        let (code, said) = complaints("card.json", text, &[]);
        assert!(code == Some(78) && said.contains(words), "{text}: {said}");
    }
}

#[test]
fn a_card_may_be_json_and_its_faults_are_told_together() {
    let json = r#"{"name": "a", "skills": [{"id": "x", "name": "x"}, {"id": "x"}]}"#;
    let (code, said) = complaints("card.json", json, &["--public-url", "ftp://x"]);
    assert_eq!(code, Some(78));
    for words in [
        "--card: description: must be set",
        "--card: defaultOutputModes: must name",
        "--card: skills[0].tags: must hold",
        "--card: skills[1].id: must not be the id of another skill",
        "--public-url: write host:port",
    ] {
        assert!(said.contains(words), "{words} is not in: {said}");
    }
}

#[test]
fn the_demo_agents_card_has_no_fault() {
    let bound = ([127, 0, 0, 1], 50051).into();
    let place = card::Place::new(&[], None, bound, false);
    let completed = place.completed(Demo.card(), &two_callers().schemes());
    assert_eq!(card::check::problems(&completed), [""; 0]);
}

#[test]
fn an_extended_card_needs_callers_with_credentials() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("card.toml"), example()).unwrap();
    let check = |arguments: &[&str]| {
        let output = command(folder.path(), &[&["check"][..], arguments].concat()).output();
        String::from_utf8(output.unwrap().stderr).unwrap()
    };
    let said = check(&["--extended-card", "card.toml"]);
    assert!(said.contains("--extended-card: needs another --auth than none"), "{said}");
    let denies = example().replace(
        "[[capabilities.extensions]]",
        "[capabilities]\nextended_agent_card = false\n[[capabilities.extensions]]",
    );
    fs::write(folder.path().join("denies.toml"), denies).unwrap();
    let said = check(&["--extended-card", "card.toml", "--card", "denies.toml"]);
    assert!(said.contains("capabilities.extendedAgentCard: is false"), "{said}");
}

#[tokio::test]
async fn callers_with_credentials_are_told_the_extended_card() {
    let extended = v1::AgentCard { name: "more of it".to_owned(), ..Demo.card() };
    let cards = Cards { extended: Some(extended), ..Cards::default() };
    let server = TestServer::with(|server| server.auth(two_callers()).cards(cards)).await;
    let card = served(server.addr()).await;
    assert_eq!(card["capabilities"]["extendedAgentCard"], true);
    let mut ann = server.client_of(ANN).await;
    let ask = |tenant: &str| v1::GetExtendedAgentCardRequest { tenant: tenant.to_owned() };
    let told = ann.get_extended_agent_card(ask("")).await.unwrap().into_inner();
    assert_eq!(told.name, "more of it");
    assert!(!told.supported_interfaces.is_empty() && !told.security_schemes.is_empty());
    let refused = ann.get_extended_agent_card(ask("red")).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let mut nobody = server.client().await;
    let refused = nobody.get_extended_agent_card(ask("")).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
}
