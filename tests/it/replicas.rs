//! Two servers on one PostgreSQL.

use std::time::{Duration, Instant};

use a2ad::client::{Client, Connect};
use a2ad::contract::v1::part::Content;
use a2ad::contract::v1::send_message_response::Payload;
use a2ad::contract::v1::{
    GetTaskRequest, ListTasksRequest, Message, Part, Role, SendMessageRequest, Task, TaskState,
};
use tempfile::TempDir;

use crate::crash::KEYS;
use crate::support::postgres::{admin, empty_url};
use crate::support::program::Program;

const WITHIN: Duration = Duration::from_secs(60);

async fn connect(server: &Program) -> Client {
    Connect::to(server.url()).connect().await.unwrap()
}

fn send(text: &str, context: &str) -> SendMessageRequest {
    let message = Message {
        message_id: text.to_owned(),
        context_id: context.to_owned(),
        role: Role::User.into(),
        parts: vec![Part { content: Some(Content::Text(text.to_owned())), ..Default::default() }],
        ..Default::default()
    };
    SendMessageRequest { message: Some(message), ..Default::default() }
}

fn chunks(task: &Task) -> Vec<String> {
    let parts = task.artifacts.iter().flat_map(|artifact| &artifact.parts);
    parts
        .map(|part| match &part.content {
            Some(Content::Text(text)) => text.clone(),
            other => panic!("{other:?} is no text"),
        })
        .collect()
}

/// The one task of `context`, as soon as it has `n` chunks.
async fn with_chunks(client: &mut Client, context: &str, n: usize) -> Task {
    let deadline = Instant::now() + WITHIN;
    loop {
        let request = ListTasksRequest {
            context_id: context.to_owned(),
            include_artifacts: Some(true),
            ..Default::default()
        };
        let page = client.list_tasks(request).await.unwrap().into_inner();
        match page.tasks.into_iter().next() {
            Some(task) if chunks(&task).len() >= n => return task,
            other => assert!(Instant::now() < deadline, "no {n} chunks: {other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocking_send_returns_when_another_server_runs_the_turn() {
    let folder = TempDir::new().unwrap();
    let url = empty_url().await;
    let arguments = ["--store", &url, "--page-token-keys", KEYS, "--max-turns", "1"];
    let busy = Program::serve(folder.path(), &arguments);
    let idle = Program::serve(folder.path(), &arguments);
    let mut through_busy = connect(&busy).await;
    let mut through_idle = connect(&idle).await;

    // The first turn fills the server that takes it, so the second one goes to the other.
    let mut other = through_busy.clone();
    let long = tokio::spawn(async move { other.send_message(send("slow 60", "long")).await });
    with_chunks(&mut through_idle, "long", 1).await;
    let started = Instant::now();
    let answer = through_busy.send_message(send("slow 1", "short")).await.unwrap();
    let Some(Payload::Task(task)) = answer.into_inner().payload else { panic!("not a task") };
    assert_eq!(chunks(&task), ["chunk 1 of 1"]);
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    let working = with_chunks(&mut through_idle, "long", 1).await;
    assert_eq!(working.status.as_ref().unwrap().state(), TaskState::Working);
    long.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_moves_to_another_server_and_the_first_ones_reports_are_refused() {
    let folder = TempDir::new().unwrap();
    let url = empty_url().await;
    let arguments = ["--store", &url, "--page-token-keys", KEYS, "--lease", "2s"];
    let first = Program::serve(folder.path(), &arguments);
    let second = Program::serve(folder.path(), &arguments);
    let mut through_first = connect(&first).await;
    let mut through_second = connect(&second).await;

    // A server that takes a message runs it itself if it can, and its caller waits there.
    let waiting =
        tokio::spawn(async move { through_first.send_message(send("slow 8", "moving")).await });
    let before = chunks(&with_chunks(&mut through_second, "moving", 1).await).len();
    first.signal("STOP");
    // The first server stands still, so from here on the second one works.
    let moved = with_chunks(&mut through_second, "moving", before + 2).await;
    assert_eq!(moved.status.as_ref().unwrap().state(), TaskState::Working);
    first.signal("CONT");

    // The caller on the first server gets what the second one did.
    let answer = tokio::time::timeout(WITHIN, waiting).await.expect("in time").unwrap();
    let Some(Payload::Task(task)) = answer.unwrap().into_inner().payload else {
        panic!("not a task")
    };
    let expected: Vec<_> = (1..=8).map(|n| format!("chunk {n} of 8")).collect();
    assert_eq!(chunks(&task), expected);
    assert_eq!(task.status.as_ref().unwrap().state(), TaskState::Completed);
    let request = GetTaskRequest { id: task.id.clone(), ..Default::default() };
    let seen = through_second.get_task(request).await.unwrap().into_inner();
    assert_eq!(seen, task);

    // One event for each thing that landed, by one runner at a time, without a gap.
    let database = admin(&url).await;
    let events = "select generation from task_events order by generation";
    let rows = database.query(events, &[]).await.unwrap();
    let generations: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(generations, (1..=generations.len() as i64).collect::<Vec<_>>());
}
