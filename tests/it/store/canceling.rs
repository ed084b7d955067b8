use a2ad::contract::wkt::Struct;
use a2ad::store::{CancelRequested, CancelWish, HeldLease, Replied, Reply, Shown};
use futures_util::future::join;

use super::*;

async fn request(bed: &Bed, task: TaskId) -> CancelRequested {
    bed.store.request_cancel(&ann(), task, None).await.unwrap()
}

pub(super) async fn a_task_without_a_running_turn_is_canceled_at_once(bed: &Bed) {
    let begun = bed.begin(&ann(), "c").await;
    accepted(bed.accept(&ann(), more(begun.task, "m-2")).await);
    assert_eq!(request(bed, begun.task).await, CancelRequested::Canceled);
    let record = bed.get(&ann(), begun.task).await;
    assert_eq!((state_of(&record.task), record.generation), (TaskState::Canceled, 2));
    assert_eq!(record.task.history.len(), 2, "what was said stays");
    let in_state = async |state: i32| {
        bed.number(&format!("select count(*) from turns where state = {state}")).await
    };
    assert_eq!((in_state(1).await, in_state(0).await, in_state(4).await), (0, 0, 2));
    assert!(
        bed.store.claim_turns_of_all(9, LEASE).await.unwrap().is_empty(),
        "its turns fall away"
    );
    assert_eq!(request(bed, begun.task).await, CancelRequested::Ended(TaskState::Canceled));
    let query = PageQuery { state: Some(TaskState::Canceled), ..everything() };
    assert_eq!(bed.walk(&ann(), &query, 50).await.1, 1);
}

pub(super) async fn a_running_turn_is_told_and_its_lease_ends_with_the_task(bed: &Bed) {
    let begun = bed.begin(&ann(), "c").await;
    let turn = bed.claim().await;
    let why = Struct::default();
    let asked = bed.store.request_cancel(&ann(), begun.task, Some(&why)).await.unwrap();
    assert_eq!(asked, CancelRequested::Requested);
    assert_eq!(request(bed, begun.task).await, CancelRequested::Requested);
    let held = HeldLease { scope: ann(), task: turn.task, turn: 1, lease: turn.lease };
    let renewed = bed.store.renew_leases_of_all(&[held], LEASE).await.unwrap();
    assert_eq!(renewed[0].cancel, Some(CancelWish { metadata: Some(why) }), "the first wish");
    let landed = bed.report(&turn, 1, vec![status(TaskState::Working, "")], None).await;
    assert_eq!(landed, Reported::Landed { generation: 2, cancel_requested: true });
    assert!(bed.store.finish_cancel(&ann(), begun.task).await.unwrap());
    assert!(!bed.store.finish_cancel(&ann(), begun.task).await.unwrap());
    let late = bed.report(&turn, 2, vec![status(TaskState::Completed, "")], None).await;
    assert_eq!(late, Reported::Stale);
    assert_eq!(state_of(&bed.get(&ann(), begun.task).await.task), TaskState::Canceled);
}

pub(super) async fn of_a_cancel_and_a_completion_at_once_one_wins(bed: &Bed) {
    let mut canceled = 0;
    for round in 0..100 {
        let begun = bed.begin(&ann(), "c").await;
        let turn = bed.claim().await;
        request(bed, begun.task).await;
        let done = || vec![status(TaskState::Completed, "")];
        let report = bed.report(&turn, 1, done(), Some(TurnEnd::Finished));
        let scope = ann();
        let cancel = bed.store.finish_cancel(&scope, begun.task);
        let (reported, was_canceled) = if round % 2 == 0 {
            join(report, cancel).await
        } else {
            let (cancel, report) = join(cancel, report).await;
            (report, cancel)
        };
        let was_canceled = was_canceled.unwrap();
        let record = bed.get(&ann(), begun.task).await;
        let (told, stored) = match (reported, was_canceled) {
            (Reported::Landed { .. }, false) => (TaskState::Completed, state_of(&record.task)),
            (Reported::Stale, true) => (TaskState::Canceled, state_of(&record.task)),
            both => panic!("two winners or none: {both:?}"),
        };
        assert_eq!(told, stored);
        assert_eq!(record.generation, 2, "one event for one winner");
        canceled += u32::from(was_canceled);
    }
    println!("{canceled} of 100 races were won by the cancel");
}

pub(super) async fn a_forgotten_cancel_is_finished_after_the_grace(bed: &Bed) {
    let grace = Duration::from_secs(5);
    let begun = bed.begin(&ann(), "c").await;
    bed.claim().await;
    assert_eq!(bed.store.finish_cancels_of_all(Duration::ZERO, 9).await.unwrap(), 0);
    request(bed, begun.task).await;
    bed.clock.advance(grace - Duration::from_micros(1));
    assert_eq!(bed.store.finish_cancels_of_all(grace, 9).await.unwrap(), 0);
    bed.clock.advance_us(1);
    assert_eq!(bed.store.finish_cancels_of_all(grace, 9).await.unwrap(), 1);
    assert_eq!(bed.store.finish_cancels_of_all(grace, 9).await.unwrap(), 0);
    assert_eq!(state_of(&bed.get(&ann(), begun.task).await.task), TaskState::Canceled);
}

