//! What the tests share: databases, servers, clients, and ways to wait.

pub(crate) mod cluster;
pub(crate) mod envoy;
pub(crate) mod issuer;
pub(crate) mod pgbouncer;
pub(crate) mod postgres;
pub(crate) mod program;

use std::time::{Duration, Instant};

/// Longer than anything that works takes, on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until `look` finds something.
pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut look: impl FnMut() -> F,
) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < until, "gave up waiting: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// How many times over the long forms of the tests were asked for; `make torture` asks for one.
fn torture_rounds() -> u64 {
    let Some(value) = std::env::var_os("A2AD_TORTURE") else { return 0 };
    let Some(value) = value.to_str() else { panic!("A2AD_TORTURE must be a number") };
    match value {
        "" => 0,
        number => number.parse().expect("A2AD_TORTURE must be a number"),
    }
}

/// Whether the long forms of the tests were asked for, as `make torture` does.
pub(crate) fn torture() -> bool {
    torture_rounds() > 0
}

/// How many rounds: `short`, or `long` as often as `A2AD_TORTURE` says.
pub(crate) fn rounds(short: u64, long: u64) -> u64 {
    if torture() { long.saturating_mul(torture_rounds()) } else { short }
}

/// The seed of a random test: printed by it when it fails, and taken from `A2AD_SEED` to repeat.
pub(crate) fn seed() -> u64 {
    let set = std::env::var_os("A2AD_SEED").and_then(|seed| seed.to_str()?.parse().ok());
    set.unwrap_or_else(|| {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).unwrap();
        u64::from_le_bytes(bytes)
    })
}

/// A small random source that a seed repeats (`SplitMix64`).
#[derive(Debug, Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n as u64).unwrap()
    }

    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    pub(crate) fn chance(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }
}
