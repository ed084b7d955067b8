//! What each caller may ask of a server: calls by kind, streams at a time, live tasks.
//!
//! Rates and streams are counted in this process, so several servers together admit a multiple;
//! tasks are counted by the store. A caller is its principal: callers without credentials are one.

use std::collections::HashMap;
use std::hash::Hash;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota};
use tokio::time::Instant;

use crate::domain::{Caller, Error, Principal, Scope, Tenant};
use crate::metrics::Metrics;
use crate::store::{Owners, Store};

/// The kinds of calls that have rates of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// SendMessage and SendStreamingMessage.
    Send,
    /// GetTask.
    Get,
    /// ListTasks.
    List,
    /// CancelTask.
    Cancel,
    /// SubscribeToTask.
    Subscribe,
    /// Webhooks and the extended card.
    Other,
}

/// Every kind, in the order of [`Quotas::rates`].
pub const CLASSES: [Class; 6] =
    [Class::Send, Class::Get, Class::List, Class::Cancel, Class::Subscribe, Class::Other];

impl Class {
    /// Its name in the settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Get => "get",
            Self::List => "list",
            Self::Cancel => "cancel",
            Self::Subscribe => "subscribe",
            Self::Other => "other",
        }
    }

    fn place(self) -> usize {
        CLASSES.iter().position(|class| *class == self).unwrap_or_default()
    }
}

/// How often calls of one kind may come from one caller: a bucket of `burst`, which fills by
/// `calls` in `per`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Calls in each span of `per`.
    pub calls: NonZeroU32,
    /// The span.
    pub per: Duration,
    /// Calls that may come at once after a rest.
    pub burst: NonZeroU32,
}

/// What one caller, or all callers of one tenant together, may have at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Share {
    /// Streams of this server; any number without it.
    pub streams: Option<u32>,
    /// Shown tasks that have not ended; any number without it. Calls that race may each add one.
    pub open_tasks: Option<u32>,
}

/// Every quota. By default there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quotas {
    /// By [`CLASSES`].
    pub rates: [Option<Rate>; CLASSES.len()],
    /// For each caller, in each of its tenants.
    pub caller: Share,
    /// For each tenant.
    pub tenant: Share,
}

/// A place that is full comes free soon, but nobody knows when.
const SOON: Duration = Duration::from_secs(1);
/// How old a tenant's number of live tasks may be. Counting them reads a row for each owner.
const COUNT_AGE_MAX: Duration = Duration::from_secs(1);

/// The quotas, and how much of them is taken.
pub(super) struct Meter {
    quotas: Quotas,
    buckets: [Option<DefaultKeyedRateLimiter<Principal>>; CLASSES.len()],
    clock: DefaultClock,
    metrics: Metrics,
    of_caller: Places<(Tenant, Principal)>,
    of_tenant: Places<Tenant>,
    /// How many live tasks each tenant had at a time.
    counts: Mutex<HashMap<Tenant, (Instant, i64)>>,
}

impl Meter {
    pub(super) fn new(quotas: Quotas, metrics: Metrics) -> Self {
        let bucket = |rate: Rate| {
            let quota = Quota::with_period(rate.per / rate.calls.get())?.allow_burst(rate.burst);
            Some(DefaultKeyedRateLimiter::dashmap(quota))
        };
        Self {
            quotas,
            buckets: quotas.rates.map(|rate| rate.and_then(bucket)),
            clock: DefaultClock::default(),
            metrics,
            of_caller: Places::default(),
            of_tenant: Places::default(),
            counts: Mutex::default(),
        }
    }

    /// Takes one call of a kind from the caller's bucket.
    ///
    /// # Errors
    /// [`Error::TooMany`] if it is empty, with the time until it is not.
    pub(super) fn admit(&self, caller: &Caller, class: Class) -> Result<(), Error> {
        let place = class.place();
        let Some(Some(bucket)) = self.buckets.get(place) else { return Ok(()) };
        bucket.check_key(caller.principal()).map_err(|until| {
            self.metrics.limited.one([("limit", "rate")]);
            Error::TooMany {
                what: format!(
                    "too many calls of the kind `{}`; send them more slowly",
                    class.name()
                ),
                retry_in: until.wait_time_from(self.clock.now()),
            }
        })
    }

    /// Takes places for a stream, given back when the value is dropped; `None` where streams are
    /// not counted.
    ///
    /// # Errors
    /// [`Error::TooMany`] if the caller or the tenant has its number of streams.
    pub(super) fn stream(&self, caller: &Caller, tenant: &Tenant) -> Result<Option<Stream>, Error> {
        let Quotas { caller: own, tenant: all, rates: _ } = self.quotas;
        if own.streams.is_none() && all.streams.is_none() {
            return Ok(None);
        }
        let full = |whose: &str, max: u32| {
            self.metrics.limited.one([("limit", "streams")]);
            let what = format!("{whose} has {max} streams on this server; end one first");
            Error::TooMany { what, retry_in: SOON }
        };
        let caller = match own.streams {
            None => None,
            Some(max) => {
                let key = (tenant.clone(), caller.principal().clone());
                Some(self.of_caller.take(key, max).ok_or_else(|| full("the caller", max))?)
            }
        };
        let tenant = match all.streams {
            None => None,
            Some(max) => {
                let taken = self.of_tenant.take(tenant.clone(), max);
                Some(taken.ok_or_else(|| full("the tenant", max))?)
            }
        };
        Ok(Some(Stream { _caller: caller, _tenant: tenant }))
    }

