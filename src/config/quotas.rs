//! What each caller may ask for, as the settings file says it.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use serde::Deserialize;

use crate::config::{duration, duration_text};
use crate::service::quotas::{CLASSES, Quotas, Rate, Share};

/// `[limits.rates]`: by the kind of call, for each caller.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Rates(BTreeMap<String, RateText>);

/// A rate: `calls` in each span of `per`, `burst` of them at once after a rest.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct RateText {
    calls: u32,
    per: String,
    burst: Option<u32>,
}

/// `[limits.caller]` and `[limits.tenant]`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Shares {
    /// Streams of one server at a time.
    pub streams: Option<u32>,
    /// Tasks that have not ended.
    pub open_tasks: Option<u32>,
}

const PER_MAX: Duration = Duration::from_secs(86_400);

/// The service's quotas.
///
/// # Errors
/// All that is wrong, each with its name.
pub(super) fn read(rates: &Rates, caller: Shares, tenant: Shares) -> Result<Quotas, Vec<String>> {
    let mut problems = Vec::new();
    let mut quotas = Quotas { caller: share(caller), tenant: share(tenant), ..Quotas::default() };
    let known = |name: &str| CLASSES.iter().position(|class| class.name() == name);
    for (name, text) in &rates.0 {
        let slot = known(name).and_then(|place| quotas.rates.get_mut(place));
        match (slot, rate(text)) {
            (None, _) => {
                let names = CLASSES.map(|class| class.name()).join(", ");
                problems.push(format!("limits.rates.{name}: must be one of {names}"));
            }
            (Some(_), Err(problem)) => problems.push(format!("limits.rates.{name}: {problem}")),
            (Some(slot), Ok(rate)) => *slot = Some(rate),
        }
    }
    for (name, share) in [("caller", caller), ("tenant", tenant)] {
        for (member, n) in [("streams", share.streams), ("open_tasks", share.open_tasks)] {
            if n == Some(0) {
                let problem = "must be 1 at least; leave it out for no limit";
                problems.push(format!("limits.{name}.{member} = 0: {problem}"));
            }
        }
    }
    if problems.is_empty() { Ok(quotas) } else { Err(problems) }
}

fn share(Shares { streams, open_tasks }: Shares) -> Share {
    Share { streams, open_tasks }
}

fn rate(text: &RateText) -> Result<Rate, String> {
    let RateText { calls, per, burst } = text;
    let span = duration(per).map_err(|problem| format!("per: {problem}"))?;
    let positive = |name: &str, n: u32| {
        NonZeroU32::new(n).ok_or_else(|| format!("{name} = 0: must be 1 at least"))
    };
    let calls = positive("calls", *calls)?;
    let burst = burst.map_or(Ok(calls), |n| positive("burst", n))?;
    if span.is_zero() || span > PER_MAX {
        return Err(format!("per = {per:?}: must be from 1ms to {}", duration_text(PER_MAX)));
    }
    if (span / calls.get()).is_zero() {
        return Err(format!("calls = {calls}: must be at most one in a nanosecond"));
    }
    Ok(Rate { calls, per: span, burst })
}

/// The quotas in words, for [`Checked::lines`](crate::config::Checked::lines).
pub(super) fn words(quotas: &Quotas) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    for (class, rate) in CLASSES.iter().zip(quotas.rates) {
        let Some(Rate { calls, per, burst }) = rate else { continue };
        let value = format!("{calls} in {}, {burst} at once", duration_text(per));
        lines.push((format!("limits.rates.{}", class.name()), value));
    }
    for (name, share) in [("caller", quotas.caller), ("tenant", quotas.tenant)] {
        for (member, n) in [("streams", share.streams), ("open_tasks", share.open_tasks)] {
            lines.extend(n.map(|n| (format!("limits.{name}.{member}"), n.to_string())));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::file::File;
    use crate::service::quotas::Class;

    fn quotas(text: &str) -> Result<Quotas, Vec<String>> {
        let limits = File::parse(text).map_err(|problem| vec![problem])?.limits;
        read(&limits.rates, limits.caller, limits.tenant)
    }

    #[test]
    fn without_a_word_nothing_is_limited() {
        assert_eq!(quotas("").unwrap(), Quotas::default());
    }

    #[test]
    fn a_rate_fills_a_bucket_that_is_as_large_as_its_burst() {
        let text = "[limits.rates]\nlist = { calls = 10, per = '1m' }\n\
            send = { calls = 5, per = '1s', burst = 50 }\n[limits.caller]\nstreams = 7";
        let quotas = quotas(text).unwrap();
        let rate = |class| quotas.rates[CLASSES.iter().position(|c| *c == class).unwrap()];
        let list = rate(Class::List).unwrap();
        assert_eq!((list.calls.get(), list.per.as_secs(), list.burst.get()), (10, 60, 10));
        assert_eq!(rate(Class::Send).unwrap().burst.get(), 50);
        assert_eq!(rate(Class::Get), None);
        assert_eq!(quotas.caller, Share { streams: Some(7), open_tasks: None });
        let words = words(&quotas);
        assert!(
            words.contains(&("limits.rates.send".to_owned(), "5 in 1s, 50 at once".to_owned()))
        );
    }

    #[test]
    fn what_cannot_be_a_quota_is_refused_by_its_name() {
        for (text, name) in [
            ("[limits.rates]\nlists = { calls = 1, per = '1s' }", "limits.rates.lists"),
            ("[limits.rates]\nlist = { calls = 0, per = '1s' }", "calls = 0"),
            ("[limits.rates]\nlist = { calls = 1, per = '1' }", "limits.rates.list: per"),
            ("[limits.rates]\nlist = { calls = 1, per = '0s' }", "per = \"0s\""),
            ("[limits.rates]\nlist = { calls = 1, per = '2d' }", "per = \"2d\""),
            ("[limits.rates]\nlist = { calls = 1, per = '1s', burst = 0 }", "burst = 0"),
            ("[limits.rates]\nlist = { calls = 1, per = '1s', bursts = 1 }", "bursts"),
            ("[limits.rates]\nlist = { calls = 2000000, per = '1ms' }", "calls = 2000000"),
            ("[limits.tenant]\nopen_tasks = 0", "limits.tenant.open_tasks"),
            ("[limits.tenant]\nopen_task = 1", "open_task"),
        ] {
            let problems = quotas(text).unwrap_err();
            assert!(problems.iter().any(|p| p.contains(name)), "{text}: {problems:?}");
        }
    }
}
