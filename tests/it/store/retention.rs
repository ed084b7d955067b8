use std::collections::BTreeSet;

use a2ad::store::{Erased, Keep, Purged, Retention, Shown, Tally};
use futures_util::future::join_all;

use super::*;

const DAY: Duration = Duration::from_secs(86_400);
const TABLES: [&str; 6] =
    ["tasks", "messages", "artifacts", "artifact_chunks", "task_events", "turns"];

fn after(tasks: Duration) -> Retention {
    Retention::of_all(Keep { tasks: Some(tasks), events: None })
}

fn events_after(events: Duration) -> Retention {
    Retention::of_all(Keep { tasks: None, events: Some(events) })
}

fn tally(tenant: &str, state: TaskState, tasks: u64) -> Tally {
    Tally { tenant: Tenant::parse("tenant", tenant).unwrap(), state, tasks }
}

async fn purge(bed: &Bed, retention: &Retention) -> Vec<Tally> {
    let Purged { tasks, more } = bed.store.purge_ended_of_all(retention, 100).await.unwrap();
    assert!(!more);
    tasks
}

async fn rows(bed: &Bed, table: &str) -> i64 {
    bed.number(&format!("select count(*) from {table}")).await
}

/// A task with a story: history, an artifact in pieces, a status that says something.
async fn story(bed: &Bed, scope: &Scope, context: &str, state: TaskState) -> TaskId {
    let begun = bed.begin(scope, context).await;
    let turn = bed.claim().await;
    assert_eq!(turn.task, begun.task);
    let updates = vec![
        status(TaskState::Working, "on it"),
        chunk("a", "one", false),
        chunk("a", "two", true),
        status(state, "said at the end"),
    ];
    bed.report(&turn, 1, updates, Some(TurnEnd::Finished)).await;
    begun.task
}

pub(super) async fn a_task_goes_with_all_its_rows_when_its_time_is_over(bed: &Bed) {
    let old = story(bed, &ann(), "c", TaskState::Completed).await;
    bed.clock.advance(DAY);
    let new = story(bed, &ann(), "c", TaskState::Failed).await;
    assert_eq!(purge(bed, &after(2 * DAY)).await, []);
    let expected = [tally("acme", TaskState::Completed, 1)];
    assert_eq!(bed.store.count_ended_of_all(&after(DAY)).await.unwrap(), expected);
    assert!(bed.find(&ann(), old).await.is_some(), "counting deletes nothing");
    assert_eq!(purge(bed, &after(DAY)).await, expected);
    assert!(bed.find(&ann(), old).await.is_none());
    assert!(bed.find(&ann(), new).await.is_some());
    assert_eq!(bed.store.events_after(&ann(), old, 0, 10).await.unwrap(), None);
    for table in TABLES {
        let of = if table == "tasks" { "id" } else { "task_id" };
        let sql = format!("select count(*) from {table} where {of} = {}", bed.literal(old));
        assert_eq!(bed.number(&sql).await, 0, "{table}");
    }
    assert_eq!(purge(bed, &after(DAY)).await, []);
}

pub(super) async fn what_has_not_ended_is_never_purged(bed: &Bed) {
    let mut live = vec![bed.begin(&ann(), "queued").await.task];
    let running = bed.claim().await;
    live.push(bed.begin(&ann(), "behind").await.task);
    live.push(accepted(bed.accept(&ann(), new("hidden", false)).await).task);
    bed.report(&running, 1, vec![status(TaskState::Working, "")], None).await;
    let asks = bed.claim().await;
    let ask = vec![status(TaskState::InputRequired, "which?")];
    bed.report(&asks, 1, ask, Some(TurnEnd::Finished)).await;
    bed.clock.advance(1000 * DAY);
    assert_eq!(purge(bed, &after(Duration::ZERO)).await, []);
    assert_eq!(bed.store.purge_events_of_all(&events_after(Duration::ZERO), 9).await.unwrap(), 0);
    for task in live {
        assert!(bed.find(&ann(), task).await.is_some());
    }
    let end = vec![status(TaskState::Completed, "")];
    let landed = bed.report(&running, 2, end, Some(TurnEnd::Finished)).await;
    assert!(matches!(landed, Reported::Landed { .. }), "{landed:?}");
}

pub(super) async fn every_end_is_an_end(bed: &Bed) {
    let ends = [TaskState::Completed, TaskState::Failed, TaskState::Rejected, TaskState::Canceled];
    for state in ends {
        story(bed, &ann(), "c", state).await;
    }
    bed.clock.advance(DAY);
    assert_eq!(bed.store.purge_events_of_all(&events_after(DAY), 9).await.unwrap(), 4);
    let mut gone = purge(bed, &after(DAY)).await;
    gone.sort();
    let mut expected: Vec<_> = ends.map(|state| tally("acme", state, 1)).into();
    expected.sort();
    assert_eq!(gone, expected);
    for table in TABLES {
        assert_eq!(rows(bed, table).await, 0, "{table}");
    }
}

