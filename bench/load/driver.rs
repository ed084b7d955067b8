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

use crate::drive::{Case, Work};
use crate::floor;
use crate::lab::{self, Place};
use crate::sends::{Echo, message};
use crate::works;

/// What costs least: no plan but the ordered scan, no planning, and no compilation of plans, which
/// the sort of a task's artifacts would bring about where sorts are off.
const PLANS: &str = "set enable_sort = off; set enable_bitmapscan = off; \
     set plan_cache_mode = force_generic_plan; set jit = off";
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

struct Driver {
    sessions: Arc<Vec<Session>>,
    key: Key,
    what: What,
}

#[async_trait]
impl Work for Driver {
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
                floor::insert(&session.client, &statements[at], self.key, &body).await;
            }
            What::Echo => {
                let echo = Echo::new(n);
                let rows = session.query(&statements::accept(self.key, &echo.accept)).await;
                assert_eq!(rows.len(), 1);
                let report = statements::report(self.key, echo.task, &echo.report).unwrap();
                let rows = session.query(&report).await;
                assert!(rows[0].get::<_, bool>("landed"));
            }
        }
        Ok(())
    }
}

/// The three calls that matter most, without gRPC.
pub(crate) async fn basic(place: &Place<'_>) -> Vec<Case> {
    let mut sessions = Vec::new();
    let mut inserts = Vec::new();
    for _ in 0..CONNECTIONS {
        let session = Session::open(&place.url).await;
        inserts.push(session.client.prepare(floor::INSERT).await.unwrap());
        sessions.push(session);
    }
    let sessions = Arc::new(sessions);
    let second = sessions[0].query(&statements::page(place.key, &page_query(None, false))).await;
    let last = &second[49];
    let after = Cursor {
        status_at_us: last.get("status_at"),
        task: TaskId::from(last.get::<_, uuid::Uuid>("id")),
    };
    let ids = works::ids(place).iter().map(|id| TaskId::parse(id).unwrap()).collect();
    [
        ("ListTasks, page 2", What::Page(Some(after))),
        ("GetTask", What::Task(ids)),
        ("SendMessage", What::Echo),
        ("one commit", What::Insert(inserts)),
    ]
    .into_iter()
    .map(|(name, what)| {
        let work = Driver { sessions: Arc::clone(&sessions), key: place.key, what };
        Case { name: format!("driver: {name}"), pid: std::process::id(), work: Arc::new(work) }
    })
    .collect()
}
