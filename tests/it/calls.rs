//! The life of tasks, as a gRPC client sees it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use a2ad::agent::demo::Demo;
use a2ad::agent::{Agent, AgentError, AgentTurn, TurnHandle, text_part};
use a2ad::async_trait;
use a2ad::client::{Client, Connect, text_message};
use a2ad::contract::v1::send_message_response::Payload;
use a2ad::contract::v1::{self, TaskState};
use a2ad::server::Server;
use a2ad::service::{Dedupe, Settings};
use futures_util::future::join_all;
use tonic::Code;
use tonic_types::StatusExt as _;

use crate::rig::{parts, send, send_at_once, state, task_of, to_task, words};
use crate::support::{eventually, postgres};

async fn demo() -> Server {
    Server::builder(Demo).start().await.unwrap()
}

async fn connect(server: &Server) -> Client {
    Connect::to(format!("http://{}", server.address())).connect().await.unwrap()
}

fn get(id: &str) -> v1::GetTaskRequest {
    v1::GetTaskRequest { id: id.to_owned(), ..Default::default() }
}

fn cancel(id: &str) -> v1::CancelTaskRequest {
    v1::CancelTaskRequest { id: id.to_owned(), ..Default::default() }
}

#[tokio::test]
async fn a_text_is_echoed_as_an_artifact_of_a_completed_task() {
    let server = demo().await;
    let mut client = connect(&server).await;
    let answer = task_of(client.send_message(send("hello")).await.unwrap());
    assert_eq!(state(&answer), TaskState::Completed);
    assert_eq!(parts(&answer.artifacts[0]), ["hello"]);
    assert_eq!(answer.history.len(), 1);
    assert_eq!(words(&answer.history[0]), "hello");
    assert!(!answer.context_id.is_empty());
    let read = client.get_task(get(&answer.id)).await.unwrap().into_inner();
    assert_eq!(read, answer);
    assert!(server.stop().await);
}

#[tokio::test]
async fn a_question_waits_for_its_answer_and_a_blocking_send_for_its_own_turn() {
    let server = demo().await;
    let mut client = connect(&server).await;
    let asked = task_of(client.send_message(send("ask which one?")).await.unwrap());
    assert_eq!(state(&asked), TaskState::InputRequired);
    assert_eq!(words(asked.status.as_ref().unwrap().message.as_ref().unwrap()), "which one?");
    let answer = to_task(send("the blue one"), &asked.id);
    let done = task_of(client.send_message(answer).await.unwrap());
    assert_eq!((&done.id, &done.context_id), (&asked.id, &asked.context_id));
    assert_eq!(state(&done), TaskState::Completed);
    assert_eq!(parts(&done.artifacts[0]), ["you said: the blue one"]);
    let said: Vec<_> = done.history.iter().map(words).collect();
    assert_eq!(said, ["ask which one?", "which one?", "the blue one"]);
    let late = client.send_message(to_task(send("more"), &asked.id)).await.unwrap_err();
    assert_eq!(late.code(), Code::FailedPrecondition);
    assert_eq!(late.get_details_error_info().unwrap().reason, "UNSUPPORTED_OPERATION");
}

#[tokio::test]
async fn decisions_of_the_agent_are_states_of_the_task() {
    let server = demo().await;
    let mut client = connect(&server).await;
    for (text, end, said) in [
        ("fail no paper", TaskState::Failed, "no paper"),
        ("reject not mine", TaskState::Rejected, "not mine"),
        ("slow abc", TaskState::Rejected, "say how many seconds, from 0 to 3600: slow 3"),
        ("slow", TaskState::Rejected, "say how many seconds"),
        ("auth -1", TaskState::Rejected, "say how many seconds, from 0 to 3600: auth 3"),
        ("auth", TaskState::AuthRequired, "Authorize this"),
    ] {
        let answer = task_of(client.send_message(send(text)).await.unwrap());
        assert_eq!(state(&answer), end);
        let message = answer.status.unwrap().message.unwrap();
        assert!(words(&message).starts_with(said), "{text}");
        assert_eq!((message.role(), message.task_id), (v1::Role::Agent, answer.id));
    }
    let auth = task_of(client.send_message(send("auth 0")).await.unwrap());
    let done = eventually("the work goes on by itself", || {
        let mut client = client.clone();
        let id = auth.id.clone();
        async move {
            let read = client.get_task(get(&id)).await.unwrap().into_inner();
            (state(&read) == TaskState::Completed).then_some(read)
        }
    })
    .await;
    assert_eq!(parts(&done.artifacts[0]), ["authorized"]);
}

