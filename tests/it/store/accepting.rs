use a2ad::contract::wkt::{Kind, Struct, Value};
use futures_util::future::join_all;

use super::*;

pub(super) async fn a_message_makes_a_task_with_one_event_one_message_and_one_turn(bed: &Bed) {
    let begun = bed.begin(&ann(), "c").await;
    assert_eq!((begun.turn, begun.generation, begun.leased), (1, 1, false));
    let record = bed.get(&ann(), begun.task).await;
    assert_eq!(state_of(&record.task), TaskState::Submitted);
    assert_eq!(status_at(&record.task), START_US / 1000 * 1000);
    assert_eq!(record.task.id, begun.task.to_string());
    assert_eq!(record.task.context_id, "c");
    assert_eq!((record.generation, record.shown), (1, true));
    let [sent] = record.task.history.as_slice() else { panic!("one message") };
    assert_eq!((sent.message_id.as_str(), sent.task_id.as_str()), ("m-1", record.task.id.as_str()));
    assert_eq!(sent.context_id, "c");
    let events = bed.events(&ann(), begun.task).await;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].generation, 1);
    assert_eq!(bed.claim().await.message.message_id, "m-1");
}

pub(super) async fn a_later_message_waits_for_the_turn_before_it(bed: &Bed) {
    let begun = bed.begin(&ann(), "c").await;
    let second = accepted(bed.accept(&ann(), more(begun.task, "m-2")).await);
    assert_eq!((second.turn, second.generation), (2, 1), "a message is no event");
    let first = bed.claim().await;
    assert_eq!(first.turn, 1);
    assert!(bed.store.claim_turns_of_all(9, LEASE).await.unwrap().is_empty());
    let asked = vec![status(TaskState::InputRequired, "which?")];
    bed.report(&first, 1, asked, Some(TurnEnd::Finished)).await;
    let next = bed.claim().await;
    assert_eq!((next.turn, next.message.message_id.as_str()), (2, "m-2"));
    assert_eq!(next.state, TaskState::InputRequired);
}

pub(super) async fn a_message_reaches_only_the_tasks_of_its_scope(bed: &Bed) {
    let begun = bed.begin(&ann(), "c").await;
    for known in [false, true] {
        let strangers = if known { bed.known_strangers().await } else { strangers() };
        for stranger in strangers {
            let answer = bed.accept(&stranger, more(begun.task, "m-2")).await;
            assert_eq!(answer, Accepted::NotFound, "{stranger:?}");
        }
    }
    let nothing = bed.accept(&ann(), more(TaskId::generate(), "m-2")).await;
    assert_eq!(nothing, Accepted::NotFound);
    assert_eq!(bed.get(&ann(), begun.task).await.task.history.len(), 1);
}

pub(super) async fn a_message_to_a_task_that_ended_or_of_another_context_is_refused(bed: &Bed) {
    let live = bed.begin(&ann(), "c").await.task;
    let elsewhere = Accept {
        target: Target::Existing { task: live, context: Some(context("other")) },
        ..more(live, "m-2")
    };
    assert_eq!(bed.accept(&ann(), elsewhere).await, Accepted::OtherContext);
    let here = Accept {
        target: Target::Existing { task: live, context: Some(context("c")) },
        ..more(live, "m-2")
    };
    accepted(bed.accept(&ann(), here).await);
    let turn = bed.claim().await;
    let failed = vec![status(TaskState::Failed, "")];
    bed.report(&turn, 1, failed, Some(TurnEnd::Finished)).await;
    let late = bed.accept(&ann(), more(live, "m-3")).await;
    assert_eq!(late, Accepted::Ended(TaskState::Failed));
    assert!(
        bed.store.claim_turns_of_all(9, LEASE).await.unwrap().is_empty(),
        "the rest is dropped"
    );
}

