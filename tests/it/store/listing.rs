use futures_util::future::join;

use super::*;

fn ids(tasks: &[v1::Task]) -> Vec<String> {
    tasks.iter().map(|task| task.id.clone()).collect()
}

/// Tasks in several states and contexts, some at one and the same time.
async fn fill(bed: &Bed, scope: &Scope, n: usize) -> Vec<TaskId> {
    let states = [TaskState::Completed, TaskState::Working, TaskState::InputRequired];
    let mut tasks = Vec::new();
    for at in 0..n {
        let context = format!("c-{}", at % 3);
        tasks.push(bed.task_in(scope, &context, states[at % states.len()]).await);
        if at % 4 == 0 {
            bed.clock.advance(Duration::from_millis(1));
        }
    }
    tasks
}

pub(super) async fn live_tasks_are_counted_by_owner_and_by_tenant(bed: &Bed) {
    fill(bed, &ann(), 9).await;
    bed.begin(&ann(), "c-0").await;
    let bob = scope("acme", "key:bob");
    bed.begin(&bob, "c-0").await;
    bed.begin(&scope("other", "key:ann"), "c-0").await;
    // One that may become a direct reply is none yet.
    accepted(bed.accept(&ann(), new("c-0", false)).await);
    for folded in [false, true] {
        if folded {
            bed.store.fold_counts_of_all(1000).await.unwrap();
        }
        for (whose, owners, n) in [
            (ann(), Owners::One, 7),
            (ann(), Owners::All, 8),
            (bob.clone(), Owners::One, 1),
            (bob.clone(), Owners::All, 8),
            (scope("nowhere", "key:ann"), Owners::All, 0),
        ] {
            let found = bed.store.live_tasks(&whose, owners).await.unwrap();
            assert_eq!(found, n, "{whose:?} {owners:?}, folded: {folded}");
        }
    }
}

pub(super) async fn a_listing_is_newest_first_with_ties_by_id(bed: &Bed) {
    let made = fill(bed, &ann(), 20).await;
    let (tasks, total) = bed.walk(&ann(), &everything(), 100).await;
    assert_eq!((tasks.len(), total), (20, 20));
    let keys: Vec<_> = tasks.iter().map(|t| (status_at(t), t.id.clone())).collect();
    let mut sorted = keys.clone();
    sorted.sort();
    sorted.reverse();
    assert_eq!(keys, sorted);
    assert!(keys.windows(2).any(|pair| pair[0].0 == pair[1].0), "there are ties");
    let oldest = TaskId::parse(&tasks[19].id).unwrap();
    assert!(made[..4].contains(&oldest));
}

pub(super) async fn walks_of_every_page_size_are_the_same(bed: &Bed) {
    fill(bed, &ann(), 23).await;
    let (whole, _) = bed.walk(&ann(), &everything(), 100).await;
    for limit in [1, 2, 7, 22, 23, 24] {
        let (tasks, total) = bed.walk(&ann(), &everything(), limit).await;
        assert_eq!(tasks, whole, "pages of {limit}");
        assert_eq!(total, 23);
    }
    let last = PageQuery { limit: 23, ..everything() };
    assert_eq!(bed.page(&ann(), &last).await.next, None, "no page follows a full last one");
}

pub(super) async fn filters_select_and_totals_are_exact(bed: &Bed) {
    fill(bed, &ann(), 24).await;
    bed.begin(&ann(), "c-0").await;
    let (all, _) = bed.walk(&ann(), &everything(), 100).await;
    let times: Vec<_> = all.iter().map(status_at).collect();
    for in_context in [None, Some("c-0"), Some("c-2"), Some("never")] {
        for state in [
            None,
            Some(TaskState::Completed),
            Some(TaskState::Submitted),
            Some(TaskState::Rejected),
        ] {
            for since_us in [None, Some(times[7]), Some(times[0] + 1000), Some(i64::MIN)] {
                let query =
                    PageQuery { context: in_context.map(context), state, since_us, ..everything() };
                let expected: Vec<_> = all
                    .iter()
                    .filter(|t| in_context.is_none_or(|context| t.context_id == context))
                    .filter(|t| state.is_none_or(|state| state_of(t) == state))
                    .filter(|t| since_us.is_none_or(|since| status_at(t) >= since))
                    .cloned()
                    .collect();
                let (found, total) = bed.walk(&ann(), &query, 5).await;
                assert_eq!(ids(&found), ids(&expected), "{query:?}");
                assert_eq!(total, i64::try_from(expected.len()).unwrap(), "{query:?}");
            }
        }
    }
}

