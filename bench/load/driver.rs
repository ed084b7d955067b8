//! The driver: the store's statements through tokio-postgres, prepared, without anything around.

use std::collections::HashMap;
use std::sync::Arc;

use a2ad::async_trait;
use a2ad::domain::TaskId;
use a2ad::domain::page::Cursor;
use a2ad::store::postgres::statements::{self, Key, Statement};
use a2ad::store::{PageQuery, View};
use prost::Message as _;
use tokio::sync::Mutex;
use tokio_postgres::{Client, Row};

use crate::cases::{GET, ONE_COMMIT, TWO_COMMITS};
use crate::drive::{Case, Load, Work};
use crate::floor;
use crate::lab::{self, Place};
use crate::sends::{Echo, message};

/// What costs least: no plan but the ordered scan, no planning, and no compilation of plans, which
/// the sort of a task's artifacts would bring about where sorts are off.
const PLANS: &str = "set enable_sort = off; set enable_bitmapscan = off; \
     set plan_cache_mode = force_generic_plan; set jit = off";
/// A tenant and an owner without a name, so that nothing that is written here is listed to anybody.
pub(crate) const ELSEWHERE: Key = Key { tenant: 9_999, owner: 9_999 };
/// Pipelined connections, as the floor has.
const CONNECTIONS: usize = 8;

/// A connection with what was prepared on it.
pub(crate) struct Session {
    pub(crate) client: Client,
    prepared: Mutex<HashMap<&'static str, Arc<tokio_postgres::Statement>>>,
}

impl Session {
    pub(crate) async fn open(url: &str) -> Self {
        let client = lab::connect(url).await;
        client.batch_execute(PLANS).await.unwrap();
        // A task is taken only for an owner who is there.
        let elsewhere = "insert into owners (id, name) overriding system value \
             values (9999, 'elsewhere') on conflict do nothing";
        client.batch_execute(elsewhere).await.unwrap();
        Self { client, prepared: Mutex::default() }
    }

    /// The rows of a statement, which is prepared when it comes for the first time.
    pub(crate) async fn query(&self, statement: &Statement) -> Vec<Row> {
        let prepared = {
            let mut known = self.prepared.lock().await;
            if let Some(prepared) = known.get(statement.sql()) {
                Arc::clone(prepared)
            } else {
                let made = self.client.prepare_typed(statement.sql(), statement.types()).await;
                let made = Arc::new(made.unwrap());
                known.insert(statement.sql(), Arc::clone(&made));
                made
            }
        };
        let values: Vec<_> = statement.values().collect();
        self.client.query(&*prepared, &values).await.unwrap()
    }
}

/// A page of 50 after a place.
pub(crate) fn page_query(after: Option<Cursor>, total: bool) -> PageQuery {
    PageQuery {
        context: None,
        state: None,
        since_us: None,
        after,
        limit: 50,
        history: 0,
        artifacts: false,
        total,
        bytes_max: usize::MAX,
    }
}

/// What GetTask reads when its caller names no number.
pub(crate) fn view() -> View {
    View { history: 100, artifacts: true, hidden: false }
}

/// Which statement.
enum What {
    Page(Option<Cursor>),
    Task(Vec<TaskId>),
    /// The one commit of the floor.
    Insert(Vec<tokio_postgres::Statement>),
    /// The two commits of an echo.
    Echo,
}

struct Statements {
    sessions: Arc<Vec<Session>>,
    key: Key,
    what: What,
}

#[async_trait]
impl Work for Statements {
    async fn once(&self, _lane: usize, n: usize) -> Result<(), String> {
        let at = n % self.sessions.len();
        let session = &self.sessions[at];
        match &self.what {
            What::Page(after) => {
                let page = statements::page(self.key, &page_query(*after, false));
                assert_eq!(session.query(&page).await.len(), 51);
            }
            What::Task(ids) => {
                let id = ids[n % ids.len()];
                let rows = session.query(&statements::task(self.key, id, view())).await;
                assert_eq!(rows.len(), 1);
            }
            What::Insert(statements) => {
                let body = message(n).encode_to_vec();
                floor::insert(&session.client, &statements[at], ELSEWHERE, &body).await;
            }
            What::Echo => {
                let echo = Echo::new(n);
                let rows = session.query(&statements::accept(ELSEWHERE, &echo.accept)).await;
                assert_eq!(rows.len(), 1);
                let report = statements::report(ELSEWHERE, echo.task, &echo.report).unwrap();
                let rows = session.query(&report).await;
                assert!(rows[0].get::<_, bool>("landed"));
            }
        }
        Ok(())
    }
}

/// Connections to a database.
pub(crate) struct Driver<'a> {
    place: &'a Place<'a>,
    sessions: Arc<Vec<Session>>,
}

impl<'a> Driver<'a> {
    pub(crate) async fn new(place: &'a Place<'a>) -> Self {
        let mut sessions = Vec::new();
        for _ in 0..CONNECTIONS {
            sessions.push(Session::open(&place.url).await);
        }
        Self { place, sessions: Arc::new(sessions) }
    }

    fn case(&self, name: &str, what: What) -> Case {
        let sessions = Arc::clone(&self.sessions);
        Case {
            name: format!("driver, {}: {name}", self.place.name),
            pid: std::process::id(),
            work: Arc::new(Statements { sessions, key: self.place.key, what }),
            load: Load::Closed,
        }
    }

    /// The page after a row.
    pub(crate) async fn page(&self, name: &str, row: i64) -> Case {
        let find = "select status_at, id from tasks where shown and tenant = 1 and owner = 1 \
             order by status_at desc, id desc offset $1::bigint - 1 limit 1";
        let row = self.sessions[0].client.query_one(find, &[&row]).await.unwrap();
        let after = Cursor {
            status_at_us: row.get("status_at"),
            task: TaskId::from(row.get::<_, uuid::Uuid>("id")),
        };
        self.case(name, What::Page(Some(after)))
    }

    pub(crate) fn task(&self) -> Case {
        let ids = self.place.ids();
        self.case(GET, What::Task(ids.iter().map(|id| TaskId::parse(id).unwrap()).collect()))
    }

    pub(crate) fn echo(&self) -> Case {
        self.case(TWO_COMMITS, What::Echo)
    }

    pub(crate) async fn insert(&self) -> Case {
        let mut statements = Vec::new();
        for session in &*self.sessions {
            statements.push(session.client.prepare(floor::INSERT).await.unwrap());
        }
        self.case(ONE_COMMIT, What::Insert(statements))
    }
}