pub(super) async fn a_repeat_finds_what_the_first_one_made(bed: &Bed) {
    let first = accepted(bed.accept(&ann(), deduped(new("c", false))).await);
    let again = bed.accept(&ann(), deduped(new("c", true))).await;
    assert_eq!(again, Accepted::Repeat(first));
    for stranger in strangers() {
        let theirs = accepted(bed.accept(&stranger, deduped(new("c", true))).await);
        assert_ne!(theirs.task, first.task);
    }
    let mut turn = bed.claim().await;
    while turn.task != first.task {
        turn = bed.claim().await;
    }
    let asked = vec![status(TaskState::InputRequired, "")];
    bed.report(&turn, 1, asked, Some(TurnEnd::Finished)).await;
    let second = accepted(bed.accept(&ann(), deduped(more(first.task, "m-2"))).await);
    assert_eq!((second.turn, second.generation), (2, 2));
    let turn = bed.claim().await;
    let done = vec![status(TaskState::Completed, "")];
    bed.report(&turn, 1, done, Some(TurnEnd::Finished)).await;
    let again = bed.accept(&ann(), deduped(more(first.task, "m-2"))).await;
    assert_eq!(again, Accepted::Repeat(second), "also when it has ended the task");
    assert_eq!(bed.get(&ann(), first.task).await.task.history.len(), 2);
}

pub(super) async fn the_same_id_with_other_content_is_told_apart(bed: &Bed) {
    let first = accepted(bed.accept(&ann(), deduped(new("c", true))).await);
    let mut other = new("c", true);
    other.message.parts.push(a2ad::agent::text_part("and more"));
    assert_eq!(bed.accept(&ann(), deduped(other)).await, Accepted::OtherContent);
    accepted(bed.accept(&ann(), deduped(more(first.task, "m-1"))).await);
}

pub(super) async fn a_repeat_after_the_window_is_a_new_message(bed: &Bed) {
    let first = accepted(bed.accept(&ann(), deduped(new("c", true))).await);
    bed.clock.advance(Duration::from_secs(3599));
    assert_eq!(bed.accept(&ann(), deduped(new("c", true))).await, Accepted::Repeat(first));
    bed.clock.advance(Duration::from_secs(1));
    let second = accepted(bed.accept(&ann(), deduped(new("c", true))).await);
    assert_ne!(first.task, second.task);
    assert_eq!(bed.accept(&ann(), deduped(new("c", true))).await, Accepted::Repeat(second));
}

pub(super) async fn an_id_counts_for_its_sender_and_for_where_it_was_sent(bed: &Bed) {
    let sent_as = |context: &str, task: &str| {
        let mut accept = deduped(new("c", true));
        let dedupe = accept.dedupe.as_mut().unwrap();
        context.clone_into(&mut dedupe.context);
        task.clone_into(&mut dedupe.task);
        accept
    };
    let places = [("", ""), ("a", ""), ("", "a"), ("a", "b"), ("b", "a")];
    let mut scopes = bed.known_strangers().await;
    scopes.push(ann());
    let mut made = Vec::new();
    for scope in &scopes {
        for (context, task) in places {
            let begun = accepted(bed.accept(scope, sent_as(context, task)).await);
            assert!(!made.contains(&begun), "{scope:?} {context:?} {task:?}");
            made.push(begun);
        }
    }
    let mut made = made.into_iter();
    for scope in &scopes {
        for (context, task) in places {
            let again = bed.accept(scope, sent_as(context, task)).await;
            assert_eq!(again, Accepted::Repeat(made.next().unwrap()), "{scope:?}");
        }
    }
}

pub(super) async fn of_many_equal_messages_at_once_one_makes_a_task(bed: &Bed) {
    let sends = (0..20).map(|_| async { bed.accept(&ann(), deduped(new("c", true))).await });
    let answers = join_all(sends).await;
    let fresh: Vec<_> =
        answers.iter().filter(|answer| matches!(answer, Accepted::New(_))).collect();
    assert_eq!(fresh.len(), 1, "{answers:?}");
    let first = accepted(fresh[0].clone());
    let repeats = answers.iter().filter(|answer| **answer == Accepted::Repeat(first)).count();
    assert_eq!(repeats, 19);
    assert_eq!(bed.walk(&ann(), &everything(), 50).await.1, 1);
}

