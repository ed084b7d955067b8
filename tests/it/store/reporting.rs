use a2ad::contract::v1::stream_response::Payload;
use a2ad::store::{Replied, Reply, Shown};

use super::*;

fn reply(turn: &Turn, sequence: i64) -> Reply {
    Reply { lease: turn.lease, turn: turn.turn, sequence, message: message("r-1", "direct") }
}

pub(super) async fn outcomes_that_come_together_are_events_in_order(bed: &Bed) {
    let begun = bed.begin(&ann(), "c").await;
    let turn = bed.claim().await;
    bed.clock.advance(Duration::from_secs(1));
    let updates = vec![
        status(TaskState::Working, "one"),
        chunk("a", "x", false),
        status(TaskState::Working, "two"),
        status(TaskState::Completed, "three"),
    ];
    let landed = bed.report(&turn, 1, updates, Some(TurnEnd::Finished)).await;
    assert_eq!(landed, Reported::Landed { generation: 5, cancel_requested: false });
    let events = bed.events(&ann(), begun.task).await;
    let generations: Vec<_> = events.iter().map(|event| event.generation).collect();
    assert_eq!(generations, [1, 2, 3, 4, 5]);
    for event in &events {
        let (task, at) = match event.response.payload.as_ref().unwrap() {
            Payload::StatusUpdate(update) => {
                let status = update.status.as_ref().unwrap();
                if let Some(said) = &status.message {
                    assert_eq!(
                        (&said.task_id, &said.context_id),
                        (&update.task_id, &update.context_id)
                    );
                }
                (update.task_id.clone(), status.timestamp.as_ref().unwrap().to_micros())
            }
            Payload::ArtifactUpdate(update) => (update.task_id.clone(), None),
            other => panic!("no update: {other:?}"),
        };
        assert_eq!(task, begun.task.to_string());
        assert!(at.is_none_or(|us| us % 1000 == 0));
    }
    let record = bed.get(&ann(), begun.task).await;
    let said: Vec<_> = record.task.history.iter().map(|m| m.message_id.as_str()).collect();
    assert_eq!(said, ["m-1", "says one", "says two"]);
    let status = record.task.status.unwrap();
    assert_eq!(status.message.unwrap().message_id, "says three");
}

pub(super) async fn a_report_of_a_stale_lease_changes_nothing(bed: &Bed) {
    let begun = bed.begin(&ann(), "c").await;
    let turn = bed.claim().await;
    let before = bed.get(&ann(), begun.task).await;
    let forged = Turn { lease: no_lease(), ..turn.clone() };
    let wrong_turn = Turn { turn: 2, ..turn.clone() };
    for bad in [forged, wrong_turn] {
        let answer = bed.report(&bad, 1, vec![status(TaskState::Failed, "")], None).await;
        assert_eq!(answer, Reported::Stale);
        assert_eq!(
            bed.store.reply(&ann(), begun.task, &reply(&bad, 1)).await.unwrap(),
            Replied::Stale
        );
    }
    for stranger in bed.known_strangers().await {
        let theirs = Turn { scope: stranger, ..turn.clone() };
        let answer = bed.report(&theirs, 1, vec![status(TaskState::Failed, "")], None).await;
        assert_eq!(answer, Reported::Stale);
    }
    assert_eq!(bed.get(&ann(), begun.task).await, before);
}

pub(super) async fn the_same_report_again_changes_nothing_and_says_so(bed: &Bed) {
    let begun = bed.begin(&ann(), "c").await;
    let turn = bed.claim().await;
    let working = || vec![status(TaskState::Working, "w"), chunk("a", "x", true)];
    bed.report(&turn, 1, working(), None).await;
    let before = bed.get(&ann(), begun.task).await;
    assert_eq!(bed.report(&turn, 1, working(), None).await, Reported::Repeated);
    assert_eq!(bed.get(&ann(), begun.task).await, before);
    let done = || vec![status(TaskState::Completed, "")];
    bed.report(&turn, 2, done(), Some(TurnEnd::Finished)).await;
    let repeated = bed.report(&turn, 2, done(), Some(TurnEnd::Finished)).await;
    assert_eq!(repeated, Reported::Repeated, "also the one that ended the task");
    assert_eq!(bed.events(&ann(), begun.task).await.len(), 4);
}