pub(super) async fn batches_are_bounded_and_the_oldest_goes_first(bed: &Bed) {
    let mut tasks = Vec::new();
    for n in 0..5 {
        tasks.push(bed.task_in(&ann(), &format!("c-{n}"), TaskState::Completed).await);
        bed.clock.advance(Duration::from_secs(1));
    }
    bed.clock.advance(DAY);
    for (left, more) in [(3, true), (1, true), (0, false)] {
        let purged = bed.store.purge_ended_of_all(&after(DAY), 2).await.unwrap();
        assert_eq!(purged.more, more);
        let mut there = Vec::new();
        for task in &tasks {
            there.push(bed.find(&ann(), *task).await.is_some());
        }
        let expected: Vec<_> = (0..5).map(|n| n >= 5 - left).collect();
        assert_eq!(there, expected);
    }
}

pub(super) async fn each_tenant_keeps_what_it_is_told_to(bed: &Bed) {
    let scopes = [scope("acme", "key:ann"), scope("slow", "key:ann"), scope("never", "key:ann")];
    for scope in &scopes {
        story(bed, scope, "c", TaskState::Completed).await;
    }
    let keep = |tasks: Option<Duration>| Keep { tasks, events: None };
    let tenant = |name: &str| Tenant::parse("tenant", name).unwrap();
    let mut retention = after(DAY);
    retention.tenants.insert(tenant("slow"), keep(Some(3 * DAY)));
    retention.tenants.insert(tenant("never"), keep(None));
    bed.clock.advance(DAY);
    assert_eq!(purge(bed, &retention).await, [tally("acme", TaskState::Completed, 1)]);
    bed.clock.advance(2 * DAY);
    assert_eq!(purge(bed, &retention).await, [tally("slow", TaskState::Completed, 1)]);
    bed.clock.advance(1000 * DAY);
    assert_eq!(purge(bed, &retention).await, []);
    let one = Retention::of_one(tenant("never"), keep(Some(DAY)));
    assert_eq!(purge(bed, &one).await, [tally("never", TaskState::Completed, 1)]);
}

pub(super) async fn totals_stay_exact_while_tasks_are_purged(bed: &Bed) {
    for n in 0..6 {
        let state = if n % 2 == 0 { TaskState::Completed } else { TaskState::Failed };
        bed.task_in(&ann(), "c", state).await;
        bed.task_in(&scope("acme", "key:bob"), "c", state).await;
        bed.clock.advance(DAY);
    }
    bed.begin(&ann(), "live").await;
    bed.store.fold_counts_of_all(5).await.unwrap();
    for kept in (0..6).rev() {
        bed.store
            .purge_ended_of_all(&after(u32::try_from(kept).unwrap() * DAY + DAY / 2), 50)
            .await
            .unwrap();
        bed.store.fold_counts_of_all(3).await.unwrap();
        let (tasks, total) = bed.walk(&ann(), &everything(), 2).await;
        assert_eq!((tasks.len(), total), (kept + 1, i64::try_from(kept + 1).unwrap()));
        let failed = PageQuery { state: Some(TaskState::Failed), ..everything() };
        let (tasks, total) = bed.walk(&ann(), &failed, 2).await;
        assert_eq!(i64::try_from(tasks.len()).unwrap(), total);
    }
}

pub(super) async fn a_walk_neither_repeats_nor_skips_what_stays(bed: &Bed) {
    let mut tasks = Vec::new();
    for n in 0..12 {
        tasks.push(bed.task_in(&ann(), &format!("c-{n}"), TaskState::Completed).await);
        bed.clock.advance(Duration::from_secs(3600));
    }
    // After each page the eldest task, and the very one that the walk goes on from, are gone.
    let mut query = PageQuery { limit: 2, ..everything() };
    let mut met = Vec::new();
    let mut gone = BTreeSet::new();
    loop {
        let page = bed.page(&ann(), &query).await;
        met.extend(page.tasks.iter().map(|task| TaskId::parse(&task.id).unwrap()));
        let Some(next) = page.next else { break };
        query = PageQuery { after: Some(next), total: false, ..query };
        let oldest = *tasks.iter().find(|task| !gone.contains(*task)).unwrap();
        let purged = bed.store.purge_ended_of_all(&after(Duration::ZERO), 1).await.unwrap();
        assert_eq!(purged.count(), 1);
        assert!(bed.find(&ann(), oldest).await.is_none());
        gone.insert(oldest);
        let id = bed.literal(next.task);
        bed.sql(&format!("delete from tasks where id = {id}")).await.unwrap();
    }
    assert_eq!(met.iter().collect::<BTreeSet<_>>().len(), met.len(), "none twice");
    let expected: Vec<_> = tasks.iter().rev().take(met.len()).copied().collect();
    assert_eq!(met, expected, "and none left out");
}

