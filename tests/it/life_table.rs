//! The life of a task that may turn out not to be one: the table of `docs/architecture.md`, run.
//!
//! Each row brings a task of a blocking send into a state, lets one thing happen, and asks
//! everybody what they see. The table below is the only one: the document holds its rendering.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use a2ad::agent::AgentError;
use a2ad::contract::v1::{self, TaskState, send_message_response::Payload};
use a2ad::domain::{Error, Scope, TaskId, Tenant};
use a2ad::service::{Call, Settings};
use a2ad::store;
use prost::Message as _;
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;

use crate::bench::{A_WHILE, Bench, Canceling, Puppet, Sent, chunk, named, state, still, until};

/// Whether the task is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    Hidden,
    Shown,
}

/// Where its first turn stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Queued,
    Running,
    Resting,
    Replied,
    Asked,
    Ended,
}

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Nothing,
    OneSecond,
    Reports(TaskState),
    Artifact,
    Message,
    Returns,
    Error,
    LastError,
    SecondAttempt,
    Cancel,
    CancelObeyed,
    CancelOvertaken,
    CancelIgnored,
    Another,
    AnotherWorking,
    AnotherMessage,
    Drain,
}

/// What somebody gets to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sees {
    /// Nobody acts.
    Nobody,
    Waits,
    Task(TaskState),
    Reply,
    NotFound,
    Unsupported,
    NotCancelable,
    Unavailable,
    /// An agent's report is stored.
    Stored,
    /// An agent's report is refused.
    Refused,
}

use Sees::{
    Nobody, NotCancelable, NotFound, Refused, Reply, Stored, Unavailable, Unsupported, Waits,
};
use Task::{Hidden, Shown};
use TaskState::{
    AuthRequired, Canceled, Completed, Failed, InputRequired, Rejected, Submitted, Working,
};
use Turn::{Asked, Ended, Queued, Replied, Resting, Running};

/// A row: the task, its turn, what happens; what is told to whoever makes it happen, to the sender
/// that waits, to GetTask (and whether the task is listed), to a repeat that waits, and to one that
/// does not.
struct Row(Task, Turn, Event, Sees, Sees, Sees, Sees, Sees);

const fn t(state: TaskState) -> Sees {
    Sees::Task(state)
}

const fn says(state: TaskState) -> Event {
    Event::Reports(state)
}