pub(super) async fn a_listing_shows_the_tasks_of_its_scope_alone(bed: &Bed) {
    let mine = fill(bed, &ann(), 6).await;
    let bob = scope("acme", "key:bob");
    let theirs = fill(bed, &bob, 4).await;
    assert_eq!(bed.walk(&ann(), &everything(), 100).await.1, 6);
    let (tasks, total) = bed.walk(&bob, &everything(), 100).await;
    assert_eq!(total, 4);
    assert!(tasks.iter().all(|t| theirs.contains(&TaskId::parse(&t.id).unwrap())));
    for stranger in [scope("other", "key:ann"), scope("nowhere", "key:nobody")] {
        let (tasks, total) = bed.walk(&stranger, &everything(), 100).await;
        assert_eq!((tasks.len(), total), (0, 0));
    }
    // The place of somebody else's task is just a place.
    let record = bed.get(&ann(), mine[5]).await;
    let after = a2ad::domain::page::Cursor { status_at_us: status_at(&record.task), task: mine[5] };
    let page =
        bed.page(&bob, &PageQuery { after: Some(after), total: false, ..everything() }).await;
    assert!(page.tasks.iter().all(|t| theirs.contains(&TaskId::parse(&t.id).unwrap())));
}

pub(super) async fn a_hidden_task_is_nowhere_until_it_is_shown(bed: &Bed) {
    let hidden = accepted(bed.accept(&ann(), new("c", false)).await);
    let of_context = PageQuery { context: Some(context("c")), ..everything() };
    for query in [everything(), of_context.clone()] {
        assert_eq!(bed.walk(&ann(), &query, 50).await, (vec![], 0));
    }
    let view = View { history: 1, artifacts: true, hidden: false };
    assert_eq!(bed.store.task(&ann(), hidden.task, view).await.unwrap(), None);
    let turn = bed.claim().await;
    bed.report(&turn, 1, vec![status(TaskState::Working, "")], None).await;
    for query in [everything(), of_context] {
        let (tasks, total) = bed.walk(&ann(), &query, 50).await;
        assert_eq!((ids(&tasks), total), (vec![hidden.task.to_string()], 1));
    }
    let working = PageQuery { state: Some(TaskState::Working), ..everything() };
    assert_eq!(bed.walk(&ann(), &working, 50).await.1, 1);
    let submitted = PageQuery { state: Some(TaskState::Submitted), ..everything() };
    assert_eq!(bed.walk(&ann(), &submitted, 50).await.1, 0);
}

pub(super) async fn a_walk_goes_on_when_the_task_at_the_boundary_is_gone(bed: &Bed) {
    fill(bed, &ann(), 10).await;
    let (all, _) = bed.walk(&ann(), &everything(), 100).await;
    let first = bed.page(&ann(), &PageQuery { limit: 4, ..everything() }).await;
    let boundary = first.next.unwrap();
    assert_eq!(boundary.task.to_string(), all[3].id);
    let id = bed.literal(boundary.task);
    bed.sql(&format!("delete from tasks where id = {id}")).await.unwrap();
    let rest = PageQuery { after: Some(boundary), total: false, limit: 100, ..everything() };
    assert_eq!(ids(&bed.page(&ann(), &rest).await.tasks), ids(&all[4..]));
}

