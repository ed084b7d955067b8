//! One list of scenarios over gRPC, JSON-RPC and HTTP+JSON: the answers are equal (GEN-04).

use std::sync::Arc;

use a2ad::contract::json::to_value;
use a2ad::contract::v1::send_message_response::Payload;
use a2ad::contract::v1::{self, TaskState};
use a2ad::contract::wkt::Timestamp;
use a2ad::domain::{Error, ManualClock, Violation};
use serde_json::Value;

use crate::bindings::caller::{Ask, Binding, Caller, Told};
use crate::rig::flaky::Flaky;
use crate::rig::{ANN, BOB, TestServer, eventually, send, send_at_once, to_task, two_callers};

/// Some day in 2026, in microseconds.
const NOON: i64 = 1_780_000_000_000_000;

/// Asks over each binding and holds the answers to be one; returns it.
async fn same<A: Ask>(callers: &mut [Caller; 3], request: A) -> Result<A::Answer, Told> {
    let [first, second, third] = callers;
    let first = first.ask(request.clone()).await;
    for other in [second, third] {
        let binding = other.binding;
        let answer = other.ask(request.clone()).await;
        assert_eq!(first, answer, "gRPC and {binding:?}: {}", to_value(&request).unwrap());
        if let (Err(first), Err(answer)) = (&first, answer) {
            let one_row = Told::have_one_row(&[first.clone(), answer.clone()]);
            assert!(one_row, "{first:?} {answer:?}");
        }
    }
    first
}

async fn refused<A: Ask>(callers: &mut [Caller; 3], request: A) -> String {
    let told = same(callers, request).await.unwrap_err();
    told.common.1[0]["reason"].as_str().unwrap_or_default().to_owned()
}

fn context(mut request: v1::SendMessageRequest, context: &str) -> v1::SendMessageRequest {
    if let Some(message) = &mut request.message {
        context.clone_into(&mut message.context_id);
    }
    request
}

/// A server whose time stands still, so that answers are equal to the last byte; with tasks of
/// most kinds.
async fn still() -> (TestServer, [Caller; 3], Vec<v1::Task>) {
    let clock = Arc::new(ManualClock::at_us(NOON));
    let time: Arc<ManualClock> = Arc::clone(&clock);
    let server = TestServer::with(|server| server.clock(time)).await;
    let mut callers = Caller::all(server.addr(), None).await;
    let mut tasks = Vec::new();
    let rich = v1::SendMessageRequest {
        metadata: a_struct(),
        message: Some(v1::Message {
            metadata: a_struct(),
            parts: vec![
                part(v1::part::Content::Text("h\u{e9}llo \u{2028}\n\"".to_owned())),
                part(v1::part::Content::Data(a_value())),
            ],
            ..send("").message.unwrap()
        }),
        ..Default::default()
    };
    let question = send("ask which one?");
    for (n, request) in [
        send("hello"),
        context(send("echo two"), "one-context"),
        context(question, "one-context"),
        send("fail no paper"),
        send("reject not mine"),
        rich,
    ]
    .into_iter()
    .enumerate()
    {
        let answer = callers[n % 3].ask(request).await.unwrap();
        let Some(Payload::Task(task)) = answer.payload else { panic!("{answer:?}") };
        tasks.push(task);
        clock.advance_us(1_234_567);
    }
    (server, callers, tasks)
}

fn part(content: v1::part::Content) -> v1::Part {
    v1::Part { content: Some(content), ..Default::default() }
}

fn a_value() -> a2ad::contract::wkt::Value {
    let json = serde_json::json!({"data": [null, 1, 1.5, "x", {"deep": [[]]}, true]});
    a2ad::contract::json::from_value(json).unwrap()
}

fn a_struct() -> Option<a2ad::contract::wkt::Struct> {
    let json =
        serde_json::json!({"https://x.example/ext": {"n": 9_007_199_254_740_991_i64, "z": null}});
    Some(a2ad::contract::json::from_value(json).unwrap())
}