#[rustfmt::skip]
const TABLE: &[Row] = &[
    Row(Hidden, Queued, Event::Nothing, Nobody, Waits, NotFound, Waits, t(Submitted)),
    Row(Hidden, Queued, Event::OneSecond, Nobody, Waits, t(Submitted), Waits, t(Submitted)),
    Row(Hidden, Queued, Event::Cancel, NotFound, Waits, NotFound, Waits, t(Submitted)),
    Row(Hidden, Running, Event::Nothing, Nobody, Waits, NotFound, Waits, t(Submitted)),
    Row(Hidden, Running, Event::OneSecond, Nobody, Waits, t(Submitted), Waits, t(Submitted)),
    Row(Hidden, Running, says(Working), Stored, Waits, t(Working), Waits, t(Working)),
    Row(Hidden, Running, Event::Artifact, Stored, Waits, t(Submitted), Waits, t(Submitted)),
    Row(Hidden, Running, says(InputRequired), Stored, t(InputRequired), t(InputRequired), t(InputRequired), t(InputRequired)),
    Row(Hidden, Running, says(AuthRequired), Stored, t(AuthRequired), t(AuthRequired), t(AuthRequired), t(AuthRequired)),
    Row(Hidden, Running, says(Completed), Stored, t(Completed), t(Completed), t(Completed), t(Completed)),
    Row(Hidden, Running, says(Rejected), Stored, t(Rejected), t(Rejected), t(Rejected), t(Rejected)),
    Row(Hidden, Running, Event::Message, Stored, Reply, NotFound, Reply, Reply),
    Row(Hidden, Running, Event::Returns, Nobody, t(Failed), t(Failed), t(Failed), t(Failed)),
    Row(Hidden, Running, Event::Error, Nobody, Waits, NotFound, Waits, t(Submitted)),
    Row(Hidden, Running, Event::LastError, Nobody, t(Failed), t(Failed), t(Failed), t(Failed)),
    Row(Hidden, Running, Event::Cancel, NotFound, Waits, NotFound, Waits, t(Submitted)),
    Row(Hidden, Running, Event::Drain, Nobody, Unavailable, t(Submitted), Unavailable, Unavailable),
    Row(Hidden, Resting, Event::OneSecond, Nobody, Waits, t(Submitted), Waits, t(Submitted)),
    Row(Hidden, Resting, Event::SecondAttempt, Nobody, Waits, t(Submitted), Waits, t(Submitted)),
    Row(Hidden, Replied, Event::Nothing, Nobody, Reply, NotFound, Reply, Reply),
    Row(Hidden, Replied, Event::OneSecond, Nobody, Reply, NotFound, Reply, Reply),
    Row(Hidden, Replied, Event::Message, Refused, Reply, NotFound, Reply, Reply),
    Row(Hidden, Replied, says(Working), Refused, Reply, NotFound, Reply, Reply),
    Row(Hidden, Replied, Event::Cancel, NotFound, Reply, NotFound, Reply, Reply),
    Row(Hidden, Replied, Event::Another, NotFound, Reply, NotFound, Reply, Reply),
    Row(Shown, Queued, Event::Nothing, Nobody, Waits, t(Submitted), Waits, t(Submitted)),
    Row(Shown, Queued, Event::Cancel, t(Canceled), t(Canceled), t(Canceled), t(Canceled), t(Canceled)),
    Row(Shown, Running, Event::Nothing, Nobody, Waits, t(Submitted), Waits, t(Submitted)),
    Row(Shown, Running, says(Working), Stored, Waits, t(Working), Waits, t(Working)),
    Row(Shown, Running, says(InputRequired), Stored, t(InputRequired), t(InputRequired), t(InputRequired), t(InputRequired)),
    Row(Shown, Running, says(AuthRequired), Stored, t(AuthRequired), t(AuthRequired), t(AuthRequired), t(AuthRequired)),
    Row(Shown, Running, says(Completed), Stored, t(Completed), t(Completed), t(Completed), t(Completed)),
    Row(Shown, Running, Event::Message, Stored, t(Completed), t(Completed), t(Completed), t(Completed)),
    Row(Shown, Running, Event::Returns, Nobody, t(Failed), t(Failed), t(Failed), t(Failed)),
    Row(Shown, Running, Event::Error, Nobody, Waits, t(Submitted), Waits, t(Submitted)),
    Row(Shown, Running, Event::LastError, Nobody, t(Failed), t(Failed), t(Failed), t(Failed)),
    Row(Shown, Running, Event::Another, Waits, Waits, t(Submitted), Waits, t(Submitted)),
    Row(Shown, Running, Event::Cancel, Waits, Waits, t(Submitted), Waits, t(Submitted)),
    Row(Shown, Running, Event::CancelObeyed, t(Canceled), t(Canceled), t(Canceled), t(Canceled), t(Canceled)),
    Row(Shown, Running, Event::CancelOvertaken, t(Completed), t(Completed), t(Completed), t(Completed), t(Completed)),
    Row(Shown, Running, Event::CancelIgnored, t(Canceled), t(Canceled), t(Canceled), t(Canceled), t(Canceled)),
    Row(Shown, Running, Event::Drain, Nobody, Unavailable, t(Submitted), Unavailable, Unavailable),
    Row(Shown, Asked, Event::Nothing, Nobody, t(InputRequired), t(InputRequired), t(InputRequired), t(InputRequired)),
    Row(Shown, Asked, says(Working), Refused, t(InputRequired), t(InputRequired), t(InputRequired), t(InputRequired)),
    Row(Shown, Asked, Event::Another, Waits, t(InputRequired), t(InputRequired), t(InputRequired), t(InputRequired)),
    Row(Shown, Asked, Event::AnotherWorking, Waits, t(InputRequired), t(Working), t(Working), t(Working)),
    Row(Shown, Asked, Event::AnotherMessage, t(Completed), t(InputRequired), t(Completed), t(Completed), t(Completed)),
    Row(Shown, Asked, Event::Cancel, t(Canceled), t(InputRequired), t(Canceled), t(Canceled), t(Canceled)),
    Row(Shown, Ended, Event::Nothing, Nobody, t(Completed), t(Completed), t(Completed), t(Completed)),
    Row(Shown, Ended, says(Working), Refused, t(Completed), t(Completed), t(Completed), t(Completed)),
    Row(Shown, Ended, Event::Message, Refused, t(Completed), t(Completed), t(Completed), t(Completed)),
    Row(Shown, Ended, Event::Another, Unsupported, t(Completed), t(Completed), t(Completed), t(Completed)),
    Row(Shown, Ended, Event::Cancel, NotCancelable, t(Completed), t(Completed), t(Completed), t(Completed)),
];

