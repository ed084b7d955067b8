//! Connections and statements.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use deadpool_postgres::{Hook, HookError, Manager, ManagerConfig, Object, Pool, RecyclingMethod};
use deadpool_postgres::{Runtime, Timeouts};
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{CancelToken, Row};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::domain::clock::micros;
use crate::domain::{Clock, Error, Scope};
use crate::store::postgres::Settings;
use crate::store::postgres::connect::{self, ConnectError};
use std::sync::Arc;

/// How statements are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StatementMode {
    /// Unnamed and planned anew each time: one round trip, and safe behind a pooler that gives a
    /// connection to somebody else after each transaction.
    #[default]
    Typed,
    /// Prepared once for each connection: less work for the database, on direct connections only.
    Cached,
}

/// A parameter and its type.
pub(super) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// A scope by its numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScopeKey {
    pub(super) tenant: i32,
    pub(super) owner: i32,
}

/// The pool, and how to use it.
pub(super) struct Db {
    pool: Pool,
    tls: MakeRustlsConnect,
    mode: StatementMode,
    statement_timeout: Duration,
    clock: Option<Arc<dyn Clock>>,
    tenants: Mutex<HashMap<String, i32>>,
    owners: Mutex<HashMap<String, i32>>,
}

/// The database's clock in microseconds, unless a test sets the time with the parameter before
/// this text.
pub(super) const CLOCK: &str =
    "coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint)";

impl Db {
    pub(super) fn open(settings: &Settings) -> Result<Self, ConnectError> {
        let config = connect::config(&settings.url)?;
        let tls = connect::tls();
        // `Verified` waits for what a canceled statement left behind; `Fast` would hand out a
        // connection that is still busy.
        let manager = Manager::from_config(
            config,
            tls.clone(),
            ManagerConfig { recycling_method: RecyclingMethod::Fast },
        );
        let pool = Pool::builder(manager)
            .max_size(settings.pool_size.max(1))
            .runtime(Runtime::Tokio1)
            .timeouts(Timeouts {
                wait: Some(settings.wait),
                create: Some(settings.wait),
                recycle: Some(settings.wait),
            })
            .pre_recycle(Hook::sync_fn(|client, _| {
                if client.is_closed() {
                    return Err(HookError::message("closed"));
                }
                Ok(())
            }))
            .build()?;
        Ok(Self {
            pool,
            tls,
            mode: settings.statement_mode,
            statement_timeout: settings.statement_timeout,
            clock: settings.clock.clone(),
            tenants: Mutex::default(),
            owners: Mutex::default(),
        })
    }

    pub(super) fn close(&self) {
        self.pool.close();
    }

    /// A connection of the pool.
    pub(super) async fn client(&self) -> Result<Object, Error> {
        self.pool.get().await.map_err(Error::unavailable)
    }

    /// The time that a test sets, or `None` for the database's own.
    pub(super) fn now(&self) -> Option<i64> {
        self.clock.as_ref().map(|clock| clock.now_us())
    }

