//! The one service behind every binding: a method for each operation of the contract.
//!
//! A method takes who calls and the contract's request, and returns the contract's response or an
//! [`Error`]. Beside the methods run the loops that give turns to the agent and keep the store
//! tidy.

mod cancel;
mod housekeeping;
mod log;
pub mod offers;
pub mod quotas;
mod read;
pub mod retention;
pub mod room;
mod runner;
mod runners;
mod send;
mod settings;
mod stream;
mod validate;
mod wait;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::agent::Agent;
use crate::contract::wkt::Empty;
use crate::contract::{CURSOR_EXTENSION, v1};
use crate::domain::page::PageTokens;
use crate::domain::{Caller, Clock, Error, Scope, Tenant};
use crate::metrics::{Metrics, Number};
use crate::store::Store;

use cancel::Cancels;
use log::Logs;
use offers::{Offers, RequireExtensions};
use quotas::{Class, Meter};
use room::Room;
use runners::Runners;
use stream::Gauge;

pub use settings::{Dedupe, Limits, Settings, StreamEnds};
pub use stream::{EventStream, Streamed};

/// Who makes a call, and in which trace.
#[derive(Debug, Clone)]
pub struct Call {
    /// The caller, as `auth` found it out.
    pub caller: Caller,
    /// The other end of the connection that it came by.
    pub peer: Option<SocketAddr>,
    /// The W3C `traceparent` of the call.
    pub trace: Option<String>,
    /// The extensions that the call names and the card offers, each once.
    pub extensions: Vec<String>,
    /// Room for its answer; none for a call from inside the program, which reads it at once.
    pub room: Option<Room>,
}

impl Call {
    /// What was activated, as in the answer's `A2A-Extensions` (EXT-06); `None` if nothing was.
    #[must_use]
    pub fn activated(&self) -> Option<String> {
        (!self.extensions.is_empty()).then(|| self.extensions.join(", "))
    }
}

impl Call {
    /// Whether the caller wants to know where in a task's log each item of a stream stands, and
    /// may resume there: the extension [`CURSOR_EXTENSION`].
    #[must_use]
    pub fn wants_cursor(&self) -> bool {
        self.extensions.iter().any(|uri| uri == CURSOR_EXTENSION)
    }
}

/// The service. Clones are the same service.
#[derive(Clone)]
pub struct Service {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn Store>,
    offers: Offers,
    /// The media types that the agent takes, in lower case.
    input_modes: Vec<String>,
    page_tokens: PageTokens,
    clock: Arc<dyn Clock>,
    settings: Settings,
    runners: Arc<Runners>,
    cancels: Cancels,
    logs: Logs,
    streams: Gauge,
    meter: Arc<Meter>,
    metrics: Metrics,
    tasks: TaskTracker,
    drain: CancellationToken,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("settings", &self.inner.settings).finish_non_exhaustive()
    }
}

impl Service {
    /// Starts the service and its loops. What `offers` says is offered is what is not refused.
    #[must_use]
    pub fn start(
        store: Arc<dyn Store>,
        agent: Arc<dyn Agent>,
        offers: Offers,
        page_tokens: PageTokens,
        clock: Arc<dyn Clock>,
        settings: Settings,
        metrics: Metrics,
    ) -> Self {
        let tasks = TaskTracker::new();
        let drain = CancellationToken::new();
        let input_modes = validate::input_modes(offers.card());
        let runners =
            Runners::start(&store, agent, &settings, &metrics, (tasks.clone(), drain.clone()));
        let meter = Arc::new(Meter::new(settings.quotas, metrics.clone()));
        housekeeping::start(&store, &settings, (&meter, &metrics), &tasks, &drain);
        tasks.close();
        let inner = Inner {
            logs: Logs::new(Arc::clone(&store)),
            streams: Gauge::default(),
            meter,
            metrics,
            store,
            offers,
            input_modes,
            page_tokens,
            clock,
            settings,
            runners,
            cancels: Cancels::default(),
            tasks,
            drain,
        };
        let service = Self { inner: Arc::new(inner) };
        let watched = Arc::downgrade(&service.inner);
        service.inner.metrics.sample(move || match watched.upgrade() {
            Some(inner) => inner.numbers(),
            None => Vec::new(),
        });
        service
    }

