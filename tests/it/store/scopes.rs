//! Nothing of a scope may go unnoticed: each statement that is limited to an owner is run without
//! the owner, and without the tenant, and some story of the suite must fail.

#![cfg(debug_assertions)]

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;

use a2ad::store::proof::Clause;
use futures_util::{FutureExt as _, StreamExt as _, stream};

use super::*;

type Story = fn(&Bed) -> Pin<Box<dyn Future<Output = ()> + '_>>;

/// Those that strangers are in, the likeliest to fail first.
const STORIES: &[(&str, Story)] = &[
    ("strangers", |bed| Box::pin(canceling::strangers_change_and_see_nothing(bed))),
    ("listings", |bed| Box::pin(listing::a_listing_shows_the_tasks_of_its_scope_alone(bed))),
    ("filtered", |bed| Box::pin(listings_with_filters_and_bodies_are_the_scopes_own(bed))),
    ("live", |bed| Box::pin(listing::live_tasks_are_counted_by_owner_and_by_tenant(bed))),
    ("ids", |bed| Box::pin(accepting::an_id_counts_for_its_sender_and_for_where_it_was_sent(bed))),
    ("repeats", |bed| Box::pin(accepting::a_repeat_finds_what_the_first_one_made(bed))),
    ("messages", |bed| Box::pin(accepting::a_message_reaches_only_the_tasks_of_its_scope(bed))),
    ("others", |bed| Box::pin(an_erased_owner_takes_nothing_of_others_along(bed))),
    ("erased", |bed| Box::pin(retention::an_owner_is_erased_and_nobody_else(bed))),
    ("anew", |bed| Box::pin(retention::an_owner_that_comes_back_begins_anew(bed))),
    ("tenants", |bed| Box::pin(retention::an_owner_of_several_tenants_is_erased_in_one(bed))),
    ("replies", |bed| {
        Box::pin(reporting::a_direct_reply_stays_hidden_and_one_to_a_shown_task_completes_it(bed))
    }),
    ("canceled", |bed| Box::pin(canceling::a_task_without_a_running_turn_is_canceled_at_once(bed))),
];

/// What two owners of one tenant, and one name in two tenants, have in the same context and state.
pub(super) async fn listings_with_filters_and_bodies_are_the_scopes_own(bed: &Bed) {
    let scopes = [ann(), scope("acme", "key:bob"), scope("other", "key:ann")];
    for (n, scope) in scopes.iter().enumerate() {
        for _ in 0..=n {
            bed.task_in(scope, "c", TaskState::Completed).await;
        }
    }
    let since = Some(START_US - 1_000_000);
    for (n, scope) in scopes.iter().enumerate() {
        let mine = i64::try_from(n + 1).unwrap();
        for in_context in [None, Some(context("c"))] {
            for state in [None, Some(TaskState::Completed)] {
                for since_us in [None, since] {
                    let context = in_context.clone();
                    let query = PageQuery { context, state, since_us, history: 5, ..everything() };
                    let (tasks, total) = bed.walk(scope, &query, 1).await;
                    assert_eq!((tasks.len() as i64, total), (mine, mine), "{scope:?} {query:?}");
                    assert!(tasks.iter().all(|task| task.history.len() == 1));
                }
            }
        }
        let owned = bed.store.count_owned(scope).await.unwrap();
        assert_eq!(owned.tasks.iter().map(|tally| tally.tasks).sum::<u64>(), n as u64 + 1);
        assert_eq!(owned.sent_messages, 0);
    }
}

