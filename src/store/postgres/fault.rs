//! What PostgreSQL's failures mean here.

use std::path::PathBuf;
use std::time::Duration;

use deadpool_postgres::PoolError;
use tokio_postgres::error::SqlState;

use crate::domain::Error;
use crate::store::migrate::SchemaError;

/// Why the store cannot be used, in words for whoever started the program.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The URL cannot be read.
    #[error("{name} is not a PostgreSQL URL")]
    Url {
        /// Which of the two.
        name: &'static str,
        /// Where it is wrong, without its text.
        #[source]
        source: tokio_postgres::Error,
    },
    /// TLS is asked for, and there is no authority to trust.
    #[error(
        "the store's URL asks for TLS, and no CA certificate was found; sslrootcert=FILE names one"
    )]
    NoCertificates,
    /// An authority is named, and TLS is not asked for.
    #[error("the store's URL names sslrootcert without TLS; add sslmode=verify-full")]
    RootWithoutTls,
    /// The file of `sslrootcert`.
    #[error("sslrootcert {} cannot be read", .file.display())]
    RootCertificate {
        /// Which.
        file: PathBuf,
        /// Why.
        source: rustls::pki_types::pem::Error,
    },
    /// TLS cannot be set up.
    #[error("TLS cannot be set up")]
    Tls(#[source] rustls::Error),
    /// Nobody answers.
    #[error("PostgreSQL did not answer within {} s", .waited.as_secs_f32())]
    Unreachable {
        /// How long it was tried.
        waited: Duration,
        /// What the last try said.
        #[source]
        source: tokio_postgres::Error,
    },
    /// It answers, and refuses.
    #[error("PostgreSQL refuses")]
    Refused(#[source] tokio_postgres::Error),
    /// Another program holds the migrations' lock.
    #[error("another program has been migrating this database for more than {} s", .waited.as_secs())]
    MigrationsLocked {
        /// How long it was waited for.
        waited: Duration,
    },
    /// A migration failed; nothing of it stays.
    #[error("migration {name} failed")]
    Migration {
        /// Which.
        name: &'static str,
        /// Why.
        #[source]
        source: tokio_postgres::Error,
    },
    /// The schema does not fit this program.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// The pool cannot be made.
    #[error("the connection pool cannot be made")]
    Pool(#[source] deadpool_postgres::BuildError),
}

/// Why a statement did not do its work.
#[derive(Debug)]
pub(super) enum Failure {
    /// No connection could be had.
    Pool(PoolError),
    /// The database, or the connection to it.
    Database(tokio_postgres::Error),
    /// It did not end, not even by being canceled.
    Lost,
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Database(error)
    }
}

impl Failure {
    /// Whether the same statement may be sent once more: a deadlock or a serialization failure.
    pub(super) fn is_conflict(&self) -> bool {
        let Self::Database(error) = self else { return false };
        error.code().is_some_and(|code| {
            *code == SqlState::T_R_DEADLOCK_DETECTED || *code == SqlState::T_R_SERIALIZATION_FAILURE
        })
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Pool(PoolError::Backend(error)) | Failure::Database(error) => classify(error),
            Failure::Pool(error) => Self::unavailable(error),
            Failure::Lost => Self::unavailable("a statement outlived its deadline"),
        }
    }
}

/// The one place that knows SQLSTATE.
fn classify(error: tokio_postgres::Error) -> Error {
    if is_temporary(&error) { Error::unavailable(error) } else { Error::internal(error) }
}

/// Whether the same may work a little later.
pub(super) fn is_temporary(error: &tokio_postgres::Error) -> bool {
    let Some(code) = error.code() else {
        return error.is_closed() || is_io(error);
    };
    // Connections, resources, operators.
    let classes = ["08", "53", "57", "58"];
    let codes = [
        &SqlState::T_R_DEADLOCK_DETECTED,
        &SqlState::T_R_SERIALIZATION_FAILURE,
        &SqlState::LOCK_NOT_AVAILABLE,
        &SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        // A standby that was just a primary.
        &SqlState::READ_ONLY_SQL_TRANSACTION,
    ];
    // `transaction_timeout`, since PostgreSQL 17.
    let timed_out = code.code() == "25P04";
    timed_out || classes.iter().any(|class| code.code().starts_with(class)) || codes.contains(&code)
}

/// Whether the way there failed. A server that cannot prove who it is will not do so later.
fn is_io(error: &tokio_postgres::Error) -> bool {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
            return !matches!(inner, Some(rustls::Error::InvalidCertificate(_)));
        }
        cause = error.source();
    }
    false
}
