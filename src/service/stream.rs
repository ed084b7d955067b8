//! SendStreamingMessage and SubscribeToTask: a first item, and then the log as it grows.
//!
//! The log is the truth and a hint only says that it is time to read it, so all streams of a task,
//! on every server, send the same items in the same order (EVT-01, EVT-04). A stream reads when
//! its client takes items and holds no more than one read of the log.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use tokio::sync::futures::OwnedNotified;
use tokio::time::{Instant, sleep};

use crate::contract::v1::stream_response::Payload;
use crate::contract::v1::{self, TaskState};
use crate::domain::{Error, Scope, TaskId};
use crate::service::log::Log;
use crate::service::quotas::Stream as Place;
use crate::service::send::{Arrived, Sent};
use crate::service::settings::StreamEnds;
use crate::service::{Call, Inner};
use crate::store::{AcceptedTurn, Event, TaskRecord, View};

/// An item of a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Streamed {
    /// How far the task was: the event's own generation, for a task the one it was read at, and 0
    /// for a direct message. A stream can be resumed after it.
    pub generation: i64,
    /// What is sent.
    pub response: v1::StreamResponse,
}

impl Streamed {
    fn new(generation: i64, payload: Payload) -> Self {
        Self { generation, response: v1::StreamResponse { payload: Some(payload) } }
    }
}

/// The items of a streaming call, read as they are taken. After an error comes nothing.
pub type EventStream = BoxStream<'static, Result<Streamed, Error>>;

/// How many streams are open.
#[derive(Debug, Clone, Default)]
pub(super) struct Gauge(Arc<AtomicUsize>);

impl Gauge {
    pub(super) fn read(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn enter(&self) -> Open {
        self.0.fetch_add(1, Ordering::Relaxed);
        Open(self.clone())
    }
}

/// One open stream.
struct Open(Gauge);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The event after which a stream ends: an end of the task, or an interruption by this turn or a
/// later one of the kind that the settings name (SUB-03, STR-04, AMB-04).
#[derive(Clone, Copy)]
struct Until {
    turn: i64,
    ends: StreamEnds,
}

impl Until {
    fn is(self, event: &Event) -> bool {
        let Some(Payload::StatusUpdate(update)) = &event.response.payload else { return false };
        let state = update.status.as_ref().map_or(TaskState::Unspecified, |status| status.state());
        state.is_terminal() || (self.ends.at(state) && event.turn >= self.turn)
    }
}

/// A stream under way.
struct Follow {
    inner: Arc<Inner>,
    log: Arc<Log>,
    first: Option<Box<Streamed>>,
    /// Read and not yet taken.
    ready: VecDeque<Arc<Event>>,
    /// The generation of what was taken last.
    at: i64,
    until: Until,
    /// Armed before `at` was read, so that the log need not be read before it fires.
    armed: Option<OwnedNotified>,
    over: bool,
    failed: bool,
    /// Since when the store does not answer.
    failing_since: Option<Instant>,
    _open: Open,
}

impl Follow {
    fn new(inner: &Arc<Inner>, log: Arc<Log>, until: Until, at: i64) -> Self {
        Self {
            _open: inner.streams.enter(),
            inner: Arc::clone(inner),
            log,
            first: None,
            ready: VecDeque::new(),
            at,
            until,
            armed: None,
            over: false,
            failed: false,
            failing_since: None,
        }
    }

    fn stream(self) -> EventStream {
        stream::unfold(self, async |mut follow| follow.next().await.map(|item| (item, follow)))
            .boxed()
    }

    async fn next(&mut self) -> Option<Result<Streamed, Error>> {
        loop {
            if let Some(first) = self.first.take() {
                self.inner.metrics.stream_events.one([]);
                return Some(Ok(*first));
            }
            if self.over {
                return None;
            }
            if let Some(event) = self.ready.pop_front() {
                self.at = event.generation;
                self.over = self.until.is(&event);
                let response = event.response.clone();
                self.inner.metrics.stream_events.one([]);
                return Some(Ok(Streamed { generation: event.generation, response }));
            }
            if let Err(error) = self.more().await {
                self.over = true;
                self.failed = true;
                return Some(Err(error));
            }
        }
    }

