//! Room for answers that are on their way: how many bytes may wait to be read by their callers.
//!
//! A caller that asks and does not read costs the server the bytes of its answers, and costs the
//! caller nothing. So answers take room, of their connection's share and of the whole, from before
//! they are loaded until their last byte has left. A call that finds none waits; in the end it is
//! refused. Small answers have room of their own, so that large ones that nobody reads do not keep
//! everybody else waiting; and when the whole is used up, the connection that holds most of it and
//! takes nothing is cut.
//!
//! An answer's size is known when it is loaded. So a call enters with room for a small one, loads,
//! and takes what it needs; if that is not there, it lets go of what it loaded, waits, and loads
//! again. The sizes of large answers are remembered for a while, so that whoever asks for one again
//! waits before it is loaded. What is loaded without room is bounded by the calls of a connection
//! that may do so at a time, and by the reads that the store does.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use prost::Message;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::domain::{Error, Scope};

/// How much may be on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// In all, in bytes.
    pub bytes: usize,
    /// To one connection, in bytes.
    pub bytes_per_connection: usize,
}

/// Room is counted in these, in bytes.
const UNIT: usize = 1024;
/// Answers of at most so many bytes take none once they are made: a connection's own cost is more.
const TINY: usize = 4 * UNIT;
/// What a call enters with.
const ENTRY: usize = 16 * UNIT;
/// The most bytes of a small answer, which has room of its own: a quarter of all there is.
const SMALL: usize = 64 * UNIT;
/// How many calls of one connection load at a time what may turn out to be large.
const LOADS: usize = 16;
/// How many large answers are remembered by their size.
const REMEMBERED: usize = 4096;

/// How long who waits for what.
#[derive(Debug, Clone, Copy)]
struct Times {
    /// A call for room.
    patience: Duration,
    /// A call that waits, before it looks for connections that take nothing.
    look_every: Duration,
    /// A connection that takes nothing, while others wait for its room.
    stalled_after: Duration,
}

const TIMES: Times = Times {
    patience: Duration::from_secs(10),
    look_every: Duration::from_millis(500),
    stalled_after: Duration::from_secs(5),
};

/// Room for small answers, and for others.
#[derive(Debug, Clone)]
struct Pools {
    small: Arc<Semaphore>,
    large: Arc<Semaphore>,
    small_units: usize,
    large_units: usize,
}

impl Pools {
    fn new(bytes: usize) -> Self {
        let units = (bytes / UNIT).min(Semaphore::MAX_PERMITS);
        let small_units = (units / 4).max(ENTRY / UNIT);
        let large_units = units.saturating_sub(small_units).max(SMALL / UNIT);
        Self {
            small: Arc::new(Semaphore::new(small_units)),
            large: Arc::new(Semaphore::new(large_units)),
            small_units,
            large_units,
        }
    }

    /// Where an answer of `bytes` takes room, and how many units. One that is larger than all
    /// there is takes all of it.
    fn of(&self, bytes: usize) -> (&Arc<Semaphore>, u32) {
        let (pool, all) = if bytes <= SMALL {
            (&self.small, self.small_units)
        } else {
            (&self.large, self.large_units)
        };
        (pool, u32::try_from(bytes.div_ceil(UNIT).min(all)).unwrap_or(u32::MAX))
    }
}

/// The room of a whole server. Clones are the same room.
#[derive(Clone)]
pub struct Budget(Arc<Whole>);

struct Whole {
    pools: Pools,
    limits: Limits,
    times: Times,
    began: Instant,
    connections: Mutex<HashMap<u64, Weak<Share>>>,
    next: AtomicU64,
    /// The bytes of large answers, by what was asked.
    large: Mutex<HashMap<Asked, usize>>,
}

/// What was asked: a digest of the request and of whose rows it may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Asked(u64);

impl Asked {
    pub(super) fn new(scope: &Scope, request: &impl Message) -> Self {
        let mut hasher = DefaultHasher::new();
        scope.hash(&mut hasher);
        hasher.write(&request.encode_to_vec());
        Self(hasher.finish())
    }

    pub(super) fn of_task(scope: &Scope, task: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        (scope, task).hash(&mut hasher);
        Self(hasher.finish())
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget").field("limits", &self.0.limits).finish_non_exhaustive()
    }
}

