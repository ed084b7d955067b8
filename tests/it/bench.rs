//! A service on a real store, with an agent on strings: a test says what each turn does and when.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use a2ad::agent::{Agent, AgentError, AgentTurn, Refused, TurnHandle, text_part};
use a2ad::contract::v1::{self, TaskState};
use a2ad::contract::wkt::Struct;
use a2ad::domain::page::{KeyRing, PageTokens};
use a2ad::domain::{Caller, Clock, Error, Principal, SystemClock, Tenants};
use a2ad::service::offers::Offers;
use a2ad::service::{Call, Service, Settings};
use a2ad::store::Store;
use a2ad::store::sqlite::{self, Location, Sqlite};

use crate::support::postgres;

/// How long a test waits for what must happen.
pub(crate) const SOON: Duration = Duration::from_secs(20);
/// How long a test watches that something does not happen. Too short can only hide a fault.
pub(crate) const A_WHILE: Duration = Duration::from_millis(60);

/// `future`, which must end.
pub(crate) async fn soon<F: Future>(future: F) -> F::Output {
    timeout(SOON, future).await.expect("this should have happened by now")
}

/// Asks until `answer` is there.
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(mut answer: impl FnMut() -> F) -> T {
    soon(async {
        loop {
            if let Some(answer) = answer().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
}

/// An agent on strings. Every turn that begins goes to the test, which pulls.
#[derive(Debug)]
pub(crate) struct Puppets {
    turns: mpsc::Sender<Puppet>,
    modes: Vec<String>,
}

/// One attempt at a turn, held by the test. While it is held, the attempt goes on.
#[derive(Debug)]
pub(crate) struct Puppet {
    pub(crate) turn: AgentTurn,
    strings: mpsc::Sender<Pull>,
}

/// What a test makes an attempt do; the answer says what the handle said.
#[derive(Debug)]
enum Pull {
    Status(TaskState, String, oneshot::Sender<Result<(), Refused>>),
    Chunk(v1::Artifact, bool, bool, oneshot::Sender<Result<(), Refused>>),
    Reply(v1::Message, oneshot::Sender<Result<(), Refused>>),
    Flush(oneshot::Sender<Result<(), Refused>>),
    Canceled(oneshot::Sender<Option<Struct>>),
    Return(Result<(), AgentError>),
    Panic,
}

#[async_trait]
impl Agent for Puppets {
    fn card(&self) -> v1::AgentCard {
        v1::AgentCard { default_input_modes: self.modes.clone(), ..Default::default() }
    }

    async fn run(&self, turn: AgentTurn, handle: &mut TurnHandle) -> Result<(), AgentError> {
        let (strings, mut pulled) = mpsc::channel(1);
        let _gone = self.turns.send(Puppet { turn, strings }).await;
        while let Some(string) = pulled.recv().await {
            match string {
                Pull::Status(state, text, done) => {
                    let _gone = done.send(handle.say_status(state, &text).await);
                }
                Pull::Chunk(artifact, append, last, done) => {
                    let _gone = done.send(handle.chunk(artifact, append, last).await);
                }
                Pull::Reply(message, done) => {
                    let _gone = done.send(handle.reply(message).await);
                }
                Pull::Flush(done) => {
                    let _gone = done.send(handle.flush().await);
                }
                Pull::Canceled(told) => {
                    let _gone = told.send(handle.canceled().await);
                }
                Pull::Return(result) => return result,
                Pull::Panic => panic!("as the test asked"),
            }
        }
        // A test that let go of its puppet wants an attempt that never ends.
        std::future::pending().await
    }
}

pub(crate) fn chunk(id: &str, text: &str) -> v1::Artifact {
    v1::Artifact { artifact_id: id.to_owned(), parts: vec![text_part(text)], ..Default::default() }
}

pub(crate) fn words(text: &str) -> v1::Message {
    v1::Message { parts: vec![text_part(text)], ..Default::default() }
}

impl Puppet {
    async fn pull<T>(&self, string: impl FnOnce(oneshot::Sender<T>) -> Pull) -> Option<T> {
        let (done, answer) = oneshot::channel();
        self.strings.send(string(done)).await.ok()?;
        answer.await.ok()
    }

    /// Reports a status and waits until it is stored.
    pub(crate) async fn status(&self, state: TaskState, text: &str) -> Result<(), Refused> {
        let text = text.to_owned();
        let said = soon(self.pull(|done| Pull::Status(state, text, done))).await;
        said.unwrap_or(Err(Refused::LeaseLost))?;
        self.flush().await
    }

    pub(crate) async fn chunk(
        &self,
        artifact: v1::Artifact,
        append: bool,
        last: bool,
    ) -> Result<(), Refused> {
        let said = soon(self.pull(|done| Pull::Chunk(artifact, append, last, done))).await;
        said.unwrap_or(Err(Refused::LeaseLost))?;
        self.flush().await
    }

    pub(crate) async fn reply(&self, text: &str) -> Result<(), Refused> {
        let said = soon(self.pull(|done| Pull::Reply(words(text), done))).await;
        said.unwrap_or(Err(Refused::LeaseLost))?;
        self.flush().await
    }

    pub(crate) async fn flush(&self) -> Result<(), Refused> {
        soon(self.pull(Pull::Flush)).await.unwrap_or(Err(Refused::LeaseLost))
    }

    /// Waits until the attempt is told of a cancel.
    pub(crate) async fn canceled(&self) -> Option<Struct> {
        soon(self.pull(Pull::Canceled)).await.expect("the attempt is still there")
    }

    pub(crate) async fn returns(self, result: Result<(), AgentError>) {
        let _gone = self.strings.send(Pull::Return(result)).await;
        soon(self.strings.closed()).await;
    }

    pub(crate) async fn panics(self) {
        let _gone = self.strings.send(Pull::Panic).await;
        soon(self.strings.closed()).await;
    }

    /// Waits until the service stops the attempt.
    pub(crate) async fn stopped(&self) {
        soon(self.strings.closed()).await;
    }

    /// Whether the service has stopped the attempt.
    pub(crate) fn is_stopped(&self) -> bool {
        self.strings.is_closed()
    }
}

/// The time as it passes, and as far ahead as a test has moved it.
#[derive(Debug, Default)]
pub(crate) struct Moved(AtomicI64);

impl Moved {
    pub(crate) fn advance(&self, by: Duration) {
        self.0.fetch_add(i64::try_from(by.as_micros()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for Moved {
    fn now_us(&self) -> i64 {
        SystemClock.now_us() + self.0.load(Ordering::SeqCst)
    }
}

/// A service with everything around it. Clones are the same bench.
#[derive(Clone)]
pub(crate) struct Bench {
    pub(crate) service: Service,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<Moved>,
    turns: Arc<tokio::sync::Mutex<mpsc::Receiver<Puppet>>>,
    ids: Arc<Mutex<u32>>,
}

/// Settings for tests: nothing that waits for time happens unless a test moves it.
pub(crate) fn still() -> Settings {
    Settings {
        show_after: Duration::from_secs(3600),
        grace: Duration::from_secs(3600),
        retry_pause: Duration::ZERO,
        poll: Duration::from_millis(20),
        renew: Duration::from_millis(20),
        ..Settings::default()
    }
}

fn tokens() -> PageTokens {
    let keys = KeyRing::parse(&format!("k1:{}", "ab".repeat(32))).unwrap();
    PageTokens::new(keys, Duration::from_secs(600))
}

fn puppets(modes: &[&str]) -> (Arc<dyn Agent>, mpsc::Receiver<Puppet>) {
    let (sender, turns) = mpsc::channel(64);
    let modes = modes.iter().map(|&mode| mode.to_owned()).collect();
    (Arc::new(Puppets { turns: sender, modes }), turns)
}

async fn empty() -> (Arc<dyn Store>, Arc<Moved>) {
    let clock = Arc::new(Moved::default());
    let place = sqlite::Settings::new(Location::Memory, Arc::<Moved>::clone(&clock));
    (Arc::new(Sqlite::open(place).await.unwrap()), clock)
}

impl Bench {
    pub(crate) async fn new(settings: Settings) -> Self {
        Self::with_modes(settings, &["*/*"]).await
    }

    pub(crate) async fn with_modes(settings: Settings, modes: &[&str]) -> Self {
        let (agent, turns) = puppets(modes);
        let (store, clock) = empty().await;
        Self::on(store, clock, agent, turns, settings)
    }

    /// A bench whose agent needs no strings.
    pub(crate) async fn playing(agent: Arc<dyn Agent>, settings: Settings) -> Self {
        let (_, turns) = puppets(&[]);
        let (store, clock) = empty().await;
        Self::on(store, clock, agent, turns, settings)
    }

    /// A bench on a store of the test's own, with an agent that needs no strings if one is given.
    pub(crate) fn over(
        store: Arc<dyn Store>,
        agent: Option<Arc<dyn Agent>>,
        settings: Settings,
    ) -> Self {
        let (puppets, turns) = puppets(&["*/*"]);
        Self::on(store, Arc::default(), agent.unwrap_or(puppets), turns, settings)
    }

    /// A bench on a PostgreSQL database of its own.
    pub(crate) async fn on_postgres(settings: Settings) -> Self {
        let clock = Arc::new(Moved::default());
        let url = postgres::fresh_url().await;
        let store = postgres::open(&url, Some(Arc::<Moved>::clone(&clock) as Arc<dyn Clock>)).await;
        let (agent, turns) = puppets(&["*/*"]);
        Self::on(Arc::new(store), clock, agent, turns, settings)
    }

    /// Stops what runs and gives back its connections.
    pub(crate) async fn close(self) {
        self.service.drain();
        self.service.stopped(A_WHILE).await;
        self.store.close().await;
    }

    fn on(
        store: Arc<dyn Store>,
        clock: Arc<Moved>,
        agent: Arc<dyn Agent>,
        turns: mpsc::Receiver<Puppet>,
        settings: Settings,
    ) -> Self {
        let offers = Offers::new(agent.card(), None);
        let service = Service::start(
            Arc::clone(&store),
            agent,
            offers,
            tokens(),
            Arc::<Moved>::clone(&clock),
            settings,
            a2ad::metrics::Metrics::default(),
        );
        let turns = Arc::new(tokio::sync::Mutex::new(turns));
        Self { service, store, clock, turns, ids: Arc::default() }
    }

    /// Another service on the same store, as after a restart or on another server.
    pub(crate) fn beside(&self, settings: Settings) -> Self {
        let (agent, turns) = puppets(&["*/*"]);
        Self::on(Arc::clone(&self.store), Arc::clone(&self.clock), agent, turns, settings)
    }

    /// The next attempt that the service begins.
    pub(crate) async fn puppet(&self) -> Puppet {
        soon(async { self.turns.lock().await.recv().await }).await.expect("the service is there")
    }

    /// Whether an attempt has begun that no test has taken.
    pub(crate) async fn idle(&self) -> bool {
        timeout(A_WHILE, async { self.turns.lock().await.recv().await }).await.is_err()
    }

    /// A message with a fresh id.
    pub(crate) fn message(&self, text: &str) -> v1::Message {
        let mut ids = self.ids.lock().unwrap();
        *ids += 1;
        v1::Message { message_id: format!("m{ids}"), role: v1::Role::User as i32, ..words(text) }
    }

    /// A blocking send that goes on beside the test.
    pub(crate) fn sends(&self, call: &Call, message: v1::Message) -> Sent {
        self.requests(call, v1::SendMessageRequest { message: Some(message), ..Default::default() })
    }

    pub(crate) fn requests(&self, call: &Call, request: v1::SendMessageRequest) -> Sent {
        let (service, call) = (self.service.clone(), call.clone());
        Sent(tokio::spawn(async move { service.send_message(&call, request).await }))
    }

    /// A send that does not wait.
    pub(crate) async fn posts(
        &self,
        call: &Call,
        message: v1::Message,
    ) -> Result<v1::SendMessageResponse, Error> {
        let request = v1::SendMessageRequest {
            message: Some(message),
            configuration: Some(v1::SendMessageConfiguration {
                return_immediately: true,
                ..Default::default()
            }),
            ..Default::default()
        };
        soon(self.service.send_message(call, request)).await
    }

    /// A new task that is shown and whose first attempt is in the test's hands.
    pub(crate) async fn task(&self, text: &str) -> (v1::Task, Puppet) {
        let task = task(self.posts(&anybody(), self.message(text)).await.unwrap());
        (task, self.puppet().await)
    }

    pub(crate) async fn get(&self, call: &Call, id: &str) -> Result<v1::Task, Error> {
        let request = v1::GetTaskRequest { id: id.to_owned(), ..Default::default() };
        soon(self.service.get_task(call, request)).await
    }

    pub(crate) async fn list(&self, call: &Call) -> v1::ListTasksResponse {
        soon(self.service.list_tasks(call, v1::ListTasksRequest::default())).await.unwrap()
    }

    pub(crate) fn cancels(&self, call: &Call, id: &str) -> Canceling {
        let request = v1::CancelTaskRequest { id: id.to_owned(), ..Default::default() };
        let (service, call) = (self.service.clone(), call.clone());
        Canceling(tokio::spawn(async move { service.cancel_task(&call, request).await }))
    }
}

/// A send under way.
pub(crate) struct Sent(tokio::task::JoinHandle<Result<v1::SendMessageResponse, Error>>);

impl Sent {
    pub(crate) async fn answer(self) -> Result<v1::SendMessageResponse, Error> {
        soon(self.0).await.unwrap()
    }

    pub(crate) async fn task(self) -> v1::Task {
        task(self.answer().await.unwrap())
    }

    /// Whether no answer comes.
    pub(crate) async fn waits(&mut self) -> bool {
        timeout(A_WHILE, &mut self.0).await.is_err()
    }

    /// Waits until the answer is there, and leaves it there.
    pub(crate) async fn answered(&self) {
        until(|| async { self.0.is_finished().then_some(()) }).await;
    }

    /// The caller goes away.
    pub(crate) fn leave(self) {
        self.0.abort();
    }
}

/// A cancel under way.
pub(crate) struct Canceling(tokio::task::JoinHandle<Result<v1::Task, Error>>);

impl Canceling {
    /// Whether no answer comes.
    pub(crate) async fn waits(&mut self) -> bool {
        timeout(A_WHILE, &mut self.0).await.is_err()
    }

    pub(crate) async fn answer(self) -> Result<v1::Task, Error> {
        soon(self.0).await.unwrap()
    }
}

pub(crate) fn anybody() -> Call {
    Call {
        caller: Caller::anonymous(),
        peer: None,
        trace: None,
        extensions: Vec::new(),
        room: None,
    }
}

/// A caller with a principal of its own, for whom repeats are recognised.
pub(crate) fn named(name: &str) -> Call {
    let principal = Principal::parse("principal", &format!("key:{name}")).unwrap();
    Call {
        room: None,
        peer: None,
        extensions: Vec::new(),
        caller: Caller::new(principal, Tenants::Any),
        trace: None,
    }
}

pub(crate) fn task(response: v1::SendMessageResponse) -> v1::Task {
    match response.payload {
        Some(v1::send_message_response::Payload::Task(task)) => task,
        other => panic!("not a task: {other:?}"),
    }
}

pub(crate) fn direct(response: v1::SendMessageResponse) -> v1::Message {
    match response.payload {
        Some(v1::send_message_response::Payload::Message(message)) => message,
        other => panic!("not a message: {other:?}"),
    }
}

pub(crate) fn state(task: &v1::Task) -> TaskState {
    task.status.as_ref().unwrap().state()
}

/// What a task's status says in words.
pub(crate) fn said(task: &v1::Task) -> String {
    let message = task.status.as_ref().and_then(|status| status.message.clone());
    message.map_or_else(String::new, |message| text(&message))
}

pub(crate) fn text(message: &v1::Message) -> String {
    a2ad::agent::text_of(message)
}

/// The texts of an artifact's parts.
pub(crate) fn texts(artifact: &v1::Artifact) -> Vec<String> {
    artifact
        .parts
        .iter()
        .map(|part| text(&v1::Message { parts: vec![part.clone()], ..Default::default() }))
        .collect()
}