// --- the table in words -------------------------------------------------------------------------

fn short(state: TaskState) -> &'static str {
    state.as_str_name().trim_start_matches("TASK_STATE_")
}

fn turn_in_words(turn: Turn) -> &'static str {
    match turn {
        Queued => "queued",
        Running => "running",
        Resting => "resting after an error",
        Replied => "replied with a message",
        Asked => "ended at INPUT_REQUIRED",
        Ended => "ended at COMPLETED",
    }
}

fn event_in_words(event: Event) -> String {
    match event {
        Event::Nothing => "nothing",
        Event::OneSecond => "one second passes",
        Event::Reports(state) => return format!("the agent reports {}", short(state)),
        Event::Artifact => "the agent reports an artifact",
        Event::Message => "the agent replies with a message",
        Event::Returns => "the agent returns without an outcome",
        Event::Error => "the agent fails and has attempts left",
        Event::LastError => "the agent fails for the last time",
        Event::SecondAttempt => "a second attempt begins",
        Event::Cancel => "CancelTask",
        Event::CancelObeyed => "CancelTask, and the agent stops",
        Event::CancelOvertaken => "CancelTask, and the agent completes first",
        Event::CancelIgnored => "CancelTask, and the grace period ends",
        Event::Another => "another message for the task",
        Event::AnotherWorking => "another message, and the agent reports WORKING",
        Event::AnotherMessage => "another message, and the agent replies with one",
        Event::Drain => "the server drains",
    }
    .to_owned()
}

fn seen_in_words(sees: Sees) -> String {
    match sees {
        Nobody => "",
        Waits => "waits",
        Sees::Task(state) => return short(state).to_owned(),
        Reply => "the message",
        NotFound => "not found",
        Unsupported => "UNSUPPORTED",
        NotCancelable => "NOT_CANCELABLE",
        Unavailable => "UNAVAILABLE",
        Stored => "stored",
        Refused => "refused",
    }
    .to_owned()
}

fn rendered() -> String {
    let mut text = String::from(
        "| task | its first turn | what happens | whoever does it | the sender, waiting | GetTask, ListTasks | sent again, waiting | sent again, at once |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for Row(task, turn, event, actor, sender, read, again, at_once) in TABLE {
        let task = if *task == Hidden { "hidden" } else { "shown" };
        let seen = [actor, sender, read, again, at_once].map(|sees| seen_in_words(*sees));
        let (turn, event) = (turn_in_words(*turn), event_in_words(*event));
        writeln!(text, "| {task} | {turn} | {event} | {} |", seen.join(" | ")).unwrap();
    }
    text
}

#[test]
fn the_document_holds_the_table_that_is_run() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/architecture.md");
    let document = std::fs::read_to_string(path).unwrap();
    let table = rendered();
    assert!(document.contains(&table), "docs/architecture.md must hold this table:\n\n{table}");
}

// --- the table as a test ------------------------------------------------------------------------

/// Which store.
#[derive(Debug, Clone, Copy)]
enum On {
    Sqlite,
    Postgres,
}

/// One row's world.
struct World {
    bench: Bench,
    ada: Call,
    message: v1::Message,
    id: TaskId,
    sent: Option<Sent>,
    puppet: Option<Puppet>,
    acted: Acted,
    _busy: Option<Puppet>,
}

/// What whoever acts is waiting for, or was told.
enum Acted {
    Told(Sees),
    Sent(Sent),
    Canceling(Canceling),
}

fn settings(row: &Row) -> Settings {
    let Row(_, turn, event, ..) = row;
    let soon = |is: bool| if is { A_WHILE } else { still().grace };
    // A second that passes after the reply must not pass before it on a busy machine.
    let passes_by_itself = *event == Event::OneSecond && *turn != Replied;
    Settings {
        runners: if *turn == Queued { 1 } else { 8 },
        show_after: soon(passes_by_itself),
        grace: soon(*event == Event::CancelIgnored),
        max_attempts: if *event == Event::LastError { 1 } else { 3 },
        retry_pause: if *event == Event::SecondAttempt {
            Duration::from_millis(20)
        } else {
            Duration::from_secs(3600)
        },
        ..still()
    }
}

