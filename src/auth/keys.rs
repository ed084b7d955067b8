//! Public keys of issuers, each for one algorithm, read from a JWK set (RFC 7517).

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P384_SHA384_FIXED, RSA_PKCS1_2048_8192_SHA256, RSA_PSS_2048_8192_SHA256,
    RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde_json::Value;

use crate::card::keys::{Algorithm as OfCards, PublicKey};

/// The most keys of one set that are looked at.
pub(super) const KEYS_MAX: usize = 100;
/// The bounds of an RSA modulus, in bytes: 2048 to 8192 bits.
const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;

/// What a token may be signed with. Nothing without a signature, and nothing with a shared secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
    /// ECDSA with P-256 and SHA-256.
    Es256,
    /// ECDSA with P-384 and SHA-384.
    Es384,
    /// RSA with PKCS #1 v1.5 and SHA-256.
    Rs256,
    /// RSA with PSS and SHA-256.
    Ps256,
    /// Ed25519.
    EdDsa,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Es256, Self::Es384, Self::Rs256, Self::Ps256, Self::EdDsa];

    /// Its name in a token.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::Rs256 => "RS256",
            Self::Ps256 => "PS256",
            Self::EdDsa => "EdDSA",
        }
    }

    /// The algorithm that a token calls so, letter by letter.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }
}

/// A key, and the one algorithm that it is for.
#[derive(Debug, Clone)]
pub(super) struct Key {
    pub(super) kid: Option<String>,
    pub(super) algorithm: Algorithm,
    material: Arc<Material>,
}

#[derive(Debug)]
enum Material {
    /// As cards are signed with.
    Small(PublicKey),
    P384(Vec<u8>),
    Rsa(RsaPublicKeyComponents<Vec<u8>>),
}

impl Key {
    /// Whether `signature` is this key's, of `message`.
    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let rsa = match self.algorithm {
            Algorithm::Ps256 => &RSA_PSS_2048_8192_SHA256,
            Algorithm::Rs256 | Algorithm::Es256 | Algorithm::Es384 | Algorithm::EdDsa => {
                &RSA_PKCS1_2048_8192_SHA256
            }
        };
        match &*self.material {
            Material::Small(key) => key.verifies(message, signature),
            Material::P384(point) => UnparsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, point)
                .verify(message, signature)
                .is_ok(),
            Material::Rsa(key) => key.verify(rsa, message, signature).is_ok(),
        }
    }

    /// `None` for a key of another kind, another use or another algorithm: a set may hold such for
    /// others. What an RSA key without `alg` signs with is RS256.
    fn of(jwk: &Value) -> Option<Self> {
        let text = |name: &str| jwk.get(name).and_then(Value::as_str);
        let bytes = |name: &str| URL_SAFE_NO_PAD.decode(text(name)?).ok();
        let of_length = |name: &str, length| bytes(name).filter(|bytes| bytes.len() == length);
        if text("use").is_some_and(|for_what| for_what != "sig") {
            return None;
        }
        let (algorithm, material) = match (text("kty")?, text("crv")) {
            ("EC", Some("P-384")) => {
                let point = [vec![4], of_length("x", 48)?, of_length("y", 48)?].concat();
                (Algorithm::Es384, Material::P384(point))
            }
            ("EC" | "OKP", Some(_)) => {
                let key = PublicKey::from_jwk(jwk).ok()?;
                let algorithm = match key.algorithm() {
                    OfCards::Es256 => Algorithm::Es256,
                    OfCards::EdDsa => Algorithm::EdDsa,
                };
                (algorithm, Material::Small(key))
            }
            ("RSA", None) => {
                let (n, e) = (bytes("n")?, bytes("e")?);
                if !RSA_BYTES.contains(&n.len()) {
                    return None;
                }
                let algorithm = match text("alg") {
                    Some("PS256") => Algorithm::Ps256,
                    _ => Algorithm::Rs256,
                };
                (algorithm, Material::Rsa(RsaPublicKeyComponents { n, e }))
            }
            _ => return None,
        };
        // RFC 9864 calls it by the curve.
        let fits = |alg: &str| {
            alg == algorithm.name() || (alg == "Ed25519" && algorithm == Algorithm::EdDsa)
        };
        if !text("alg").is_none_or(fits) {
            return None;
        }
        let kid = text("kid").map(str::to_owned);
        Some(Self { kid, algorithm, material: Arc::new(material) })
    }
}

/// The usable keys of a JWK set, with an algorithm that is among `allowed`.
///
/// # Errors
/// In words that repeat nothing of it: it is no set, or none of its keys can be used.
pub(super) fn read(text: &[u8], allowed: &[Algorithm]) -> Result<Vec<Key>, String> {
    let set: Value = serde_json::from_slice(text).map_err(|error| {
        format!("is not JSON: line {}, column {}", error.line(), error.column())
    })?;
    let Some(Value::Array(keys)) = set.get("keys") else {
        return Err("is no JWK set: it has no list of keys".to_owned());
    };
    if keys.len() > KEYS_MAX {
        return Err(format!("holds more than {KEYS_MAX} keys"));
    }
    let usable = keys.iter().filter_map(Key::of);
    let usable: Vec<_> = usable.filter(|key| allowed.contains(&key.algorithm)).collect();
    if usable.is_empty() {
        return Err("holds no key that could verify a token".to_owned());
    }
    Ok(usable)
}