    /// Runs one statement. Past its time it is canceled in the database, too.
    pub(super) async fn rows(
        &self,
        client: &Object,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, Error> {
        let run = async {
            match self.mode {
                StatementMode::Typed => client.query_typed(sql, params).await,
                StatementMode::Cached => {
                    let types: Vec<Type> = params.iter().map(|(_, kind)| kind.clone()).collect();
                    let statement = client.prepare_typed_cached(sql, &types).await?;
                    let values: Vec<_> = params.iter().map(|(value, _)| *value).collect();
                    client.query(&statement, &values).await
                }
            }
        };
        self.in_time(client.cancel_token(), run).await
    }

    /// Prepares a statement ahead, so that statements which go out together run in their order.
    pub(super) async fn prime(
        &self,
        client: &Object,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<(), Error> {
        if self.mode == StatementMode::Cached {
            let types: Vec<Type> = params.iter().map(|(_, kind)| kind.clone()).collect();
            client.prepare_typed_cached(sql, &types).await.map_err(classify)?;
        }
        Ok(())
    }

    /// Runs statements without parameters, such as `begin`.
    pub(super) async fn batch(&self, client: &Object, sql: &str) -> Result<(), Error> {
        self.in_time(client.cancel_token(), client.batch_execute(sql)).await
    }

    async fn in_time<T>(
        &self,
        cancel: CancelToken,
        run: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Error> {
        let mut run = std::pin::pin!(run);
        if let Ok(done) = timeout(self.statement_timeout, run.as_mut()).await {
            return done.map_err(classify);
        }
        tracing::warn!("a statement took too long and is canceled");
        drop(timeout(Duration::from_secs(1), cancel.cancel_query(self.tls.clone())).await);
        // The connection is usable again when the database has answered.
        match timeout(Duration::from_secs(5), run).await {
            Ok(done) => done.map_err(classify),
            Err(elapsed) => Err(Error::unavailable(elapsed)),
        }
    }

    /// Ends a transaction that is not to be committed. A connection that cannot is thrown away.
    pub(super) async fn rollback(&self, client: Object) {
        if self.batch(&client, "rollback").await.is_err() {
            drop(Object::take(client));
        }
    }

    /// The numbers of a scope; `None` if nothing was ever sent under one of its names.
    pub(super) async fn find(
        &self,
        client: &Object,
        scope: &Scope,
    ) -> Result<Option<ScopeKey>, Error> {
        let (tenant, owner) = (scope.tenant().as_str(), scope.owner().as_str());
        if let Some(key) = self.known(tenant, owner) {
            return Ok(Some(key));
        }
        let sql = "select (select id from tenants where name = $1), \
                   (select id from owners where name = $2)";
        let rows = self.rows(client, sql, &[(&tenant, Type::TEXT), (&owner, Type::TEXT)]).await?;
        let row = rows.first().ok_or_else(|| Error::internal("no answer"))?;
        if let Some(number) = row.get(0) {
            keep(&self.tenants, tenant, number);
        }
        if let Some(number) = row.get(1) {
            keep(&self.owners, owner, number);
        }
        Ok(self.known(tenant, owner))
    }

    /// The numbers of a scope, made if need be.
    pub(super) async fn intern(&self, client: &Object, scope: &Scope) -> Result<ScopeKey, Error> {
        if let Some(key) = self.find(client, scope).await? {
            return Ok(key);
        }
        let (tenant, owner) = (scope.tenant().as_str(), scope.owner().as_str());
        for (sql, name) in [
            ("insert into tenants (name) values ($1) on conflict do nothing", &tenant),
            ("insert into owners (name) values ($1) on conflict do nothing", &owner),
        ] {
            self.rows(client, sql, &[(name, Type::TEXT)]).await?;
        }
        let found = self.find(client, scope).await?;
        found.ok_or_else(|| Error::internal("an interned name is not there"))
    }

    fn known(&self, tenant: &str, owner: &str) -> Option<ScopeKey> {
        let lock = |names: &Mutex<HashMap<String, i32>>, name: &str| {
            names.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied()
        };
        let tenant = lock(&self.tenants, tenant)?;
        Some(ScopeKey { tenant, owner: lock(&self.owners, owner)? })
    }
}

fn keep(names: &Mutex<HashMap<String, i32>>, name: &str, number: i32) {
    names.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), number);
}

/// A duration as a parameter.
pub(super) fn us(duration: Duration) -> i64 {
    micros(duration)
}

/// What the database's error means for the caller.
pub(super) fn classify(error: tokio_postgres::Error) -> Error {
    let Some(state) = error.code() else {
        // Not told by the database: the connection broke.
        return if error.is_closed() || std::error::Error::source(&error).is_some_and(is_io) {
            Error::unavailable(error)
        } else {
            Error::internal(error)
        };
    };
    let temporary = [
        SqlState::QUERY_CANCELED,
        SqlState::LOCK_NOT_AVAILABLE,
        SqlState::TOO_MANY_CONNECTIONS,
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::DISK_FULL,
        SqlState::OUT_OF_MEMORY,
        SqlState::READ_ONLY_SQL_TRANSACTION,
    ];
    let class = state.code().get(..2);
    if temporary.contains(state) || matches!(class, Some("08" | "57")) {
        Error::unavailable(error)
    } else {
        Error::internal(error)
    }
}

fn is_io(error: &(dyn std::error::Error + 'static)) -> bool {
    error.downcast_ref::<std::io::Error>().is_some()
}