async fn world(row: &Row, on: On) -> World {
    let Row(task, turn, ..) = row;
    let bench = match on {
        On::Sqlite => Bench::new(settings(row)).await,
        On::Postgres => Bench::on_postgres(settings(row)).await,
    };
    let ada = named("ada");
    let message = bench.message("x");
    let busy = if *turn == Queued { Some(bench.task("busy").await.1) } else { None };
    let sent = bench.sends(&ada, message.clone());
    let (id, puppet) = if *turn == Queued {
        (queued(&bench, &ada, &message).await, None)
    } else {
        let puppet = bench.puppet().await;
        (puppet.turn.task, Some(puppet))
    };
    let acted = Acted::Told(Nobody);
    let mut world = World { bench, ada, message, id, sent: Some(sent), puppet, acted, _busy: busy };
    if *task == Shown {
        world.bench.store.show(&world.scope(), id).await.unwrap();
    }
    match turn {
        Queued | Running => {}
        Resting => world.fails().await,
        Replied => world.puppet().reply("hello").await.unwrap(),
        Asked => world.puppet().status(InputRequired, "?").await.unwrap(),
        Ended => world.puppet().status(Completed, "").await.unwrap(),
    }
    if matches!(turn, Replied | Asked | Ended) {
        world.sent.as_ref().expect("it was sent").answered().await;
    }
    world
}

/// The task of a message that waits for a runner. The sender is told of nothing yet, so the store
/// is asked as for a repeat; this finds a message and never stores one.
async fn queued(bench: &Bench, ada: &Call, message: &v1::Message) -> TaskId {
    let scope = Scope::new(Tenant::default_tenant(), ada.caller.principal().clone());
    let accept = store::Accept {
        message: message.clone(),
        dedupe: Some(store::Dedupe {
            context: String::new(),
            task: String::new(),
            digest: Sha256::digest(message.encode_to_vec()).into(),
            window: Duration::from_secs(60),
        }),
        target: store::Target::Existing { task: TaskId::generate(), context: None },
        request: store::TurnRequest::default(),
        lease: None,
    };
    until(|| async {
        let found = bench.store.accept(&scope, &accept).await.unwrap();
        if let store::Accepted::Repeat(turn) = found { Some(turn.task) } else { None }
    })
    .await
}

impl World {
    fn puppet(&self) -> &Puppet {
        self.puppet.as_ref().expect("a turn runs")
    }

    async fn fails(&mut self) {
        let puppet = self.puppet.take().expect("a turn runs");
        puppet.returns(Err(AgentError::new("no luck"))).await;
    }

    fn cancels(&self) -> Acted {
        Acted::Canceling(self.bench.cancels(&self.ada, &self.id.to_string()))
    }

    fn sends_another(&self) -> Sent {
        let another = v1::Message { task_id: self.id.to_string(), ..self.bench.message("y") };
        self.bench.sends(&self.ada, another)
    }

    fn scope(&self) -> Scope {
        Scope::new(Tenant::default_tenant(), self.ada.caller.principal().clone())
    }

    async fn happens(&mut self, turn: Turn, event: Event) {
        let said =
            |result: Result<(), _>| Acted::Told(if result.is_ok() { Stored } else { Refused });
        match event {
            Event::Nothing => {}
            Event::OneSecond if turn == Replied => {
                let shown = self.bench.store.show(&self.scope(), self.id).await.unwrap();
                assert_eq!(shown, store::Shown::Replied, "as when the time is over");
            }
            Event::OneSecond => tokio::time::sleep(A_WHILE * 2).await,
            Event::Reports(state) => self.acted = said(self.puppet().status(state, "").await),
            Event::Artifact => {
                self.acted = said(self.puppet().chunk(chunk("a", "1"), false, true).await);
            }
            Event::Message => self.acted = said(self.puppet().reply("hello").await),
            Event::Returns => {
                let puppet = self.puppet.take().expect("a turn runs");
                puppet.returns(Ok(())).await;
            }
            Event::Error | Event::LastError => self.fails().await,
            Event::SecondAttempt => self.puppet = Some(self.bench.puppet().await),
            Event::Cancel => self.acted = self.cancels(),
            Event::CancelObeyed | Event::CancelOvertaken => {
                self.acted = self.cancels();
                self.puppet().canceled().await;
                let end = if event == Event::CancelObeyed { Canceled } else { Completed };
                self.puppet().status(end, "").await.unwrap();
            }
            Event::CancelIgnored => {
                self.acted = self.cancels();
                self.puppet().stopped().await;
            }
            Event::Another => self.acted = Acted::Sent(self.sends_another()),
            Event::AnotherWorking | Event::AnotherMessage => {
                self.acted = Acted::Sent(self.sends_another());
                let next = self.bench.puppet().await;
                if event == Event::AnotherWorking {
                    next.status(Working, "").await.unwrap();
                } else {
                    next.reply("hello").await.unwrap();
                }
                self.puppet = Some(next);
            }
            Event::Drain => self.bench.service.drain(),
        }
    }
}

