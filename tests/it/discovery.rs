//! How clients and tools find out what is here: the card, reflection, TLS with both protocols.

use std::net::SocketAddr;
use std::sync::Arc;

use a2ad::client::Connect;

use a2ad::contract::{DESCRIPTOR_SET, v1};
use a2ad::server::Tls;
use bytes::Bytes;
use http::Request;
use prost_reflect::{DescriptorPool, DynamicMessage};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_stream::StreamExt;
use tonic::transport::Channel;

use crate::rig::raw;
use crate::rig::{TestServer, send, task_of, two_callers};

const CARD: &str = "/.well-known/agent-card.json";

fn json(body: &Bytes) -> serde_json::Value {
    serde_json::from_slice(body).unwrap()
}

#[tokio::test]
async fn the_card_leads_clients_to_this_server() {
    let server = TestServer::start().await;
    let addr = server.addr();
    let response = raw::get(addr, CARD, &[]).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "application/json");
    assert!(response.headers()["cache-control"].to_str().unwrap().contains("max-age="));
    let card = json(response.body());
    let interfaces = serde_json::json!([
        { "url": addr.to_string(), "protocolBinding": "GRPC", "protocolVersion": "1.0" },
        { "url": server.url(), "protocolBinding": "JSONRPC", "protocolVersion": "1.0" },
        { "url": server.url(), "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0" },
    ]);
    assert_eq!(card["supportedInterfaces"], interfaces);
    for member in ["name", "description", "version", "capabilities", "defaultInputModes", "skills"]
    {
        assert!(card.get(member).is_some(), "{member} is required");
    }
    assert!(card.get("securitySchemes").is_none());

    // Whoever has it already is told so (CACHE-04).
    let tag = response.headers()["etag"].to_str().unwrap().to_owned();
    let again = raw::get(addr, CARD, &[("if-none-match", &tag)]).await;
    assert_eq!((again.status().as_u16(), again.body().len()), (304, 0));
    let other = raw::get(addr, CARD, &[("if-none-match", "\"other\"")]).await;
    assert_eq!(other.status(), 200);

    // It is a message of the contract, as it stands.
    let pool = DescriptorPool::decode(DESCRIPTOR_SET).unwrap();
    let kind = pool.get_message_by_name("lf.a2a.v1.AgentCard").unwrap();
    let mut reader = serde_json::Deserializer::from_slice(response.body());
    let card = DynamicMessage::deserialize(kind, &mut reader).unwrap();
    let card: v1::AgentCard = card.transcode_to().unwrap();
    assert_eq!(card.supported_interfaces.len(), 3);
}

#[tokio::test]
async fn the_card_needs_no_credentials_and_says_which_calls_do() {
    let server = TestServer::with(|server| {
        server.auth(two_callers()).public_address(Some("https://a2a.example".to_owned()))
    })
    .await;
    let response = raw::get(server.addr(), CARD, &[]).await;
    assert_eq!(response.status(), 200);
    let card = json(response.body());
    assert_eq!(card["supportedInterfaces"][0]["url"], "a2a.example:443");
    assert_eq!(card["securitySchemes"]["bearer"]["httpAuthSecurityScheme"]["scheme"], "Bearer");
    let header = &card["securitySchemes"]["apiKey"]["apiKeySecurityScheme"];
    assert_eq!((&header["location"], &header["name"]), (&"header".into(), &"x-api-key".into()));
    assert_eq!(card["securityRequirements"].as_array().unwrap().len(), 2, "either is enough");
}

#[tokio::test]
async fn a_server_on_all_addresses_says_the_one_that_was_asked() {
    let server = TestServer::with(|server| server.listen(([0, 0, 0, 0], 0))).await;
    let port = server.addr().port();
    let addr = ([127, 0, 0, 1], port).into();
    for (host, url) in [
        ("a2a.example:1234", "a2a.example:1234".to_owned()),
        ("a2a.example", format!("a2a.example:{port}")),
        ("[::1]:80", "[::1]:80".to_owned()),
        ("user@evil.example", format!("localhost:{port}")),
    ] {
        let response = raw::get(addr, CARD, &[("host", host)]).await;
        assert_eq!(json(response.body())["supportedInterfaces"][0]["url"], url, "{host}");
    }
}

/// Services and the file of one, by one version of reflection.
macro_rules! reflection {
    ($version:ident, $channel:expr) => {{
        use tonic_reflection::pb::$version::ServerReflectionRequest;
        use tonic_reflection::pb::$version::server_reflection_client::ServerReflectionClient;
        use tonic_reflection::pb::$version::server_reflection_request::MessageRequest;
        use tonic_reflection::pb::$version::server_reflection_response::MessageResponse;

        let ask = |question| ServerReflectionRequest {
            host: String::new(),
            message_request: Some(question),
        };
        let questions = tokio_stream::iter([
            ask(MessageRequest::ListServices(String::new())),
            ask(MessageRequest::FileContainingSymbol("lf.a2a.v1.A2AService".to_owned())),
        ]);
        let mut client = ServerReflectionClient::new($channel);
        let mut answers = client.server_reflection_info(questions).await.unwrap().into_inner();
        let mut names = Vec::new();
        let mut files = Vec::new();
        while let Some(answer) = answers.next().await {
            match answer.unwrap().message_response.unwrap() {
                MessageResponse::ListServicesResponse(list) => {
                    names.extend(list.service.into_iter().map(|service| service.name));
                }
                MessageResponse::FileDescriptorResponse(found) => {
                    files.extend(found.file_descriptor_proto);
                }
                other => panic!("{other:?}"),
            }
        }
        names.sort();
        (names, files)
    }};
}