impl Budget {
    /// All the room there is.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self::timed(limits, TIMES)
    }

    fn timed(limits: Limits, times: Times) -> Self {
        Self(Arc::new(Whole {
            pools: Pools::new(limits.bytes),
            limits,
            times,
            began: Instant::now(),
            connections: Mutex::default(),
            next: AtomicU64::new(0),
            large: Mutex::default(),
        }))
    }

    /// The share of a new connection.
    #[must_use]
    pub fn connection(&self) -> Arc<Share> {
        let share = Arc::new(Share {
            id: self.0.next.fetch_add(1, Ordering::Relaxed),
            whole: Arc::clone(&self.0),
            pools: Pools::new(self.0.limits.bytes_per_connection),
            held: AtomicUsize::new(0),
            moved_ms: AtomicU64::new(0),
            loads: Semaphore::new(LOADS),
            cut: CancellationToken::new(),
        });
        self.0.connections().insert(share.id, Arc::downgrade(&share));
        share
    }
}

impl Whole {
    fn connections(&self) -> MutexGuard<'_, HashMap<u64, Weak<Share>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How large the answer was, if it was large.
    fn size_of(&self, asked: Asked) -> Option<usize> {
        self.large.lock().unwrap_or_else(PoisonError::into_inner).get(&asked).copied()
    }

    fn remember(&self, asked: Asked, bytes: usize) {
        let mut large = self.large.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes <= SMALL {
            large.remove(&asked);
            return;
        }
        if large.len() >= REMEMBERED && !large.contains_key(&asked) {
            // Whoever asks again teaches it again.
            large.clear();
        }
        large.insert(asked, bytes);
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Cuts the connection that holds most of those that have taken nothing for a while.
    fn cut_one(&self) {
        let stalled_ms = u64::try_from(self.times.stalled_after.as_millis()).unwrap_or(u64::MAX);
        let long_ago = self.now_ms().saturating_sub(stalled_ms);
        let shares: Vec<_> = self.connections().values().filter_map(Weak::upgrade).collect();
        let stalled = shares.iter().filter(|share| {
            share.moved_ms.load(Ordering::Relaxed) < long_ago && !share.cut.is_cancelled()
        });
        let held = |share: &&Arc<Share>| share.held.load(Ordering::Relaxed);
        if let Some(most) = stalled.max_by_key(held).filter(|share| held(share) > 0) {
            tracing::warn!(
                answers.bytes = held(&most),
                "a connection that does not read its answers is cut, since others wait for room"
            );
            most.cut.cancel();
        }
    }
}

/// What one connection may have on its way.
pub struct Share {
    id: u64,
    whole: Arc<Whole>,
    pools: Pools,
    /// Bytes of answers that are being sent and have not left.
    held: AtomicUsize,
    /// When something left last, or began to wait when nothing did.
    moved_ms: AtomicU64,
    loads: Semaphore,
    cut: CancellationToken,
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Share").field("held", &self.held).finish_non_exhaustive()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.whole.connections().remove(&self.id);
    }
}

impl Share {
    /// Ends when the connection is to be cut.
    #[must_use]
    pub fn cut(&self) -> CancellationToken {
        self.cut.clone()
    }

    /// Room for one call.
    #[must_use]
    pub fn call(self: &Arc<Self>) -> Room {
        Room { share: Arc::clone(self), hold: Arc::default() }
    }

    fn moved(&self) {
        self.moved_ms.store(self.whole.now_ms(), Ordering::Relaxed);
    }

    fn hold(self: &Arc<Self>, permits: [OwnedSemaphorePermit; 2], bytes: usize) -> Hold {
        Hold { share: Arc::clone(self), bytes, sending: false, _permits: permits }
    }

    fn try_take(self: &Arc<Self>, bytes: usize) -> Option<Hold> {
        let (pool, units) = self.pools.of(bytes);
        let own = Arc::clone(pool).try_acquire_many_owned(units).ok()?;
        let (pool, units) = self.whole.pools.of(bytes);
        let whole = Arc::clone(pool).try_acquire_many_owned(units).ok()?;
        Some(self.hold([own, whole], bytes))
    }

    async fn take(self: &Arc<Self>, bytes: usize) -> Result<Hold, Error> {
        let until = Instant::now() + self.whole.times.patience;
        let (pool, units) = self.pools.of(bytes);
        let own = tokio::time::timeout_at(until, Arc::clone(pool).acquire_many_owned(units));
        let Ok(own) = own.await else {
            return Err(Error::Overloaded(
                "earlier answers have not been read on this connection; read them first".to_owned(),
            ));
        };
        let own = own.map_err(Error::internal)?;
        let (pool, units) = self.whole.pools.of(bytes);
        let whole = Arc::clone(pool).acquire_many_owned(units);
        let mut whole = std::pin::pin!(whole);
        let mut look = tokio::time::interval(self.whole.times.look_every);
        loop {
            tokio::select! {
                taken = whole.as_mut() => {
                    let whole = taken.map_err(Error::internal)?;
                    return Ok(self.hold([own, whole], bytes));
                }
                () = tokio::time::sleep_until(until) => {
                    return Err(Error::unavailable("no room for an answer"));
                }
                _ = look.tick() => self.whole.cut_one(),
            }
        }
    }
}

