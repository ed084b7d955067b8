//! An identity provider: a key, its public half as a JWK set, and tokens that it signs.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};

/// Who issues tokens, and for whom, in deploy/envoy.
pub(crate) const ISSUER: &str = "https://idp.example";
pub(crate) const AUDIENCE: &str = "a2ad";

pub(crate) struct Issuer {
    key: EcdsaKeyPair,
    kid: &'static str,
}

impl Issuer {
    pub(crate) fn new(kid: &'static str) -> Self {
        let (algorithm, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        Self { key: EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).unwrap(), kid }
    }

    pub(crate) fn jwks(&self) -> Value {
        let point = self.key.public_key().as_ref();
        let [x, y] = [&point[1..33], &point[33..65]].map(|half| URL_SAFE_NO_PAD.encode(half));
        json!({"keys": [{
            "kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": self.kid, "x": x, "y": y,
        }]})
    }

    /// A token with these claims.
    pub(crate) fn sign(&self, claims: &Value) -> String {
        let header = json!({"alg": "ES256", "typ": "JWT", "kid": self.kid});
        let parts = [&header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
        let signed = parts.join(".");
        let signature = self.key.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }

    /// A good token of `subject`, for an hour.
    pub(crate) fn token(&self, subject: &str) -> String {
        self.sign(&claims(subject, 3600))
    }
}

/// Claims of `subject` that expire after so many seconds, or so long ago.
pub(crate) fn claims(subject: &str, seconds: i64) -> Value {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let now = i64::try_from(now.as_secs()).unwrap();
    json!({"iss": ISSUER, "aud": AUDIENCE, "sub": subject, "iat": now - 60, "exp": now + seconds})
}