#[tokio::test]
async fn reflection_shows_the_contract_in_both_of_its_versions() {
    let server = TestServer::with(|server| server.auth(two_callers())).await;
    let channel = Channel::from_shared(server.url()).unwrap().connect().await.unwrap();
    let (v1, file) = reflection!(v1, channel.clone());
    let (v1alpha, same_file) = reflection!(v1alpha, channel);
    for names in [&v1, &v1alpha] {
        for name in ["grpc.health.v1.Health", "lf.a2a.v1.A2AService"] {
            assert!(names.iter().any(|known| known == name), "{name} is not in {names:?}");
        }
    }
    assert_eq!(file, same_file);
    // Tools and gateways read the HTTP rules from here.
    let rule = b"/message:send";
    assert!(file.iter().any(|file| file.windows(rule.len()).any(|part| part == rule)));
}

/// An authority, and a certificate of its for this machine.
fn certificate() -> (String, String, String) {
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let leaf = CertificateParams::new(names).unwrap().signed_by(&key, &authority).unwrap();
    (authority.pem(), leaf.pem(), key.serialize_pem())
}

/// A connection that trusts `authority` and speaks this protocol.
async fn secure(addr: SocketAddr, authority: &str, protocol: &str) -> TlsStream<TcpStream> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let tcp = TcpStream::connect(addr).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap()
}

#[tokio::test]
async fn both_json_bindings_and_their_streams_speak_by_tls_in_both_http_versions() {
    let (authority, chain, key) = certificate();
    let tls = Tls::from_pem(chain.as_bytes(), key.as_bytes()).unwrap();
    let server = TestServer::with(|server| server.tls(Some(tls))).await;
    let addr = server.addr();
    for protocol in ["http/1.1", "h2"] {
        let base = if protocol == "h2" { "https://localhost" } else { "" };
        let ask = async |path: &str, body: serde_json::Value| {
            let io = secure(addr, &authority, protocol).await;
            let request = Request::post(format!("{base}{path}"))
                .header("host", "localhost")
                .header("content-type", "application/json")
                .header("a2a-version", "1.0")
                .body(body.to_string().into())
                .unwrap();
            let answer = match protocol {
                "h2" => raw::over_http2(io, request).await,
                _ => raw::over_http1(io, request).await,
            };
            assert_eq!(answer.status(), 200, "{protocol} {path}: {answer:?}");
            answer
        };
        let id = uuid::Uuid::new_v4().to_string();
        let params = serde_json::json!({"message": {
            "messageId": id, "role": "ROLE_USER", "parts": [{"text": "hello"}]
        }});
        let call = |method: &str| {
            serde_json::json!({
                "jsonrpc": "2.0", "id": 1, "method": method, "params": params
            })
        };
        let sent = json(ask("/message:send", params.clone()).await.body());
        assert_eq!(sent["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{protocol}");
        let sent = json(ask("/", call("SendMessage")).await.body());
        assert_eq!(sent["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED");
        for (path, body) in
            [("/message:stream", params.clone()), ("/", call("SendStreamingMessage"))]
        {
            let stream = ask(path, body).await;
            assert_eq!(stream.headers()["content-type"], "text/event-stream");
            let text = String::from_utf8_lossy(stream.body()).into_owned();
            assert!(text.contains("TASK_STATE_COMPLETED"), "{protocol} {path}: {text}");
        }
    }
}

#[tokio::test]
async fn one_tls_port_speaks_both_http_versions() {
    let (authority, chain, key) = certificate();
    let tls = Tls::from_pem(chain.as_bytes(), key.as_bytes()).unwrap();
    let server = TestServer::with(|server| server.tls(Some(tls))).await;
    let addr = server.addr();

    let url = format!("https://localhost:{}", addr.port());
    let mut client = Connect::to(url).authority_pem(authority.clone()).connect().await.unwrap();
    task_of(client.send_message(send("hello")).await.unwrap());

    let connect = async |protocol: &str| secure(addr, &authority, protocol).await;
    let io = connect("http/1.1").await;
    assert_eq!(io.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let request = Request::get(CARD).header("host", "localhost").body(Bytes::new()).unwrap();
    assert_eq!(raw::over_http1(io, request).await.status(), 200);
    let io = connect("h2").await;
    assert_eq!(io.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let request = Request::get(format!("https://localhost{CARD}")).body(Bytes::new()).unwrap();
    assert_eq!(raw::over_http2(io, request).await.status(), 200);

    // In clear, nothing is served on this port.
    let plain = Connect::to(format!("http://{addr}")).connect().await;
    if let Ok(mut client) = plain {
        assert!(client.list_tasks(v1::ListTasksRequest::default()).await.is_err());
    }
}

#[tokio::test]
async fn a_certificate_and_a_key_that_do_not_belong_together_are_refused() {
    let (_, chain, _) = certificate();
    let (_, _, other) = certificate();
    let error = Tls::from_pem(chain.as_bytes(), other.as_bytes()).unwrap_err();
    assert!(error.contains("do not go together"), "{error}");
    for (chain, key) in [("", other.as_str()), (chain.as_str(), ""), ("x", "y")] {
        assert!(Tls::from_pem(chain.as_bytes(), key.as_bytes()).is_err());
    }
}
