//! What a server counts, in the form that Prometheus reads.
//!
//! Each server has its own numbers: the parts that count get their instruments from here, and what
//! is only known at the moment (open streams, connections, memory) is asked for when somebody
//! reads. Labels have few values: operations, codes, kinds of callers; never a principal, a tenant
//! or an id.

mod process;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

/// What is written in front of every name.
const PREFIX: &str = "a2ad";
/// Upper bounds of a call's time in seconds: from an index seek to a turn of half a minute.
const SECONDS: [f64; 13] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0];

type Label = (&'static str, &'static str);

/// A counter with so many labels. Clones are the same counter.
#[derive(Debug, Clone)]
pub struct Counts<const N: usize>(Family<[Label; N], Counter>);

impl<const N: usize> Default for Counts<N> {
    fn default() -> Self {
        let family: Family<[Label; N], Counter> = Family::default();
        if N == 0 {
            // Without labels there is one number, and it is 0 from the start.
            drop(family.get_or_create(&[("", ""); N]));
        }
        Self(family)
    }
}

impl<const N: usize> Counts<N> {
    /// One more under these labels.
    pub fn one(&self, labels: [Label; N]) {
        self.add(labels, 1);
    }

    /// So many more under these labels.
    pub fn add(&self, labels: [Label; N], n: u64) {
        self.0.get_or_create(&labels).inc_by(n);
    }
}

/// How long things took, by so many labels.
#[derive(Debug, Clone)]
pub struct Times<const N: usize>(Family<[Label; N], Histogram, fn() -> Histogram>);

impl<const N: usize> Default for Times<N> {
    fn default() -> Self {
        Self(Family::new_with_constructor(|| Histogram::new(SECONDS)))
    }
}

impl<const N: usize> Times<N> {
    /// Something took so long.
    pub fn took(&self, labels: [Label; N], time: Duration) {
        self.0.get_or_create(&labels).observe(time.as_secs_f64());
    }
}

/// A number as it is at the moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Number {
    /// Its name, without the prefix and, for what only grows, without `_total`.
    pub name: &'static str,
    /// What it says.
    pub help: &'static str,
    /// Whether it only grows while the process lives.
    pub grows: bool,
    /// The number.
    pub value: f64,
}

impl Number {
    /// One that goes up and down.
    #[must_use]
    pub fn now(name: &'static str, help: &'static str, value: f64) -> Self {
        Self { name, help, grows: false, value }
    }

    /// One that only grows.
    #[must_use]
    pub fn so_far(name: &'static str, help: &'static str, value: f64) -> Self {
        Self { name, help, grows: true, value }
    }
}

macro_rules! instruments {
    ($($(#[$doc:meta])* $field:ident: $kind:ty = $name:literal, $help:literal;)+) => {
        /// The instruments of one server. Clones are the same instruments.
        #[derive(Clone)]
        pub struct Metrics {
            registry: Arc<Mutex<Registry>>,
            $($(#[$doc])* pub $field: $kind,)+
        }

        impl Default for Metrics {
            fn default() -> Self {
                let mut registry = Registry::with_prefix(PREFIX);
                $(let $field = <$kind>::default();
                registry.register($name, $help, $field.0.clone());)+
                let version = vec![("version", env!("CARGO_PKG_VERSION"))];
                registry.register("build", "What runs", Info::new(version));
                let registry = Arc::new(Mutex::new(registry));
                let metrics = Self { registry, $($field,)+ };
                metrics.sample(process::numbers);
                metrics
            }
        }
    };
}

instruments! {
    /// By binding, operation and code.
    requests: Counts<3> = "requests", "Answered requests";
    /// By binding and operation: until the answer, of a stream until it begins.
    request_seconds: Times<2> = "request_duration_seconds", "Time until a request was answered";
    /// By mode and reason.
    unauthenticated: Counts<2> = "unauthenticated", "Refused credentials";
    /// By the limit that was reached.
    limited: Counts<1> = "limited", "Calls refused because of a limit";
    /// By what a message became.
    messages: Counts<1> = "messages", "Accepted messages";
    /// By kind of caller and of walk.
    walks_begun: Counts<2> = "list_walks_begun", "First pages of listings";
    /// By kind of caller and of walk.
    walks_finished: Counts<2> = "list_walks_finished", "Last pages of listings";
    /// By kind of caller and of walk.
    pages: Counts<2> = "list_pages", "Pages of listings";
    /// By kind of caller and of walk.
    rows: Counts<2> = "list_rows", "Tasks in pages of listings";
    /// By kind of caller and of error.
    token_errors: Counts<2> = "page_token_errors", "Refused page tokens";
    /// Over all streams.
    stream_events: Counts<0> = "stream_events", "Items sent on streams";
    /// By how they ended.
    streams_ended: Counts<1> = "streams_ended", "Streams that ended";
    /// By where they came from.
    turns_begun: Counts<1> = "turns_begun", "Attempts at turns begun on this server";
    /// By how they ended.
    turns_ended: Counts<1> = "turns_ended", "Attempts at turns ended on this server";
    /// Over all attempts.
    turn_seconds: Times<0> = "turn_duration_seconds", "Time that attempts at turns took";
    /// By the state.
    statuses: Counts<1> = "statuses", "Statuses reported by turns of this server";
    /// Over all turns.
    late_reports: Counts<0> = "late_reports", "Reports refused because their lease was lost";
    /// By the duty.
    upkeep_rows: Counts<1> = "upkeep_rows", "Rows that loops of the server worked on";
    /// By the duty.
    upkeep_failures: Counts<1> = "upkeep_failures", "Rounds of such loops that failed";
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// Asks for these numbers whenever somebody reads.
    pub fn sample(&self, numbers: impl Fn() -> Vec<Number> + Send + Sync + 'static) {
        let mut registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        registry.register_collector(Box::new(Sampled(Box::new(numbers))));
    }

    /// All of it, as the text of `OpenMetrics`.
    ///
    /// # Errors
    /// When a number cannot be written.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry)?;
        Ok(text)
    }
}

/// The type of [`Metrics::text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

struct Sampled(Box<dyn Fn() -> Vec<Number> + Send + Sync>);

impl fmt::Debug for Sampled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sampled").finish_non_exhaustive()
    }
}

impl Collector for Sampled {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for Number { name, help, grows, value } in (self.0)() {
            if grows {
                let counter = ConstCounter::new(value);
                let metric = encoder.encode_descriptor(name, help, None, counter.metric_type())?;
                counter.encode(metric)?;
            } else {
                let gauge = ConstGauge::new(value);
                let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
                gauge.encode(metric)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_servers_of_one_process_count_for_themselves() {
        let (ours, theirs) = (Metrics::default(), Metrics::default());
        ours.requests.one([("binding", "grpc"), ("operation", "GetTask"), ("code", "OK")]);
        ours.clone().stream_events.add([], 3);
        ours.sample(|| vec![Number::now("open_streams", "Open streams", 2.0)]);
        let text = ours.text().unwrap();
        for line in [
            r#"a2ad_requests_total{binding="grpc",operation="GetTask",code="OK"} 1"#,
            "a2ad_stream_events_total 3",
            "a2ad_open_streams 2.0",
            "# TYPE a2ad_open_streams gauge",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(!theirs.text().unwrap().contains("GetTask"));
    }
}
