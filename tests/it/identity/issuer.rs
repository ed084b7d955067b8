//! An issuer of tokens: keys made for one test, and a URL for their public halves.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use a2ad::auth::{
    Algorithm, Auth, ClaimNames, Issuer, Jwks, Jwt, Mode, Rules, Source, Timing, tenants,
};
use a2ad::card::keys::{self, SigningKey};
use a2ad::domain::{Clock, SystemClock};
use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use tokio::sync::watch;

pub(crate) const ISSUER: &str = "https://issuer.example/";
pub(crate) const AUDIENCE: &str = "a2ad";

/// A key of an issuer.
pub(crate) struct Signer {
    key: SigningKey,
    kid: String,
}

impl Signer {
    pub(crate) fn new(kid: &str, algorithm: keys::Algorithm) -> Self {
        Self { key: SigningKey::generate(algorithm).unwrap().0, kid: kid.to_owned() }
    }

    pub(crate) fn es256(kid: &str) -> Self {
        Self::new(kid, keys::Algorithm::Es256)
    }

    /// Its public half.
    pub(crate) fn jwk(&self) -> Value {
        let mut jwk = self.key.public().to_jwk();
        jwk["kid"] = self.kid.as_str().into();
        jwk
    }

    /// A token with these claims.
    pub(crate) fn token(&self, claims: &Value) -> String {
        let algorithm = self.key.public().algorithm().name();
        self.with_header(&json!({"alg": algorithm, "kid": self.kid, "typ": "JWT"}), claims)
    }

    /// The same with a header of its own.
    pub(crate) fn with_header(&self, header: &Value, claims: &Value) -> String {
        let signed = unsigned(header, claims);
        let signature = self.key.sign(signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// What is signed.
pub(crate) fn unsigned(header: &Value, claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}", part(header), part(claims))
}

pub(crate) fn set(jwks: &[Value]) -> Value {
    json!({ "keys": jwks })
}

pub(crate) fn now() -> i64 {
    SystemClock.now_us() / 1_000_000
}

/// The claims of a good token of this subject.
pub(crate) fn claims(subject: &str) -> Value {
    json!({
        "iss": ISSUER, "aud": AUDIENCE, "sub": subject,
        "iat": now(), "nbf": now(), "exp": now() + 600,
    })
}

/// `claims` with one of them changed.
pub(crate) fn but(mut claims: Value, name: &str, value: impl Into<Value>) -> Value {
    claims[name] = value.into();
    claims
}

/// What the tests' issuer's tokens must say.
pub(crate) fn rules() -> Rules {
    Rules {
        issuer: ISSUER.to_owned(),
        audiences: vec![AUDIENCE.to_owned()],
        leeway: Duration::from_secs(5),
        names: ClaimNames::default(),
        tenants: tenants(&[]).unwrap(),
    }
}

/// The mode `jwt` with this issuer alone.
pub(crate) fn trusting(keys: Jwks) -> Auth {
    let issuer = Issuer { rules: rules(), keys, discovery: None };
    Auth::of(vec![Mode::Jwt(Jwt::new(vec![issuer]).unwrap())])
}

/// The keys of a set that never changes.
pub(crate) fn fixed(jwks: &[Value]) -> Jwks {
    let nowhere = Source::parse("/nowhere/jwks.json").unwrap();
    let keys = Jwks::new(nowhere, Algorithm::ALL.to_vec(), Timing::default());
    keys.take(set(jwks).to_string().as_bytes()).unwrap();
    keys
}

/// A URL that tells a JWK set, or fails.
pub(crate) struct Url {
    address: SocketAddr,
    told: watch::Sender<Option<Value>>,
    asked: Arc<AtomicUsize>,
}

impl Url {
    pub(crate) async fn telling(first: Option<Value>) -> Self {
        let (told, tells) = watch::channel(first);
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let answer = move || {
            count.fetch_add(1, Ordering::SeqCst);
            let answer: Response = match tells.borrow().clone() {
                Some(set) => set.to_string().into_response(),
                None => StatusCode::SERVICE_UNAVAILABLE.into_response(),
            };
            async { answer }
        };
        let app = Router::new().route("/jwks.json", get(answer));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { address, told, asked }
    }

    /// What it tells from now on; nothing at all is a failure.
    pub(crate) fn tell(&self, set: Option<Value>) {
        self.told.send_replace(set);
    }

    /// How often it was asked.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    pub(crate) fn keys(&self, timing: Timing) -> Jwks {
        let source = Source::parse(&format!("http://{}/jwks.json", self.address)).unwrap();
        Jwks::new(source, Algorithm::ALL.to_vec(), timing)
    }
}