pub(super) async fn a_log_goes_whole_and_its_task_stays(bed: &Bed) {
    let old = story(bed, &ann(), "c", TaskState::Completed).await;
    let before = bed.get(&ann(), old).await;
    bed.clock.advance(DAY);
    let new = story(bed, &ann(), "c", TaskState::Completed).await;
    assert_eq!(bed.store.purge_events_of_all(&events_after(DAY), 9).await.unwrap(), 1);
    assert_eq!(bed.get(&ann(), old).await, before);
    assert_eq!(bed.events(&ann(), new).await.len(), 5);
    for at in 0..before.generation {
        assert_eq!(bed.store.events_after(&ann(), old, at, 9).await.unwrap(), None, "{at}");
    }
    let at_the_end = bed.store.events_after(&ann(), old, before.generation, 9).await.unwrap();
    assert_eq!(at_the_end, Some(Vec::new()), "nothing is missing after the last event");
    assert_eq!(bed.store.purge_events_of_all(&events_after(DAY), 9).await.unwrap(), 0);
    // A log that may stay as long as its task goes with it.
    let both = Keep { tasks: Some(DAY), events: Some(DAY) };
    assert_eq!(bed.store.purge_events_of_all(&Retention::of_all(both), 9).await.unwrap(), 0);
    assert_eq!(purge(bed, &Retention::of_all(both)).await.len(), 1);
}

pub(super) async fn a_repeat_finds_that_the_task_it_made_is_gone(bed: &Bed) {
    let sent = deduped(new("c", true));
    let begun = accepted(bed.accept(&ann(), sent.clone()).await);
    let turn = bed.claim().await;
    bed.report(&turn, 1, vec![status(TaskState::Completed, "")], Some(TurnEnd::Finished)).await;
    assert_eq!(purge(bed, &after(Duration::ZERO)).await.len(), 1);
    let mut again = sent.clone();
    again.target = new("c", true).target;
    match bed.accept(&ann(), again.clone()).await {
        Accepted::Repeat(turn) => assert_eq!(turn.task, begun.task, "it is done once"),
        other => panic!("{other:?}"),
    }
    assert!(bed.find(&ann(), begun.task).await.is_none());
    assert_eq!(bed.store.show(&ann(), begun.task).await.unwrap(), Shown::NotFound);
    assert_eq!(bed.accept(&ann(), more(begun.task, "m-2")).await, Accepted::NotFound);
    bed.clock.advance(DAY);
    accepted(bed.accept(&ann(), again).await);
}

pub(super) async fn several_purgers_share_the_work(bed: &Bed) {
    for n in 0..40 {
        bed.task_in(&ann(), &format!("c-{n}"), TaskState::Completed).await;
    }
    let retention = after(Duration::ZERO);
    let work = || async {
        let mut gone = 0;
        loop {
            let purged = bed.store.purge_ended_of_all(&retention, 3).await.unwrap();
            gone += purged.count();
            if !purged.more {
                return gone;
            }
        }
    };
    let gone: u64 = join_all((0..6).map(|_| work())).await.into_iter().sum();
    assert_eq!(gone, 40, "each task is counted by the one that deleted it");
    for table in TABLES {
        assert_eq!(rows(bed, table).await, 0, "{table}");
    }
    assert_eq!(bed.page(&ann(), &everything()).await.total, Some(0));
}