/// Room that an answer has, until this is dropped.
pub struct Hold {
    share: Arc<Share>,
    bytes: usize,
    sending: bool,
    _permits: [OwnedSemaphorePermit; 2],
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Hold {
    /// From now on its bytes are on their way, and it is for the client to take them.
    fn sent(mut self) -> Self {
        self.sending = true;
        if self.share.held.fetch_add(self.bytes, Ordering::Relaxed) == 0 {
            self.share.moved();
        }
        self
    }

    /// Says that a part of the answer has left.
    pub fn moved(&self) {
        self.share.moved();
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.sending {
            self.share.held.fetch_sub(self.bytes, Ordering::Relaxed);
            self.share.moved();
        }
    }
}

/// The room of one call. Clones are of the same call.
#[derive(Debug, Clone)]
pub struct Room {
    share: Arc<Share>,
    hold: Arc<Mutex<Option<Hold>>>,
}

impl Room {
    fn put(&self, hold: Option<Hold>) {
        *self.hold.lock().unwrap_or_else(PoisonError::into_inner) = hold;
    }

    /// What the call's answer has, for whoever sends it now.
    #[must_use]
    pub fn taken(&self) -> Option<Hold> {
        self.hold.lock().unwrap_or_else(PoisonError::into_inner).take().map(Hold::sent)
    }

    /// Waits for room to begin with.
    async fn enter(&self) -> Result<(), Error> {
        let entry = match self.share.try_take(ENTRY) {
            Some(entry) => entry,
            None => self.share.take(ENTRY).await?,
        };
        self.put(Some(entry));
        Ok(())
    }

    /// Changes what the call has to room for an answer of `bytes`; `false`, and nothing any more,
    /// if there is not so much.
    fn fits(&self, bytes: usize) -> bool {
        let has =
            self.hold.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|h| h.bytes);
        if bytes > SMALL && has.is_some_and(|has| has >= bytes) {
            return true;
        }
        self.put(None);
        if bytes <= TINY {
            return true;
        }
        let hold = self.share.try_take(bytes);
        let fits = hold.is_some();
        self.put(hold);
        fits
    }

    async fn wait(&self, bytes: usize) -> Result<(), Error> {
        let hold = self.share.take(bytes).await?;
        self.put(Some(hold));
        Ok(())
    }
}

/// The answer to what was `asked`, with room for it, for a call that has a connection. It is loaded
/// by `load`, a second time if it had to be let go.
pub(super) async fn loaded<T, L>(
    room: Option<&Room>,
    asked: Asked,
    load: impl Fn() -> L,
) -> Result<T, Error>
where
    T: Message,
    L: Future<Output = Result<T, Error>>,
{
    let Some(room) = room else { return load().await };
    let share = &room.share;
    room.enter().await?;
    let loading = share.loads.acquire().await.map_err(Error::internal)?;
    // Looked up as late as can be: a call before this one may have learned it just now.
    if let Some(bytes) = share.whole.size_of(asked) {
        drop(loading);
        room.put(None);
        room.wait(bytes).await?;
        return kept(Some(room), asked, load().await?, load).await;
    }
    let answer = load().await?;
    drop(loading);
    kept(Some(room), asked, answer, load).await
}