fn sees(answer: Result<v1::SendMessageResponse, Error>) -> Sees {
    match answer {
        Ok(response) => match response.payload.expect("one of both") {
            Payload::Task(task) => t(state(&task)),
            Payload::Message(message) => {
                assert!(message.task_id.is_empty() && !message.context_id.is_empty(), "SEND-18");
                Reply
            }
        },
        Err(error) => refused(&error),
    }
}

fn refused(error: &Error) -> Sees {
    let known = [
        (matches!(error, Error::TaskNotFound), NotFound),
        (matches!(error, Error::Unsupported(_)), Unsupported),
        (matches!(error, Error::TaskNotCancelable { .. }), NotCancelable),
        (matches!(error, Error::ShuttingDown), Unavailable),
    ];
    let found = known.iter().find(|(is_it, _)| *is_it);
    found.map_or_else(|| panic!("{error:?}"), |(_, sees)| *sees)
}

/// What a send gets, which is expected to be `expected`.
async fn sender_sees(mut sent: Sent, expected: Sees) -> Sees {
    if expected == Waits {
        return if sent.waits().await { Waits } else { sees(sent.answer().await) };
    }
    sees(sent.answer().await)
}

async fn actor_sees(acted: Acted, expected: Sees) -> Sees {
    match acted {
        Acted::Told(sees) => sees,
        Acted::Sent(sent) => sender_sees(sent, expected).await,
        Acted::Canceling(mut canceling) => {
            if expected == Waits && canceling.waits().await {
                return Waits;
            }
            canceling.answer().await.map_or_else(|error| refused(&error), |task| t(state(&task)))
        }
    }
}

/// What GetTask says, once it says what is expected; ListTasks must agree.
async fn reader_sees(world: &World, expected: Sees) -> Sees {
    let id = world.id.to_string();
    let read = || async {
        let read = world.bench.get(&world.ada, &id).await;
        read.map_or_else(|error| refused(&error), |task| t(state(&task)))
    };
    let settled = async {
        while read().await != expected {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let _late = tokio::time::timeout(Duration::from_secs(5), settled).await;
    let sees = read().await;
    let listed = world.bench.list(&world.ada).await;
    assert_eq!(i32::from(sees != NotFound), listed.total_size);
    assert_eq!(listed.tasks.len(), usize::from(sees != NotFound));
    let stranger = named("bob");
    assert!(matches!(world.bench.get(&stranger, &id).await, Err(Error::TaskNotFound)));
    assert_eq!(world.bench.list(&stranger).await.total_size, 0);
    sees
}

async fn run(row: &Row, on: On) -> Result<(), String> {
    let Row(_, turn, event, actor, sender, read, again, at_once) = row;
    let mut world = world(row, on).await;
    world.happens(*turn, *event).await;
    let acted = std::mem::replace(&mut world.acted, Acted::Told(Nobody));
    let repeated = |world: &World| world.bench.sends(&world.ada, world.message.clone());
    let mut found = vec![actor_sees(acted, *actor).await];
    let read_before = reader_sees(&world, *read).await;
    let sent = world.sent.take().expect("nobody took it before");
    found.push(sender_sees(sent, *sender).await);
    found.push(read_before);
    found.push(sender_sees(repeated(&world), *again).await);
    found.push(sees(world.bench.posts(&world.ada, world.message.clone()).await));
    world.bench.close().await;
    let expected = vec![*actor, *sender, *read, *again, *at_once];
    if found == expected {
        return Ok(());
    }
    let task = row.0;
    Err(format!("{task:?} {turn:?} {event:?}:\n  table {expected:?}\n  found {found:?}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_table_holds_on_sqlite() {
    all(On::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_table_holds_on_postgres() {
    all(On::Postgres).await;
}

async fn all(on: On) {
    // Each row has a database and its connections, of which a server has only so many.
    let places = Arc::new(Semaphore::new(8));
    let one = |row| {
        let places = Arc::clone(&places);
        tokio::spawn(async move {
            let _place = places.acquire().await;
            run(row, on).await
        })
    };
    let rows: Vec<_> = TABLE.iter().map(one).collect();
    let mut faults = Vec::new();
    for (row, ran) in TABLE.iter().zip(rows) {
        match ran.await {
            Ok(Ok(())) => {}
            Ok(Err(fault)) => faults.push(fault),
            Err(broken) => faults.push(format!("{:?} {:?} {:?}: {broken}", row.0, row.1, row.2)),
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
