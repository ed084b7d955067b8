//! Sending messages, and what a task's life looks like from outside.

use a2ad::agent::demo::Demo;
use a2ad::contract::v1::{self, TaskState};
use a2ad::contract::wkt::{Kind, Struct, Value};
use a2ad::domain::Error;
use a2ad::service::{Dedupe, Settings};

use std::sync::Arc;
use std::time::Instant;

use crate::bench::{
    A_WHILE, Bench, anybody, chunk, direct, named, said, soon, state, still, task, text, texts,
    until,
};

fn to(task: &v1::Task, message: v1::Message) -> v1::Message {
    v1::Message { task_id: task.id.clone(), ..message }
}

fn fields(error: Error) -> Vec<String> {
    let Error::Invalid(violations) = error else { panic!("not a violation: {error:?}") };
    violations.into_iter().map(|v| v.field).collect()
}

fn with_references(message: v1::Message, ids: &[&str]) -> v1::Message {
    let reference_task_ids = ids.iter().map(|&id| id.to_owned()).collect();
    v1::Message { reference_task_ids, ..message }
}

fn is_unsupported(error: &Error, word: &str) -> bool {
    matches!(error, Error::Unsupported(text) if text.contains(word))
}

#[tokio::test]
async fn a_blocking_send_answers_when_the_task_has_ended_with_all_that_it_made() {
    let bench = Bench::new(still()).await;
    let sent = bench.sends(&anybody(), bench.message("hello"));
    let puppet = bench.puppet().await;
    assert_eq!(puppet.turn.text(), "hello");
    assert_eq!((puppet.turn.turn, puppet.turn.attempt), (1, 1));
    assert_eq!(puppet.turn.state, TaskState::Submitted);
    assert_eq!(puppet.turn.message.task_id, puppet.turn.task.to_string());
    assert_eq!(puppet.turn.message.context_id, puppet.turn.context.to_string());
    puppet.status(TaskState::Working, "on it").await.unwrap();
    puppet.chunk(chunk("a", "1"), false, false).await.unwrap();
    puppet.chunk(chunk("a", "2"), true, true).await.unwrap();
    puppet.status(TaskState::Completed, "done").await.unwrap();
    let task = sent.task().await;
    assert_eq!(state(&task), TaskState::Completed);
    assert_eq!(said(&task), "done");
    assert_eq!(texts(&task.artifacts[0]), ["1", "2"]);
    // A status message joins the history when a newer status replaces it (AMB-30).
    assert_eq!(task.history.iter().map(text).collect::<Vec<_>>(), ["hello", "on it"]);
    let at = task.status.as_ref().unwrap().timestamp.unwrap();
    assert_eq!(at.nanos % 1_000_000, 0, "stamps are cut to milliseconds");
    assert_eq!(bench.get(&anybody(), &task.id).await.unwrap(), task);
}

#[tokio::test]
async fn a_send_that_does_not_wait_answers_with_the_task_as_it_is() {
    let bench = Bench::new(still()).await;
    let (task, _puppet) = bench.task("x").await;
    assert_eq!(state(&task), TaskState::Submitted);
    assert!(!task.id.is_empty() && !task.context_id.is_empty());
    assert_eq!(bench.list(&anybody()).await.tasks.len(), 1);
}

#[tokio::test]
async fn a_quiet_new_task_is_shown_after_a_while_and_not_before() {
    let show_after = A_WHILE * 4;
    let bench = Bench::new(Settings { show_after, ..still() }).await;
    let began = Instant::now();
    let mut sent = bench.sends(&anybody(), bench.message("x"));
    let puppet = bench.puppet().await;
    let id = puppet.turn.task.to_string();
    assert!(sent.waits().await);
    let early = bench.get(&anybody(), &id).await;
    // On a machine that is too busy to look in time, the other half is tested alone.
    let in_time = began.elapsed() < show_after;
    assert!(!in_time || matches!(early, Err(Error::TaskNotFound)), "{early:?}");
    until(|| async { bench.get(&anybody(), &id).await.ok() }).await;
    assert!(sent.waits().await, "the sender waits for an outcome");
    puppet.status(TaskState::Completed, "").await.unwrap();
    assert_eq!(state(&sent.task().await), TaskState::Completed);
}

