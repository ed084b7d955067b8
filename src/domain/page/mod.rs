//! Pages: how large, where the next one begins, and the signed token that says so.
//!
//! # What a walk promises
//!
//! A listing is ordered by status time and id, both descending, and a token holds the place of the
//! last task that was served. Going on means "everything after this place", so a task that does
//! not move is met exactly once, however many others come, move or vanish meanwhile, the one at
//! the boundary included. A task that moves during the walk moves to the front, where this walk
//! has been already: it may be missed, and never repeats. It is a walk over live data, not over a
//! snapshot.
//!
//! # What a token protects against
//!
//! A token works only for the listing it was made for: the same operation, tenant, owner and
//! filters, after defaults and caps were filled in. The page size may change between pages. The
//! credential and the binding play no part, so a walk may go on over another binding, through
//! another server with the same keys, or with a renewed credential. A changed, made-up, foreign or
//! outlived token is refused before any row is read, with one of two errors that do not depend on
//! what the store holds.
//!
//! A token is no credential and no secret: the scope is applied again in every query, whatever a
//! token says, and its content (a time, an id, a total) is readable by whoever holds it.
//!
//! # Bytes
//!
//! ```text
//! text  = base64url(bytes), no padding, at most 256 characters
//! bytes = version (1) | length of key id (1) | key id | PageToken (protobuf) | tag (16)
//! tag   = first 16 bytes of HMAC-SHA-256(key, all before it | digest of what it is bound to)
//! ```

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use prost::Message as _;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::contract::page::PageToken;
use crate::contract::v1::TaskState;
use crate::contract::wkt::Timestamp;
use crate::domain::{ContextId, Error, Scope, TaskId, Violation};

mod keys;

pub use keys::{KeyError, KeyRing};

/// The format that this code writes and the only one it reads.
const VERSION: u8 = 1;
/// How much of the HMAC a token carries.
const TAG_BYTES: usize = 16;
/// The longest token, in characters. Checked when one is made as well as when one is read, so
/// that none is handed out that cannot come back.
const TEXT_MAX: usize = 256;
/// Named in the digest, so that a token of one listing is none of another.
const OPERATION: &str = "ListTasks";

type Signature = Hmac<Sha256>;

/// The place after which a page begins: the last task that was served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    /// Its status time, in microseconds since 1970.
    pub status_at_us: i64,
    /// Its id, which orders tasks of one time.
    pub task: TaskId,
}

/// How many tasks a page holds at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageSize(u32);

impl PageSize {
    /// The size when none is asked for.
    pub const DEFAULT: u32 = 50;
    /// The largest size.
    pub const MAX: u32 = 100;

    /// The size to use: absent and 0 both mean the default (LIST-07, GRPC-08).
    ///
    /// # Errors
    /// A violation on `page_size` for anything outside 1 to 100.
    pub fn resolve(asked: Option<i32>) -> Result<Self, Violation> {
        let asked = asked.unwrap_or(0);
        match u32::try_from(asked) {
            Ok(0) => Ok(Self(Self::DEFAULT)),
            Ok(size) if size <= Self::MAX => Ok(Self(size)),
            Ok(_) | Err(_) => Err(Violation::new(
                "page_size",
                format!("must be from 1 to {}; 0 or absent means {}", Self::MAX, Self::DEFAULT),
            )),
        }
    }

    /// The number of tasks.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }
}

/// What a listing was asked for, defaults and caps filled in. The page size is no part of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filters {
    /// Only this context.
    pub context: Option<ContextId>,
    /// Only this state.
    pub state: Option<TaskState>,
    /// Only this status time or later, in microseconds, floored to milliseconds.
    pub since_us: Option<i64>,
    /// The most messages of history of each task.
    pub history: u32,
    /// Whether artifacts come along.
    pub artifacts: bool,
}

/// What a token carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Where to go on.
    pub cursor: Cursor,
    /// The total that page one counted.
    pub total: i64,
}

/// Why a token is refused. The caller learns only which of the two it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenError {
    /// It is not a token for this listing.
    Invalid(Reason),
    /// It was one, and its time is over.
    Expired,
}

/// What exactly is wrong with a token: for the log and the metrics alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Not base64url, too long, cut off, or with an id or a time that no task can have.
    Malformed,
    /// Of a format that this server does not know.
    Version,
    /// Signed with a key that is not in the ring.
    Key,
    /// Changed, or made for another caller, tenant or filter: the signature cannot tell which.
    Signature,
}

impl From<TokenError> for Error {
    fn from(error: TokenError) -> Self {
        match error {
            TokenError::Invalid(_) => Self::PageTokenInvalid,
            TokenError::Expired => Self::PageTokenExpired,
        }
    }
}

/// Makes and reads page tokens.
#[derive(Debug, Clone)]
pub struct PageTokens {
    keys: KeyRing,
    lifetime: Duration,
}

impl PageTokens {
    /// Signs with the first key of `keys` and accepts all of them; a token lives for `lifetime`
    /// from the page it came with.
    #[must_use]
    pub fn new(keys: KeyRing, lifetime: Duration) -> Self {
        Self { keys, lifetime }
    }

