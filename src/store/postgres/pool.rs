//! Connections, and how statements run on them.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use deadpool_postgres::{
    Hook, HookError, Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime,
};
use futures_util::future::{join3, join4};
use tokio::time::timeout;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{NoTls, Row, Statement};
use uuid::Uuid;

use crate::domain::Error;
use crate::domain::error::chain;
use crate::metrics::Number;
use crate::store::postgres::fault::{ConnectError, Failure};
use crate::store::postgres::settings::{Settings, StatementMode, Way};

/// How long a canceled statement has to end before its connection is given up.
const CANCEL_GRACE: Duration = Duration::from_secs(2);

/// How many calls may wait for each connection. Those beyond would only wait in vain: at 1 ms for
/// a statement, a tenth of a second is what the last of these waits.
pub(super) const WAITING_PER_CONNECTION: usize = 100;

/// A statement with its parameters and their types, in the order of `$1`, `$2`, ...
pub(super) struct Call {
    sql: &'static str,
    values: Vec<Box<dyn ToSql + Send + Sync>>,
    types: Vec<Type>,
}

/// A value of a statement, with the one type that it is sent as.
pub(super) trait Arg: ToSql + Send + Sync + 'static {
    /// PostgreSQL's type.
    const TYPE: Type;
}

macro_rules! args {
    ($($rust:ty => $sql:ident),+ $(,)?) => {
        $(impl Arg for $rust { const TYPE: Type = Type::$sql; })+
    };
}

args! {
    bool => BOOL, i16 => INT2, i32 => INT4, i64 => INT8, Uuid => UUID, String => TEXT,
    Vec<u8> => BYTEA, Vec<Option<i16>> => INT2_ARRAY, Vec<i32> => INT4_ARRAY,
    Vec<i64> => INT8_ARRAY, Vec<Uuid> => UUID_ARRAY, Vec<String> => TEXT_ARRAY,
    Vec<Vec<u8>> => BYTEA_ARRAY,
}

impl<T: Arg> Arg for Option<T> {
    const TYPE: Type = T::TYPE;
}

impl Call {
    /// A statement without parameters so far.
    pub(super) fn new(sql: &'static str) -> Self {
        Self { sql, values: Vec::new(), types: Vec::new() }
    }

    /// The next parameter.
    pub(super) fn with<T: Arg>(mut self, value: T) -> Self {
        self.values.push(Box::new(value));
        self.types.push(T::TYPE);
        self
    }

    /// The text.
    pub(super) fn sql(&self) -> &'static str {
        self.sql
    }

    /// The types of the parameters.
    pub(super) fn types(&self) -> &[Type] {
        &self.types
    }

    /// The values of the parameters.
    pub(super) fn borrowed(&self) -> impl Iterator<Item = &(dyn ToSql + Sync)> {
        self.values.iter().map(|value| &**value as &(dyn ToSql + Sync))
    }
}

/// A statement that can be sent without another round trip.
enum Ready {
    Typed,
    Prepared(Statement),
}

/// The pool, the mode, and the limits.
pub(super) struct Db {
    pool: Pool,
    way: Way,
    mode: StatementMode,
    statement_timeout: Duration,
    begin_page: String,
    begin_long_page: String,
    sent: AtomicU64,
    shed: AtomicU64,
    #[cfg(debug_assertions)]
    pub(super) proof: crate::store::proof::Proof,
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Db").field("mode", &self.mode).finish_non_exhaustive()
    }
}

/// What goes out in one piece with its `commit` can neither idle nor outlive its deadline unseen.
const BEGIN_WRITE: &str = "begin isolation level read committed";
const BEGIN_PAGE: &str = "begin isolation level repeatable read read only";
/// A plan for any owner must suit the largest: it reads along the index, and never sorts. Where it
/// must sort for all that, the price put on it must not look like work worth compiling code for.
const PLANNING: [&str; 3] = ["enable_sort = off", "enable_bitmapscan = off", "jit = off"];

impl Db {
    /// The pool; connections are made when they are needed.
    pub(super) fn new(settings: &Settings) -> Result<Self, ConnectError> {
        let way = settings.pooled()?;
        let config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = match &way.tls {
            Some(tls) => Manager::from_config(way.config.clone(), tls.clone(), config),
            None => Manager::from_config(way.config.clone(), NoTls, config),
        };
        let mut builder = Pool::builder(manager)
            .max_size(settings.pool_size.max(1))
            .wait_timeout(Some(settings.connect_timeout))
            .create_timeout(Some(settings.connect_timeout))
            .recycle_timeout(Some(settings.connect_timeout))
            .runtime(Runtime::Tokio1);
        let idle = settings.statement_timeout.as_millis();
        let idle = format!("idle_in_transaction_session_timeout = {idle}");
        let mut begin_page = BEGIN_PAGE.to_owned();
        if settings.statement_mode == StatementMode::Cached {
            builder = builder.post_create(own_session(settings));
        } else {
            // On a session that a pooler lends out, a SET would stay for the next borrower.
            for setting in PLANNING {
                begin_page += "; set local ";
                begin_page += setting;
            }
        }
        Ok(Self {
            pool: builder.build().map_err(ConnectError::Pool)?,
            way,
            mode: settings.statement_mode,
            statement_timeout: settings.statement_timeout,
            begin_long_page: format!("{begin_page}; set local {idle}"),
            begin_page,
            sent: AtomicU64::new(0),
            shed: AtomicU64::new(0),
            #[cfg(debug_assertions)]
            proof: crate::store::proof::Proof::default(),
        })
    }

