//! How long what has ended is kept.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use serde::Deserialize;

use crate::config::check::read_file;
use crate::config::cli::{Erase, Purge};
use crate::config::{Wait, duration, duration_text};
use crate::domain::{Principal, Scope, Tenant, Violation};
use crate::service::retention::Rules;
use crate::store::{Keep, Retention};

/// The scalars.
#[derive(Debug, Clone, Args)]
pub struct RetentionArgs {
    /// How long a task is kept after its end, or `off`
    #[arg(long, env = "A2AD_TASK_RETENTION", value_name = "TIME", default_value = "off")]
    pub task_retention: Wait,
    /// How long its events are kept, or `off`: as long as the task
    #[arg(long, env = "A2AD_EVENT_RETENTION", value_name = "TIME", default_value = "off")]
    pub event_retention: Wait,
    /// How many tasks are deleted in one transaction
    #[arg(
        long,
        env = "A2AD_PURGE_BATCH",
        value_name = "N",
        default_value_t = 200,
        value_parser = clap::value_parser!(u32).range(1..=10_000)
    )]
    pub purge_batch: u32,
    /// The rest after each such transaction
    #[arg(
        long,
        env = "A2AD_PURGE_PAUSE",
        value_name = "TIME",
        default_value = "100ms",
        value_parser = duration
    )]
    pub purge_pause: Duration,
}

/// `[[tenants]]`: what a tenant has of its own. What it leaves out is as the flags say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantSettings {
    /// Its name; empty is the default tenant.
    pub name: String,
    /// As `--task-retention`.
    pub task_retention: Option<String>,
    /// As `--event-retention`.
    pub event_retention: Option<String>,
}

const LEAST: Duration = Duration::from_secs(60);
const MOST: Duration = Duration::from_secs(36_500 * 86_400);
const PAUSE_MOST: Duration = Duration::from_secs(60);

impl RetentionArgs {
    /// The rules that these and the settings file make.
    ///
    /// # Errors
    /// All that is wrong, in words.
    pub fn rules(&self, tenants: &[TenantSettings]) -> Result<Rules, Vec<String>> {
        let mut problems = Vec::new();
        for (flag, time) in
            [("--task-retention", self.task_retention), ("--event-retention", self.event_retention)]
        {
            problems.extend(bounds(time).err().map(|problem| format!("{flag} {time}: {problem}")));
        }
        if self.purge_pause > PAUSE_MOST {
            let (given, most) = (duration_text(self.purge_pause), duration_text(PAUSE_MOST));
            problems.push(format!("--purge-pause {given}: must be at most {most}"));
        }
        let others = Keep { tasks: self.task_retention.0, events: self.event_retention.0 };
        let mut named = BTreeMap::new();
        for settings in tenants {
            match of_tenant(settings, others) {
                Ok((tenant, keep)) => {
                    if named.insert(tenant, keep).is_some() {
                        problems.push(format!("tenants: {:?} stands there twice", settings.name));
                    }
                }
                Err(problem) => problems.push(format!("tenants: {problem}")),
            }
        }
        let rules = Rules {
            retention: Retention { others, tenants: named },
            batch: self.purge_batch,
            pause: self.purge_pause,
            ..Rules::default()
        };
        if problems.is_empty() { Ok(rules) } else { Err(problems) }
    }
}

impl Purge {
    /// The store, and the rules by which it is purged.
    ///
    /// # Errors
    /// All that is wrong, in words.
    pub fn rules(&self) -> Result<Rules, Vec<String>> {
        let mut problems = self.store.problems();
        let file = read_file(self.config.as_deref()).map_err(|problem| vec![problem]);
        let rules = file.and_then(|file| self.retention.rules(&file.tenants));
        let mut rules = rules.map_err(|wrong| problems.extend(wrong)).unwrap_or_default();
        let tenant = self.tenant.as_deref().map(|name| {
            Tenant::parse("--tenant", name).map_err(|violation| {
                problems.push(format!("--tenant {name:?} {}", violation.problem))
            })
        });
        if let Some(tasks) = self.older_than {
            rules.retention = Retention::of_all(Keep { tasks: Some(tasks), events: None });
        }
        if let Some(Ok(tenant)) = tenant {
            let keep = rules.retention.of(&tenant);
            rules.retention = Retention::of_one(tenant, keep);
        }
        if problems.is_empty() && rules.retention.is_off() {
            problems.push(
                "nothing says how long tasks are kept; give --older-than, or the settings of the \
                 server"
                    .to_owned(),
            );
        }
        if problems.is_empty() { Ok(rules) } else { Err(problems) }
    }
}

