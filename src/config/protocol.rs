//! Where the protocol leaves a choice, or its readers differ.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::bindings;
use crate::config::{duration, duration_text};
use crate::contract::fault;
use crate::service;
use crate::service::offers;

/// The choices.
#[derive(Debug, Clone, Args)]
pub struct ProtocolArgs {
    /// What a request without `A2A-Version` speaks: 0.3, which is refused, or 1.0
    #[arg(long, env = "A2AD_MISSING_VERSION", value_name = "VERSION", default_value = "0.3")]
    pub missing_version: MissingVersion,
    /// Which edition of the protocol fixes the gRPC and HTTP statuses of errors
    #[arg(long, env = "A2AD_STATUS_TABLE", value_name = "VERSION", default_value = "1.0.1")]
    pub status_table: StatusTable,
    /// How a stream of JSON-RPC fails that has not begun: as any other call, or as a stream
    #[arg(long, env = "A2AD_EARLY_STREAM_ERRORS", value_name = "FORM", default_value = "json")]
    pub early_stream_errors: EarlyErrors,
    /// Which calls must name the extensions that the card requires
    #[arg(long, env = "A2AD_REQUIRE_EXTENSIONS", value_name = "CALLS", default_value = "sends")]
    pub require_extensions: RequireExtensions,
    /// The longest that SendMessage waits before it answers with the task as it is, or `off`
    #[arg(long, env = "A2AD_SEND_WAIT", value_name = "TIME", default_value = "off")]
    pub send_wait: Wait,
    /// After which states of its turn SendStreamingMessage ends: `terminal` ones alone, `input`
    /// required too, or any that `interrupted` it
    #[arg(long, env = "A2AD_SEND_STREAM_ENDS", value_name = "STATES", default_value = "input")]
    pub send_stream_ends: StreamEnds,
    /// After which states SubscribeToTask ends, in the same words
    #[arg(long, env = "A2AD_SUBSCRIBE_ENDS", value_name = "STATES", default_value = "terminal")]
    pub subscribe_ends: StreamEnds,
    /// What CancelTask of a task that was canceled before answers
    #[arg(long, env = "A2AD_CANCEL_AGAIN", value_name = "ANSWER", default_value = "error")]
    pub cancel_again: CancelAgain,
    /// Whether a message whose role is `ROLE_AGENT` is taken
    #[arg(long, env = "A2AD_AGENT_ROLE", value_name = "ANSWER", default_value = "refuse")]
    pub agent_role: AgentRole,
}

/// A time, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait(pub Option<Duration>);

impl FromStr for Wait {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self(None));
        }
        duration(text).map(|time| Self(Some(time))).map_err(|wrong| format!("{wrong}; or off"))
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.map_or_else(|| "off".to_owned(), duration_text))
    }
}

/// After which states a stream ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StreamEnds {
    /// The end of the task.
    Terminal,
    /// That, and `INPUT_REQUIRED`.
    Input,
    /// That, and `AUTH_REQUIRED`.
    Interrupted,
}

/// What a repeated cancel answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CancelAgain {
    /// `TASK_NOT_CANCELABLE`, with the state.
    Error,
    /// The task.
    Task,
}

/// What becomes of messages that say they are an agent's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AgentRole {
    /// They are refused.
    Refuse,
    /// They are taken as any other.
    Accept,
}

/// What a request without a version speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MissingVersion {
    /// As the protocol says.
    #[value(name = "0.3")]
    V0_3,
    /// For callers that set no headers.
    #[value(name = "1.0")]
    V1_0,
}

/// Which edition's statuses errors have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StatusTable {
    /// The present one.
    #[value(name = "1.0.1")]
    V1_0_1,
    /// The first one.
    #[value(name = "1.0.0")]
    V1_0_0,
}

/// How a stream of JSON-RPC fails that has not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EarlyErrors {
    /// As any other call.
    Json,
    /// As a stream of one event, for clients that read nothing else.
    Events,
}

/// Which calls must name required extensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RequireExtensions {
    /// Those that send messages.
    Sends,
    /// All but GetExtendedAgentCard.
    All,
}

impl ProtocolArgs {
    /// `settings`, with these choices.
    #[must_use]
    pub fn of_service(&self, settings: service::Settings) -> service::Settings {
        service::Settings {
            require_extensions: self.require_extensions.into(),
            send_wait: self.send_wait.0,
            send_stream_ends: self.send_stream_ends.into(),
            subscribe_ends: self.subscribe_ends.into(),
            cancel_again: self.cancel_again == CancelAgain::Task,
            agent_role: self.agent_role == AgentRole::Accept,
            ..settings
        }
    }

    /// What the bindings are told.
    #[must_use]
    pub fn of_bindings(&self) -> bindings::Settings {
        bindings::Settings {
            missing_version: match self.missing_version {
                MissingVersion::V0_3 => bindings::MissingVersion::V0_3,
                MissingVersion::V1_0 => bindings::MissingVersion::V1_0,
            },
            status_table: match self.status_table {
                StatusTable::V1_0_1 => fault::StatusTable::V1_0_1,
                StatusTable::V1_0_0 => fault::StatusTable::V1_0_0,
            },
            early_errors: match self.early_stream_errors {
                EarlyErrors::Json => bindings::EarlyErrors::Json,
                EarlyErrors::Events => bindings::EarlyErrors::Events,
            },
        }
    }
}

impl From<StreamEnds> for service::StreamEnds {
    fn from(states: StreamEnds) -> Self {
        match states {
            StreamEnds::Terminal => Self::Terminal,
            StreamEnds::Input => Self::Input,
            StreamEnds::Interrupted => Self::Interrupted,
        }
    }
}

impl From<RequireExtensions> for offers::RequireExtensions {
    fn from(calls: RequireExtensions) -> Self {
        match calls {
            RequireExtensions::Sends => Self::Sends,
            RequireExtensions::All => Self::All,
        }
    }
}