#[tokio::test]
async fn a_task_is_shown_in_time_also_when_its_sender_has_left() {
    let bench = Bench::new(Settings { show_after: A_WHILE * 2, ..still() }).await;
    let sent = bench.sends(&anybody(), bench.message("x"));
    let puppet = bench.puppet().await;
    sent.leave();
    let id = puppet.turn.task.to_string();
    until(|| async { bench.get(&anybody(), &id).await.ok() }).await;
    puppet.status(TaskState::Completed, "").await.unwrap();
    assert_eq!(state(&bench.get(&anybody(), &id).await.unwrap()), TaskState::Completed);
}

#[tokio::test]
async fn a_direct_reply_has_a_context_and_no_task_and_is_given_again_to_a_repeat() {
    let bench = Bench::new(still()).await;
    let ada = named("ada");
    let message = bench.message("hi");
    let sent = bench.sends(&ada, message.clone());
    let puppet = bench.puppet().await;
    puppet.reply("hello").await.unwrap();
    let reply = direct(sent.answer().await.unwrap());
    assert_eq!(text(&reply), "hello");
    assert_eq!(reply.role(), v1::Role::Agent);
    assert!(!reply.context_id.is_empty() && reply.task_id.is_empty(), "SEND-18: {reply:?}");
    assert!(!reply.message_id.is_empty());
    assert_eq!(direct(bench.sends(&ada, message.clone()).answer().await.unwrap()), reply);
    assert_eq!(direct(bench.posts(&ada, message).await.unwrap()), reply);
    assert_eq!(bench.list(&ada).await.total_size, 0);
    assert!(bench.idle().await, "a repeat starts nothing");
}

#[tokio::test]
async fn a_reply_completes_a_task_that_the_client_knows() {
    let bench = Bench::new(still()).await;
    let (task, puppet) = bench.task("x").await;
    puppet.reply("hello").await.unwrap();
    let task = bench.get(&anybody(), &task.id).await.unwrap();
    assert_eq!((state(&task), said(&task).as_str()), (TaskState::Completed, "hello"));
}

#[tokio::test]
async fn a_conversation_goes_on_in_its_task_until_it_ends() {
    let bench = Bench::new(still()).await;
    let sent = bench.sends(&anybody(), bench.message("book a flight"));
    let puppet = bench.puppet().await;
    puppet.status(TaskState::InputRequired, "where to?").await.unwrap();
    let first = sent.task().await;
    assert_eq!((state(&first), said(&first).as_str()), (TaskState::InputRequired, "where to?"));

    // Only the task is named, so the context is the task's (CTX-07), and the wait is for an
    // event of the new turn, not for the state that is there already (SEND-19).
    let mut sent = bench.sends(&anybody(), to(&first, bench.message("Rome")));
    let puppet = bench.puppet().await;
    assert_eq!((puppet.turn.turn, puppet.turn.state), (2, TaskState::InputRequired));
    assert_eq!(puppet.turn.context.to_string(), first.context_id);
    assert!(sent.waits().await);
    puppet.status(TaskState::InputRequired, "when?").await.unwrap();
    assert_eq!(said(&sent.task().await), "when?");

    let sent = bench.sends(&anybody(), to(&first, bench.message("in May")));
    bench.puppet().await.status(TaskState::Completed, "booked").await.unwrap();
    let last = sent.task().await;
    assert_eq!(last.context_id, first.context_id);
    let history: Vec<_> = last.history.iter().map(text).collect();
    assert_eq!(history, ["book a flight", "where to?", "Rome", "when?", "in May"]);
    let newer = bench.sends(&anybody(), to(&first, bench.message("thanks"))).answer().await;
    assert!(is_unsupported(&newer.unwrap_err(), "TASK_STATE_COMPLETED"));
}

#[tokio::test]
async fn auth_required_answers_the_sender_and_the_turn_goes_on() {
    let bench = Bench::new(still()).await;
    let sent = bench.sends(&anybody(), bench.message("x"));
    let puppet = bench.puppet().await;
    puppet.status(TaskState::AuthRequired, "sign in").await.unwrap();
    let task = sent.task().await;
    assert_eq!(state(&task), TaskState::AuthRequired);
    puppet.status(TaskState::Working, "").await.unwrap();
    puppet.status(TaskState::Completed, "").await.unwrap();
    assert_eq!(state(&bench.get(&anybody(), &task.id).await.unwrap()), TaskState::Completed);
}