impl Erase {
    /// Whose rows go.
    ///
    /// # Errors
    /// All that is wrong, in words.
    pub fn scope(&self) -> Result<Scope, Vec<String>> {
        let mut problems = self.store.problems();
        let mut wrong = |flag: &str, violation: Violation| {
            problems.push(format!("{flag} {}", violation.problem));
        };
        let tenant = Tenant::parse("--tenant", &self.tenant).map_err(|v| wrong("--tenant", v));
        let owner = Principal::parse("--owner", &self.owner).map_err(|v| wrong("--owner", v));
        match (tenant, owner) {
            (Ok(tenant), Ok(owner)) if problems.is_empty() => Ok(Scope::new(tenant, owner)),
            _ => Err(problems),
        }
    }
}

fn bounds(time: Wait) -> Result<(), String> {
    match time.0 {
        Some(time) if !(LEAST..=MOST).contains(&time) => {
            Err(format!("must be from {} to {}, or off", duration_text(LEAST), duration_text(MOST)))
        }
        _ => Ok(()),
    }
}

fn of_tenant(settings: &TenantSettings, others: Keep) -> Result<(Tenant, Keep), String> {
    let TenantSettings { name, task_retention, event_retention } = settings;
    let tenant = Tenant::parse("name", name)
        .map_err(|violation| format!("the name {name:?} {}", violation.problem))?;
    let own = |member: &str, text: &Option<String>, default: Option<Duration>| {
        let Some(text) = text else { return Ok(default) };
        let wrong = |problem| format!("{member} = {text:?} of {name:?}: {problem}");
        let time: Wait = text.parse().map_err(wrong)?;
        bounds(time).map_err(wrong)?;
        Ok::<_, String>(time.0)
    };
    let tasks = own("task_retention", task_retention, others.tasks)?;
    let events = own("event_retention", event_retention, others.events)?;
    Ok((tenant, Keep { tasks, events }))
}

/// The rules, a tenant a line.
pub(super) fn words(rules: &Rules) -> Vec<(String, String)> {
    let one = |keep: &Keep| {
        let (tasks, events) = (Wait(keep.tasks), Wait(keep.events));
        format!("tasks {tasks}, events {events}")
    };
    let named = rules.retention.tenants.iter();
    named.map(|(tenant, keep)| (format!("tenant {:?}", tenant.as_str()), one(keep))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(tasks: &str, events: &str) -> RetentionArgs {
        RetentionArgs {
            task_retention: tasks.parse().unwrap(),
            event_retention: events.parse().unwrap(),
            purge_batch: 200,
            purge_pause: Duration::ZERO,
        }
    }

    fn tenant(name: &str, tasks: Option<&str>) -> TenantSettings {
        TenantSettings {
            name: name.to_owned(),
            task_retention: tasks.map(str::to_owned),
            event_retention: None,
        }
    }

    #[test]
    fn a_tenant_has_what_it_says_and_else_what_all_have() {
        let day = Duration::from_secs(86_400);
        let tenants = [tenant("blue", Some("off")), tenant("", Some("2d")), tenant("red", None)];
        let retention = args("7d", "1d").rules(&tenants).unwrap().retention;
        let tasks = |name| retention.of(&Tenant::from_stored(name)).tasks;
        assert_eq!(tasks("blue"), None);
        assert_eq!(tasks(""), Some(2 * day));
        assert_eq!((tasks("red"), tasks("other")), (Some(7 * day), Some(7 * day)));
        assert_eq!(retention.of(&Tenant::from_stored("blue")).events, Some(day));
    }

    #[test]
    fn all_that_is_wrong_is_told() {
        let tenants = [tenant("a/b", None), tenant("x", Some("1s")), tenant("x", Some("soon"))];
        let problems = args("10s", "1d").rules(&tenants).unwrap_err();
        assert_eq!(problems.len(), 4, "{problems:?}");
        for (problem, word) in problems.iter().zip(["--task-retention", "a/b", "1s", "soon"]) {
            assert!(problem.contains(word), "{problem}");
        }
        let twice = [tenant("x", None), tenant("x", None)];
        assert!(args("off", "off").rules(&twice).unwrap_err()[0].contains("twice"));
    }
}