#[tokio::test]
async fn reads_are_equal_for_every_filter_and_history() {
    let (_server, mut callers, tasks) = still().await;
    for task in &tasks {
        for history_length in [None, Some(0), Some(1), Some(2), Some(100), Some(i32::MAX)] {
            let request =
                v1::GetTaskRequest { id: task.id.clone(), history_length, ..Default::default() };
            let read = same(&mut callers, request).await.unwrap();
            assert_eq!(read.status, task.status);
            assert_eq!(history_length == Some(0), read.history.is_empty(), "{history_length:?}");
        }
    }
    let at = |us: i64| Some(Timestamp::from_micros(us));
    let base = v1::ListTasksRequest::default();
    let mut requests = vec![base.clone()];
    let states = (0..=8).map(|status| v1::ListTasksRequest { status, ..base.clone() });
    requests.extend(states);
    for page_size in [None, Some(0), Some(1), Some(4), Some(100)] {
        for include_artifacts in [None, Some(false), Some(true)] {
            for history_length in [None, Some(0), Some(1)] {
                requests.push(v1::ListTasksRequest {
                    page_size,
                    include_artifacts,
                    history_length,
                    ..base.clone()
                });
            }
        }
    }
    for after in [at(0), at(NOON), at(NOON + 1_234_567), at(NOON + 1_234_999), at(NOON * 2)] {
        requests.push(v1::ListTasksRequest { status_timestamp_after: after, ..base.clone() });
    }
    for name in ["one-context", "no such context", "\u{e9}&?=+ %"] {
        requests.push(v1::ListTasksRequest { context_id: name.to_owned(), ..base.clone() });
        requests.push(v1::ListTasksRequest {
            context_id: name.to_owned(),
            status: TaskState::InputRequired.into(),
            ..base.clone()
        });
    }
    requests.push(v1::ListTasksRequest { tenant: "blue".to_owned(), ..base.clone() });
    let mut sizes = Vec::new();
    for request in requests {
        sizes.push(same(&mut callers, request).await.unwrap().total_size);
    }
    assert_eq!(sizes[0], 6);
    sizes.sort_unstable();
    sizes.dedup();
    assert_eq!(sizes, [0, 1, 2, 3, 5, 6], "every filter left something else");
}

#[tokio::test]
async fn a_walk_goes_on_over_another_binding() {
    let (_server, mut callers, tasks) = still().await;
    let page = |token: &str| v1::ListTasksRequest {
        page_size: Some(2),
        page_token: token.to_owned(),
        ..Default::default()
    };
    let mut expected: Vec<_> = tasks.iter().map(|task| task.id.clone()).collect();
    expected.reverse();
    // By gRPC, then HTTP+JSON, then JSON-RPC; and in every other order.
    for order in [[0, 2, 1], [0, 1, 2], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut token = String::new();
        let mut walked = Vec::new();
        for n in order {
            let listed = callers[n].ask(page(&token)).await.unwrap();
            assert_eq!((listed.tasks.len(), listed.total_size), (2, 6));
            walked.extend(listed.tasks.into_iter().map(|task| task.id));
            token = listed.next_page_token;
        }
        assert_eq!((walked, token), (expected.clone(), String::new()), "{order:?}");
    }
    // The pages themselves are the same, tokens and all.
    let first = same(&mut callers, page("")).await.unwrap();
    same(&mut callers, page(&first.next_page_token)).await.unwrap();
}

#[tokio::test]
async fn what_a_client_gets_wrong_is_told_alike() {
    let (_server, mut callers, tasks) = still().await;
    let base = v1::ListTasksRequest::default();
    for request in [
        v1::ListTasksRequest { page_size: Some(-1), ..base.clone() },
        v1::ListTasksRequest { page_size: Some(101), history_length: Some(-3), ..base.clone() },
        v1::ListTasksRequest { context_id: "x".repeat(300), ..base.clone() },
        v1::ListTasksRequest { page_token: "0".to_owned(), ..base.clone() },
        v1::ListTasksRequest { tenant: "a\u{7}".to_owned(), ..base.clone() },
    ] {
        assert_eq!(refused(&mut callers, request).await, "INVALID_PARAMS");
    }
    let ended = &tasks[0].id;
    let get = |id: &str, history_length| v1::GetTaskRequest {
        id: id.to_owned(),
        history_length,
        ..Default::default()
    };
    assert_eq!(refused(&mut callers, get(ended, Some(-1))).await, "INVALID_PARAMS");
    for id in ["x", "a/b:c d", "0198c0de-0000-7000-8000-000000000000"] {
        assert_eq!(refused(&mut callers, get(id, None)).await, "TASK_NOT_FOUND");
        let cancel = v1::CancelTaskRequest { id: id.to_owned(), ..Default::default() };
        assert_eq!(refused(&mut callers, cancel).await, "TASK_NOT_FOUND");
        assert_eq!(refused(&mut callers, to_task(send("x"), id)).await, "TASK_NOT_FOUND");
    }
    let cancel = v1::CancelTaskRequest { id: ended.clone(), ..Default::default() };
    assert_eq!(refused(&mut callers, cancel).await, "TASK_NOT_CANCELABLE");
    assert_eq!(refused(&mut callers, to_task(send("x"), ended)).await, "UNSUPPORTED_OPERATION");
    let other = context(to_task(send("x"), &tasks[2].id), "other");
    assert_eq!(refused(&mut callers, other).await, "INVALID_PARAMS");
    let nothing = v1::SendMessageRequest::default();
    assert_eq!(refused(&mut callers, nothing).await, "INVALID_PARAMS");
    let empty =
        v1::SendMessageRequest { message: Some(v1::Message::default()), ..Default::default() };
    assert_eq!(refused(&mut callers, empty).await, "INVALID_PARAMS");
    let mut image = send("x");
    image.message.as_mut().unwrap().parts[0].media_type = "image/png".to_owned();
    assert_eq!(refused(&mut callers, image).await, "CONTENT_TYPE_NOT_SUPPORTED");
    push_configs_are_refused_alike(&mut callers, ended).await;
    let card = v1::GetExtendedAgentCardRequest::default();
    assert_eq!(refused(&mut callers, card).await, "UNSUPPORTED_OPERATION");
}

