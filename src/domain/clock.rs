//! Where time comes from.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A source of wall time. Tests set it; nothing else reads the system's clock.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Microseconds since 1970-01-01 UTC.
    fn now_us(&self) -> i64;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_us(&self) -> i64 {
        #[expect(clippy::disallowed_methods, reason = "this is the Clock that all others use")]
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    }
}

/// A clock that stands still until it is told to move, also backwards.
#[derive(Debug)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock that stands at `us` microseconds since 1970.
    #[must_use]
    pub fn at_us(us: i64) -> Self {
        Self(AtomicI64::new(us))
    }

    /// Moves the clock by `us` microseconds, backwards if negative.
    pub fn advance_us(&self, us: i64) {
        self.0.fetch_add(us, Ordering::SeqCst);
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.advance_us(i64::try_from(by.as_micros()).unwrap_or(i64::MAX));
    }
}

impl Clock for ManualClock {
    fn now_us(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// A duration in whole microseconds, for arithmetic with stored times.
#[must_use]
pub fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