/// What clients and agents say is kept as bytes. Only ids are columns of text, which PostgreSQL
/// does not let hold NUL; they are refused with it before they come here.
pub(super) async fn a_payload_keeps_every_character_also_nul(bed: &Bed) {
    let odd = "a\0b\u{1}\u{7f}\u{2028}\u{10ffff}";
    let value = Value { kind: Some(Kind::StringValue(odd.to_owned())) };
    let metadata = Some(Struct { fields: [(odd.to_owned(), value)].into() });
    let mut accept = deduped(new("c", true));
    accept.message.parts = vec![a2ad::agent::text_part(odd)];
    accept.message.extensions = vec![odd.to_owned()];
    accept.message.metadata.clone_from(&metadata);
    accept.request.metadata.clone_from(&metadata);
    let sent = accept.message.clone();
    let task = accepted(bed.accept(&ann(), accept).await).task;
    let turn = bed.claim().await;
    assert_eq!(turn.request.metadata, metadata);
    let artifact = v1::Artifact {
        artifact_id: "a".to_owned(),
        name: odd.to_owned(),
        description: odd.to_owned(),
        extensions: vec![odd.to_owned()],
        parts: vec![a2ad::agent::text_part(odd)],
        metadata: metadata.clone(),
    };
    let updates = vec![
        status(TaskState::Working, odd),
        Update::Artifact {
            artifact: artifact.clone(),
            append: false,
            last_chunk: true,
            metadata: metadata.clone(),
        },
    ];
    bed.report(&turn, 1, updates, None).await;
    bed.store.request_cancel(&ann(), task, metadata.as_ref()).await.unwrap();
    let record = bed.get(&ann(), task).await;
    let v1::Message { parts, extensions, metadata: kept, .. } = record.task.history[0].clone();
    assert_eq!((parts, extensions, kept), (sent.parts, sent.extensions, sent.metadata));
    assert_eq!(record.task.artifacts, [artifact]);
    let said = record.task.status.unwrap().message.unwrap();
    assert_eq!(a2ad::agent::text_of(&said), odd);
}

pub(super) async fn a_refused_message_leaves_nothing_behind(bed: &Bed) {
    let task = bed.task_in(&ann(), "c", TaskState::Completed).await;
    let refused = bed.accept(&ann(), deduped(more(task, "m-9"))).await;
    assert_eq!(refused, Accepted::Ended(TaskState::Completed));
    let again = bed.accept(&ann(), deduped(more(task, "m-9"))).await;
    assert_eq!(again, Accepted::Ended(TaskState::Completed), "it is not taken for a repeat");
    assert_eq!(bed.get(&ann(), task).await.task.history.len(), 1);
}

pub(super) async fn a_lease_is_given_with_the_message_if_no_turn_is_unfinished(bed: &Bed) {
    let ask = |accept: Accept| Accept {
        lease: Some(LeaseRequest { token: no_lease(), lease: LEASE }),
        ..accept
    };
    let accept = ask(new("c", true));
    let lease = accept.lease.unwrap().token;
    let begun = accepted(bed.accept(&ann(), accept).await);
    assert!(begun.leased);
    assert!(bed.store.claim_turns_of_all(9, LEASE).await.unwrap().is_empty());
    let second = accepted(bed.accept(&ann(), ask(more(begun.task, "m-2"))).await);
    assert!(!second.leased);
    let report = Report {
        lease,
        turn: 1,
        sequence: 1,
        updates: vec![status(TaskState::Working, "")],
        end: Some(TurnEnd::Finished),
    };
    let landed = bed.store.report(&ann(), begun.task, &report).await.unwrap();
    assert_eq!(landed, Reported::Landed { generation: 2, cancel_requested: false });
    let next = bed.claim().await;
    assert_eq!(next.turn, 2);
    bed.report(&next, 1, vec![], Some(TurnEnd::Finished)).await;
    let third = accepted(bed.accept(&ann(), ask(more(begun.task, "m-3"))).await);
    assert!(third.leased);
}

pub(super) async fn a_scope_that_never_sent_anything_is_empty(bed: &Bed) {
    bed.begin(&ann(), "c").await;
    let names = || async {
        let all = "select (select count(*) from tenants) + (select count(*) from owners)";
        bed.number(all).await
    };
    let before = names().await;
    for stranger in strangers() {
        assert_eq!(bed.walk(&stranger, &everything(), 50).await, (vec![], 0));
        assert_eq!(bed.accept(&stranger, more(TaskId::generate(), "m")).await, Accepted::NotFound);
    }
    assert_eq!(names().await, before, "only a message that was stored brings a name");
}