async fn push_configs_are_refused_alike(callers: &mut [Caller; 3], task: &str) {
    let not_offered = "PUSH_NOTIFICATION_NOT_SUPPORTED";
    let (task_id, id) = (task.to_owned(), "one".to_owned());
    let create = v1::TaskPushNotificationConfig {
        task_id: task_id.clone(),
        url: "https://x.example/hook".to_owned(),
        ..Default::default()
    };
    let mut send = send("hello");
    send.configuration = Some(v1::SendMessageConfiguration {
        task_push_notification_config: Some(create.clone()),
        ..Default::default()
    });
    assert_eq!(refused(callers, send).await, not_offered);
    assert_eq!(refused(callers, create).await, not_offered);
    let get = v1::GetTaskPushNotificationConfigRequest {
        task_id: task_id.clone(),
        id: id.clone(),
        ..Default::default()
    };
    assert_eq!(refused(callers, get).await, not_offered);
    let list = v1::ListTaskPushNotificationConfigsRequest {
        task_id: task_id.clone(),
        ..Default::default()
    };
    assert_eq!(refused(callers, list).await, not_offered);
    let delete = v1::DeleteTaskPushNotificationConfigRequest { task_id, id, ..Default::default() };
    assert_eq!(refused(callers, delete).await, not_offered);
}

#[tokio::test]
async fn callers_are_told_apart_alike() {
    let server = TestServer::with(|server| server.auth(two_callers())).await;
    let mut ann = Caller::all(server.addr(), Some(ANN)).await;
    let mut bob = Caller::all(server.addr(), Some(BOB)).await;
    let mut nobody = Caller::all(server.addr(), None).await;
    let list =
        |tenant: &str| v1::ListTasksRequest { tenant: tenant.to_owned(), ..Default::default() };
    assert_eq!(refused(&mut nobody, list("")).await, "UNAUTHENTICATED");
    let told = same(&mut ann, list("red")).await.unwrap_err();
    assert_eq!(told.code, 7, "PERMISSION_DENIED has no reason");
    let sent = ann[0].ask(send("hello")).await.unwrap();
    let Some(Payload::Task(task)) = sent.payload else { panic!("{sent:?}") };
    let get = v1::GetTaskRequest { id: task.id, ..Default::default() };
    same(&mut ann, get.clone()).await.unwrap();
    assert_eq!(refused(&mut bob, get).await, "TASK_NOT_FOUND");
    assert_eq!(same(&mut bob, list("")).await.unwrap().total_size, 0);
}

#[tokio::test]
async fn every_failure_of_an_operation_is_told_alike() {
    let store = Flaky::open().await;
    let open = Arc::clone(&store);
    let server = TestServer::with(|server| server.open_store(open)).await;
    let mut callers = Caller::all(server.addr(), None).await;
    let text = |text: &str| text.to_owned();
    let failures: [fn() -> Error; 18] = [
        || Error::TaskNotFound,
        || Error::TaskNotCancelable { state: TaskState::Rejected },
        || Error::PushNotSupported,
        || Error::Unsupported("not now".to_owned()),
        || Error::ContentTypeNotSupported {
            field: "message.parts[0].media_type".to_owned(),
            media_type: "image/png".to_owned(),
        },
        || Error::InvalidAgentResponse("a second message".to_owned()),
        || Error::ExtendedCardNotConfigured,
        || Error::ExtensionRequired("https://x.example/ext/v1".to_owned()),
        || Error::VersionNotSupported { asked: "0.3".to_owned() },
        || Error::Invalid(vec![Violation::new("a.b[0]", "x"), Violation::new("c", "\u{e9}")]),
        || Error::PageTokenInvalid,
        || Error::PageTokenExpired,
        || Error::Unauthenticated("who?".to_owned()),
        || Error::Forbidden("not you".to_owned()),
        || Error::DeadlineExceeded,
        || Error::unavailable("db.internal"),
        || Error::ShuttingDown,
        || Error::internal("SELECT 1"),
    ];
    let get = v1::GetTaskRequest {
        id: text("0198c0de-0000-7000-8000-000000000000"),
        ..Default::default()
    };
    for failure in failures {
        store.fail_with(Some(failure));
        let told = same(&mut callers, get.clone()).await.unwrap_err();
        assert_eq!(told.common.0, failure().to_string());
    }
    store.fail_with(None);
    assert_eq!(refused(&mut callers, get).await, "TASK_NOT_FOUND");
}

