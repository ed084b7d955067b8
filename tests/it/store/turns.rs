use std::collections::BTreeSet;

use a2ad::store::{HeldLease, interruption_backoff};
use futures_util::future::join_all;

use super::*;

fn held(turn: &Turn) -> HeldLease {
    HeldLease { scope: turn.scope.clone(), task: turn.task, turn: turn.turn, lease: turn.lease }
}

pub(super) async fn a_claim_gives_a_turn_with_all_that_it_needs(bed: &Bed) {
    let request = TurnRequest {
        metadata: Some(a2ad::contract::wkt::Struct::default()),
        output_modes: vec!["text/plain".to_owned(), "image/png".to_owned()],
        trace: Some("00-trace".to_owned()),
    };
    let accept = Accept { request: request.clone(), ..new("c", false) };
    let begun = accepted(bed.accept(&ann(), accept).await);
    let turn = bed.claim().await;
    assert_eq!((turn.scope.clone(), turn.task, turn.turn), (ann(), begun.task, 1));
    assert_eq!(turn.context, context("c"));
    assert_eq!(turn.request, request);
    assert_eq!((turn.errors, turn.interruptions, turn.last_report), (0, 0, 0));
    assert_eq!((turn.state, turn.shown, turn.cancel.clone()), (TaskState::Submitted, false, None));
    assert_eq!(turn.message.task_id, begun.task.to_string());
    assert!(bed.store.claim_turns_of_all(9, LEASE).await.unwrap().is_empty());
}

pub(super) async fn sixteen_claimers_share_the_turns_without_a_double(bed: &Bed) {
    for n in 0..60 {
        bed.begin(&ann(), &format!("c-{n}")).await;
    }
    let claim = || async {
        let mut mine = Vec::new();
        loop {
            let turns = bed.store.claim_turns_of_all(3, LEASE).await.unwrap();
            if turns.is_empty() {
                return mine;
            }
            mine.extend(turns.into_iter().map(|turn| turn.task));
        }
    };
    let mut claimed: Vec<TaskId> = join_all((0..16).map(|_| claim())).await.concat();
    // A claimer passes over what another one holds, and may so leave early; none is lost.
    claimed.extend(claim().await);
    assert_eq!(claimed.len(), 60);
    assert_eq!(claimed.iter().collect::<BTreeSet<_>>().len(), 60);
}

pub(super) async fn the_turn_that_is_due_longest_is_claimed_first(bed: &Bed) {
    // In the order of their rows, which is not that in which they become due.
    let mut due = Vec::new();
    for (at, retry_s) in [(0, 40), (1, 10), (2, 30), (3, 20)] {
        bed.begin(&ann(), &format!("c-{at}")).await;
        let turn = bed.claim().await;
        let retry_in = Duration::from_secs(retry_s);
        bed.report(&turn, 1, vec![], Some(TurnEnd::Failed { retry_in })).await;
        due.push((retry_s, turn.task));
    }
    due.sort_unstable();
    bed.clock.advance(Duration::from_secs(50));
    let mut claimed = Vec::new();
    for limit in [1, 2, 9] {
        claimed.extend(bed.store.claim_turns_of_all(limit, LEASE).await.unwrap());
    }
    let claimed: Vec<_> = claimed.into_iter().map(|turn| turn.task).collect();
    assert_eq!(claimed, due.into_iter().map(|(_, task)| task).collect::<Vec<_>>());
}

pub(super) async fn a_turn_of_a_task_runs_after_the_one_before(bed: &Bed) {
    let begun = bed.begin(&ann(), "c").await;
    let first = bed.claim().await;
    for id in ["m-2", "m-3"] {
        accepted(bed.accept(&ann(), more(begun.task, id)).await);
    }
    let mut turn = first;
    for (number, id) in [(1, "m-1"), (2, "m-2"), (3, "m-3")] {
        assert_eq!((turn.turn, turn.message.message_id.as_str()), (number, id));
        assert!(bed.store.claim_turns_of_all(9, LEASE).await.unwrap().is_empty());
        let queued = async || bed.number("select count(*) from turns where state = 1").await;
        assert_eq!(queued().await, 0, "those behind are blocked, and not just passed over");
        bed.report(&turn, 1, vec![status(TaskState::AuthRequired, "")], Some(TurnEnd::Finished))
            .await;
        assert_eq!(queued().await, i64::from(number < 3), "the next one alone is due");
        if number < 3 {
            turn = bed.claim().await;
        }
    }
    assert_eq!(bed.get(&ann(), begun.task).await.generation, 4);
}

