use a2ad::contract::wkt::Struct;
use a2ad::store::{CancelRequested, CancelWish};
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
    let held = a2ad::store::HeldLease { scope: ann(), task: turn.task, turn: 1, lease: turn.lease };
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

pub(super) async fn strangers_cancel_nothing(bed: &Bed) {
    let begun = bed.begin(&ann(), "c").await;
    let hidden = accepted(bed.accept(&ann(), new("c", false)).await);
    for stranger in strangers() {
        let answer = bed.store.request_cancel(&stranger, begun.task, None).await.unwrap();
        assert_eq!(answer, CancelRequested::NotFound);
        assert!(!bed.store.finish_cancel(&stranger, begun.task).await.unwrap());
        assert_eq!(bed.find(&stranger, begun.task).await, None);
        let shown = bed.store.show(&stranger, hidden.task).await.unwrap();
        assert_eq!(shown, a2ad::store::Shown::NotFound);
    }
    assert_eq!(request(bed, hidden.task).await, CancelRequested::NotFound);
    assert_eq!(state_of(&bed.get(&ann(), begun.task).await.task), TaskState::Submitted);
}