/// What a conversation looks like when ids and times are not looked at.
pub(crate) fn shape(answer: &impl serde::Serialize) -> String {
    fn walk(json: &mut Value, ids: &mut Vec<String>) {
        match json {
            Value::Object(members) => {
                for (name, value) in members {
                    let text = value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
                    match (name.as_str(), text) {
                        ("timestamp", Some(_)) => *value = "some time".into(),
                        ("id" | "contextId" | "taskId" | "messageId" | "artifactId", Some(id)) => {
                            let known = ids.iter().position(|known| *known == id);
                            let place = known.unwrap_or_else(|| {
                                ids.push(id);
                                ids.len() - 1
                            });
                            *value = format!("id {place}").into();
                        }
                        _ => walk(value, ids),
                    }
                }
            }
            Value::Array(values) => values.iter_mut().for_each(|value| walk(value, ids)),
            _ => {}
        }
    }
    let mut json = to_value(answer).unwrap();
    walk(&mut json, &mut Vec::new());
    json.to_string()
}

fn task_in(answer: &v1::SendMessageResponse) -> v1::Task {
    match &answer.payload {
        Some(Payload::Task(task)) => task.clone(),
        other => panic!("{other:?}"),
    }
}

/// A conversation over one binding, as a transcript.
async fn conversation(caller: &mut Caller) -> Vec<String> {
    let mut lines = Vec::new();
    let get = |id: &str| v1::GetTaskRequest { id: id.to_owned(), ..Default::default() };
    for text in ["hello", "reply hi there", "fail no paper", "reject not mine", "auth"] {
        lines.push(shape(&caller.ask(send(text)).await.unwrap()));
    }
    // Not blocking: the answer comes before the end, which comes all the same.
    let begun = task_in(&caller.ask(send_at_once("slow 60")).await.unwrap());
    lines.push(format!("{:?}", begun.artifacts));
    eventually("work", async || {
        let task = caller.clone().ask(get(&begun.id)).await.unwrap();
        task.status.unwrap().state() == TaskState::Working
    })
    .await;
    let cancel = v1::CancelTaskRequest { id: begun.id.clone(), ..Default::default() };
    let canceled = caller.ask(cancel.clone()).await.unwrap();
    lines.push(canceled.status.unwrap().state().as_str_name().to_owned());
    lines.push(format!("{:?}", caller.ask(cancel).await.unwrap_err().common));
    // More than one turn, with a question in between.
    let asked = caller.ask(send("ask which one?")).await.unwrap();
    lines.push(shape(&asked));
    let asked = task_in(&asked);
    let answered = caller.ask(to_task(send("the red one"), &asked.id)).await.unwrap();
    lines.push(shape(&answered));
    lines.push(shape(&caller.ask(get(&asked.id)).await.unwrap()));
    let history = v1::SendMessageConfiguration { history_length: Some(0), ..Default::default() };
    let without = v1::SendMessageRequest { configuration: Some(history), ..send("hello") };
    lines.push(shape(&caller.ask(without).await.unwrap()));
    lines
}

#[tokio::test]
async fn conversations_are_the_same_over_every_binding() {
    let mut transcripts = Vec::new();
    for binding in [Binding::Grpc, Binding::JsonRpc, Binding::Rest] {
        let server = TestServer::start().await;
        let mut caller = Caller::new(binding, server.addr(), None).await;
        transcripts.push(conversation(&mut caller).await);
    }
    assert_eq!(transcripts[0], transcripts[1], "gRPC and JSON-RPC");
    assert_eq!(transcripts[0], transcripts[2], "gRPC and HTTP+JSON");
}
