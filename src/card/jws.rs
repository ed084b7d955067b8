//! Signatures of cards: JWS with the payload left out, since the card is the payload (SIGN-01 to
//! SIGN-12).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::card::canonical::{self, Form};
use crate::card::check;
use crate::card::json;
use crate::card::keys::{Keys, PublicKey, SigningKey};
use crate::contract::v1;

/// How cards are signed.
#[derive(Debug, Clone, Default)]
pub struct Signer {
    /// The keys; each that has its private half signs.
    pub keys: Keys,
    /// Where the set of their public halves is.
    pub jku: Option<String>,
    /// Whether a card is signed in the protocol's form alone, also where SDKs make other bytes
    /// of it.
    pub protocol_form_only: bool,
}

impl Signer {
    /// Adds the signatures of every key: over the protocol's form, and then over the one without
    /// empties where that has other bytes.
    ///
    /// # Errors
    /// All that is wrong with the card: a signature is a promise (SIGN-10).
    pub fn sign(&self, card: &mut v1::AgentCard) -> Result<(), Vec<String>> {
        if self.keys.signing.is_empty() {
            return Ok(());
        }
        let problems = check::problems(card);
        if !problems.is_empty() {
            return Err(problems);
        }
        let one = |problem| vec![problem];
        let payload = canonical::payload(card, Form::Protocol).map_err(one)?;
        let others = canonical::payload(card, Form::WithoutEmpties).map_err(one)?;
        let mut payloads = vec![payload];
        if !self.protocol_form_only && others != payloads.concat() {
            payloads.push(others);
        }
        for payload in payloads {
            for key in &self.keys.signing {
                let signature = self.signature(key, &payload).map_err(one)?;
                card.signatures.push(signature);
            }
        }
        Ok(())
    }

    fn signature(
        &self,
        key: &SigningKey,
        payload: &[u8],
    ) -> Result<v1::AgentCardSignature, String> {
        let public = key.public();
        let mut header =
            json!({ "alg": public.algorithm().name(), "kid": public.kid(), "typ": "JOSE" });
        if let (Some(jku), Value::Object(members)) = (&self.jku, &mut header) {
            members.insert("jku".to_owned(), jku.clone().into());
        }
        let protected = URL_SAFE_NO_PAD.encode(header.to_string());
        let signature = key.sign(&signing_input(&protected, payload))?;
        let signature = URL_SAFE_NO_PAD.encode(signature);
        Ok(v1::AgentCardSignature { protected, signature, header: None })
    }
}

fn signing_input(protected: &str, payload: &[u8]) -> Vec<u8> {
    format!("{protected}.{}", URL_SAFE_NO_PAD.encode(payload)).into_bytes()
}

/// What came of one signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is this key's, over this form of the card.
    Good {
        /// The key's name.
        kid: String,
        /// What is left out of the card first.
        form: Form,
    },
    /// It is not, in words.
    Bad(String),
}

/// Looks at every signature of a card, given as JSON, with keys that are trusted.
///
/// # Errors
/// When this is no card.
pub fn verify(card: &Value, keys: &[PublicKey]) -> Result<Vec<Verdict>, String> {
    let parsed = json::from_value(card.clone())?;
    let payloads = [
        (Form::Protocol, canonical::payload(&parsed, Form::Protocol)?),
        (Form::WithoutEmpties, canonical::payload(&parsed, Form::WithoutEmpties)?),
        (Form::AsRead, canonical::payload_as_read(card)?),
    ];
    let verdict = |signature: &v1::AgentCardSignature| {
        verdict(signature, &payloads, keys).unwrap_or_else(Verdict::Bad)
    };
    Ok(parsed.signatures.iter().map(verdict).collect())
}

fn verdict(
    signature: &v1::AgentCardSignature,
    payloads: &[(Form, Vec<u8>)],
    keys: &[PublicKey],
) -> Result<Verdict, String> {
    let protected = &signature.protected;
    let header = URL_SAFE_NO_PAD.decode(protected).ok();
    let header: Option<Value> = header.and_then(|header| serde_json::from_slice(&header).ok());
    let header = header.ok_or("protected: must be a JSON object in base64url")?;
    let text = |name: &str| header.get(name).and_then(Value::as_str);
    let (Some(algorithm), Some(kid)) = (text("alg"), text("kid")) else {
        return Err("protected: must hold alg and kid".to_owned());
    };
    if header.get("crit").is_some() {
        // RFC 7515, 4.1.11: whoever does not understand it must not accept the rest.
        return Err("protected: crit names what is not understood here".to_owned());
    }
    let key = keys.iter().find(|key| key.kid() == kid);
    let key = key.ok_or_else(|| format!("kid: the key {kid:?} is not known"))?;
    // The key says what it is for, never the signature.
    if algorithm != key.algorithm().name() {
        return Err(format!("alg: {algorithm:?} is not what the key {kid:?} is for"));
    }
    let bytes = URL_SAFE_NO_PAD.decode(&signature.signature).ok();
    let bytes = bytes.ok_or("signature: must be base64url")?;
    let fits =
        |(_, payload): &&(Form, Vec<u8>)| key.verifies(&signing_input(protected, payload), &bytes);
    match payloads.iter().find(fits) {
        Some((form, _)) => Ok(Verdict::Good { kid: kid.to_owned(), form: *form }),
        None => Err(format!("it is not the signature of the key {kid:?} over this card")),
    }
}

/// Whether what was signed before is still what is told, for a card that has signatures of its own.
///
/// # Errors
/// When the server would tell another card.
pub fn is_still_signed(original: &v1::AgentCard, told: &v1::AgentCard) -> Result<(), Vec<String>> {
    if original.signatures.is_empty() {
        return Ok(());
    }
    let of = |card| canonical::payload(card, Form::Protocol).map_err(|problem| vec![problem]);
    if of(original)? == of(told)? {
        return Ok(());
    }
    Err(vec![
        "signatures: they cover another card than the one that would be served; `a2ad card show` \
         with the settings of the server prints that one, without them: sign it again"
            .to_owned(),
    ])
}
