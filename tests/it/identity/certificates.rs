//! Certificates of clients: who is let in by one.

use std::sync::Arc;

use a2ad::auth::{Auth, Certificates, Gateway, Holder, Mode, PeerCertificate, tenants};
use a2ad::config::{ClientCerts, TlsFiles};
use a2ad::server::Tls;
use bytes::Bytes;
use http::Request;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};
use rustls::ClientConfig;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::rig::TestServer;
use crate::rig::raw;

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate and its key.
struct Identity {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

fn signed_by(authority: &Authority, common: &str, names: Vec<SanType>) -> Identity {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common);
    params.subject_alt_names = names;
    Identity { certificate: params.signed_by(&key, authority).unwrap(), key }
}

fn uri(text: &str) -> SanType {
    SanType::URI(text.try_into().unwrap())
}

fn dns(text: &str) -> SanType {
    SanType::DnsName(text.try_into().unwrap())
}

/// A server whose own certificate, and whose clients', are of this authority.
async fn server(authority: &Authority, wanted: ClientCerts, auth: Auth) -> TestServer {
    let own = signed_by(authority, "server", vec![dns("localhost")]);
    let (chain, key) = (own.certificate.pem(), own.key.serialize_pem());
    let clients = authority.pem();
    let clients = Some((clients.as_bytes(), wanted));
    let tls = Tls::with_clients(chain.as_bytes(), key.as_bytes(), clients).unwrap();
    TestServer::with(|server| server.tls(Some(tls)).auth(auth)).await
}

/// The status of a listing in this tenant, and what is said with it; `None` without a connection.
async fn ask(
    server: &TestServer,
    authority: &Authority,
    identity: Option<&Identity>,
    (tenant, headers): (&str, &[(&str, &str)]),
) -> Option<(u16, String)> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match identity {
        None => config.with_no_client_auth(),
        Some(Identity { certificate, key }) => {
            let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
            config.with_client_auth_cert(vec![certificate.der().clone()], key).unwrap()
        }
    };
    let tcp = TcpStream::connect(server.addr()).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let io = TlsConnector::from(Arc::new(config)).connect(name, tcp).await.ok()?;
    let mut request = Request::get(format!("/tasks?tenant={tenant}"))
        .header("host", "localhost")
        .header("a2a-version", "1.0");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(io)).await.ok()?;
    let connection = tokio::spawn(connection);
    let body = http_body_util::Full::new(Bytes::new());
    let response = sender.send_request(request.body(body).unwrap()).await.ok()?;
    let status = response.status().as_u16();
    let body = http_body_util::BodyExt::collect(response.into_body()).await.ok()?.to_bytes();
    connection.abort();
    Some((status, String::from_utf8(body.to_vec()).unwrap()))
}

fn holders() -> Auth {
    let holder = |name: &str, tenant: &str| {
        Holder::new(name, tenants(&[tenant.to_owned()]).unwrap(), [].into())
    };
    let listed = [
        holder("spiffe://mesh/ann", "of-uri"),
        holder("ann.example", "of-dns"),
        holder("ann", "of-name"),
        holder("spiffe://mesh/team/*", "of-team"),
    ];
    Auth::of(vec![Mode::Certificates(Certificates::new(listed.into()))])
}

#[tokio::test]
async fn the_holder_of_a_certificate_is_whom_it_names() {
    let ours = authority();
    let server = server(&ours, ClientCerts::Optional, holders()).await;
    for (names, tenant) in [
        (vec![dns("ann.example"), uri("spiffe://mesh/ann"), uri("spiffe://mesh/bob")], "of-uri"),
        (vec![dns("ann.example"), dns("bob.example")], "of-dns"),
        (vec![], "of-name"),
        (vec![uri("spiffe://mesh/team/bob")], "of-team"),
    ] {
        let ann = signed_by(&ours, "ann", names);
        for other in ["of-uri", "of-dns", "of-name", "of-team"] {
            let (status, _) = ask(&server, &ours, Some(&ann), (other, &[])).await.unwrap();
            assert_eq!(status == 200, other == tenant, "{tenant} {other} {status}");
        }
    }
    let stranger = signed_by(&ours, "bob", vec![]);
    let (status, told) = ask(&server, &ours, Some(&stranger), ("", &[])).await.unwrap();
    assert_eq!(status, 401);
    assert!(told.contains("the holder of the certificate is not known here"));
    let (status, told) = ask(&server, &ours, None, ("", &[])).await.unwrap();
    assert_eq!(status, 401);
    assert!(told.contains("a client certificate is needed"));
}