#[tokio::test]
async fn a_direct_reply_is_a_message_and_no_task() {
    let server = demo().await;
    let mut client = connect(&server).await;
    let answer = client.send_message(send("reply good morning")).await.unwrap().into_inner();
    let Some(Payload::Message(message)) = answer.payload else { panic!("a message: {answer:?}") };
    assert_eq!(words(&message), "good morning");
    assert_eq!(message.task_id, "");
    assert!(!message.context_id.is_empty());
    let list = client.list_tasks(v1::ListTasksRequest::default()).await.unwrap().into_inner();
    assert_eq!((list.tasks.len(), list.total_size), (0, 0));
    // Once the client knows the task, the same words complete it.
    let at_once = client.send_message(send_at_once("reply hi")).await.unwrap();
    let id = task_of(at_once).id;
    let done = eventually("the reply completes the task", || {
        let (mut client, id) = (client.clone(), id.clone());
        async move {
            let read = client.get_task(get(&id)).await.unwrap().into_inner();
            (state(&read) == TaskState::Completed).then_some(read)
        }
    })
    .await;
    assert_eq!(words(done.status.unwrap().message.as_ref().unwrap()), "hi");
}

#[tokio::test]
async fn a_send_that_waits_for_nothing_returns_before_the_work_does() {
    let server = demo().await;
    let mut client = connect(&server).await;
    let began = Instant::now();
    let answer = task_of(client.send_message(send_at_once("slow 60")).await.unwrap());
    assert!(began.elapsed() < Duration::from_secs(5));
    assert!(!state(&answer).is_terminal());
    let listed = client.list_tasks(v1::ListTasksRequest::default()).await.unwrap().into_inner();
    assert_eq!(listed.tasks[0].id, answer.id, "it is listed at once");
    let canceled = client.cancel_task(cancel(&answer.id)).await.unwrap().into_inner();
    assert_eq!(state(&canceled), TaskState::Canceled);
    assert_eq!(words(canceled.status.unwrap().message.as_ref().unwrap()), "stopped as you asked");
    let again = client.cancel_task(cancel(&answer.id)).await.unwrap_err();
    assert_eq!(again.code(), Code::FailedPrecondition);
    let info = again.get_details_error_info().unwrap();
    assert_eq!(info.reason, "TASK_NOT_CANCELABLE");
    assert_eq!(info.metadata["state"], "TASK_STATE_CANCELED");
}

#[tokio::test]
async fn an_agent_that_does_not_listen_is_canceled_after_the_grace_and_all_callers_are_told() {
    struct Deaf;
    #[async_trait]
    impl Agent for Deaf {
        fn card(&self) -> v1::AgentCard {
            v1::AgentCard::default()
        }
        async fn run(&self, _: AgentTurn, handle: &mut TurnHandle) -> Result<(), AgentError> {
            handle.working().await?;
            std::future::pending().await
        }
    }
    let settings = Settings { grace: Duration::from_millis(300), ..Settings::default() };
    let server = Server::builder(Deaf).settings(settings).start().await.unwrap();
    let client = connect(&server).await;
    let id = task_of(client.clone().send_message(send_at_once("x")).await.unwrap()).id;
    let cancels = (0..5).map(|_| {
        let (mut client, id) = (client.clone(), id.clone());
        async move { client.cancel_task(cancel(&id)).await.unwrap().into_inner() }
    });
    let answers = join_all(cancels).await;
    assert!(
        answers.iter().all(|answer| *answer == answers[0] && state(answer) == TaskState::Canceled)
    );
}