    /// How statements are sent.
    pub(super) fn mode(&self) -> StatementMode {
        self.mode
    }

    /// Connections and statements, as they are at the moment.
    pub(super) fn numbers(&self) -> Vec<Number> {
        let status = self.pool.status();
        let count = |n: usize| f64::from(u32::try_from(n).unwrap_or(u32::MAX));
        let used = status.size.saturating_sub(status.available);
        let statements = u32::try_from(self.sent()).map_or(f64::from(u32::MAX), f64::from);
        let shed = u32::try_from(self.shed.load(Ordering::Relaxed));
        let shed = shed.map_or(f64::from(u32::MAX), f64::from);
        vec![
            Number::now("store_connections_used", "Connections at work", count(used)),
            Number::now("store_connections_idle", "Connections at rest", count(status.available)),
            Number::now("store_connections_max", "The most connections", count(status.max_size)),
            Number::now("store_waiting", "Calls that wait for a connection", count(status.waiting)),
            Number::so_far("store_statements", "Statements sent", statements),
            Number::so_far("store_shed", "Calls refused because too many wait", shed),
        ]
    }

    /// Whether one more call may wait for a connection. Only calls that a caller can simply make
    /// again ask: a report, or the renewal of a lease, is worth its wait.
    pub(super) fn room(&self) -> Result<(), Error> {
        let status = self.pool.status();
        if status.waiting < status.max_size.saturating_mul(WAITING_PER_CONNECTION) {
            return Ok(());
        }
        self.shed.fetch_add(1, Ordering::Relaxed);
        Err(Error::unavailable("too many calls wait for a connection"))
    }

    /// How many statements of the store were sent.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Ends the pool; what runs goes on to its end.
    pub(super) fn close(&self) {
        self.pool.close();
    }

    /// One statement, which is its own transaction. Sent again once if the database chose it as
    /// the victim of a deadlock.
    pub(super) async fn run(&self, call: &Call) -> Result<Vec<Row>, Error> {
        match self.try_run(call).await {
            Err(failure) if failure.is_conflict() => Ok(self.try_run(call).await?),
            other => Ok(other?),
        }
    }

    async fn try_run(&self, call: &Call) -> Result<Vec<Row>, Failure> {
        let client = self.client().await?;
        let work = async {
            let ready = self.ready(&client, call).await?;
            self.send(&client, &ready, call).await
        };
        let outcome = self.bounded(&client, work).await;
        settle(client, outcome)
    }

    /// A statement under the lock that another takes first, so that it sees whatever was
    /// committed before it got the lock. One round trip.
    pub(super) async fn run_locked(&self, lock: &Call, call: &Call) -> Result<Vec<Row>, Error> {
        match self.try_run_locked(lock, call).await {
            Err(failure) if failure.is_conflict() => Ok(self.try_run_locked(lock, call).await?),
            other => Ok(other?),
        }
    }

    async fn try_run_locked(&self, lock: &Call, call: &Call) -> Result<Vec<Row>, Failure> {
        let client = self.client().await?;
        let work = async {
            let lock_ready = self.ready(&client, lock).await?;
            let ready = self.ready(&client, call).await?;
            // All four are sent before the first answer comes, and all are waited for: after an
            // error, the commit rolls back.
            let (begun, locked, rows, ended) = join4(
                client.batch_execute(BEGIN_WRITE),
                self.send(&client, &lock_ready, lock),
                self.send(&client, &ready, call),
                client.batch_execute("commit"),
            )
            .await;
            begun?;
            locked?;
            let rows = rows?;
            ended?;
            Ok(rows)
        };
        let outcome = self.bounded(&client, work).await;
        settle(client, outcome)
    }