#[tokio::test]
async fn an_agent_may_leave_with_auth_required_and_go_on_with_the_next_message() {
    let bench = Bench::new(still()).await;
    let sent = bench.sends(&anybody(), bench.message("x"));
    let puppet = bench.puppet().await;
    puppet.status(TaskState::AuthRequired, "sign in").await.unwrap();
    let task = sent.task().await;
    puppet.returns(Ok(())).await;
    let sent = bench.sends(&anybody(), to(&task, bench.message("signed in")));
    bench.puppet().await.status(TaskState::Completed, "").await.unwrap();
    assert_eq!(state(&sent.task().await), TaskState::Completed);
}

#[tokio::test]
async fn messages_of_one_task_are_worked_on_one_after_another() {
    let bench = Bench::new(still()).await;
    let (first, puppet) = bench.task("one").await;
    let mut second = bench.sends(&anybody(), to(&first, bench.message("two")));
    assert!(second.waits().await);
    assert!(bench.idle().await, "the second waits for the first");
    puppet.status(TaskState::InputRequired, "?").await.unwrap();
    let puppet = bench.puppet().await;
    assert_eq!(puppet.turn.text(), "two");
    assert!(second.waits().await, "the first turn's question is not the second one's answer");

    // A message whose turn never comes, for the task ends first.
    let third = bench.sends(&anybody(), to(&first, bench.message("three")));
    until(|| async {
        let task = bench.get(&anybody(), &first.id).await.unwrap();
        task.history.iter().any(|message| text(message) == "three").then_some(())
    })
    .await;
    puppet.status(TaskState::Completed, "done").await.unwrap();
    assert_eq!(state(&second.task().await), TaskState::Completed);
    let last = third.task().await;
    assert_eq!(state(&last), TaskState::Completed);
    assert!(last.history.iter().any(|message| text(message) == "three"));
    assert!(bench.idle().await);
}

#[tokio::test]
async fn tasks_are_worked_on_at_once_as_far_as_runners_go() {
    let bench = Bench::new(Settings { runners: 2, ..still() }).await;
    let (_, one) = bench.task("one").await;
    let (_, two) = bench.task("two").await;
    let third = bench.posts(&anybody(), bench.message("three")).await;
    assert!(third.is_ok() && bench.idle().await, "the third waits for a runner");
    one.status(TaskState::Completed, "").await.unwrap();
    one.returns(Ok(())).await;
    assert_eq!(bench.puppet().await.turn.text(), "three");
    drop(two);
}

#[tokio::test]
async fn a_message_to_a_task_of_nobody_of_somebody_else_or_of_another_context_is_refused() {
    let bench = Bench::new(still()).await;
    let (ada, bob) = (named("ada"), named("bob"));
    let task = task(bench.posts(&ada, bench.message("x")).await.unwrap());
    let shout = v1::Task { id: task.id.to_uppercase(), ..task.clone() };
    let nobody = v1::Task { id: "0198c0de-0000-7000-8000-000000000000".to_owned(), ..task.clone() };
    for (call, target) in [(&bob, &task), (&ada, &nobody), (&ada, &shout)] {
        let answer = bench.sends(call, to(target, bench.message("y"))).answer().await;
        assert!(matches!(answer, Err(Error::TaskNotFound)), "{answer:?}");
    }
    let elsewhere =
        v1::Message { context_id: "another".to_owned(), ..to(&task, bench.message("y")) };
    let answer = bench.sends(&ada, elsewhere.clone()).answer().await;
    assert_eq!(fields(answer.unwrap_err()), ["message.context_id"]);
    // Whose task it is comes first (AMB-07).
    let answer = bench.sends(&bob, elsewhere).answer().await;
    assert!(matches!(answer, Err(Error::TaskNotFound)));
    for id in [&task.id, &nobody.id] {
        let read = bench.get(&bob, id).await;
        assert!(matches!(read, Err(Error::TaskNotFound)));
        assert!(matches!(bench.cancels(&bob, id).answer().await, Err(Error::TaskNotFound)));
    }
}