pub(super) async fn purging_takes_nothing_from_those_who_work(bed: &Bed) {
    let retention = after(Duration::ZERO);
    let works = |n: usize| async move {
        let mut ended = 0_u64;
        for round in 0..12 {
            let token = LeaseToken::generate();
            let lease = Some(LeaseRequest { token, lease: LEASE });
            let accept = Accept { lease, ..new(&format!("c-{n}"), true) };
            let begun = accepted(bed.accept(&ann(), accept).await);
            if round % 3 == 0 {
                bed.store.request_cancel(&ann(), begun.task, None).await.unwrap();
            }
            for (sequence, state) in [(1, TaskState::Working), (2, TaskState::Completed)] {
                let updates = vec![status(state, "says"), chunk("a", "b", false)];
                let updates = if sequence == 2 { updates[..1].to_vec() } else { updates };
                let end = (sequence == 2).then_some(TurnEnd::Finished);
                let report = Report { lease: token, turn: 1, sequence, updates, end };
                let landed = bed.store.report(&ann(), begun.task, &report).await.unwrap();
                assert!(matches!(landed, Reported::Landed { .. }), "{landed:?}");
            }
            ended += 1;
        }
        ended
    };
    let purges = || async {
        let mut gone = 0;
        for _ in 0..30 {
            gone += bed.store.purge_ended_of_all(&retention, 4).await.unwrap().count();
            bed.store.purge_events_of_all(&events_after(Duration::ZERO), 4).await.unwrap();
            bed.store.claim_turns_of_all(1, LEASE).await.unwrap();
        }
        gone
    };
    let work = join_all((0..4).map(works));
    let (ended, gone) = tokio::join!(work, join_all((0..2).map(|_| purges())));
    let mut gone: u64 = gone.into_iter().sum();
    gone += bed.store.purge_ended_of_all(&retention, 1000).await.unwrap().count();
    assert_eq!(gone, ended.into_iter().sum::<u64>());
    for table in TABLES {
        assert_eq!(rows(bed, table).await, 0, "{table}");
    }
    assert_eq!(bed.page(&ann(), &everything()).await.total, Some(0));
}

async fn erase(bed: &Bed, scope: &Scope) -> Erased {
    let mut all = Erased::default();
    loop {
        let erased = bed.store.erase(scope, 2).await.unwrap();
        a2ad::store::add_up(&mut all.tasks, erased.tasks);
        all.sent_messages += erased.sent_messages;
        all.name = erased.name;
        if !erased.more {
            return all;
        }
    }
}

pub(super) async fn an_owner_is_erased_and_nobody_else(bed: &Bed) {
    let bob = scope("acme", "key:bob");
    let theirs = story(bed, &bob, "c", TaskState::Completed).await;
    story(bed, &ann(), "c", TaskState::Completed).await;
    accepted(bed.accept(&ann(), deduped(new("hidden", false))).await);
    let running = bed.claim().await;
    let live = bed.begin(&ann(), "c").await;
    let shown_running = bed.claim().await;
    assert_eq!(shown_running.task, live.task);
    bed.begin(&ann(), "queued").await;
    let mut expected = bed.store.count_owned(&ann()).await.unwrap();
    expected.tasks.sort();
    assert_eq!(expected.sent_messages, 1);
    let states = [(TaskState::Submitted, 3), (TaskState::Completed, 1)];
    assert_eq!(expected.tasks, states.map(|(state, n)| tally("acme", state, n)));
    expected.name = true;
    assert_eq!(erase(bed, &ann()).await, expected);
    for turn in [&running, &shown_running] {
        let end = vec![status(TaskState::Completed, "too late")];
        let late = bed.report(turn, 1, end, Some(TurnEnd::Finished)).await;
        assert_eq!(late, Reported::Stale);
    }
    assert!(bed.store.claim_turns_of_all(9, LEASE).await.unwrap().is_empty());
    assert_eq!(bed.page(&ann(), &everything()).await.total, Some(0));
    assert_eq!(bed.number("select count(*) from owners where name = 'key:ann'").await, 0);
    for (table, left) in TABLES.into_iter().zip([1, 2, 1, 2, 5, 1]) {
        assert_eq!(rows(bed, table).await, left, "{table}");
    }
    assert!(bed.find(&bob, theirs).await.is_some());
    assert_eq!(erase(bed, &ann()).await, Erased::default(), "nothing is left");
}

pub(super) async fn an_owner_that_comes_back_begins_anew(bed: &Bed) {
    story(bed, &ann(), "c", TaskState::Completed).await;
    assert!(erase(bed, &ann()).await.name);
    // Another name between, which must not get the number.
    story(bed, &scope("acme", "key:carl"), "c", TaskState::Completed).await;
    let again = bed.begin(&ann(), "c").await;
    let turn = bed.claim().await;
    assert_eq!((turn.task, &turn.scope), (again.task, &ann()));
    let (tasks, total) = bed.walk(&ann(), &everything(), 5).await;
    assert_eq!((tasks.len(), total), (1, 1));
}

pub(super) async fn an_owner_of_several_tenants_is_erased_in_one(bed: &Bed) {
    let elsewhere = scope("other", "key:ann");
    story(bed, &ann(), "c", TaskState::Completed).await;
    let kept = story(bed, &elsewhere, "c", TaskState::Completed).await;
    assert!(!erase(bed, &ann()).await.name, "the name is still somebody's");
    assert!(bed.find(&elsewhere, kept).await.is_some());
    assert_eq!(bed.page(&elsewhere, &everything()).await.total, Some(1));
    let next = bed.begin(&elsewhere, "c").await;
    assert_eq!(bed.claim().await.task, next.task);
    assert!(erase(bed, &elsewhere).await.name);
}
