//! Keys that sign cards, and their public halves: P-256 for `ES256` and Ed25519 for `EdDSA`.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, ED25519, EcdsaKeyPair,
    Ed25519KeyPair, KeyPair, UnparsedPublicKey,
};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

const WRONG_PEM: &str = "must be an EC P-256 or Ed25519 private key in PKCS #8 PEM (openssl pkcs8 \
                         -topk8 -nocrypt converts others), a JWK or a JWK set";

/// What is signed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// ECDSA with P-256 and SHA-256.
    Es256,
    /// Ed25519.
    EdDsa,
}

impl Algorithm {
    /// Its name in a JWS.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Es256 => "ES256",
            Self::EdDsa => "EdDSA",
        }
    }
}

/// A private key. It is never printed.
#[derive(Clone)]
pub struct SigningKey {
    pair: Arc<Pair>,
    public: PublicKey,
}

enum Pair {
    Es256(EcdsaKeyPair),
    EdDsa(Ed25519KeyPair),
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey")
            .field("kid", &self.public.kid)
            .field("algorithm", &self.public.algorithm)
            .finish_non_exhaustive()
    }
}

impl SigningKey {
    /// A new key, and its file's text in PKCS #8 PEM.
    ///
    /// # Errors
    /// When the system has no random bytes.
    pub fn generate(algorithm: Algorithm) -> Result<(Self, String), String> {
        let random = SystemRandom::new();
        let failed = |_: ring::error::Unspecified| "no random bytes".to_owned();
        let document = match algorithm {
            Algorithm::Es256 => {
                EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random)
            }
            Algorithm::EdDsa => Ed25519KeyPair::generate_pkcs8(&random),
        };
        let document = document.map_err(failed)?;
        let key = Self::from_pkcs8(document.as_ref(), None)?;
        Ok((key, pem(document.as_ref())))
    }

    fn from_pkcs8(der: &[u8], kid: Option<String>) -> Result<Self, String> {
        if let Ok(pair) = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der) {
            return Ok(Self::new(Pair::EdDsa(pair), kid));
        }
        let random = SystemRandom::new();
        EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der, &random)
            .map(|pair| Self::new(Pair::Es256(pair), kid))
            .map_err(|_rejected| WRONG_PEM.to_owned())
    }

    /// The private half of a JWK, whose public half is known.
    fn from_jwk(public: &PublicKey, d: &[u8]) -> Result<Self, String> {
        let wrong = |_: ring::error::KeyRejected| "d: does not belong to the public key".to_owned();
        let pair = match public.algorithm {
            Algorithm::Es256 => Pair::Es256(
                EcdsaKeyPair::from_private_key_and_public_key(
                    &ECDSA_P256_SHA256_FIXED_SIGNING,
                    d,
                    &public.bytes,
                    &SystemRandom::new(),
                )
                .map_err(wrong)?,
            ),
            Algorithm::EdDsa => Pair::EdDsa(
                Ed25519KeyPair::from_seed_and_public_key(d, &public.bytes).map_err(wrong)?,
            ),
        };
        Ok(Self::new(pair, Some(public.kid.clone())))
    }

    fn new(pair: Pair, kid: Option<String>) -> Self {
        let (algorithm, bytes) = match &pair {
            Pair::Es256(pair) => (Algorithm::Es256, pair.public_key().as_ref().to_vec()),
            Pair::EdDsa(pair) => (Algorithm::EdDsa, pair.public_key().as_ref().to_vec()),
        };
        let public = PublicKey::new(algorithm, bytes, kid);
        Self { pair: Arc::new(pair), public }
    }

    /// Its public half.
    #[must_use]
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// The signature of `message`, as a JWS has it.
    ///
    /// # Errors
    /// When the system has no random bytes.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, String> {
        match &*self.pair {
            Pair::Es256(pair) => {
                let signature = pair.sign(&SystemRandom::new(), message);
                let failed = |_: ring::error::Unspecified| "no random bytes".to_owned();
                Ok(signature.map_err(failed)?.as_ref().to_vec())
            }
            Pair::EdDsa(pair) => Ok(pair.sign(message).as_ref().to_vec()),
        }
    }
}

/// A public key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey {
    kid: String,
    algorithm: Algorithm,
    /// As the curve has it: an uncompressed point, or 32 bytes.
    bytes: Vec<u8>,
}

impl PublicKey {
    /// Without a `kid` it is known by its thumbprint (RFC 7638).
    fn new(algorithm: Algorithm, bytes: Vec<u8>, kid: Option<String>) -> Self {
        let mut key = Self { kid: String::new(), algorithm, bytes };
        key.kid = kid.unwrap_or_else(|| {
            // Members in order, as `Map` keeps them.
            let text = Value::Object(key.members()).to_string();
            URL_SAFE_NO_PAD.encode(Sha256::digest(text))
        });
        key
    }

    /// Its name.
    #[must_use]
    pub fn kid(&self) -> &str {
        &self.kid
    }