pub(super) async fn a_terminal_task_never_changes(bed: &Bed) {
    for end in [TaskState::Completed, TaskState::Failed, TaskState::Canceled, TaskState::Rejected] {
        let begun = bed.begin(&ann(), "c").await;
        let turn = bed.claim().await;
        bed.report(&turn, 1, vec![status(end, "the end")], Some(TurnEnd::Finished)).await;
        let before = bed.get(&ann(), begun.task).await;
        bed.clock.advance(Duration::from_secs(60));
        let late = bed.report(&turn, 2, vec![status(TaskState::Working, "")], None).await;
        assert_eq!(late, Reported::Stale);
        let late = bed.report(&turn, 2, vec![chunk("a", "x", true)], None).await;
        assert_eq!(late, Reported::Stale);
        bed.store.release_expired_of_all(9).await.unwrap();
        bed.store.finish_cancels_of_all(Duration::ZERO, 9).await.unwrap();
        assert!(!bed.store.finish_cancel(&ann(), begun.task).await.unwrap());
        assert_eq!(bed.get(&ann(), begun.task).await, before);
    }
}

pub(super) async fn a_status_message_joins_the_history_in_its_place_when_it_is_replaced(bed: &Bed) {
    let begun = bed.begin(&ann(), "c").await;
    let ids = |record: &TaskRecord| -> Vec<String> {
        record.task.history.iter().map(|m| m.message_id.clone()).collect()
    };
    let turn = bed.claim().await;
    let ask = vec![status(TaskState::InputRequired, "which?")];
    bed.report(&turn, 1, ask, Some(TurnEnd::Finished)).await;
    let asked = bed.get(&ann(), begun.task).await;
    assert_eq!(ids(&asked), ["m-1"], "the current status message is not in the history");
    accepted(bed.accept(&ann(), more(begun.task, "m-2")).await);
    assert_eq!(ids(&bed.get(&ann(), begun.task).await), ["m-1", "m-2"]);
    let turn = bed.claim().await;
    bed.report(&turn, 1, vec![status(TaskState::Working, "")], None).await;
    let working = bed.get(&ann(), begun.task).await;
    assert_eq!(ids(&working), ["m-1", "says which?", "m-2"], "in the order in which it was said");
    assert_eq!(working.interrupted.unwrap().turn, 1);
    let newest = View { history: 2, artifacts: false, hidden: false };
    let record = bed.store.task(&ann(), begun.task, newest).await.unwrap().unwrap();
    assert_eq!(ids(&record), ["says which?", "m-2"]);
}

pub(super) async fn artifacts_grow_are_replaced_and_keep_their_order(bed: &Bed) {
    let begun = bed.begin(&ann(), "c").await;
    let turn = bed.claim().await;
    let texts = |record: &TaskRecord| -> Vec<(String, Vec<String>)> {
        let parts = |a: &v1::Artifact| (a.artifact_id.clone(), crate::rig::parts(a));
        record.task.artifacts.iter().map(parts).collect()
    };
    let first = vec![chunk("b", "1", false), chunk("a", "2", true), chunk("b", "3", true)];
    bed.report(&turn, 1, first, None).await;
    let expected = |list: &[(&str, &[&str])]| -> Vec<(String, Vec<String>)> {
        let own = |texts: &[&str]| texts.iter().map(|&t| t.to_owned()).collect();
        list.iter().map(|(id, texts)| ((*id).to_owned(), own(texts))).collect()
    };
    let record = bed.get(&ann(), begun.task).await;
    assert_eq!(texts(&record), expected(&[("b", &["1", "3"]), ("a", &["2"])]));
    assert_eq!(record.task.artifacts[1].name, "name of a");
    bed.report(&turn, 2, vec![chunk("b", "4", false), chunk("b", "5", true)], None).await;
    let record = bed.get(&ann(), begun.task).await;
    assert_eq!(texts(&record), expected(&[("b", &["4", "5"]), ("a", &["2"])]));
    assert_eq!(record.generation, 6);
    assert_eq!(state_of(&record.task), TaskState::Submitted, "an artifact is no status");
    assert_eq!(status_at(&record.task), START_US / 1000 * 1000);
}

