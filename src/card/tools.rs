//! What the program does with cards in files.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde_json::Value;

use crate::card::jws::{self, Signer, Verdict};
use crate::card::keys::{Algorithm, Keys, SigningKey};
use crate::card::{json, read};
use crate::contract::v1;

/// The card for people: JSON with line breaks.
///
/// # Errors
/// Where it holds what JSON cannot say.
pub fn pretty(card: &v1::AgentCard) -> Result<String, String> {
    let value = json::to_value(card)?;
    serde_json::to_string_pretty(&value).map_err(|error| error.to_string())
}

/// Adds the signatures of every private key in `keys` to a card's text.
///
/// # Errors
/// All that is wrong with card or keys.
pub fn sign(name: &Path, card: &[u8], signer: &Signer) -> Result<String, Vec<String>> {
    let mut card = read::from_file(name, card)?;
    if signer.keys.signing.is_empty() {
        return Err(vec!["there is no private key to sign with".to_owned()]);
    }
    signer.sign(&mut card)?;
    pretty(&card).map_err(|problem| vec![problem])
}

/// Says a line of every signature of a card, and whether any of them is good.
///
/// # Errors
/// When it is no card, or has no signature.
pub fn verify(card: &[u8], keys: &Keys) -> Result<(Vec<String>, bool), String> {
    let card: Value =
        serde_json::from_slice(card).map_err(|error| format!("is not JSON: {error}"))?;
    let verdicts = jws::verify(&card, &keys.public)?;
    if verdicts.is_empty() {
        return Err("the card has no signatures".to_owned());
    }
    let good = verdicts.iter().any(|verdict| matches!(verdict, Verdict::Good { .. }));
    let line = |(n, verdict): (usize, &Verdict)| match verdict {
        Verdict::Good { kid, form } => {
            format!("signatures[{n}]: good, by the key {kid:?}, over the card {}", form.name())
        }
        Verdict::Bad(why) => format!("signatures[{n}]: bad: {why}"),
    };
    Ok((verdicts.iter().enumerate().map(line).collect(), good))
}

/// Makes a key in a new file that only its user can read, and returns its public half as a JWK set.
///
/// # Errors
/// When there is such a file already, or it cannot be written.
pub fn new_key(algorithm: Algorithm, path: &Path) -> io::Result<String> {
    let (key, text) = SigningKey::generate(algorithm).map_err(io::Error::other)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    let mut keys = Keys::default();
    keys.public.push(key.public().clone());
    serde_json::to_string_pretty(&keys.to_jwks()).map_err(io::Error::other)
}