/// Erasing one owner takes neither the messages that others sent, nor their totals, folded or not.
pub(super) async fn an_erased_owner_takes_nothing_of_others_along(bed: &Bed) {
    let sent = |id: &str| deduped(Accept { message: message(id, "begin"), ..new("c", true) });
    let (carl, namesake) = (scope("acme", "key:carl"), scope("other", "key:ann"));
    let scopes = [ann(), namesake, scope("other", "key:bob"), carl.clone()];
    let mut made = Vec::new();
    for id in ["m-1", "m-2"] {
        for scope in &scopes {
            made.push((scope, id, accepted(bed.accept(scope, sent(id)).await)));
        }
        // The counts of the first are folded, those of the second are not.
        if id == "m-1" {
            bed.store.fold_counts_of_all(1000).await.unwrap();
        }
    }
    for scope in &scopes {
        let owned = bed.store.count_owned(scope).await.unwrap();
        let tasks: u64 = owned.tasks.iter().map(|tally| tally.tasks).sum();
        assert_eq!((tasks, owned.sent_messages), (2, 2), "{scope:?}");
    }
    // One whose name goes with him, and one who has a namesake in another tenant.
    let mut gone = Vec::new();
    for (erased, names) in [(carl, 1), (ann(), 0)] {
        let mut told = 0;
        loop {
            let batch = bed.store.erase(&erased, 1).await.unwrap();
            told += i32::from(batch.name);
            if !batch.more {
                break;
            }
        }
        assert_eq!(told, names, "{erased:?}");
        gone.push(erased);
        for (scope, id, turn) in made.iter().filter(|(scope, ..)| !gone.contains(scope)) {
            assert_eq!(bed.accept(scope, sent(id)).await, Accepted::Repeat(*turn), "{scope:?}");
            assert_eq!(bed.walk(scope, &everything(), 5).await.1, 2, "{scope:?}");
        }
    }
}

/// How long a story may take.
const WAITS_MAX: Duration = Duration::from_secs(20);

/// The words of a panic.
fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

/// The first story that fails on a store whose statement has lost its clause.
async fn noticed(
    new: impl AsyncFn() -> Bed,
    statement: &str,
    clause: Clause,
) -> Option<&'static str> {
    for (name, story) in STORIES {
        let bed = new().await;
        bed.proof().strip(statement, clause);
        let told = AssertUnwindSafe(story(&bed)).catch_unwind();
        // One that waits for what no longer comes has noticed, too.
        let Ok(told) = tokio::time::timeout(WAITS_MAX, told).await else { return Some(name) };
        if let Err(panic) = told {
            // A statement that cannot run shows nothing.
            let words = words(&*panic);
            assert!(!words.contains("Internal("), "{statement} without {clause:?}: {words}");
            return Some(name);
        }
    }
    None
}

/// Clauses without which nothing changes, and why.
const REDUNDANT: &[(&str, Clause, &str)] =
    &[("cancel: the lock", Clause::Owner, LOCK), ("cancel: the lock", Clause::Tenant, LOCK)];
const LOCK: &str = "it reads nothing, and the statement after it has a scope of its own";

async fn every_scope_is_noticed(new: impl AsyncFn() -> Bed) {
    let mut statements = BTreeSet::new();
    for (_, story) in STORIES {
        let bed = new().await;
        // Statements are noted from here on.
        drop(bed.proof());
        story(&bed).await;
        statements.extend(bed.proof().seen());
    }
    assert!(statements.len() > 9, "{statements:?}");
    let tries = statements.iter().map(async |(statement, clause)| {
        let known = REDUNDANT.iter().any(|(text, c, _)| statement == text && c == clause);
        match noticed(&new, statement, *clause).await {
            Some(story) => {
                println!("{statement} without {clause:?}: {story}");
                known.then(|| format!("{statement} needs its {clause:?}"))
            }
            None => (!known).then(|| format!("nothing notices {statement} without {clause:?}")),
        }
    });
    let outcomes = stream::iter(tries).buffer_unordered(8).collect::<Vec<_>>().await;
    let wrong: Vec<_> = outcomes.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn no_scope_of_sqlite_goes_unnoticed() {
    every_scope_is_noticed(Bed::sqlite).await;
}

#[tokio::test]
async fn no_scope_of_postgres_goes_unnoticed() {
    every_scope_is_noticed(Bed::postgres).await;
}