    /// Waits until there may be more to send.
    async fn more(&mut self) -> Result<(), Error> {
        // Free the memory of a burst: the next one may be far away.
        self.ready.shrink_to(0);
        let is_read = self.armed.is_some();
        let changed = self.armed.take().unwrap_or_else(|| self.log.armed());
        // Whoever says that the server drains wakes all hints afterwards.
        if self.inner.drain.is_cancelled() {
            return Err(Error::ShuttingDown);
        }
        if !is_read && self.read().await? {
            return Ok(());
        }
        let mut changed = std::pin::pin!(changed);
        loop {
            let pause = self.pause();
            tokio::select! {
                () = &mut changed => return Ok(()),
                () = sleep(pause) => {}
            }
            // Of many streams that follow one task, one looks.
            if self.failing_since.is_some() || !self.log.looked_within(pause / 2) {
                self.log.rest();
                return Ok(());
            }
        }
    }

    /// Reads on. Whether there was something. A store that does not answer is waited for a while.
    async fn read(&mut self) -> Result<bool, Error> {
        match self.log.after(self.at).await {
            Ok(Some(events)) => {
                self.failing_since = None;
                self.ready.extend(events);
                Ok(!self.ready.is_empty())
            }
            Ok(None) => self.as_it_ended().await,
            Err(error @ Error::Unavailable(_)) => {
                let since = *self.failing_since.get_or_insert_with(Instant::now);
                if since.elapsed() < self.inner.settings.stream_patience {
                    return Ok(false);
                }
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    /// The events are gone, with the task or before it. The task as it ended holds all that they
    /// would have said.
    async fn as_it_ended(&mut self) -> Result<bool, Error> {
        let history = self.inner.settings.history_default;
        let view = View { history, artifacts: true, hidden: false };
        let record = self.log.task(view).await?.ok_or(Error::TaskNotFound)?;
        if !state_of(&record).is_terminal() {
            return Err(Error::internal("a log is gone before its task has ended"));
        }
        let task = Payload::Task(self.inner.fitting(record.task)?);
        self.first = Some(Box::new(Streamed::new(record.generation, task)));
        self.over = true;
        Ok(true)
    }

    /// How long to wait for a hint: within a quarter of the setting, by task, so that streams that
    /// began at one time do not look at one time.
    fn pause(&self) -> Duration {
        let settings = &self.inner.settings;
        if self.failing_since.is_some() {
            return settings.poll;
        }
        settings.stream_poll * (192 + self.log.spread() / 2) / 256
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        let how = match (self.failed, self.over) {
            (true, _) => "failed",
            (false, true) => "done",
            (false, false) => "left",
        };
        self.inner.metrics.streams_ended.one([("how", how)]);
    }
}

impl Inner {
    pub(super) async fn send_streaming_message(
        self: &Arc<Self>,
        call: &Call,
        request: v1::SendMessageRequest,
    ) -> Result<EventStream, Error> {
        let place = self.place_of(call, &request.tenant)?;
        let begins_with = request.message.clone().filter(|message| message.task_id.is_empty());
        let Sent { scope, arrived, history, at_once } = self.take_in(call, request).await?;
        let events = match begins_with {
            Some(message) if !arrived.is_repeat => {
                let history = if history > 0 { vec![message] } else { Vec::new() };
                self.from_the_beginning(&scope, arrived, history).await?
            }
            _ => {
                if at_once && arrived.is_repeat {
                    // The first call may have waited for a direct reply; this one does not.
                    self.store.show(&scope, arrived.turn.task).await?;
                }
                self.from_here(&scope, &arrived.turn, history).await?
            }
        };
        Ok(held(place, events))
    }

    /// A task that begins with the message is told from its first event on, so that its sender
    /// sees all that happens, however fast. The first item waits until it is known that the agent
    /// does not answer with a message alone (STR-02).
    async fn from_the_beginning(
        self: &Arc<Self>,
        scope: &Scope,
        arrived: Arrived,
        history: Vec<v1::Message>,
    ) -> Result<EventStream, Error> {
        let AcceptedTurn { task, turn, .. } = arrived.turn;
        let mut showing = self.showing(scope, task);
        let log = self.logs.open(scope, task);
        if let Some((_hint, change)) = arrived.first_change {
            self.change(change, showing.at).await?;
            showing.look().await?;
        }
        let mut has_ended = false;
        let mut events = loop {
            let changed = log.armed();
            if let Some(events) = log.after(0).await? {
                showing.at = None;
                break VecDeque::from(events);
            }
            let glance = View { hidden: true, ..View::default() };
            let record = self.store.task(scope, task, glance).await?.ok_or(Error::TaskNotFound)?;
            if let Some(reply) = record.reply {
                showing.at = None;
                return Ok(self.just(reply));
            }
            if !record.shown {
                self.change(changed, showing.at).await?;
                showing.look().await?;
            } else if has_ended {
                // Whoever waited so long finds no events any more.
                showing.at = None;
                let shown = u32::try_from(history.len()).unwrap_or(u32::MAX);
                return self.from_here(scope, &arrived.turn, shown).await;
            }
            has_ended = state_of(&record).is_terminal();
        };
        let begun = events.pop_front().ok_or_else(|| Error::internal("a log is empty"))?;
        let Some(Payload::StatusUpdate(update)) = begun.response.payload.clone() else {
            return Err(Error::internal("a log does not begin with a status"));
        };
        let named = |message: v1::Message| v1::Message {
            task_id: update.task_id.clone(),
            context_id: update.context_id.clone(),
            ..message
        };
        let first = v1::Task {
            history: history.into_iter().map(named).collect(),
            id: update.task_id.clone(),
            context_id: update.context_id.clone(),
            status: update.status,
            ..Default::default()
        };
        let mut follow = Follow::new(self, log, self.until_settled(turn), begun.generation);
        follow.first = Some(Box::new(Streamed::new(begun.generation, Payload::Task(first))));
        follow.ready = events;
        Ok(follow.stream())
    }

    /// A task that was there before the message, or the repeat of one: told as it is now, and from
    /// there on.
    async fn from_here(
        self: &Arc<Self>,
        scope: &Scope,
        accepted: &AcceptedTurn,
        history: u32,
    ) -> Result<EventStream, Error> {
        let mut showing = self.showing(scope, accepted.task);
        let log = self.logs.open(scope, accepted.task);
        loop {
            let changed = log.armed();
            let record = self.whole(scope, accepted.task, history).await?;
            let record = record.ok_or(Error::TaskNotFound)?;
            if record.shown || record.reply.is_some() {
                showing.at = None;
            }
            if let Some(reply) = record.reply {
                return Ok(self.just(reply));
            }
            if record.shown {
                let over = self.has_settled(scope, accepted, &record).await?;
                let until = self.until_settled(accepted.turn);
                let mut follow = Follow::new(self, log, until, record.generation);
                let task = Payload::Task(self.fitting(record.task)?);
                follow.first = Some(Box::new(Streamed::new(record.generation, task)));
                follow.armed = Some(changed);
                follow.over = over;
                return Ok(follow.stream());
            }
            self.change(changed, showing.at).await?;
            showing.look().await?;
        }
    }

    /// Whether a stream of `accepted` would have ended by now. That the task was interrupted does
    /// not say by what, so the event is looked at.
    async fn has_settled(
        &self,
        scope: &Scope,
        accepted: &AcceptedTurn,
        record: &TaskRecord,
    ) -> Result<bool, Error> {
        if state_of(record).is_terminal() {
            return Ok(true);
        }
        let Some(interrupted) = record.interrupted.filter(|_| record.settles(accepted)) else {
            return Ok(false);
        };
        let before = interrupted.generation - 1;
        let events = self.store.events_after(scope, accepted.task, before, 1).await?;
        let event = events.and_then(|events| events.into_iter().next());
        Ok(event.is_some_and(|event| self.until_settled(accepted.turn).is(&event)))
    }

    fn until_settled(&self, turn: i64) -> Until {
        Until { turn, ends: self.settings.send_stream_ends }
    }

    /// A stream of one message (STR-02).
    fn just(&self, reply: v1::Message) -> EventStream {
        let open = self.streams.enter();
        let item = Streamed::new(0, Payload::Message(reply));
        let whole_life = move |item| {
            let _open = &open;
            Ok(item)
        };
        stream::iter([item]).map(whole_life).boxed()
    }

    pub(super) async fn subscribe_to_task(
        self: &Arc<Self>,
        call: &Call,
        request: v1::SubscribeToTaskRequest,
        after: Option<i64>,
    ) -> Result<EventStream, Error> {
        if request.id.is_empty() {
            return Err(Error::invalid("id", "must be set"));
        }
        let place = self.place_of(call, &request.tenant)?;
        let scope = Self::scope_of_task(call, &request.tenant)?;
        let task = TaskId::parse(&request.id).ok_or(Error::TaskNotFound)?;
        if self.drain.is_cancelled() {
            return Err(Error::ShuttingDown);
        }
        let until = Until { turn: 0, ends: self.settings.subscribe_ends };
        let log = self.logs.open(&scope, task);
        let armed = log.armed();
        if let Some(after) = after.filter(|_| call.wants_cursor()) {
            let record = self.store.task(&scope, task, View::default()).await?;
            let record = record.ok_or(Error::TaskNotFound)?;
            if !(0..=record.generation).contains(&after) {
                let right = "must be the id of an event of this task";
                return Err(Error::invalid("last-event-id", right));
            }
            let mut follow = Follow::new(self, log, until, after);
            if after == record.generation {
                follow.over = state_of(&record).is_terminal();
                follow.armed = Some(armed);
            }
            return Ok(held(place, follow.stream()));
        }
        let view = View { history: self.settings.history_default, artifacts: true, hidden: false };
        let record = self.store.task(&scope, task, view).await?.ok_or(Error::TaskNotFound)?;
        let state = state_of(&record);
        if state.is_terminal() {
            let state = state.as_str_name();
            return Err(Error::Unsupported(format!(
                "the task has ended ({state}) and has no more events; read it with GetTask"
            )));
        }
        let mut follow = Follow::new(self, log, until, record.generation);
        let first = Payload::Task(self.fitting(record.task)?);
        follow.first = Some(Box::new(Streamed::new(record.generation, first)));
        follow.armed = Some(armed);
        Ok(held(place, follow.stream()))
    }

    /// A place among the streams of the caller and of the tenant. A tenant that is not the
    /// caller's has none to give and is refused later.
    fn place_of(&self, call: &Call, tenant: &str) -> Result<Option<Place>, Error> {
        match Self::scope(call, tenant) {
            Ok(scope) => self.meter.stream(&call.caller, scope.tenant()),
            Err(_) => Ok(None),
        }
    }
}

/// `events`, whose place comes free with them.
fn held(place: Option<Place>, events: EventStream) -> EventStream {
    let Some(place) = place else { return events };
    events
        .map(move |item| {
            let _place = &place;
            item
        })
        .boxed()
}

fn state_of(record: &TaskRecord) -> TaskState {
    record.task.status.as_ref().map_or(TaskState::Unspecified, |status| status.state())
}