/// Fails as often as it is told, in the way it is told, then completes.
struct Shaky {
    fails: AtomicI32,
    panics: bool,
}

#[async_trait]
impl Agent for Shaky {
    fn card(&self) -> v1::AgentCard {
        v1::AgentCard { default_input_modes: vec!["text/*".to_owned()], ..Default::default() }
    }

    async fn run(&self, turn: AgentTurn, handle: &mut TurnHandle) -> Result<(), AgentError> {
        let artifact = v1::Artifact {
            artifact_id: "log".to_owned(),
            parts: vec![text_part(format!("attempt {}", turn.attempt))],
            ..Default::default()
        };
        handle.chunk(artifact, true, false).await?;
        if self.fails.fetch_sub(1, Ordering::SeqCst) > 0 {
            assert!(!self.panics, "as it was told");
            return Err(AgentError::new("no luck"));
        }
        let known: usize = turn.artifacts.iter().map(|a| a.parts.len()).sum();
        assert_eq!(known, usize::try_from(turn.attempt).unwrap() - 1, "it is told what is stored");
        Ok(handle.complete().await?)
    }
}

#[tokio::test]
async fn an_agent_that_fails_tries_again_and_at_last_its_task_fails() {
    for (fails, panics, end) in [
        (2, false, TaskState::Completed),
        (2, true, TaskState::Completed),
        (3, false, TaskState::Failed),
        (3, true, TaskState::Failed),
    ] {
        let agent = Shaky { fails: AtomicI32::new(fails), panics };
        let settings = Settings { retry_pause: Duration::from_millis(10), ..Settings::default() };
        let server = Server::builder(agent).settings(settings).start().await.unwrap();
        let mut client = connect(&server).await;
        let answer = task_of(client.send_message(send("go")).await.unwrap());
        assert_eq!(state(&answer), end, "{fails} {panics}");
        assert_eq!(parts(&answer.artifacts[0]), ["attempt 1", "attempt 2", "attempt 3"]);
        if end == TaskState::Failed {
            let said = words(answer.status.unwrap().message.as_ref().unwrap());
            let why = if panics { "it broke down" } else { "no luck" };
            assert_eq!(said, format!("the agent failed 3 times; the last time: {why}"));
        }
    }
}

#[tokio::test]
async fn an_agent_without_an_outcome_fails_its_task() {
    struct Silent;
    #[async_trait]
    impl Agent for Silent {
        fn card(&self) -> v1::AgentCard {
            v1::AgentCard::default()
        }
        async fn run(&self, _: AgentTurn, handle: &mut TurnHandle) -> Result<(), AgentError> {
            Ok(handle.working().await?)
        }
    }
    let server = Server::builder(Silent).start().await.unwrap();
    let answer = connect(&server).await.send_message(send("x")).await.unwrap();
    let answer = task_of(answer);
    assert_eq!(state(&answer), TaskState::Failed);
    assert!(
        words(answer.status.unwrap().message.as_ref().unwrap()).contains("InvalidAgentResponse")
    );
}

#[tokio::test]
async fn what_an_agent_says_after_the_end_or_beyond_the_rules_is_refused_to_it() {
    struct Chatty;
    #[async_trait]
    impl Agent for Chatty {
        fn card(&self) -> v1::AgentCard {
            v1::AgentCard::default()
        }
        async fn run(&self, _: AgentTurn, handle: &mut TurnHandle) -> Result<(), AgentError> {
            use a2ad::agent::Refused;
            let piece = |id: &str| v1::Artifact {
                artifact_id: id.to_owned(),
                parts: vec![text_part("x")],
                ..Default::default()
            };
            let nothing = v1::Artifact { parts: vec![], ..piece("a") };
            assert!(matches!(handle.artifact(nothing).await, Err(Refused::Invalid(_))));
            assert!(matches!(handle.artifact(piece("")).await, Err(Refused::Invalid(_))));
            handle.chunk(piece("a"), false, true).await?;
            assert_eq!(
                handle.chunk(piece("a"), true, false).await,
                Err(Refused::Closed("a".into()))
            );
            let large = "x".repeat(300 << 10);
            assert!(matches!(
                handle.say_status(TaskState::Working, &large).await,
                Err(Refused::Invalid(_))
            ));
            assert_eq!(
                handle.say_status(TaskState::Submitted, "").await,
                Err(Refused::State(TaskState::Submitted))
            );
            handle.complete().await?;
            assert_eq!(handle.working().await, Err(Refused::Ended));
            assert_eq!(handle.artifact(piece("b")).await, Err(Refused::Ended));
            handle.flush().await?;
            Ok(())
        }
    }
    let server = Server::builder(Chatty).start().await.unwrap();
    let answer = connect(&server).await.send_message(send("x")).await.unwrap();
    let answer = task_of(answer);
    assert_eq!(state(&answer), TaskState::Completed);
    assert_eq!(answer.artifacts.len(), 1);
}