#[tokio::test]
async fn a_certificate_of_another_authority_makes_no_connection() {
    let (ours, theirs) = (authority(), authority());
    for wanted in [ClientCerts::Optional, ClientCerts::Required] {
        let server = server(&ours, wanted, holders()).await;
        let forged = signed_by(&theirs, "ann", vec![]);
        assert_eq!(ask(&server, &ours, Some(&forged), ("of-name", &[])).await, None);
        let nobody = ask(&server, &ours, None, ("of-name", &[])).await;
        assert_eq!(nobody.is_none(), wanted == ClientCerts::Required);
    }
}

#[tokio::test]
async fn certificates_are_read_again_when_their_files_change() {
    let (old, new) = (authority(), authority());
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let put = |authority: &Authority| {
        let own = signed_by(authority, "server", vec![dns("localhost")]);
        std::fs::write(at("cert.pem"), own.certificate.pem()).unwrap();
        std::fs::write(at("key.pem"), own.key.serialize_pem()).unwrap();
        std::fs::write(at("ca.pem"), authority.pem()).unwrap();
    };
    put(&old);
    let clients = Some((at("ca.pem"), ClientCerts::Optional));
    let files = TlsFiles { chain: at("cert.pem"), key: at("key.pem"), clients };
    let tls = Tls::from_files(files).unwrap();
    let shared = tls.clone();
    let server = TestServer::with(|server| server.tls(Some(shared)).auth(holders())).await;
    let of = |authority: &Authority| signed_by(authority, "ann", vec![]);
    let asked = async |by: &Authority| {
        ask(&server, by, Some(&of(by)), ("of-name", &[])).await.map(|(status, _)| status)
    };
    assert_eq!(tls.reload(), Ok(false));
    assert_eq!((asked(&old).await, asked(&new).await), (Some(200), None));
    put(&new);
    assert_eq!(tls.reload(), Ok(true));
    assert_eq!((asked(&old).await, asked(&new).await), (None, Some(200)));
    // What cannot be used changes nothing.
    std::fs::write(at("key.pem"), "no key").unwrap();
    assert!(tls.reload().is_err());
    assert_eq!(asked(&new).await, Some(200));
}

#[tokio::test]
async fn a_gateway_may_be_known_by_its_certificate() {
    let ours = authority();
    let (envoy, other) = (signed_by(&ours, "envoy", vec![]), signed_by(&ours, "other", vec![]));
    let fingerprint = hex::encode(PeerCertificate::read(envoy.certificate.der()).fingerprint());
    let auth = Auth::of(vec![Mode::Gateway(Gateway {
        peers: vec![format!("sha256:{fingerprint}").parse().unwrap()],
        payload: None,
        rules: Vec::new(),
        certificates: Some(Certificates::default()),
    })]);
    let server = server(&ours, ClientCerts::Optional, auth).await;
    let ann: &[(&str, &str)] = &[("x-forwarded-client-cert", "URI=spiffe://mesh/ann")];
    let asked = async |by: Option<&Identity>| ask(&server, &ours, by, ("", ann)).await.unwrap().0;
    assert_eq!(asked(Some(&envoy)).await, 200);
    assert_eq!(asked(Some(&other)).await, 401);
    assert_eq!(asked(None).await, 401);
    // The same in clear, from this machine, is a matter of addresses alone.
    let plain = raw::get(TestServer::start().await.addr(), "/tasks?A2A-Version=1.0", ann).await;
    assert_eq!(plain.status(), 200);
}