#[tokio::test]
async fn a_context_is_the_clients_own_or_a_fresh_one() {
    let bench = Bench::new(still()).await;
    let own = v1::Message { context_id: "trip 7".to_owned(), ..bench.message("x") };
    assert_eq!(task(bench.posts(&anybody(), own).await.unwrap()).context_id, "trip 7");
    let one = task(bench.posts(&anybody(), bench.message("x")).await.unwrap()).context_id;
    let two = task(bench.posts(&anybody(), bench.message("x")).await.unwrap()).context_id;
    assert!(!one.is_empty() && one != two);
}

// --- repeats ------------------------------------------------------------------------------------

#[tokio::test]
async fn a_message_sent_again_finds_its_task_and_waits_for_it_like_the_first() {
    let bench = Bench::new(still()).await;
    let ada = named("ada");
    let message = bench.message("x");
    let first = bench.sends(&ada, message.clone());
    let puppet = bench.puppet().await;
    let mut again = bench.sends(&ada, message.clone());
    assert!(again.waits().await && bench.idle().await);
    puppet.status(TaskState::Completed, "").await.unwrap();
    let task = first.task().await;
    assert_eq!(again.task().await, task);
    // Also after a restart.
    let bench = bench.beside(still());
    assert_eq!(bench.sends(&ada, message.clone()).task().await, task);

    let mut other = message;
    other.parts[0].filename = "other".to_owned();
    let refused = bench.sends(&ada, other).answer().await.unwrap_err();
    assert_eq!(fields(refused), ["message.message_id"]);
    assert_eq!(bench.list(&ada).await.total_size, 1);
}

#[tokio::test]
async fn a_repeat_that_does_not_wait_makes_the_task_known() {
    let bench = Bench::new(still()).await;
    let ada = named("ada");
    let message = bench.message("x");
    let first = bench.sends(&ada, message.clone());
    let puppet = bench.puppet().await;
    let seen = task(bench.posts(&ada, message).await.unwrap());
    assert_eq!(seen.id, puppet.turn.task.to_string());
    assert_eq!(state(&bench.get(&ada, &seen.id).await.unwrap()), TaskState::Submitted);
    // The client knows of a task now, so a message can only complete it.
    puppet.reply("hello").await.unwrap();
    assert_eq!(said(&first.task().await), "hello");
}

#[tokio::test]
async fn repeats_are_recognised_as_the_setting_says() {
    for (dedupe, call, tasks) in [
        (Dedupe::On, anybody(), 1),
        (Dedupe::Off, anybody(), 2),
        (Dedupe::Auto, anybody(), 2),
        (Dedupe::On, named("ada"), 1),
        (Dedupe::Off, named("ada"), 2),
        (Dedupe::Auto, named("ada"), 1),
    ] {
        let bench = Bench::new(Settings { dedupe, ..still() }).await;
        let message = bench.message("x");
        bench.posts(&call, message.clone()).await.unwrap();
        bench.posts(&call, message).await.unwrap();
        assert_eq!(bench.list(&call).await.total_size, tasks, "{dedupe:?} {call:?}");
    }
}

#[tokio::test]
async fn one_id_is_another_message_for_another_caller_tenant_or_context() {
    let bench = Bench::new(Settings { dedupe: Dedupe::On, ..still() }).await;
    let message = bench.message("x");
    let in_context = v1::Message { context_id: "c".to_owned(), ..message.clone() };
    let tenant = v1::SendMessageRequest {
        tenant: "acme".to_owned(),
        message: Some(message.clone()),
        configuration: Some(v1::SendMessageConfiguration {
            return_immediately: true,
            ..Default::default()
        }),
        ..Default::default()
    };
    let mut ids = vec![
        task(bench.posts(&named("ada"), message.clone()).await.unwrap()).id,
        task(bench.posts(&named("bob"), message).await.unwrap()).id,
        task(bench.posts(&named("ada"), in_context).await.unwrap()).id,
        bench.requests(&named("ada"), tenant).task().await.id,
    ];
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 4);
}

// --- what is refused ----------------------------------------------------------------------------