    /// What it verifies.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Whether `signature` is this key's, of `message`.
    #[must_use]
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let verified = match self.algorithm {
            Algorithm::Es256 => UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &self.bytes)
                .verify(message, signature),
            Algorithm::EdDsa => {
                UnparsedPublicKey::new(&ED25519, &self.bytes).verify(message, signature)
            }
        };
        verified.is_ok()
    }

    /// What makes it the key that it is.
    fn members(&self) -> Map<String, Value> {
        let text = |bytes: &[u8]| Value::String(URL_SAFE_NO_PAD.encode(bytes));
        let mut members = Map::new();
        match self.algorithm {
            Algorithm::Es256 => {
                let (x, y) = self.bytes.get(1..).unwrap_or_default().split_at(32);
                members.insert("crv".to_owned(), "P-256".into());
                members.insert("kty".to_owned(), "EC".into());
                members.insert("x".to_owned(), text(x));
                members.insert("y".to_owned(), text(y));
            }
            Algorithm::EdDsa => {
                members.insert("crv".to_owned(), "Ed25519".into());
                members.insert("kty".to_owned(), "OKP".into());
                members.insert("x".to_owned(), text(&self.bytes));
            }
        }
        members
    }

    /// Its JWK (RFC 7517).
    #[must_use]
    pub fn to_jwk(&self) -> Value {
        let mut members = self.members();
        members.insert("kid".to_owned(), self.kid.clone().into());
        members.insert("alg".to_owned(), self.algorithm.name().into());
        members.insert("use".to_owned(), "sig".into());
        Value::Object(members)
    }

    /// The public half of a JWK.
    ///
    /// # Errors
    /// In words that repeat nothing of it: it is for another curve, algorithm or use.
    pub fn from_jwk(jwk: &Value) -> Result<Self, String> {
        let text = |name: &str| jwk.get(name).and_then(Value::as_str);
        let bytes = |name: &str, length: usize| {
            let bytes = text(name).and_then(|text| URL_SAFE_NO_PAD.decode(text).ok());
            bytes
                .filter(|bytes| bytes.len() == length)
                .ok_or_else(|| format!("{name}: must be {length} bytes in base64url"))
        };
        let (algorithm, key) = match (text("kty"), text("crv")) {
            (Some("EC"), Some("P-256")) => {
                let point = [vec![4], bytes("x", 32)?, bytes("y", 32)?].concat();
                (Algorithm::Es256, point)
            }
            (Some("OKP"), Some("Ed25519")) => (Algorithm::EdDsa, bytes("x", 32)?),
            _ => return Err("kty and crv: must be EC and P-256, or OKP and Ed25519".to_owned()),
        };
        let fits = |name: &str, of: &str| text(name).is_none_or(|found| found == of);
        // RFC 9864 calls it by the curve.
        let curve = algorithm == Algorithm::EdDsa && fits("alg", "Ed25519");
        if !fits("alg", algorithm.name()) && !curve {
            return Err(format!("alg: must be {} for this key", algorithm.name()));
        }
        if !fits("use", "sig") {
            return Err("use: must be sig".to_owned());
        }
        let kid = text("kid").filter(|kid| !kid.is_empty()).map(str::to_owned);
        Ok(Self::new(algorithm, key, kid))
    }
}

/// The keys of one or more files.
#[derive(Debug, Clone, Default)]
pub struct Keys {
    /// Those that sign.
    pub signing: Vec<SigningKey>,
    /// All that are published, in the order of the files.
    pub public: Vec<PublicKey>,
}

impl Keys {
    /// Adds the keys of a file's text: a private key in PEM, or one or more JWKs. A JWK without
    /// its private half is published and signs nothing.
    ///
    /// # Errors
    /// What is wrong, in words that repeat nothing of a key.
    pub fn add(&mut self, text: &[u8]) -> Result<(), String> {
        if text.trim_ascii_start().first() != Some(&b'{') {
            let der = PrivateKeyDer::from_pem_slice(text).ok();
            let Some(PrivateKeyDer::Pkcs8(der)) = der else { return Err(WRONG_PEM.to_owned()) };
            let key = SigningKey::from_pkcs8(der.secret_pkcs8_der(), None)?;
            return self.add_signing(key);
        }
        // The reader's own words might repeat what it read.
        let file: Value = serde_json::from_slice(text).map_err(|error| {
            format!("is not JSON: line {}, column {}", error.line(), error.column())
        })?;
        match file.get("keys") {
            None => self.add_jwk(&file),
            Some(Value::Array(keys)) => {
                let mut indexed = keys.iter().enumerate();
                let named = |n, wrong| format!("keys[{n}].{wrong}");
                indexed.try_for_each(|(n, key)| self.add_jwk(key).map_err(|wrong| named(n, wrong)))
            }
            Some(_) => Err("keys: must be a list".to_owned()),
        }
    }

    fn add_jwk(&mut self, jwk: &Value) -> Result<(), String> {
        let public = PublicKey::from_jwk(jwk)?;
        match jwk.get("d") {
            None => self.add_public(public),
            Some(d) => {
                let d = d.as_str().and_then(|d| URL_SAFE_NO_PAD.decode(d).ok());
                let d = d.ok_or("d: must be base64url")?;
                self.add_signing(SigningKey::from_jwk(&public, &d)?)
            }
        }
    }

    fn add_signing(&mut self, key: SigningKey) -> Result<(), String> {
        self.add_public(key.public.clone())?;
        self.signing.push(key);
        Ok(())
    }

    fn add_public(&mut self, key: PublicKey) -> Result<(), String> {
        if self.public.iter().any(|known| known.kid == key.kid) {
            return Err(format!("kid: two keys are called {}", key.kid));
        }
        self.public.push(key);
        Ok(())
    }

    /// The set of all public halves (RFC 7517, 5).
    #[must_use]
    pub fn to_jwks(&self) -> Value {
        json!({ "keys": self.public.iter().map(PublicKey::to_jwk).collect::<Vec<_>>() })
    }
}

fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut lines = vec!["-----BEGIN PRIVATE KEY-----"];
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(64));
        lines.push(line);
        rest = after;
    }
    lines.push("-----END PRIVATE KEY-----");
    lines.join("\n") + "\n"
}