pub(super) async fn a_lease_that_ran_out_goes_to_another_runner(bed: &Bed) {
    let begun = bed.begin(&ann(), "c").await;
    let first = bed.claim().await;
    bed.report(&first, 1, vec![status(TaskState::Working, "")], None).await;
    assert_eq!(bed.store.release_expired_of_all(9).await.unwrap(), 0);
    bed.clock.advance(LEASE + Duration::from_millis(1));
    assert_eq!(bed.store.release_expired_of_all(9).await.unwrap(), 1);
    let second = bed.claim().await;
    assert_eq!((second.task, second.turn), (begun.task, 1));
    assert_eq!((second.interruptions, second.errors, second.last_report), (1, 0, 1));
    assert_ne!(second.lease, first.lease);
    let late = bed.report(&first, 2, vec![status(TaskState::Failed, "")], None).await;
    assert_eq!(late, Reported::Stale);
    let done = vec![status(TaskState::Completed, "")];
    let landed = bed.report(&second, 2, done, Some(TurnEnd::Finished)).await;
    assert!(matches!(landed, Reported::Landed { generation: 3, .. }));
}

pub(super) async fn the_pause_grows_with_each_interruption(bed: &Bed) {
    bed.begin(&ann(), "c").await;
    for n in 1..=6 {
        let turn = bed.claim().await;
        assert_eq!(turn.interruptions, n - 1);
        bed.clock.advance(LEASE + Duration::from_millis(1));
        assert_eq!(bed.store.release_expired_of_all(9).await.unwrap(), 1);
        let pause = interruption_backoff(n);
        if !pause.is_zero() {
            bed.clock.advance(pause - Duration::from_micros(1));
            assert!(bed.store.claim_turns_of_all(9, LEASE).await.unwrap().is_empty(), "{n}");
            bed.clock.advance_us(1);
        }
    }
    assert_eq!(interruption_backoff(1), Duration::ZERO);
    assert_eq!(interruption_backoff(6), Duration::from_millis(3200));
    assert_eq!(interruption_backoff(i32::MAX), Duration::from_secs(30));
}

pub(super) async fn a_renewed_lease_lasts_and_a_lost_one_does_not(bed: &Bed) {
    bed.begin(&ann(), "c").await;
    let turn = bed.claim().await;
    let foreign = HeldLease { scope: scope("acme", "key:bob"), lease: no_lease(), ..held(&turn) };
    for _ in 0..4 {
        bed.clock.advance(Duration::from_secs(10));
        let leases = [held(&turn), foreign.clone()];
        let renewed = bed.store.renew_leases_of_all(&leases, LEASE).await.unwrap();
        assert_eq!(renewed.len(), 1);
        assert_eq!((renewed[0].lease, renewed[0].cancel.clone()), (turn.lease, None));
        assert_eq!(bed.store.release_expired_of_all(9).await.unwrap(), 0);
    }
    bed.clock.advance(LEASE + Duration::from_secs(1));
    bed.store.release_expired_of_all(9).await.unwrap();
    assert!(bed.store.renew_leases_of_all(&[held(&turn)], LEASE).await.unwrap().is_empty());
}

pub(super) async fn an_error_counts_and_a_turn_handed_back_does_not(bed: &Bed) {
    bed.begin(&ann(), "c").await;
    let turn = bed.claim().await;
    bed.report(&turn, 1, vec![], Some(TurnEnd::HandedBack)).await;
    let turn = bed.claim().await;
    assert_eq!((turn.errors, turn.interruptions), (0, 0));
    let retry_in = Duration::from_secs(2);
    bed.report(&turn, 2, vec![], Some(TurnEnd::Failed { retry_in })).await;
    assert!(bed.store.claim_turns_of_all(9, LEASE).await.unwrap().is_empty());
    bed.clock.advance(retry_in);
    let turn = bed.claim().await;
    assert_eq!((turn.errors, turn.interruptions, turn.last_report), (1, 0, 2));
}

pub(super) async fn a_second_attempt_shows_a_hidden_task(bed: &Bed) {
    let begun = accepted(bed.accept(&ann(), new("c", false)).await);
    bed.claim().await;
    bed.clock.advance(LEASE + Duration::from_secs(1));
    bed.store.release_expired_of_all(9).await.unwrap();
    assert_eq!(bed.walk(&ann(), &everything(), 50).await.1, 0);
    let turn = bed.claim().await;
    assert!(turn.shown);
    let (tasks, total) = bed.walk(&ann(), &everything(), 50).await;
    assert_eq!((tasks.len(), total), (1, 1));
    assert_eq!(tasks[0].id, begun.task.to_string());
}

pub(super) async fn the_work_that_waits_is_counted_and_timed(bed: &Bed) {
    let backlog = async || bed.store.backlog_of_all().await.unwrap();
    assert_eq!(backlog().await, Backlog::default());
    bed.begin(&ann(), "c").await;
    bed.clock.advance(Duration::from_secs(7));
    bed.begin(&ann(), "c").await;
    bed.clock.advance(Duration::from_secs(1));
    assert_eq!(backlog().await, Backlog { due: 2, longest: Duration::from_secs(8) });
    bed.claim().await;
    assert_eq!(backlog().await, Backlog { due: 1, longest: Duration::from_secs(1) });
}
