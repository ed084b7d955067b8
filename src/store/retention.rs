//! How long what has ended is kept, and what went.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::contract::v1::TaskState;
use crate::domain::Tenant;

/// How long after its end something of a task is kept; `None` for ever.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Keep {
    /// The task, with all that belongs to it.
    pub tasks: Option<Duration>,
    /// Its events. They never outlast the task.
    pub events: Option<Duration>,
}

impl Keep {
    /// How long events are kept that go before their task does.
    #[must_use]
    pub fn events_alone(&self) -> Option<Duration> {
        self.events.filter(|events| self.tasks.is_none_or(|tasks| *events < tasks))
    }
}

/// How long each tenant keeps what has ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Retention {
    /// Tenants that are not named.
    pub others: Keep,
    /// Tenants that are.
    pub tenants: BTreeMap<Tenant, Keep>,
}

impl Retention {
    /// The same for every tenant.
    #[must_use]
    pub fn of_all(others: Keep) -> Self {
        Self { others, tenants: BTreeMap::new() }
    }

    /// The same for one tenant, and for ever for all others.
    #[must_use]
    pub fn of_one(tenant: Tenant, keep: Keep) -> Self {
        Self { others: Keep::default(), tenants: BTreeMap::from([(tenant, keep)]) }
    }

    /// How long this tenant keeps what has ended.
    #[must_use]
    pub fn of(&self, tenant: &Tenant) -> Keep {
        self.tenants.get(tenant).copied().unwrap_or(self.others)
    }

    /// Whether anything ever goes.
    #[must_use]
    pub fn is_off(&self) -> bool {
        std::iter::once(&self.others).chain(self.tenants.values()).all(|k| *k == Keep::default())
    }
}

/// So many tasks of one tenant in one state.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tally {
    /// The tenant.
    pub tenant: Tenant,
    /// The state.
    pub state: TaskState,
    /// How many.
    pub tasks: u64,
}

/// What a call of [`purge_ended_of_all`](super::Store::purge_ended_of_all) did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Purged {
    /// The tasks that are gone.
    pub tasks: Vec<Tally>,
    /// Whether there may be more to do at once.
    pub more: bool,
}

impl Purged {
    /// How many tasks are gone.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.tasks.iter().map(|tally| tally.tasks).sum()
    }
}

/// What is there of one owner, or went.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Erased {
    /// Tasks by their states, the hidden ones included.
    pub tasks: Vec<Tally>,
    /// Rows by which repeated messages are recognised.
    pub sent_messages: u64,
    /// Whether there may be more; then the call wants to be made again.
    pub more: bool,
    /// Whether the owner's name is gone too: it stays while other tenants have tasks of the owner.
    pub name: bool,
}

/// Adds tallies of the same tenant and state.
pub fn add_up(sum: &mut Vec<Tally>, tallies: Vec<Tally>) {
    for tally in tallies {
        match sum.iter_mut().find(|s| s.tenant == tally.tenant && s.state == tally.state) {
            Some(known) => known.tasks += tally.tasks,
            None => sum.push(tally),
        }
    }
    sum.sort();
}