    /// The rows of a page, and what a second statement makes of them in the same snapshot. One
    /// round trip, or two with a second statement. On a session of our own, which has its planning
    /// settled, a statement alone needs no transaction around it.
    pub(super) async fn run_page(
        &self,
        page: &Call,
        follow: impl FnOnce(&[Row]) -> Option<Call> + Send,
        wants_more: bool,
    ) -> Result<(Vec<Row>, Vec<Row>), Error> {
        if !wants_more && self.mode == StatementMode::Cached {
            return Ok((self.run(page).await?, Vec::new()));
        }
        let client = self.client().await.map_err(Error::from)?;
        let work = async {
            let ready = self.ready(&client, page).await?;
            if !wants_more {
                let (begun, rows, ended) = join3(
                    client.batch_execute(&self.begin_page),
                    self.send(&client, &ready, page),
                    client.batch_execute("commit"),
                )
                .await;
                begun?;
                let rows = rows?;
                ended?;
                return Ok((rows, Vec::new()));
            }
            let (begun, rows) = futures_util::future::join(
                client.batch_execute(&self.begin_long_page),
                self.send(&client, &ready, page),
            )
            .await;
            begun?;
            let rows = rows?;
            let more = match follow(&rows) {
                Some(call) => {
                    let ready = self.ready(&client, &call).await?;
                    self.send(&client, &ready, &call).await?
                }
                None => Vec::new(),
            };
            client.batch_execute("commit").await?;
            Ok((rows, more))
        };
        let outcome = self.bounded(&client, work).await;
        if outcome.is_err() {
            // The transaction may still be open.
            drop(Object::take(client));
        }
        Ok(outcome?)
    }

    async fn client(&self) -> Result<Object, Failure> {
        self.pool.get().await.map_err(Failure::Pool)
    }

    /// What is sent: the call's own text, but for one test in a debug build.
    #[cfg(debug_assertions)]
    fn text(&self, call: &Call) -> std::borrow::Cow<'static, str> {
        self.proof.instead_of(call.sql).map_or(call.sql.into(), Into::into)
    }

    /// What is sent.
    #[cfg(not(debug_assertions))]
    fn text(&self, call: &Call) -> std::borrow::Cow<'static, str> {
        call.sql.into()
    }

    async fn ready(&self, client: &Object, call: &Call) -> Result<Ready, tokio_postgres::Error> {
        Ok(match self.mode {
            StatementMode::Typed | StatementMode::Auto => Ready::Typed,
            StatementMode::Cached => {
                let sql = self.text(call);
                Ready::Prepared(client.prepare_typed_cached(&sql, &call.types).await?)
            }
        })
    }

    async fn send(
        &self,
        client: &Object,
        ready: &Ready,
        call: &Call,
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        self.sent.fetch_add(1, Ordering::Relaxed);
        match ready {
            Ready::Typed => {
                let typed: Vec<_> = call.borrowed().zip(call.types.iter().cloned()).collect();
                client.query_typed(&self.text(call), &typed).await
            }
            Ready::Prepared(statement) => {
                let values: Vec<_> = call.borrowed().collect();
                client.query(statement, &values).await
            }
        }
    }

    /// Cancels work in the database when its time is up, then hears how it ended: it may have
    /// been done at the last moment.
    async fn bounded<T>(
        &self,
        client: &Object,
        work: impl Future<Output = Result<T, tokio_postgres::Error>> + Send,
    ) -> Result<T, Failure> {
        let mut work = std::pin::pin!(work);
        if let Ok(done) = timeout(self.statement_timeout, &mut work).await {
            return Ok(done?);
        }
        let cancel = self.way.cancel(client.cancel_token());
        let ended = async {
            if let Err(error) = cancel.await {
                tracing::warn!(error.chain = chain(&error), "a statement could not be canceled");
            }
            work.await
        };
        match timeout(CANCEL_GRACE, ended).await {
            Ok(done) => Ok(done?),
            Err(_) => Err(Failure::Lost),
        }
    }
}

/// Prepares a session that nobody else borrows: its time limits, and plans that are made once.
fn own_session(settings: &Settings) -> Hook {
    let statement = settings.statement_timeout.as_millis();
    let lock = settings.lock_timeout.as_millis();
    let mut sql = format!(
        "set statement_timeout = {statement}; set lock_timeout = {lock}; \
         set idle_in_transaction_session_timeout = {statement}; \
         set plan_cache_mode = force_generic_plan"
    );
    for setting in PLANNING {
        sql += "; set ";
        sql += setting;
    }
    Hook::async_fn(move |client, _| {
        let sql = sql.clone();
        Box::pin(async move { client.batch_execute(&sql).await.map_err(HookError::Backend) })
    })
}

/// After a failure the state of the connection is not sure, so the pool does not get it back.
fn settle<T>(client: Object, outcome: Result<T, Failure>) -> Result<T, Failure> {
    let sure = match &outcome {
        Ok(_) => true,
        Err(Failure::Database(error)) => error.code().is_some() && !error.is_closed(),
        Err(_) => false,
    };
    if !sure {
        drop(Object::take(client));
    }
    outcome
}
