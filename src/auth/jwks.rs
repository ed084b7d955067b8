//! The keys of an issuer, kept fresh beside the calls that use them.
//!
//! One loop for each issuer reads its set again: when it has grown old, and when a token names a key
//! that is not known, but never more often than [`Timing::refetch`] allows. No call reads a set by
//! itself, so no caller can make the server ask an issuer more often than that. While the source
//! fails, the last keys go on for [`Timing::keep`].

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::auth::fetch::{FETCH_WITHIN, Source};
use crate::auth::keys::{self, Algorithm, Key};

/// When a set is read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// How long a set is fresh whose source says nothing about that.
    pub refresh: Duration,
    /// The least time between two readings, whatever makes them.
    pub refetch: Duration,
    /// How long the last keys are used while the source fails.
    pub keep: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            refresh: Duration::from_secs(300),
            refetch: Duration::from_secs(10),
            keep: Duration::from_secs(86_400),
        }
    }
}

/// The longest that a source may ask to be left alone.
const FRESH_MAX: Duration = Duration::from_secs(3600);
/// How long it rests after a failure: twice as long each time, up to the most.
const REST: Duration = Duration::from_secs(1);
const REST_MAX: Duration = Duration::from_secs(60);

/// Why there is no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    /// The issuer has no such key.
    Unknown,
    /// The issuer's keys cannot be had.
    NoKeys,
}

/// The keys of one issuer. Clones share them.
#[derive(Debug, Clone)]
pub struct Jwks(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    source: Source,
    algorithms: Vec<Algorithm>,
    timing: Timing,
    state: watch::Sender<State>,
    asked: Notify,
}

#[derive(Debug, Clone, Default)]
struct State {
    keys: Arc<[Key]>,
    /// When they were read.
    read_at: Option<Instant>,
    /// When the last attempt ended.
    tried_at: Option<Instant>,
    attempts: u64,
    /// A loop is there, and it is reading.
    reading: bool,
    /// A loop is there.
    kept: bool,
}

impl Jwks {
    /// The keys at `source` that verify one of `algorithms`; none yet.
    #[must_use]
    pub fn new(source: Source, algorithms: Vec<Algorithm>, timing: Timing) -> Self {
        let (state, _) = watch::channel(State::default());
        Self(Arc::new(Inner { source, algorithms, timing, state, asked: Notify::new() }))
    }

    /// Where they are.
    #[must_use]
    pub fn source(&self) -> &Source {
        &self.0.source
    }

    /// Takes the keys of a set that was read by somebody else. Returns how many there are.
    ///
    /// # Errors
    /// What is wrong with the set, in words.
    pub fn take(&self, set: &[u8]) -> Result<usize, String> {
        let keys = keys::read(set, &self.0.algorithms)?;
        let count = keys.len();
        let now = Instant::now();
        self.0.state.send_modify(|state| {
            state.keys = keys.into();
            state.read_at = Some(now);
        });
        Ok(count)
    }

    /// The key of this name; the only one there is, for a token that names none.
    pub(super) async fn key(&self, kid: Option<&str>) -> Result<Key, Missing> {
        let inner = &*self.0;
        let state = inner.state.borrow().clone();
        let missing = match state.find(kid, inner.timing.keep) {
            Ok(key) => return Ok(key),
            Err(missing) => missing,
        };
        let rested = state.tried_at.is_none_or(|at| at.elapsed() >= inner.timing.refetch);
        if !state.kept || !(state.reading || rested) {
            return Err(missing);
        }
        let mut changes = inner.state.subscribe();
        inner.asked.notify_one();
        let read = changes.wait_for(|now| now.attempts > state.attempts);
        // Whether it came or not: what counts is what is there now.
        drop(tokio::time::timeout(FETCH_WITHIN, read).await);
        let now = inner.state.borrow().clone();
        now.find(kid, inner.timing.keep)
    }

    /// Says that [`run`](Self::run) will be called, so that the first calls wait for it.
    pub fn begin(&self) {
        self.0.state.send_modify(|state| {
            state.kept = true;
            state.reading = state.read_at.is_none();
        });
    }

    /// Reads the set again whenever it is time, for ever.
    pub async fn run(self) {
        let inner = &*self.0;
        let mut failures = 0;
        if inner.state.borrow().read_at.is_some() {
            self.rest(inner.timing.refresh).await;
        }
        loop {
            inner.state.send_modify(|state| state.reading = true);
            let outcome = inner.source.fetch().await;
            let read = outcome.map_err(|error| error.to_string()).and_then(|fetched| {
                let count = self.take(&fetched.body)?;
                Ok((count, fetched.max_age))
            });
            let now = Instant::now();
            inner.state.send_modify(|state| {
                state.reading = false;
                state.tried_at = Some(now);
                state.attempts += 1;
            });
            let rest = match read {
                Ok((count, max_age)) => {
                    tracing::debug!(jwks.source = %inner.source, jwks.keys = count, "keys read");
                    failures = 0;
                    fresh(max_age, inner.timing)
                }
                Err(problem) => {
                    failures += 1;
                    tracing::warn!(
                        jwks.source = %inner.source,
                        error.text = problem,
                        jwks.failures = failures,
                        "an issuer's keys cannot be read"
                    );
                    after_failure(failures, inner.timing)
                }
            };
            self.rest(rest).await;
        }
    }

    /// Waits for so long, or until somebody asks for a key that is not known.
    async fn rest(&self, time: Duration) {
        let inner = &*self.0;
        let until = Instant::now() + time;
        let asked = async {
            loop {
                inner.asked.notified().await;
                let tried = inner.state.borrow().tried_at;
                if tried.is_none_or(|at| at.elapsed() >= inner.timing.refetch) {
                    return;
                }
            }
        };
        drop(tokio::time::timeout_at(until, asked).await);
    }
}

impl State {
    fn find(&self, kid: Option<&str>, keep: Duration) -> Result<Key, Missing> {
        if self.read_at.is_none_or(|at| at.elapsed() > keep) {
            return Err(Missing::NoKeys);
        }
        let found = match (kid, &*self.keys) {
            (Some(kid), keys) => keys.iter().find(|key| key.kid.as_deref() == Some(kid)),
            (None, [only]) => Some(only),
            (None, _) => None,
        };
        found.cloned().ok_or(Missing::Unknown)
    }
}

/// How long a set is fresh.
fn fresh(max_age: Option<Duration>, timing: Timing) -> Duration {
    let most = FRESH_MAX.max(timing.refetch);
    max_age.unwrap_or(timing.refresh).clamp(timing.refetch, most)
}

/// How long to rest after so many failures in a row. Servers that failed together do not come back
/// together.
fn after_failure(failures: u32, timing: Timing) -> Duration {
    let rest = REST.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1).min(10)));
    let mut random = [0; 1];
    // Without random bytes there is no jitter, which harms nobody.
    getrandom::fill(&mut random).ok();
    let jitter = f64::from(random[0]) / 512.0;
    rest.min(REST_MAX).mul_f64(0.75 + jitter).max(timing.refetch)
}
