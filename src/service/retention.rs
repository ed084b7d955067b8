//! What has ended goes after a time, and the card says when.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, sleep};
use tokio_util::sync::CancellationToken;

use crate::contract::wkt::{Kind, Struct, Value};
use crate::contract::{RETENTION_EXTENSION, v1};
use crate::domain::error::chain;
use crate::domain::{Error, Tenant};
use crate::metrics::Metrics;
use crate::store::{Keep, Retention, Store, Tally, add_up};

/// How long what has ended is kept, and the pace at which it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// How long, by tenant.
    pub retention: Retention,
    /// How many tasks go in one transaction.
    pub batch: u32,
    /// The rest after each, for others to write.
    pub pause: Duration,
    /// How often is looked.
    pub every: Duration,
}

impl Default for Rules {
    /// Everything is kept.
    fn default() -> Self {
        Self {
            retention: Retention::default(),
            batch: 200,
            pause: Duration::from_millis(100),
            every: Duration::from_secs(60),
        }
    }
}

impl Rules {
    /// What the card says of them; nothing if nothing ever goes. Of tenants that keep what they are
    /// told to, those that `named` has are told: the card is public, and names them anyway.
    #[must_use]
    pub fn extension<'a>(
        &self,
        named: impl Iterator<Item = &'a str>,
    ) -> Option<v1::AgentExtension> {
        if self.retention.is_off() {
            return None;
        }
        let mut fields = seconds(self.retention.others);
        let mut tenants = BTreeMap::new();
        for name in named {
            if let Some(keep) = self.retention.tenants.get(&Tenant::from_stored(name)) {
                tenants.insert(name.to_owned(), object(seconds(*keep)));
            }
        }
        if tenants.len() < self.retention.tenants.len() {
            let differ = Value { kind: Some(Kind::BoolValue(true)) };
            fields.insert("otherTenantsDiffer".to_owned(), differ);
        }
        if !tenants.is_empty() {
            fields.insert("tenants".to_owned(), object(tenants));
        }
        Some(v1::AgentExtension {
            uri: RETENTION_EXTENSION.to_owned(),
            description: "How many seconds after its end a task is deleted, and its events. \
                          Without a number they are kept."
                .to_owned(),
            required: false,
            params: Some(Struct { fields }),
        })
    }
}

fn seconds(keep: Keep) -> BTreeMap<String, Value> {
    let Keep { tasks, events: _ } = keep;
    let named = [("taskSeconds", tasks), ("eventSeconds", keep.events_alone().or(tasks))];
    let known = named.into_iter().filter_map(|(name, time)| Some((name.to_owned(), time?)));
    let number = |time: Duration| Value { kind: Some(Kind::NumberValue(time.as_secs_f64())) };
    known.map(|(name, time)| (name, number(time))).collect()
}

fn object(fields: BTreeMap<String, Value>) -> Value {
    Value { kind: Some(Kind::StructValue(Struct { fields })) }
}

/// Deletes what has ended long enough, until `drain`.
pub(super) async fn keep_house(
    (store, metrics): (Arc<dyn Store>, Metrics),
    rules: Rules,
    drain: CancellationToken,
) {
    let mut clock = tokio::time::interval(rules.every);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while drain.run_until_cancelled(clock.tick()).await.is_some() {
        if let Err(error) = round((&*store, &metrics), &rules, &drain).await {
            metrics.upkeep_failures.one([("duty", "delete what has ended")]);
            tracing::warn!(error.chain = chain(&error), "could not delete what has ended");
        }
    }
}

/// All that is due, batch by batch. What was deleted is told also if the round ends early.
async fn round(
    (store, metrics): (&dyn Store, &Metrics),
    rules: &Rules,
    drain: &CancellationToken,
) -> Result<(), Error> {
    let mut gone = Vec::new();
    let outcome = tasks(store, rules, drain, &mut gone).await;
    for Tally { tenant, state, tasks } in gone {
        metrics.upkeep_rows.add([("duty", "delete tasks")], tasks);
        let state = state.as_str_name();
        tracing::info!(
            purged.tenant = %tenant.as_str(), purged.state = state, purged.tasks = tasks,
            "deleted tasks that had ended"
        );
    }
    outcome?;
    let mut logs = 0_u64;
    let outcome = events(store, rules, drain, &mut logs).await;
    if logs > 0 {
        metrics.upkeep_rows.add([("duty", "delete events")], logs);
        tracing::info!(purged.logs = logs, "deleted the events of tasks that had ended");
    }
    outcome
}

async fn tasks(
    store: &dyn Store,
    rules: &Rules,
    drain: &CancellationToken,
    gone: &mut Vec<Tally>,
) -> Result<(), Error> {
    while !drain.is_cancelled() {
        let purged = store.purge_ended_of_all(&rules.retention, rules.batch).await?;
        add_up(gone, purged.tasks);
        if !purged.more {
            break;
        }
        sleep(rules.pause).await;
    }
    Ok(())
}

async fn events(
    store: &dyn Store,
    rules: &Rules,
    drain: &CancellationToken,
    logs: &mut u64,
) -> Result<(), Error> {
    while !drain.is_cancelled() {
        let purged = store.purge_events_of_all(&rules.retention, rules.batch).await?;
        *logs += u64::from(purged);
        if purged < rules.batch {
            break;
        }
        sleep(rules.pause).await;
    }
    Ok(())
}