    /// The token that goes on after `place`.
    #[must_use]
    pub fn issue(&self, scope: &Scope, filters: &Filters, place: &Place, now_us: i64) -> String {
        let lifetime_ms = i64::try_from(self.lifetime.as_millis()).unwrap_or(i64::MAX);
        let payload = PageToken {
            status_at_us: place.cursor.status_at_us,
            task_id: place.cursor.task.uuid().into_bytes().to_vec().into(),
            expires_at_ms: now_us.div_euclid(1000).saturating_add(lifetime_ms),
            total_size: place.total,
        };
        let (id, key) = self.keys.signing();
        let mut bytes = vec![VERSION, u8::try_from(id.len()).unwrap_or(u8::MAX)];
        bytes.extend_from_slice(id.as_bytes());
        payload.encode_raw(&mut bytes);
        let tag = sign(key, &bytes, scope, filters).finalize().into_bytes();
        bytes.extend_from_slice(tag.get(..TAG_BYTES).unwrap_or(&tag));
        let text = URL_SAFE_NO_PAD.encode(bytes);
        debug_assert!(text.len() <= TEXT_MAX, "a token of ours always comes back");
        text
    }

    /// The place that `token` holds, if it was made for this listing and is not too old.
    ///
    /// # Errors
    /// [`TokenError::Expired`] only after the signature holds; every other fault is
    /// [`TokenError::Invalid`].
    pub fn read(
        &self,
        scope: &Scope,
        filters: &Filters,
        token: &str,
        now_us: i64,
    ) -> Result<Place, TokenError> {
        let bytes = decode(token).ok_or(TokenError::Invalid(Reason::Malformed))?;
        let parts = Parts::split(&bytes)?;
        let key = self.keys.find(parts.key_id).ok_or(TokenError::Invalid(Reason::Key))?;
        if sign(key, parts.signed, scope, filters).verify_truncated_left(parts.tag).is_err() {
            return Err(TokenError::Invalid(Reason::Signature));
        }
        let malformed = TokenError::Invalid(Reason::Malformed);
        let Ok(payload) = PageToken::decode(parts.payload) else { return Err(malformed) };
        let Ok(task) = Uuid::from_slice(&payload.task_id) else { return Err(malformed) };
        if Timestamp::from_micros(payload.status_at_us).to_micros().is_none() {
            return Err(malformed);
        }
        if payload.expires_at_ms < now_us.div_euclid(1000) {
            return Err(TokenError::Expired);
        }
        let cursor = Cursor { status_at_us: payload.status_at_us, task: task.into() };
        Ok(Place { cursor, total: payload.total_size })
    }
}

/// Strict: the alphabet, no padding, no stray bits in the last character.
fn decode(token: &str) -> Option<Vec<u8>> {
    (token.len() <= TEXT_MAX).then(|| URL_SAFE_NO_PAD.decode(token).ok()).flatten()
}

/// A token's bytes, taken apart but not yet believed.
struct Parts<'a> {
    signed: &'a [u8],
    key_id: &'a [u8],
    payload: &'a [u8],
    tag: &'a [u8],
}

impl<'a> Parts<'a> {
    fn split(bytes: &'a [u8]) -> Result<Self, TokenError> {
        let malformed = TokenError::Invalid(Reason::Malformed);
        match bytes.first() {
            Some(&VERSION) => {}
            Some(_) => return Err(TokenError::Invalid(Reason::Version)),
            None => return Err(malformed),
        }
        let (signed, tag) = bytes
            .len()
            .checked_sub(TAG_BYTES)
            .and_then(|at| bytes.split_at_checked(at))
            .ok_or(malformed)?;
        let [_, id_length, rest @ ..] = signed else { return Err(malformed) };
        let (key_id, payload) = rest.split_at_checked(usize::from(*id_length)).ok_or(malformed)?;
        Ok(Self { signed, key_id, payload, tag })
    }
}

fn sign(key: &[u8], bytes: &[u8], scope: &Scope, filters: &Filters) -> Signature {
    let mut mac = Signature::new_from_slice(key).expect("HMAC takes keys of every length");
    mac.update(bytes);
    mac.update(&bound_to(scope, filters));
    mac
}

/// The digest of everything a token is bound to. Each part has its length before it, so that no
/// two listings have the same text.
fn bound_to(scope: &Scope, filters: &Filters) -> [u8; 32] {
    // Without `..`: a new filter has to decide here whether it binds.
    let Filters { context, state, since_us, history, artifacts } = filters;
    let mut digest = Sha256::new();
    let mut part = |bytes: &[u8]| {
        digest.update((bytes.len() as u64).to_be_bytes());
        digest.update(bytes);
    };
    part(OPERATION.as_bytes());
    part(scope.tenant().as_str().as_bytes());
    part(scope.owner().as_str().as_bytes());
    part(context.as_ref().map_or("", ContextId::as_str).as_bytes());
    part(&state.map_or(0, |state| state as i32).to_be_bytes());
    part(&since_us.map_or_else(Vec::new, |us| us.to_be_bytes().to_vec()));
    part(&history.to_be_bytes());
    part(&[u8::from(*artifacts)]);
    digest.finalize().into()
}

#[cfg(test)]
mod tests;