    /// What this service counts.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.inner.metrics
    }

    /// Deletes what has ended as the rules say, until the service drains.
    pub fn retain(&self, rules: retention::Rules) {
        if !rules.retention.is_off() {
            let inner = &self.inner;
            let store = Arc::clone(&inner.store);
            inner.tasks.spawn(retention::keep_house(
                (store, self.inner.metrics.clone()),
                rules,
                inner.drain.clone(),
            ));
        }
    }

    /// What this service offers.
    #[must_use]
    pub fn offers(&self) -> &Offers {
        &self.inner.offers
    }

    /// Takes no new work: waiting callers are told to try again, no turn is claimed any more.
    pub fn drain(&self) {
        self.inner.drain.cancel();
        // Streams wait for nothing but their hints and the time.
        self.inner.store.hints().wake_all();
    }

    /// How many streams are open.
    #[must_use]
    pub fn open_streams(&self) -> usize {
        self.inner.streams.read()
    }

    /// Waits for turns that run, after [`drain`](Self::drain). When `within` is nearly over, the
    /// rest is handed back for another server. Returns whether everything ended or was handed
    /// back in time.
    pub async fn stopped(&self, within: Duration) -> bool {
        let hand_back_after = within.mul_f64(0.8);
        if tokio::time::timeout(hand_back_after, self.inner.tasks.wait()).await.is_ok() {
            return true;
        }
        self.inner.runners.hand_back();
        tokio::time::timeout(within - hand_back_after, self.inner.tasks.wait()).await.is_ok()
    }

    /// SendMessage: stores the message, then answers or waits (SEND-01 to SEND-21).
    ///
    /// # Errors
    /// Every way in which a message can be refused; [`Error::ShuttingDown`] while draining.
    pub async fn send_message(
        &self,
        call: &Call,
        request: v1::SendMessageRequest,
    ) -> Result<v1::SendMessageResponse, Error> {
        self.inner.meter.admit(&call.caller, Class::Send)?;
        self.inner.offers.required_extensions(call)?;
        self.inner.send_message(call, request).await
    }

    /// GetTask: status, artifacts and history of one task (GET-01 to GET-05).
    ///
    /// # Errors
    /// [`Error::TaskNotFound`] for every task that is not the caller's.
    pub async fn get_task(
        &self,
        call: &Call,
        request: v1::GetTaskRequest,
    ) -> Result<v1::Task, Error> {
        self.inner.meter.admit(&call.caller, Class::Get)?;
        self.inner.may_leave_out_extensions(call)?;
        self.inner.get_task(call, request).await
    }

    /// ListTasks: one page, newest status first (LIST-01 to LIST-17).
    ///
    /// # Errors
    /// [`Error::Invalid`] naming every wrong field, or one of the two page token errors.
    pub async fn list_tasks(
        &self,
        call: &Call,
        request: v1::ListTasksRequest,
    ) -> Result<v1::ListTasksResponse, Error> {
        self.inner.meter.admit(&call.caller, Class::List)?;
        self.inner.may_leave_out_extensions(call)?;
        self.inner.list_tasks(call, request).await
    }

    /// CancelTask: asks for the task's end and returns it as it ended (CAN-01 to CAN-08).
    ///
    /// # Errors
    /// [`Error::TaskNotCancelable`] if it had ended before.
    pub async fn cancel_task(
        &self,
        call: &Call,
        request: v1::CancelTaskRequest,
    ) -> Result<v1::Task, Error> {
        self.inner.meter.admit(&call.caller, Class::Cancel)?;
        self.inner.may_leave_out_extensions(call)?;
        self.inner.cancel_task(call, request).await
    }

    /// SendStreamingMessage: stores the message, then streams what becomes of it until the task
    /// has ended or the message's turn, or a later one, asks for input (STR-01 to STR-12). The
    /// stream is returned once its first item is known: errors come before it (SUB-10).
    ///
    /// # Errors
    /// As [`send_message`](Self::send_message); [`Error::Unsupported`] if the card does not offer
    /// streaming. As an item of the stream: [`Error::ShuttingDown`], and [`Error::Unavailable`] if
    /// the store does not answer for long.
    pub async fn send_streaming_message(
        &self,
        call: &Call,
        request: v1::SendMessageRequest,
    ) -> Result<EventStream, Error> {
        self.inner.meter.admit(&call.caller, Class::Send)?;
        self.inner.offers.streaming()?;
        self.inner.offers.required_extensions(call)?;
        self.inner.send_streaming_message(call, request).await
    }

    /// SubscribeToTask: streams a task as it is and all that happens to it until it has ended
    /// (SUB-01 to SUB-11).
    ///
    /// For a call that [wants cursors](Call::wants_cursor), `after` is the generation of the last
    /// item that it got: then there is no first task, only the events after that one, and a task
    /// that has ended is no error. For other calls it counts for nothing.
    ///
    /// # Errors
    /// [`Error::TaskNotFound`] for every task that is not the caller's; [`Error::Unsupported`] for
    /// one that has ended, and if the card does not offer streaming; [`Error::Invalid`] for a
    /// cursor that the task does not have. As an item of the stream, as of
    /// [`send_streaming_message`](Self::send_streaming_message).
    pub async fn subscribe_to_task(
        &self,
        call: &Call,
        request: v1::SubscribeToTaskRequest,
        after: Option<i64>,
    ) -> Result<EventStream, Error> {
        self.inner.meter.admit(&call.caller, Class::Subscribe)?;
        self.inner.offers.streaming()?;
        self.inner.may_leave_out_extensions(call)?;
        self.inner.subscribe_to_task(call, request, after).await
    }

    /// Webhooks are not offered yet (CAP-02).
    ///
    /// # Errors
    /// Always [`Error::PushNotSupported`].
    pub async fn create_task_push_notification_config(
        &self,
        call: &Call,
        _request: v1::TaskPushNotificationConfig,
    ) -> Result<v1::TaskPushNotificationConfig, Error> {
        self.inner.meter.admit(&call.caller, Class::Other)?;
        self.inner.offers.push_notifications()?;
        self.inner.may_leave_out_extensions(call)?;
        Err(Error::PushNotSupported)
    }

    /// Webhooks are not offered yet (CAP-02).
    ///
    /// # Errors
    /// Always [`Error::PushNotSupported`].
    pub async fn get_task_push_notification_config(
        &self,
        call: &Call,
        _request: v1::GetTaskPushNotificationConfigRequest,
    ) -> Result<v1::TaskPushNotificationConfig, Error> {
        self.inner.meter.admit(&call.caller, Class::Other)?;
        self.inner.offers.push_notifications()?;
        self.inner.may_leave_out_extensions(call)?;
        Err(Error::PushNotSupported)
    }

    /// Webhooks are not offered yet (CAP-02).
    ///
    /// # Errors
    /// Always [`Error::PushNotSupported`].
    pub async fn list_task_push_notification_configs(
        &self,
        call: &Call,
        _request: v1::ListTaskPushNotificationConfigsRequest,
    ) -> Result<v1::ListTaskPushNotificationConfigsResponse, Error> {
        self.inner.meter.admit(&call.caller, Class::Other)?;
        self.inner.offers.push_notifications()?;
        self.inner.may_leave_out_extensions(call)?;
        Err(Error::PushNotSupported)
    }

    /// Webhooks are not offered yet (CAP-02).
    ///
    /// # Errors
    /// Always [`Error::PushNotSupported`].
    pub async fn delete_task_push_notification_config(
        &self,
        call: &Call,
        _request: v1::DeleteTaskPushNotificationConfigRequest,
    ) -> Result<Empty, Error> {
        self.inner.meter.admit(&call.caller, Class::Other)?;
        self.inner.offers.push_notifications()?;
        self.inner.may_leave_out_extensions(call)?;
        Err(Error::PushNotSupported)
    }

    /// GetExtendedAgentCard: what callers with credentials are told beside the public card
    /// (CAP-05, XCARD-01 to XCARD-07). It is the same for all of them.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when the card does not offer one,
    /// [`Error::ExtendedCardNotConfigured`], [`Error::Unauthenticated`]; [`Error::Forbidden`] for a
    /// tenant that is not the caller's.
    pub async fn get_extended_agent_card(
        &self,
        call: &Call,
        request: v1::GetExtendedAgentCardRequest,
    ) -> Result<v1::AgentCard, Error> {
        self.inner.meter.admit(&call.caller, Class::Other)?;
        let card = self.inner.offers.extended(call)?;
        Inner::scope(call, &request.tenant)?;
        Ok(card)
    }
}