pub(super) async fn a_cancel_is_an_event_of_the_turn_that_it_ends(bed: &Bed) {
    let last_turn = |task| async move { bed.events(&ann(), task).await.last().unwrap().turn };
    let queued = bed.begin(&ann(), "c").await;
    request(bed, queued.task).await;
    assert_eq!(last_turn(queued.task).await, 1, "the turn that will never run");
    let idle = bed.task_in(&ann(), "c", TaskState::InputRequired).await;
    assert_eq!(request(bed, idle).await, CancelRequested::Canceled);
    assert_eq!(last_turn(idle).await, 0, "no turn was left");
    let second = bed.task_in(&ann(), "c", TaskState::InputRequired).await;
    accepted(bed.accept(&ann(), more(second, "m-2")).await);
    bed.claim().await;
    assert_eq!(request(bed, second).await, CancelRequested::Requested);
    assert!(bed.store.finish_cancel(&ann(), second).await.unwrap());
    assert_eq!(last_turn(second).await, 2, "the turn that ran");
    let done = bed.number("select count(*) from turns where state = 3").await;
    assert_eq!(done, 2, "what a turn had done before stays done");
}

/// Every method that takes a scope, with the right ids and tokens in the wrong hands.
pub(super) async fn strangers_change_and_see_nothing(bed: &Bed) {
    let hidden = accepted(bed.accept(&ann(), new("c", false)).await);
    let direct = bed.claim().await;
    let begun = bed.begin(&ann(), "c").await;
    let turn = bed.claim().await;
    assert_eq!((direct.task, turn.task), (hidden.task, begun.task));
    bed.report(&turn, 1, vec![chunk("a", "x", true)], None).await;
    request(bed, begun.task).await;
    let before = [bed.get(&ann(), begun.task).await, bed.get(&ann(), hidden.task).await];
    let rows = [bed.updated_at(begun.task).await, bed.updated_at(hidden.task).await];
    let mut names = strangers();
    // And once more when each of them is somebody.
    names.extend(bed.known_strangers().await);
    let held = HeldLease { scope: ann(), task: turn.task, turn: 1, lease: turn.lease };
    for stranger in &names {
        let answer = bed.accept(stranger, more(begun.task, "m-2")).await;
        assert_eq!(answer, Accepted::NotFound);
        let end = Some(TurnEnd::Finished);
        let updates = vec![status(TaskState::Completed, "")];
        let report = Report { lease: turn.lease, turn: 1, sequence: 2, updates, end };
        let answer = bed.store.report(stranger, begun.task, &report).await.unwrap();
        assert_eq!(answer, Reported::Stale);
        let repeat = Report { sequence: 1, ..report };
        let answer = bed.store.report(stranger, begun.task, &repeat).await.unwrap();
        assert_eq!(answer, Reported::Stale, "not even that it came before");
        let message = message("r", "direct");
        let reply = Reply { lease: direct.lease, turn: 1, sequence: 1, message };
        let answer = bed.store.reply(stranger, hidden.task, &reply).await.unwrap();
        assert_eq!(answer, Replied::Stale);
        let answer = bed.store.show(stranger, hidden.task).await.unwrap();
        assert_eq!(answer, Shown::NotFound);
        let answer = bed.store.request_cancel(stranger, begun.task, None).await.unwrap();
        assert_eq!(answer, CancelRequested::NotFound);
        assert!(!bed.store.finish_cancel(stranger, begun.task).await.unwrap());
        let theirs = HeldLease { scope: stranger.clone(), ..held.clone() };
        let renewed = bed.store.renew_leases_of_all(&[theirs], LEASE).await.unwrap();
        let same_tenant = stranger.tenant() == ann().tenant();
        assert!(renewed.is_empty() || same_tenant, "a lease is its tenant's: {stranger:?}");
        assert_eq!(bed.find(stranger, begun.task).await, None);
        assert_eq!(bed.find(stranger, hidden.task).await, None);
        assert_eq!(bed.walk(stranger, &everything(), 50).await, (vec![], 0));
        let events = bed.store.events_after(stranger, begun.task, 0, 9).await.unwrap();
        assert_eq!(events, None);
    }
    let after = [bed.get(&ann(), begun.task).await, bed.get(&ann(), hidden.task).await];
    assert_eq!(after, before);
    assert_eq!([bed.updated_at(begun.task).await, bed.updated_at(hidden.task).await], rows);
    assert_eq!(request(bed, hidden.task).await, CancelRequested::NotFound, "hidden is absent");
}
