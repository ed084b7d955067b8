//! The keys of page tokens: the first one signs, every one verifies.
//!
//! Rotating: put the new key first, keep the old one for one token lifetime, then drop it. With
//! several servers, add the new key at the end everywhere before it goes to the front anywhere.

use std::fmt;

/// The fewest bytes a key may have: as many as the hash gives.
const KEY_BYTES_MIN: usize = 32;
/// The longest key id, in characters.
const ID_MAX: usize = 16;

/// Keys with ids. `Debug` shows the ids alone.
#[derive(Clone)]
pub struct KeyRing(Vec<(String, Vec<u8>)>);

/// What is wrong with the text of a key ring. It never repeats any of a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// There is none.
    #[error("at least one key is needed, as ID:HEX")]
    Empty,
    /// An entry is not `ID:HEX`.
    #[error("key {0} (counted from 1) is not of the form ID:HEX")]
    Form(usize),
    /// An id is not usable.
    #[error("the id of key {0} (counted from 1) must have 1 to 16 characters of a-z, 0-9, - and _")]
    Id(usize),
    /// Two keys have one id.
    #[error("the key id {0} is there twice")]
    Twice(String),
    /// A key is too short.
    #[error("the key {0} must have at least 32 bytes, that is 64 hex digits")]
    Short(String),
}

impl KeyRing {
    /// Reads `ID:HEX[,ID:HEX...]`.
    ///
    /// # Errors
    /// The first thing that is wrong, without any of the keys.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let mut keys: Vec<(String, Vec<u8>)> = Vec::new();
        if text.trim().is_empty() {
            return Err(KeyError::Empty);
        }
        for (at, entry) in text.split(',').enumerate() {
            let at = at + 1;
            let (id, hex) = entry.trim().split_once(':').ok_or(KeyError::Form(at))?;
            let fits = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '-' | '_');
            if id.is_empty() || id.len() > ID_MAX || !id.chars().all(fits) {
                return Err(KeyError::Id(at));
            }
            let Ok(key) = hex::decode(hex) else { return Err(KeyError::Form(at)) };
            if key.len() < KEY_BYTES_MIN {
                return Err(KeyError::Short(id.to_owned()));
            }
            if keys.iter().any(|(known, _)| known == id) {
                return Err(KeyError::Twice(id.to_owned()));
            }
            keys.push((id.to_owned(), key));
        }
        Ok(Self(keys))
    }

    /// A ring of one fresh key from the system's random source, and the text that
    /// [`parse`](Self::parse) reads it from.
    ///
    /// # Errors
    /// When the system has no random bytes to give.
    pub fn generate() -> Result<(Self, String), getrandom::Error> {
        let mut key = [0; KEY_BYTES_MIN];
        let mut id = [0; 4];
        getrandom::fill(&mut key)?;
        getrandom::fill(&mut id)?;
        let id = format!("k{}", hex::encode(id));
        let text = format!("{id}:{}", hex::encode(key));
        Ok((Self(vec![(id, key.to_vec())]), text))
    }

    pub(super) fn signing(&self) -> (&str, &[u8]) {
        let (id, key) = self.0.first().expect("a ring is never empty");
        (id, key)
    }

    pub(super) fn find(&self, id: &[u8]) -> Option<&[u8]> {
        self.0.iter().find(|(known, _)| known.as_bytes() == id).map(|(_, key)| key.as_slice())
    }
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(id, _)| id)).finish()
    }
}