#[tokio::test]
async fn all_that_is_wrong_with_a_message_is_told_together() {
    let bench = Bench::new(still()).await;
    let number = Value { kind: Some(Kind::NumberValue(f64::NAN)) };
    let metadata = Struct { fields: [("a".to_owned(), number.clone())].into() };
    let message = v1::Message {
        message_id: "a\nb".to_owned(),
        context_id: "x".repeat(257),
        role: v1::Role::Agent as i32,
        parts: vec![
            v1::Part::default(),
            v1::Part { content: Some(v1::part::Content::Data(number)), ..Default::default() },
        ],
        metadata: Some(metadata.clone()),
        ..Default::default()
    };
    let request = v1::SendMessageRequest {
        message: Some(message),
        configuration: Some(v1::SendMessageConfiguration {
            history_length: Some(-1),
            ..Default::default()
        }),
        metadata: Some(metadata),
        ..Default::default()
    };
    let mut fields = fields(bench.requests(&anybody(), request).answer().await.unwrap_err());
    fields.sort();
    let expected = [
        "configuration.history_length",
        "message.context_id",
        "message.message_id",
        "message.metadata",
        "message.parts[0]",
        "message.parts[1].data",
        "message.role",
        "metadata",
    ];
    assert_eq!(fields, expected);
    assert_eq!(bench.list(&anybody()).await.total_size, 0);
}

#[tokio::test]
async fn each_wrong_field_is_refused_by_its_name() {
    let bench = Bench::new(still()).await;
    let good = || bench.message("x");
    let huge = "x".repeat(Settings::default().limits.message_bytes);
    for (message, field) in [
        (v1::Message { message_id: String::new(), ..good() }, "message.message_id"),
        (with_references(good(), &["ok", "a\0b"]), "message.reference_task_ids[1]"),
        (with_references(good(), &[""]), "message.reference_task_ids[0]"),
        (with_references(good(), &[&"x".repeat(257)]), "message.reference_task_ids[0]"),
        (v1::Message { message_id: "a\0b".to_owned(), ..good() }, "message.message_id"),
        (v1::Message { context_id: "a\0b".to_owned(), ..good() }, "message.context_id"),
        (v1::Message { role: 0, ..good() }, "message.role"),
        (v1::Message { role: 77, ..good() }, "message.role"),
        (v1::Message { parts: Vec::new(), ..good() }, "message.parts"),
        (bench.message(&huge), "message"),
    ] {
        let refused = bench.sends(&anybody(), message).answer().await.unwrap_err();
        assert_eq!(fields(refused), [field]);
    }
    let refused = bench.requests(&anybody(), v1::SendMessageRequest::default()).answer().await;
    assert_eq!(fields(refused.unwrap_err()), ["message"]);
}

