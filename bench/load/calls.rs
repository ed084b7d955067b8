//! Calls over gRPC.

use std::collections::BTreeMap;
use std::sync::Arc;

use a2ad::async_trait;
use a2ad::client::{Client, Connect};
use a2ad::contract::v1;

use crate::drive::{CONNECTIONS, Case, Load, Work};
use crate::lab::{API_KEY, Served};
use crate::sends::message;

/// Which call.
#[derive(Debug, Clone)]
pub(crate) enum Call {
    /// The page of this token.
    Page(String),
    /// Tasks in turn.
    Task(Vec<String>),
    /// An echo, waited for or not, in so many tenants, which makes as many owners.
    Send { at_once: bool, owners: usize },
}

struct Calls {
    clients: Vec<Client>,
    call: Call,
}

#[async_trait]
impl Work for Calls {
    async fn once(&self, lane: usize, n: usize) -> Result<(), String> {
        let mut client = self.clients[lane % self.clients.len()].clone();
        let done = match &self.call {
            Call::Page(token) => {
                let request =
                    v1::ListTasksRequest { page_token: token.clone(), ..Default::default() };
                client.list_tasks(request).await.map(|page| {
                    assert_eq!(page.into_inner().tasks.len(), 50);
                })
            }
            Call::Task(ids) => {
                let id = ids[n % ids.len()].clone();
                client.get_task(v1::GetTaskRequest { id, ..Default::default() }).await.map(drop)
            }
            Call::Send { at_once, owners } => client
                .send_message(request(n, *at_once, &format!("t{}", n % owners)))
                .await
                .map(drop),
        };
        done.map_err(|status| format!("{:?}", status.code()))
    }
}

/// A message to echo.
pub(crate) fn request(n: usize, at_once: bool, tenant: &str) -> v1::SendMessageRequest {
    let configuration =
        v1::SendMessageConfiguration { return_immediately: at_once, ..Default::default() };
    v1::SendMessageRequest {
        tenant: tenant.to_owned(),
        message: Some(message(n)),
        configuration: Some(configuration),
        ..Default::default()
    }
}

/// A server with connections to it.
pub(crate) struct Caller {
    /// What the server is called in reports.
    who: String,
    pid: u32,
    clients: Vec<Client>,
}

impl Caller {
    pub(crate) async fn new(who: &str, served: &Served) -> Self {
        let mut clients = Vec::new();
        for _ in 0..CONNECTIONS {
            let connect = Connect::to(served.url.clone()).bearer(API_KEY).unwrap();
            clients.push(connect.connect().await.unwrap());
        }
        Self { who: who.to_owned(), pid: served.pid, clients }
    }

    pub(crate) fn client(&self) -> Client {
        self.clients[0].clone()
    }

    pub(crate) fn case(&self, name: &str, call: Call) -> Case {
        Case {
            name: format!("{}: {name}", self.who),
            pid: self.pid,
            work: Arc::new(Calls { clients: self.clients.clone(), call }),
            load: Load::Closed,
        }
    }

    /// Tokens of the pages that begin after these rows, each a multiple of 50, found by walking.
    pub(crate) async fn tokens(&self, rows: &[i64]) -> BTreeMap<i64, String> {
        let mut client = self.client();
        let (mut token, mut at, mut found) = (String::new(), 0, BTreeMap::new());
        for &row in rows {
            while at < row {
                let size = (row - at).min(100);
                let request = v1::ListTasksRequest {
                    page_token: token,
                    page_size: Some(i32::try_from(size).unwrap()),
                    ..Default::default()
                };
                token = client.list_tasks(request).await.unwrap().into_inner().next_page_token;
                assert!(!token.is_empty(), "there is no row {row}");
                at += size;
            }
            found.insert(row, token.clone());
        }
        found
    }
}