pub(super) async fn the_status_time_never_goes_back(bed: &Bed) {
    let begun = bed.begin(&ann(), "c").await;
    let turn = bed.claim().await;
    bed.report(&turn, 1, vec![status(TaskState::Working, "")], None).await;
    let before = status_at(&bed.get(&ann(), begun.task).await.task);
    bed.clock.advance_us(-3_600_000_000);
    bed.report(&turn, 2, vec![status(TaskState::Working, "")], None).await;
    assert_eq!(status_at(&bed.get(&ann(), begun.task).await.task), before, "an hour back");
    bed.clock.advance_us(3_600_000_000 + 5_700);
    bed.report(&turn, 3, vec![status(TaskState::Working, "")], None).await;
    let after = status_at(&bed.get(&ann(), begun.task).await.task);
    assert_eq!(after, (START_US + 5_700) / 1000 * 1000, "the same state again is a new stamp");
}

pub(super) async fn every_change_moves_the_row_also_while_the_clock_goes_back(bed: &Bed) {
    let begun = bed.begin(&ann(), "c").await;
    let mut last = bed.updated_at(begun.task).await;
    assert_eq!(last, START_US);
    // The least step, or a few of them, but not the clock's time.
    let moved = |what: &'static str, now: i64, last: &mut i64| {
        assert!((*last + 1..*last + 10).contains(&now), "{what}: {last} to {now}");
        *last = now;
    };
    let turn = bed.claim().await;
    moved("a claim", bed.updated_at(begun.task).await, &mut last);
    bed.clock.advance_us(-3_600_000_000);
    bed.report(&turn, 1, vec![status(TaskState::Working, "w")], None).await;
    moved("a status", bed.updated_at(begun.task).await, &mut last);
    bed.report(&turn, 2, vec![chunk("a", "x", true)], None).await;
    moved("an artifact", bed.updated_at(begun.task).await, &mut last);
    accepted(bed.accept(&ann(), more(begun.task, "m-2")).await);
    moved("a message", bed.updated_at(begun.task).await, &mut last);
    bed.store.request_cancel(&ann(), begun.task, None).await.unwrap();
    moved("a wish to cancel", bed.updated_at(begun.task).await, &mut last);
    bed.report(&turn, 3, vec![], Some(TurnEnd::HandedBack)).await;
    moved("a turn handed back", bed.updated_at(begun.task).await, &mut last);
    assert!(bed.store.finish_cancel(&ann(), begun.task).await.unwrap());
    moved("a cancel", bed.updated_at(begun.task).await, &mut last);
    assert!(!bed.store.finish_cancel(&ann(), begun.task).await.unwrap());
    bed.report(&turn, 4, vec![status(TaskState::Working, "")], None).await;
    assert_eq!(bed.updated_at(begun.task).await, last, "what changes nothing moves nothing");
}

pub(super) async fn an_update_past_the_store_must_move_the_row_forward(bed: &Bed) {
    let begun = bed.begin(&ann(), "c").await;
    let id = bed.literal(begun.task);
    for sql in [
        format!("update tasks set context_id = 'x' where id = {id}"),
        format!("update tasks set updated_at = updated_at - 1 where id = {id}"),
        format!("update tasks set updated_at = updated_at + 1, generation = 0 where id = {id}"),
        format!("update tasks set updated_at = updated_at + 1, status_at = 0 where id = {id}"),
    ] {
        let refusal = bed.sql(&sql).await.unwrap_err();
        assert!(refusal.contains("must move updated_at forward"), "{sql}: {refusal}");
    }
    let good = format!("update tasks set updated_at = updated_at + 1 where id = {id}");
    bed.sql(&good).await.unwrap();
}