impl Inner {
    fn numbers(&self) -> Vec<Number> {
        let count = |n: usize| f64::from(u32::try_from(n).unwrap_or(u32::MAX));
        let mut numbers = self.store.numbers();
        numbers.push(Number::now("open_streams", "Open streams", count(self.streams.read())));
        let running = count(self.runners.running());
        numbers.push(Number::now("turns_running", "Turns that run on this server", running));
        let backlog = self.runners.backlog();
        let due = "Turns that are due and that nobody has begun, at most 1000 are counted";
        numbers.push(Number::now("turns_due", due, f64::from(backlog.due)));
        let since = "How long the one that is due longest has been so, in seconds";
        numbers.push(Number::now("turns_due_seconds", since, backlog.longest.as_secs_f64()));
        numbers
    }

    /// For calls that need not name the extensions which the card requires, unless the settings
    /// say so (AMB-11).
    fn may_leave_out_extensions(&self, call: &Call) -> Result<(), Error> {
        match self.settings.require_extensions {
            RequireExtensions::Sends => Ok(()),
            RequireExtensions::All => self.offers.required_extensions(call),
        }
    }

    /// Runs a write on the service's own tasks, so that it ends as it should also when the caller
    /// leaves, and a shutdown waits for it.
    async fn to_its_end<T: Send + 'static>(
        &self,
        write: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        self.tasks.spawn(write).await.map_err(Error::internal)?
    }

    /// The rows of a request that names a task. A tenant that is not the caller's has no tasks,
    /// whether it exists or not (TEN-06).
    fn scope_of_task(call: &Call, tenant: &str) -> Result<Scope, Error> {
        let Ok(tenant) = Tenant::parse("tenant", tenant) else { return Err(Error::TaskNotFound) };
        call.caller.scope(tenant).ok_or(Error::TaskNotFound)
    }

    /// The rows of a request that names no task.
    fn scope(call: &Call, tenant: &str) -> Result<Scope, Error> {
        let tenant = Tenant::parse("tenant", tenant)?;
        let refused = || Error::Forbidden("this tenant is not among the caller's".to_owned());
        call.caller.scope(tenant).ok_or_else(refused)
    }
}