#[tokio::test]
async fn a_message_sent_again_makes_no_second_task_also_while_the_first_runs_and_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("a.db").display());
    let start = || {
        let settings = Settings { dedupe: Dedupe::On, ..Settings::default() };
        Server::builder(Demo).store(store.as_str()).settings(settings).start()
    };
    let server = start().await.unwrap();
    let mut client = connect(&server).await;
    let request = send("slow 1");
    let sends = (0..3).map(|_| {
        let (mut client, request) = (client.clone(), request.clone());
        async move { task_of(client.send_message(request).await.unwrap()) }
    });
    let answers = join_all(sends).await;
    assert!(answers.iter().all(|answer| *answer == answers[0]), "all wait for the one task");
    let mut other = request.clone();
    other.message.as_mut().unwrap().parts.push(text_part("changed"));
    let refused = client.send_message(other).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    let violations = refused.get_details_bad_request().unwrap().field_violations;
    assert_eq!(violations[0].field, "message.message_id");
    let reply = send("reply once");
    let first = client.send_message(reply.clone()).await.unwrap().into_inner();
    assert!(server.stop().await);

    let server = start().await.unwrap();
    let mut client = connect(&server).await;
    let again = task_of(client.send_message(request).await.unwrap());
    assert_eq!(again, answers[0]);
    let again = client.send_message(reply).await.unwrap().into_inner();
    assert_eq!(again, first, "the reply is kept, too");
    let list = client.list_tasks(v1::ListTasksRequest::default()).await.unwrap().into_inner();
    assert_eq!(list.total_size, 1);
}

