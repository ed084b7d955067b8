//! Two servers behind a real Envoy with the configuration of `deploy/envoy`.

mod calls;
mod restart;
mod streams;

use std::fs;
use std::net::SocketAddr;

use a2ad::client::{Client, Connect};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::crash::KEYS;
use crate::support::envoy::Envoy;
use crate::support::issuer::{AUDIENCE, ISSUER, Issuer};
use crate::support::postgres::fresh_url;
use crate::support::program::{Program, free_address};

/// What stands behind Envoy: two servers on one database.
struct Pair {
    addresses: [SocketAddr; 2],
    programs: [Option<Program>; 2],
    store: String,
    auth: &'static str,
    folder: TempDir,
}

impl Pair {
    async fn start(issuer: &Issuer, auth: &'static str) -> Self {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("jwks.json"), issuer.jwks().to_string()).unwrap();
        // A gateway has verified the token, so its claims alone are looked at.
        let gateway = match auth {
            "gateway" => "[gateway]\npeers = ['loopback']\npayload_header = 'x-jwt-payload'\n",
            _ => "",
        };
        let settings = format!(
            "{gateway}[[jwt]]\nissuer = '{ISSUER}'\naudiences = ['{AUDIENCE}']\njwks = 'jwks.json'\n"
        );
        fs::write(folder.path().join("a2ad.toml"), settings).unwrap();
        let addresses = [free_address(), free_address()];
        let store = fresh_url().await;
        let mut pair = Self { addresses, programs: [None, None], store, auth, folder };
        pair.begin(0);
        pair.begin(1);
        pair
    }

    /// Starts one of the two, at its address.
    fn begin(&mut self, n: usize) {
        let arguments = [
            "--config",
            "a2ad.toml",
            "--auth",
            self.auth,
            "--store",
            &self.store,
            "--page-token-keys",
            KEYS,
            "--drain-delay",
            "2s",
            "--grace",
            "20s",
        ];
        let program = Program::serve_at(self.addresses[n], self.folder.path(), &arguments);
        self.programs[n] = Some(program);
    }
}

/// The whole of it.
struct Gateway {
    envoy: Envoy,
    pair: Pair,
    issuer: Issuer,
}

impl Gateway {
    async fn start(changes: &[(&str, &str)]) -> Self {
        Self::with(changes, "jwt").await
    }

    /// Before servers that find out who calls in this way.
    async fn with(changes: &[(&str, &str)], auth: &'static str) -> Self {
        let issuer = Issuer::new("idp-1");
        let pair = Pair::start(&issuer, auth).await;
        let envoy = Envoy::before(pair.addresses, &issuer, changes).await;
        Self { envoy, pair, issuer }
    }

    /// A gRPC client of `subject`, through Envoy.
    async fn client(&self, subject: &str) -> Client {
        let token = self.issuer.token(subject);
        Connect::to(self.envoy.url()).bearer(&token).unwrap().connect().await.unwrap()
    }

    /// The headers of a JSON call by `subject`.
    fn headers(&self, subject: &str) -> Vec<(&'static str, String)> {
        vec![
            ("content-type", "application/json".to_owned()),
            ("a2a-version", "1.0".to_owned()),
            ("authorization", format!("Bearer {}", self.issuer.token(subject))),
        ]
    }
}

fn borrowed<'a>(headers: &'a [(&'static str, String)]) -> Vec<(&'static str, &'a str)> {
    headers.iter().map(|(name, value)| (*name, value.as_str())).collect()
}

/// A send in JSON.
fn message(text: &str) -> Value {
    let id = uuid::Uuid::new_v4().to_string();
    json!({"message": {"messageId": id, "role": "ROLE_USER", "parts": [{"text": text}]}})
}
