//! The floor: the least gRPC server that does the real work. It has no checks, no owners, no
//! tokens, no events and no agents, and a send is the one commit of a finished task.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use a2ad::async_trait;
use a2ad::contract::v1;
use a2ad::contract::wkt::Timestamp;
use a2ad::domain::TaskId;
use a2ad::domain::page::Cursor;
use a2ad::store::postgres::statements::{self, Key};
use prost::Message as _;
use tokio_postgres::{Client, Row, Statement};
use uuid::Uuid;

use crate::driver::{ELSEWHERE, Session, page_query, view};
use crate::partner::{self, Answers};

/// Pipelined connections.
const CONNECTIONS: usize = 8;

/// The least that stores a finished task with what was said: one statement, one commit.
pub(crate) const INSERT: &str = "-- floor: a task and its messages
with t as (
  insert into tasks (tenant, id, owner, context_id, state, status_at, status_message, status_seq,
    generation, next_seq, shown, head_turn, next_turn, created_at, updated_at, terminal_at)
  values ($1, $3, $2, $4, 3, $5, $6, 1, 1, 2, true, 2, 2, $5, $5, $5)
)
insert into messages (tenant, task_id, seq, body) values ($1, $3, 0, $6), ($1, $3, 1, $6)";

struct Floor {
    sessions: Vec<(Session, Statement)>,
    next: AtomicUsize,
    key: Key,
}

pub(crate) async fn serve(address: SocketAddr, url: &str) {
    let mut sessions = Vec::new();
    for _ in 0..CONNECTIONS {
        let session = Session::open(url).await;
        let insert = session.client.prepare(INSERT).await.unwrap();
        sessions.push((session, insert));
    }
    let key = Key { tenant: 1, owner: 1 };
    partner::serve(address, Floor { sessions, next: AtomicUsize::new(0), key }).await;
}

/// One finished task.
pub(crate) async fn insert(client: &Client, statement: &Statement, key: Key, body: &[u8]) -> Uuid {
    let id = TaskId::generate().uuid();
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis();
    let now = i64::try_from(now).unwrap() * 1000;
    let context = Uuid::now_v7().to_string();
    let stored = client
        .execute(statement, &[&key.tenant, &key.owner, &id, &context, &now, &body])
        .await
        .unwrap();
    assert_eq!(stored, 2);
    id
}

impl Floor {
    fn session(&self) -> &(Session, Statement) {
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        &self.sessions[n % self.sessions.len()]
    }
}

fn head(row: &Row) -> v1::Task {
    let message: Option<&[u8]> = row.get("status_message");
    v1::Task {
        id: row.get::<_, Uuid>("id").to_string(),
        context_id: row.get("context_id"),
        status: Some(v1::TaskStatus {
            state: row.get::<_, i16>("state").into(),
            message: message.map(|body| v1::Message::decode(body).unwrap()),
            timestamp: Some(Timestamp::from_micros(row.get("status_at"))),
        }),
        ..Default::default()
    }
}

#[async_trait]
impl Answers for Floor {
    async fn list(&self, request: v1::ListTasksRequest) -> v1::ListTasksResponse {
        let after = request.page_token.split_once(':').map(|(at, id)| Cursor {
            status_at_us: at.parse().unwrap(),
            task: TaskId::parse(id).unwrap(),
        });
        let statement = statements::page(self.key, &page_query(after, false));
        let rows = self.session().0.query(&statement).await;
        let tasks: Vec<_> = rows.iter().take(50).map(head).collect();
        let next = rows.get(49).filter(|_| rows.len() > 50);
        let next_page_token = next.map_or_else(String::new, |row| {
            format!("{}:{}", row.get::<_, i64>("status_at"), row.get::<_, Uuid>("id"))
        });
        v1::ListTasksResponse { tasks, next_page_token, page_size: 50, total_size: 0 }
    }

    async fn get(&self, request: v1::GetTaskRequest) -> v1::Task {
        let id = TaskId::parse(&request.id).unwrap();
        let rows = self.session().0.query(&statements::task(self.key, id, view())).await;
        let row = rows.first().unwrap();
        let mut task = head(row);
        let history: Vec<&[u8]> = row.get("history");
        let artifacts: Vec<&[u8]> = row.get("artifacts");
        task.history = history.iter().rev().map(|m| v1::Message::decode(*m).unwrap()).collect();
        task.artifacts = artifacts.iter().map(|a| v1::Artifact::decode(*a).unwrap()).collect();
        task
    }

    async fn send(&self, request: v1::SendMessageRequest) -> v1::SendMessageResponse {
        let body = request.message.unwrap().encode_to_vec();
        let (session, statement) = self.session();
        let id = insert(&session.client, statement, ELSEWHERE, &body).await;
        let status =
            v1::TaskStatus { state: v1::TaskState::Completed.into(), ..Default::default() };
        let task = v1::Task { id: id.to_string(), status: Some(status), ..Default::default() };
        v1::SendMessageResponse { payload: Some(v1::send_message_response::Payload::Task(task)) }
    }
}
