//! Where the protocol leaves a choice, or its readers differ.

use clap::{Args, ValueEnum};

use crate::bindings;
use crate::contract::fault;
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
    /// Which calls must name the extensions that the card requires
    #[arg(long, env = "A2AD_REQUIRE_EXTENSIONS", value_name = "CALLS", default_value = "sends")]
    pub require_extensions: RequireExtensions,
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

/// Which calls must name required extensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RequireExtensions {
    /// Those that send messages.
    Sends,
    /// All but GetExtendedAgentCard.
    All,
}

impl ProtocolArgs {
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