/// As [`loaded`], for an answer that is there already.
pub(super) async fn kept<T, L>(
    room: Option<&Room>,
    asked: Asked,
    answer: T,
    load_again: impl Fn() -> L,
) -> Result<T, Error>
where
    T: Message,
    L: Future<Output = Result<T, Error>>,
{
    let Some(room) = room else { return Ok(answer) };
    let bytes = answer.encoded_len();
    if bytes > SMALL || room.share.whole.size_of(asked).is_some() {
        room.share.whole.remember(asked, bytes);
    }
    if room.fits(bytes) {
        return Ok(answer);
    }
    drop(answer);
    room.wait(bytes).await?;
    load_again().await
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn budget(bytes: usize, bytes_per_connection: usize) -> Budget {
        let ms = Duration::from_millis;
        let times = Times { patience: ms(2_000), look_every: ms(20), stalled_after: ms(300) };
        Budget::timed(Limits { bytes, bytes_per_connection }, times)
    }

    fn has(room: &Room) -> bool {
        room.hold.lock().unwrap().is_some()
    }

    #[tokio::test]
    async fn an_answer_has_room_until_it_is_dropped() {
        let share = budget(64 * MIB, 8 * MIB).connection();
        let (one, two) = (share.call(), share.call());
        one.enter().await.unwrap();
        assert!(one.fits(5 * MIB) && has(&one));
        assert!(!two.fits(5 * MIB) && !has(&two), "six are for large answers");
        assert!(two.fits(50 * UNIT), "small ones have room of their own");
        drop(one.taken());
        assert!(two.fits(5 * MIB));
        assert!(two.fits(TINY) && !has(&two), "and tiny ones need none");
    }

    #[tokio::test]
    async fn an_answer_larger_than_all_room_goes_alone() {
        let share = budget(8 * MIB, 4 * MIB).connection();
        let (one, two) = (share.call(), share.call());
        assert!(one.fits(100 * MIB));
        assert!(!two.fits(65 * UNIT));
        drop(one.taken());
        assert!(two.fits(100 * MIB));
    }

    #[tokio::test]
    async fn a_call_waits_for_the_answers_before_it() {
        let share = budget(64 * MIB, 8 * MIB).connection();
        let first = share.call();
        assert!(first.fits(6 * MIB));
        let second = share.call();
        let mut waiting = std::pin::pin!(second.wait(6 * MIB));
        let a_while = Duration::from_millis(100);
        assert!(tokio::time::timeout(a_while, waiting.as_mut()).await.is_err());
        drop(first.taken());
        waiting.await.unwrap();
        drop(second.taken());

        let third = share.call();
        assert!(third.fits(6 * MIB));
        let refused = share.call().wait(6 * MIB).await.unwrap_err();
        assert!(matches!(refused, Error::Overloaded(_)), "{refused:?}");
    }

    #[tokio::test]
    async fn who_takes_nothing_is_cut_when_others_wait_and_not_before() {
        let budget = budget(16 * MIB, 12 * MIB);
        let (idle, busy, other) = (budget.connection(), budget.connection(), budget.connection());
        let (of_idle, of_busy, asking) = (idle.call(), busy.call(), budget.connection());
        assert!(of_idle.fits(7 * MIB) && of_busy.fits(4 * MIB));
        let loading = asking.call();
        assert!(loading.fits(65 * UNIT), "what is being loaded is not for the client to take");
        let idle_hold = of_idle.taken().unwrap();
        tokio::time::sleep(Duration::from_millis(600)).await;
        assert!(!idle.cut().is_cancelled(), "there is room for all");

        let busy_hold = of_busy.taken().unwrap();
        let moving = async {
            loop {
                busy_hold.moved();
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let connection = async {
            // What a connection does when it is cut.
            idle.cut().cancelled().await;
            drop(idle_hold);
            std::future::pending::<()>().await;
        };
        let call = other.call();
        tokio::select! {
            done = call.wait(7 * MIB) => done.unwrap(),
            () = moving => {}
            () = connection => {}
        }
        assert!(!busy.cut().is_cancelled() && !asking.cut().is_cancelled());
    }

    #[tokio::test]
    async fn what_does_not_fit_is_let_go_and_loaded_again() {
        let share = budget(64 * MIB, 8 * MIB).connection();
        let first = share.call();
        assert!(first.fits(6 * MIB));
        let loads = AtomicU64::new(0);
        let room = share.call();
        let load = || async {
            loads.fetch_add(1, Ordering::Relaxed);
            Ok::<_, Error>("x".repeat(3 * MIB))
        };
        let release = async {
            while loads.load(Ordering::Relaxed) == 0 {
                tokio::task::yield_now().await;
            }
            drop(first.taken());
        };
        let (answer, ()) = tokio::join!(loaded(Some(&room), Asked(1), load), release);
        assert_eq!((answer.unwrap().len(), loads.load(Ordering::Relaxed)), (3 * MIB, 2));
        assert!(has(&room));
        assert!(loaded(None, Asked(1), load).await.is_ok(), "a call from inside needs none");

        // Once its size is known, it is not loaded before there is room.
        let again = share.call();
        let refused = loaded(Some(&again), Asked(1), async || -> Result<String, Error> {
            panic!("there is no room")
        });
        assert!(tokio::time::timeout(Duration::from_millis(100), refused).await.is_err());
    }
}
