//! What the service can be told.

use std::time::Duration;

use crate::contract::v1::TaskState;
use crate::service::offers::RequireExtensions;
use crate::service::quotas::Quotas;

/// When the same message counts as sent again (AMB-39).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dedupe {
    /// For every caller.
    On,
    /// For nobody.
    Off,
    /// For callers that have a principal of their own.
    #[default]
    Auto,
}

/// Which events end a stream (AMB-04).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEnds {
    /// The end of the task.
    Terminal,
    /// That, and `INPUT_REQUIRED`.
    Input,
    /// That, and `AUTH_REQUIRED`.
    Interrupted,
}

impl StreamEnds {
    pub(super) fn at(self, state: TaskState) -> bool {
        state.is_terminal()
            || match self {
                Self::Terminal => false,
                Self::Input => state == TaskState::InputRequired,
                Self::Interrupted => {
                    matches!(state, TaskState::InputRequired | TaskState::AuthRequired)
                }
            }
    }
}

/// Sizes of what goes in and out, in bytes of the encoded messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// A client's message.
    pub message_bytes: usize,
    /// An agent's status message with its metadata.
    pub status_bytes: usize,
    /// One update of an artifact.
    pub chunk_bytes: usize,
    /// A page of a listing: below the 4 MiB that gRPC clients take by default.
    pub page_bytes: usize,
    /// A task in any other answer.
    pub task_bytes: usize,
    /// One part of a message.
    pub part_bytes: usize,
    /// Parts of a message.
    pub parts: usize,
    /// Objects and arrays inside each other in free-form values.
    pub nesting: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message_bytes: 3 << 20,
            status_bytes: 256 << 10,
            chunk_bytes: 3 << 20,
            page_bytes: (4 << 20) - (16 << 10),
            task_bytes: 64 << 20,
            part_bytes: 3 << 20,
            parts: 10_000,
            nesting: 30,
        }
    }
}

/// The service's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// When the same message counts as sent again.
    pub dedupe: Dedupe,
    /// How long a message is remembered.
    pub dedupe_window: Duration,
    /// How long a runner may be silent before its turn goes to another.
    pub lease: Duration,
    /// How often leases are prolonged.
    pub renew: Duration,
    /// How long a canceled agent may take to end its task.
    pub grace: Duration,
    /// How often an agent may fail in one turn.
    pub max_attempts: i32,
    /// How often a runner may lose one turn.
    pub max_interruptions: i32,
    /// The pause after an agent's first error, within a quarter of it; it doubles with each.
    pub retry_pause: Duration,
    /// How many turns run at a time.
    pub runners: usize,
    /// How long a task may wait to become a direct reply before it is listed.
    pub show_after: Duration,
    /// How often is looked for changes of which no hint came.
    pub poll: Duration,
    /// How often streams look for events of which no hint came, within a quarter of it; once for
    /// all streams of one task.
    pub stream_poll: Duration,
    /// How long a stream outlasts a store that does not answer, before it ends as unavailable.
    pub stream_patience: Duration,
    /// Messages of history in answers other than listings when none are asked for.
    pub history_default: u32,
    /// Messages of history in listings when none are asked for.
    pub list_history_default: u32,
    /// Which calls must name the extensions that the card requires.
    pub require_extensions: RequireExtensions,
    /// The longest that SendMessage waits; then it answers as if it had not been asked to
    /// (AMB-01). Without it, as long as it takes.
    pub send_wait: Option<Duration>,
    /// After which events of its own turn or a later one SendStreamingMessage ends.
    pub send_stream_ends: StreamEnds,
    /// After which events SubscribeToTask ends.
    pub subscribe_ends: StreamEnds,
    /// Whether CancelTask of a task that was canceled before returns it (AMB-06).
    pub cancel_again: bool,
    /// Whether a message may say that it is an agent's (AMB-40).
    pub agent_role: bool,
    /// Sizes.
    pub limits: Limits,
    /// What each caller may ask for.
    pub quotas: Quotas,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            dedupe: Dedupe::Auto,
            dedupe_window: Duration::from_secs(24 * 3600),
            lease: Duration::from_secs(15),
            renew: Duration::from_secs(5),
            grace: Duration::from_secs(5),
            max_attempts: 3,
            max_interruptions: 50,
            retry_pause: Duration::from_secs(1),
            runners: 64,
            show_after: Duration::from_secs(1),
            poll: Duration::from_secs(1),
            stream_poll: Duration::from_secs(15),
            stream_patience: Duration::from_secs(10),
            history_default: 100,
            list_history_default: 0,
            require_extensions: RequireExtensions::Sends,
            send_wait: None,
            send_stream_ends: StreamEnds::Input,
            subscribe_ends: StreamEnds::Terminal,
            cancel_again: false,
            agent_role: false,
            limits: Limits::default(),
            quotas: Quotas::default(),
        }
    }
}