#[tokio::test]
async fn every_wrong_field_of_a_message_is_named() {
    let server = demo().await;
    let mut client = connect(&server).await;
    let message = v1::Message {
        role: v1::Role::Agent as i32,
        context_id: "a\nb".to_owned(),
        parts: vec![v1::Part::default()],
        ..Default::default()
    };
    let request = v1::SendMessageRequest {
        message: Some(message),
        configuration: Some(v1::SendMessageConfiguration {
            history_length: Some(-1),
            ..Default::default()
        }),
        ..Default::default()
    };
    let refused = client.send_message(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    let fields: Vec<_> = refused
        .get_details_bad_request()
        .unwrap()
        .field_violations
        .into_iter()
        .map(|violation| violation.field)
        .collect();
    assert_eq!(
        fields,
        [
            "message.message_id",
            "message.context_id",
            "message.role",
            "message.parts[0]",
            "configuration.history_length"
        ]
    );
    let nothing = client.send_message(v1::SendMessageRequest::default()).await.unwrap_err();
    assert_eq!(nothing.get_details_bad_request().unwrap().field_violations[0].field, "message");
    let mut picture = send("x");
    picture.message.as_mut().unwrap().parts[0].media_type = "image/png".to_owned();
    let refused = client.send_message(picture).await.unwrap_err();
    assert_eq!(refused.get_details_error_info().unwrap().reason, "CONTENT_TYPE_NOT_SUPPORTED");
    let large = send(&"x".repeat(3 << 20));
    let refused = client.send_message(large).await.unwrap_err();
    let problem = &refused.get_details_bad_request().unwrap().field_violations[0];
    assert!(problem.field == "message" && problem.description.contains("url parts"), "{problem:?}");
}

#[tokio::test]
async fn a_blocking_send_on_one_server_waits_for_a_turn_that_runs_on_another() {
    let url = postgres::fresh_url().await;
    let keys = || a2ad::domain::page::KeyRing::parse(&format!("k:{}", "ab".repeat(32))).unwrap();
    let on = |agent| Server::builder(agent).store(url.as_str()).page_token_keys(keys());
    /// Runs nothing itself.
    struct Idle;
    #[async_trait]
    impl Agent for Idle {
        fn card(&self) -> v1::AgentCard {
            Demo.card()
        }
        async fn run(&self, _: AgentTurn, _: &mut TurnHandle) -> Result<(), AgentError> {
            std::future::pending().await
        }
    }
    let idle = Settings { runners: 1, ..Settings::default() };
    let a = Server::builder(Idle)
        .store(url.as_str())
        .page_token_keys(keys())
        .settings(idle)
        .start()
        .await
        .unwrap();
    let mut on_a = connect(&a).await;
    // The only runner of A is busy for good.
    let busy = task_of(on_a.send_message(send_at_once("busy")).await.unwrap());
    let b = on(Demo).start().await.unwrap();
    let answers = join_all((0..10).map(|n| {
        let mut on_a = on_a.clone();
        async move { task_of(on_a.send_message(send(&format!("n {n}"))).await.unwrap()) }
    }))
    .await;
    assert!(answers.iter().all(|answer| state(answer) == TaskState::Completed));
    let read = connect(&b).await.get_task(get(&answers[3].id)).await.unwrap().into_inner();
    assert_eq!(read, answers[3]);
    let canceled = connect(&b).await.cancel_task(cancel(&busy.id)).await.unwrap().into_inner();
    assert_eq!(state(&canceled), TaskState::Canceled);
}

#[tokio::test]
async fn a_draining_server_tells_waiting_callers_to_try_again_and_hands_its_turns_back() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("a.db").display());
    let grace = Duration::from_millis(500);
    let server = Server::builder(Demo)
        .store(store.as_str())
        .drain(Duration::ZERO, grace)
        .start()
        .await
        .unwrap();
    let mut waiting = connect(&server).await;
    let id = task_of(waiting.send_message(send_at_once("slow 3")).await.unwrap()).id;
    let blocked = tokio::spawn(async move {
        let blocked = waiting.send_message(to_task(send("and then"), &id)).await;
        (blocked.unwrap_err(), id)
    });
    let store_before = Arc::clone(server.store());
    eventually("the message is accepted", || {
        let store = Arc::clone(&store_before);
        async move {
            let scope = a2ad::domain::Caller::anonymous()
                .scope(a2ad::domain::Tenant::default_tenant())
                .unwrap();
            let query = a2ad::store::PageQuery { history: 9, ..crate::store::everything() };
            let page = store.tasks_page(&scope, &query).await.unwrap();
            (page.tasks.first()?.history.len() == 2).then_some(())
        }
    })
    .await;
    drop(store_before);
    assert!(server.stop().await, "handed back in time");
    let (status, id) = blocked.await.unwrap();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.get_details_retry_info().is_some());

    let server = eventually("the file is free again", || async {
        Server::builder(Demo).store(store.as_str()).start().await.ok()
    })
    .await;
    let mut client = connect(&server).await;
    let done = eventually("the task goes on", || {
        let (mut client, id) = (client.clone(), id.clone());
        async move {
            let read = client.get_task(get(&id)).await.unwrap().into_inner();
            state(&read).is_terminal().then_some(read)
        }
    })
    .await;
    assert_eq!(state(&done), TaskState::Completed);
    assert_eq!(parts(&done.artifacts[0]), ["chunk 1 of 3", "chunk 2 of 3", "chunk 3 of 3"]);
    let no_tenant = v1::SendMessageRequest {
        message: Some(text_message("hi")),
        tenant: "a/b".to_owned(),
        ..Default::default()
    };
    let refused = client.send_message(no_tenant).await.unwrap_err();
    assert_eq!(refused.get_details_bad_request().unwrap().field_violations[0].field, "tenant");
}