pub(super) async fn a_direct_reply_stays_hidden_and_one_to_a_shown_task_completes_it(bed: &Bed) {
    let hidden = accepted(bed.accept(&ann(), new("c", false)).await);
    let turn = bed.claim().await;
    let answer = bed.store.reply(&ann(), hidden.task, &reply(&turn, 1)).await.unwrap();
    assert_eq!(answer, Replied::Direct);
    let again = bed.store.reply(&ann(), hidden.task, &reply(&turn, 1)).await.unwrap();
    assert_eq!(again, Replied::Repeated);
    let record = bed.get(&ann(), hidden.task).await;
    let said = record.reply.clone().unwrap();
    assert_eq!((said.message_id.as_str(), said.context_id.as_str()), ("r-1", "c"));
    assert_eq!(said.task_id, "", "there is no task to name");
    assert!(!record.shown && record.settles(&hidden));
    assert_eq!(bed.store.show(&ann(), hidden.task).await.unwrap(), Shown::Replied);
    assert_eq!(bed.walk(&ann(), &everything(), 50).await.1, 0);
    assert_eq!(bed.accept(&ann(), more(hidden.task, "m-2")).await, Accepted::NotFound);

    let shown = accepted(bed.accept(&ann(), new("c", false)).await);
    let turn = bed.claim().await;
    assert_eq!(bed.store.show(&ann(), shown.task).await.unwrap(), Shown::Yes);
    assert_eq!(bed.store.show(&ann(), shown.task).await.unwrap(), Shown::Yes);
    let answer = bed.store.reply(&ann(), shown.task, &reply(&turn, 1)).await.unwrap();
    assert_eq!(answer, Replied::Completed);
    let record = bed.get(&ann(), shown.task).await;
    assert_eq!(state_of(&record.task), TaskState::Completed);
    assert_eq!(record.task.status.unwrap().message.unwrap().message_id, "r-1");
    assert_eq!(record.generation, 2);
}

pub(super) async fn a_report_that_breaks_the_rules_is_refused_whole(bed: &Bed) {
    let begun = bed.begin(&ann(), "c").await;
    let turn = bed.claim().await;
    let before = bed.get(&ann(), begun.task).await;
    for updates in [
        vec![chunk("a", "x", false), status(TaskState::Submitted, "")],
        vec![status(TaskState::Unspecified, "")],
        vec![status(TaskState::Completed, ""), status(TaskState::Working, "")],
        vec![status(TaskState::Completed, ""), chunk("a", "x", false)],
    ] {
        let report = Report { lease: turn.lease, turn: 1, sequence: 1, updates, end: None };
        let refused = bed.store.report(&ann(), begun.task, &report).await.unwrap_err();
        assert!(matches!(refused, Error::Internal(_)), "{refused:?}");
        // Whoever does not hold the lease hears that first.
        let forged = Report { lease: no_lease(), ..report.clone() };
        let answer = bed.store.report(&ann(), begun.task, &forged).await.unwrap();
        assert_eq!(answer, Reported::Stale);
        let later = Report { turn: 2, ..report };
        assert_eq!(bed.store.report(&ann(), begun.task, &later).await.unwrap(), Reported::Stale);
    }
    assert_eq!(bed.get(&ann(), begun.task).await, before);
    let landed = bed.report(&turn, 1, vec![status(TaskState::Working, "")], None).await;
    assert_eq!(landed, Reported::Landed { generation: 2, cancel_requested: false });
    // The same number again is the same report, whatever it says now.
    let wrong = || vec![status(TaskState::Submitted, "")];
    assert_eq!(bed.report(&turn, 1, wrong(), None).await, Reported::Repeated);
    bed.clock.advance(LEASE + Duration::from_millis(1));
    assert_eq!(bed.store.release_expired_of_all(9).await.unwrap(), 1);
    assert_eq!(bed.report(&turn, 2, wrong(), None).await, Reported::Stale, "the lease is gone");
}

pub(super) async fn events_after_a_generation_are_exactly_the_rest(bed: &Bed) {
    let begun = bed.begin(&ann(), "c").await;
    let turn = bed.claim().await;
    for n in 1..=9 {
        bed.report(&turn, n, vec![chunk("a", &n.to_string(), true)], None).await;
    }
    let all = bed.events(&ann(), begun.task).await;
    assert_eq!(all.len(), 10);
    for after in 0..=10 {
        let rest = bed.store.events_after(&ann(), begun.task, after, 4).await.unwrap().unwrap();
        let from = usize::try_from(after).unwrap();
        assert_eq!(rest, all[from..(from + 4).min(10)]);
    }
    for stranger in bed.known_strangers().await {
        assert_eq!(bed.store.events_after(&stranger, begun.task, 0, 9).await.unwrap(), None);
    }
    let hidden = accepted(bed.accept(&ann(), new("c", false)).await);
    assert_eq!(bed.store.events_after(&ann(), hidden.task, 0, 9).await.unwrap(), None);
}