#[tokio::test]
async fn a_part_of_a_media_type_that_the_agent_does_not_take_is_refused() {
    let bench = Bench::with_modes(still(), &["text/plain", "image/*"]).await;
    for (media_type, fits) in [
        ("", true),
        ("TEXT/plain; charset=utf-8", true),
        ("image/png", true),
        ("text/markdown", false),
        ("audio/ogg", false),
    ] {
        let mut message = bench.message("x");
        message.parts.insert(0, message.parts[0].clone());
        message.parts[1].media_type = media_type.to_owned();
        let answer = bench.posts(&anybody(), message).await;
        match answer {
            Ok(_) => assert!(fits, "{media_type}"),
            Err(Error::ContentTypeNotSupported { field, .. }) => {
                assert!(!fits, "{media_type}");
                assert_eq!(field, "message.parts[1].media_type");
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    let data = v1::Part {
        content: Some(v1::part::Content::Data(Value { kind: Some(Kind::BoolValue(true)) })),
        ..Default::default()
    };
    let message = v1::Message { parts: vec![data], ..bench.message("") };
    let refused = bench.posts(&anybody(), message).await;
    assert!(matches!(refused, Err(Error::ContentTypeNotSupported { media_type, .. })
        if media_type == "application/json"));
}

#[tokio::test]
async fn what_is_not_offered_is_said_before_anything_is_looked_up() {
    let bench = Bench::new(still()).await;
    let (service, call) = (&bench.service, anybody());
    let unknown = || "no such task".to_owned();
    let webhook =
        v1::TaskPushNotificationConfig { url: "https://x".to_owned(), ..Default::default() };
    let request = v1::SendMessageRequest {
        message: Some(to(&v1::Task { id: unknown(), ..Default::default() }, bench.message("x"))),
        configuration: Some(v1::SendMessageConfiguration {
            task_push_notification_config: Some(webhook.clone()),
            ..Default::default()
        }),
        ..Default::default()
    };
    let sent = service.send_message(&call, request.clone()).await;
    assert!(matches!(sent, Err(Error::PushNotSupported)));
    let streamed = service.send_streaming_message(&call, request).await;
    assert!(matches!(streamed, Err(Error::PushNotSupported)));
    let created = service.create_task_push_notification_config(&call, webhook).await;
    assert!(matches!(created, Err(Error::PushNotSupported)));
    let card = service.get_extended_agent_card(&call, v1::GetExtendedAgentCardRequest::default());
    assert!(matches!(card.await, Err(Error::Unsupported(_))));
    let capabilities = service.offers().card().capabilities.clone().unwrap();
    assert_eq!(capabilities.streaming, Some(true));
    assert_eq!(capabilities.push_notifications, Some(false));
}

// --- the demo agent -----------------------------------------------------------------------------

#[tokio::test]
async fn the_demo_agent_does_what_its_first_word_says() {
    let bench = Bench::playing(Arc::new(Demo), still()).await;
    for (words, ends, says, made) in [
        ("hello there", TaskState::Completed, "", Some("hello there")),
        ("fail no paper", TaskState::Failed, "no paper", None),
        ("reject not mine", TaskState::Rejected, "not mine", None),
        ("auth 60", TaskState::AuthRequired, "", None),
        ("slow 0", TaskState::Completed, "", None),
        ("stream", TaskState::Rejected, "stream 20 100", None),
        ("stream 3", TaskState::Completed, "", Some("chunk 1 of 3chunk 2 of 3chunk 3 of 3")),
        ("stream 1 1", TaskState::Completed, "", Some("chunk 1 of 1")),
        ("stream 10001", TaskState::Rejected, "up to 10000", None),
    ] {
        let task = bench.sends(&anybody(), bench.message(words)).task().await;
        assert_eq!(state(&task), ends, "{words}");
        assert!(said(&task).contains(says), "{words}");
        let artifact = task.artifacts.first().map(|artifact| texts(artifact).concat());
        assert_eq!(artifact.as_deref(), made, "{words}");
    }
    let data = v1::Part {
        content: Some(v1::part::Content::Data(Value { kind: Some(Kind::BoolValue(true)) })),
        ..Default::default()
    };
    let message = v1::Message { parts: vec![data.clone()], ..bench.message("") };
    assert_eq!(bench.sends(&anybody(), message).task().await.artifacts[0].parts, [data]);
    let asked = bench.sends(&anybody(), bench.message("ask how many?")).task().await;
    assert_eq!((state(&asked), said(&asked).as_str()), (TaskState::InputRequired, "how many?"));
    let done = bench.sends(&anybody(), to(&asked, bench.message("three"))).task().await;
    assert_eq!(state(&done), TaskState::Completed);
    assert_eq!(texts(&done.artifacts[0]), ["you said: three"]);
    let reply = bench.sends(&anybody(), bench.message("reply good day")).answer().await;
    assert_eq!(text(&direct(reply.unwrap())), "good day");
    let auth = bench.sends(&anybody(), bench.message("auth")).task().await;
    assert_eq!(state(&auth), TaskState::AuthRequired);
    let done = bench.sends(&anybody(), to(&auth, bench.message("there"))).task().await;
    assert_eq!(state(&done), TaskState::Completed);
}

#[tokio::test]
async fn the_demo_agent_takes_its_time_and_can_be_stopped() {
    let bench = Bench::playing(Arc::new(Demo), still()).await;
    let quick = bench.sends(&anybody(), bench.message("slow 1")).task().await;
    assert_eq!(texts(&quick.artifacts[0]), ["chunk 1 of 1"]);
    let slow = task(bench.posts(&anybody(), bench.message("slow 600")).await.unwrap());
    let stopped = soon(bench.cancels(&anybody(), &slow.id).answer()).await.unwrap();
    assert_eq!(state(&stopped), TaskState::Canceled);
}