    /// Whether one more task may begin in this scope.
    ///
    /// # Errors
    /// [`Error::TooMany`] if the caller or the tenant has its number of tasks; those of the store.
    pub(super) async fn task(&self, store: &dyn Store, scope: &Scope) -> Result<(), Error> {
        let Quotas { caller: own, tenant: all, rates: _ } = self.quotas;
        let full = |whose: &str, max: u32| {
            self.metrics.limited.one([("limit", "open_tasks")]);
            let what =
                format!("{whose} has {max} tasks that have not ended; let one end, or cancel it");
            Error::TooMany { what, retry_in: SOON }
        };
        if let Some(max) = own.open_tasks
            && store.live_tasks(scope, Owners::One).await? >= i64::from(max)
        {
            return Err(full("the caller", max));
        }
        if let Some(max) = all.open_tasks
            && self.live_in_tenant(store, scope).await? >= i64::from(max)
        {
            return Err(full("the tenant", max));
        }
        Ok(())
    }

    /// The tenant's live tasks as they were counted lately, and those admitted since.
    async fn live_in_tenant(&self, store: &dyn Store, scope: &Scope) -> Result<i64, Error> {
        let tenant = scope.tenant();
        {
            let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            counts.retain(|_, (at, _)| at.elapsed() < COUNT_AGE_MAX);
            if let Some((_, n)) = counts.get_mut(tenant) {
                *n += 1;
                return Ok(*n - 1);
            }
        }
        let n = store.live_tasks(scope, Owners::All).await?;
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.insert(tenant.clone(), (Instant::now(), n + 1));
        Ok(n)
    }

    /// Forgets callers whose buckets are full again.
    pub(super) fn tidy(&self) {
        for bucket in self.buckets.iter().flatten() {
            bucket.retain_recent();
            bucket.shrink_to_fit();
        }
    }
}

/// The places of one stream.
#[derive(Debug)]
pub(super) struct Stream {
    _caller: Option<Place<(Tenant, Principal)>>,
    _tenant: Option<Place<Tenant>>,
}

/// How many places are taken, by key. A key without one is forgotten.
#[derive(Debug)]
struct Places<K>(Arc<Mutex<HashMap<K, u32>>>);

impl<K> Default for Places<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: Hash + Eq + Clone> Places<K> {
    fn take(&self, key: K, max: u32) -> Option<Place<K>> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let n = taken.get(&key).copied().unwrap_or_default();
        if n >= max {
            return None;
        }
        taken.insert(key.clone(), n + 1);
        Some(Place { key, taken: Arc::clone(&self.0) })
    }
}

#[derive(Debug)]
struct Place<K: Hash + Eq> {
    key: K,
    taken: Arc<Mutex<HashMap<K, u32>>>,
}

impl<K: Hash + Eq> Drop for Place<K> {
    fn drop(&mut self) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(n) = taken.get_mut(&self.key) {
            *n -= 1;
            if *n == 0 {
                taken.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::domain::Tenants;

    fn caller(name: &str) -> Caller {
        let tenants = Tenants::Listed(BTreeSet::from([Tenant::default_tenant()]));
        Caller::new(Principal::parse("name", name).unwrap(), tenants)
    }

    fn rate(calls: u32, per: Duration, burst: u32) -> Rate {
        Rate { calls: calls.try_into().unwrap(), per, burst: burst.try_into().unwrap() }
    }

    #[test]
    fn an_empty_bucket_refuses_its_caller_alone_and_says_for_how_long() {
        let hour = Duration::from_secs(3600);
        let mut quotas = Quotas::default();
        quotas.rates[Class::List.place()] = Some(rate(2, hour, 3));
        let meter = Meter::new(quotas, Metrics::default());
        let (ann, bob) = (caller("ann"), caller("bob"));
        for _ in 0..3 {
            meter.admit(&ann, Class::List).unwrap();
        }
        let Err(Error::TooMany { what, retry_in }) = meter.admit(&ann, Class::List) else {
            panic!("a fourth call was admitted");
        };
        assert!(what.contains("`list`"), "{what}");
        assert!(retry_in > hour / 2 - Duration::from_secs(60) && retry_in <= hour / 2);
        meter.admit(&bob, Class::List).unwrap();
        for _ in 0..100 {
            meter.admit(&ann, Class::Get).unwrap();
        }
        meter.tidy();
        assert!(meter.admit(&ann, Class::List).is_err(), "the bucket was forgotten");
    }

    #[test]
    fn a_place_comes_free_when_its_stream_ends() {
        let share = |streams| Share { streams: Some(streams), open_tasks: None };
        let meter = Meter::new(
            Quotas { caller: share(2), tenant: share(3), ..Quotas::default() },
            Metrics::default(),
        );
        let (ann, bob, tenant) = (caller("ann"), caller("bob"), Tenant::default_tenant());
        let first = meter.stream(&ann, &tenant).unwrap();
        let _second = meter.stream(&ann, &tenant).unwrap();
        assert!(meter.stream(&ann, &tenant).is_err());
        let _third = meter.stream(&bob, &tenant).unwrap();
        // Bob has room, the tenant has none; what was taken for him is given back.
        assert!(meter.stream(&bob, &tenant).is_err());
        assert_eq!(meter.of_caller.0.lock().unwrap().len(), 2);
        drop(first);
        let _fourth = meter.stream(&bob, &tenant).unwrap();
        let other = Tenant::parse("tenant", "blue").unwrap();
        drop(meter.stream(&ann, &other).unwrap());
        assert_eq!(meter.of_tenant.0.lock().unwrap().len(), 1);
    }
}