pub(super) async fn history_and_artifacts_come_only_when_asked_for_and_within_bounds(bed: &Bed) {
    for _ in 0..5 {
        bed.begin(&ann(), "c").await;
        let turn = bed.claim().await;
        let big = "x".repeat(1000);
        let updates =
            vec![status(TaskState::Working, "w"), chunk("a", &big, false), chunk("a", "y", true)];
        bed.report(&turn, 1, updates, None).await;
        bed.report(&turn, 2, vec![status(TaskState::Completed, "done")], Some(TurnEnd::Finished))
            .await;
    }
    let lean = bed.page(&ann(), &everything()).await;
    assert!(lean.tasks.iter().all(|t| t.history.is_empty() && t.artifacts.is_empty()));
    let rich = PageQuery { history: 1, artifacts: true, ..everything() };
    let page = bed.page(&ann(), &rich).await;
    assert_eq!((page.tasks.len(), page.total), (5, Some(5)));
    for task in &page.tasks {
        assert_eq!(task.history.len(), 1);
        assert_eq!(task.history[0].message_id, "says w");
        assert_eq!(task.artifacts.len(), 1);
        assert_eq!(task.artifacts[0].parts.len(), 2);
    }
    let (walked, _) = bed.walk(&ann(), &PageQuery { bytes_max: 1500, ..rich.clone() }, 50).await;
    assert_eq!(walked, page.tasks, "short pages, the same walk");
    let short = bed.page(&ann(), &PageQuery { bytes_max: 1500, ..rich }).await;
    assert_eq!(short.tasks.len(), 2);
    assert!(short.next.is_some());
}

pub(super) async fn totals_stay_exact_while_counts_are_folded(bed: &Bed) {
    fill(bed, &ann(), 12).await;
    let mut folded = 0;
    for _ in 0..100 {
        let fold = bed.store.fold_counts_of_all(3);
        let (n, (_, total)) = join(fold, bed.walk(&ann(), &everything(), 100)).await;
        assert_eq!(total, 12);
        let n = n.unwrap();
        folded += n;
        if n == 0 {
            break;
        }
    }
    assert!(folded >= 24, "{folded}");
    assert_eq!(bed.store.fold_counts_of_all(100).await.unwrap(), 0);
    let working = PageQuery { state: Some(TaskState::Working), ..everything() };
    assert_eq!(bed.walk(&ann(), &working, 100).await.1, 4);
    bed.begin(&ann(), "c").await;
    assert_eq!(bed.walk(&ann(), &everything(), 100).await.1, 13, "folded and not folded together");
}

pub(super) async fn what_was_never_shown_expires(bed: &Bed) {
    let hidden = accepted(bed.accept(&ann(), deduped(new("c", false))).await);
    let shown = bed.begin(&ann(), "c").await;
    let hour = Duration::from_secs(3600);
    bed.clock.advance(hour / 2);
    assert_eq!(bed.store.purge_expired_of_all(hour, 9).await.unwrap(), 0);
    bed.clock.advance(hour / 2);
    assert_eq!(bed.store.purge_expired_of_all(hour, 9).await.unwrap(), 2, "the task and its key");
    assert_eq!(bed.find(&ann(), hidden.task).await, None);
    assert!(bed.find(&ann(), shown.task).await.is_some());
    assert_eq!(bed.claim().await.task, shown.task, "its turn is gone with it");
}

pub(super) async fn what_is_worked_on_or_was_a_moment_ago_does_not_expire(bed: &Bed) {
    let hour = Duration::from_secs(3600);
    let hidden = accepted(bed.accept(&ann(), new("c", false)).await);
    let turn = bed.claim().await;
    bed.clock.advance(hour * 2);
    // A runner that renews its lease writes nothing else of the task.
    assert_eq!(bed.store.purge_expired_of_all(hour, 9).await.unwrap(), 0, "its turn runs");
    let retry_in = hour;
    bed.report(&turn, 1, vec![], Some(TurnEnd::Failed { retry_in })).await;
    bed.clock.advance(hour - Duration::from_micros(1));
    assert_eq!(bed.store.purge_expired_of_all(hour, 9).await.unwrap(), 0, "it changed just now");
    assert!(bed.find(&ann(), hidden.task).await.is_some());
    bed.clock.advance_us(1);
    assert_eq!(bed.store.purge_expired_of_all(hour, 9).await.unwrap(), 1);
    assert_eq!(bed.find(&ann(), hidden.task).await, None);
}
