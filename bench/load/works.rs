//! Calls over gRPC.

use std::sync::Arc;

use a2ad::async_trait;
use a2ad::client::{Client, Connect};
use a2ad::contract::v1;

use crate::drive::{CONNECTIONS, Case, Work};
use crate::lab::{API_KEY, Place, Served};
use crate::sends::message;

/// Which call.
pub(crate) enum What {
    /// The page of this token.
    Page(String),
    /// Tasks in turn.
    Task(Vec<String>),
    /// An echo, waited for or not.
    Send { at_once: bool },
}

struct Calls {
    clients: Vec<Client>,
    what: What,
}

#[async_trait]
impl Work for Calls {
    async fn once(&self, lane: usize, n: usize) -> Result<(), String> {
        let mut client = self.clients[lane % self.clients.len()].clone();
        let done = match &self.what {
            What::Page(token) => {
                let request =
                    v1::ListTasksRequest { page_token: token.clone(), ..Default::default() };
                client.list_tasks(request).await.map(|page| {
                    assert_eq!(page.into_inner().tasks.len(), 50);
                })
            }
            What::Task(ids) => {
                let id = ids[n % ids.len()].clone();
                client.get_task(v1::GetTaskRequest { id, ..Default::default() }).await.map(drop)
            }
            What::Send { at_once } => {
                let configuration = v1::SendMessageConfiguration {
                    return_immediately: *at_once,
                    ..Default::default()
                };
                let request = v1::SendMessageRequest {
                    message: Some(message(n)),
                    configuration: Some(configuration),
                    ..Default::default()
                };
                client.send_message(request).await.map(drop)
            }
        };
        done.map_err(|status| format!("{:?}", status.code()))
    }
}

/// Ids of tasks of the measured owner, far from each other.
pub(crate) fn ids(place: &Place<'_>) -> Vec<String> {
    let owned = place.tasks / 5;
    (0..owned.min(5000))
        .map(|n| 5 * (1 + n * 7919 % owned))
        .map(|n| format!("01900000-0000-7000-8000-{n:012x}"))
        .collect()
}

pub(crate) async fn clients(served: &Served) -> Vec<Client> {
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        let connect = Connect::to(served.url.clone()).bearer(API_KEY).unwrap();
        clients.push(connect.connect().await.unwrap());
    }
    clients
}

/// The token of a page, by walking there.
pub(crate) async fn token(client: &mut Client, page: usize) -> String {
    let mut token = String::new();
    for _ in 1..page {
        let request = v1::ListTasksRequest { page_token: token, ..Default::default() };
        token = client.list_tasks(request).await.unwrap().into_inner().next_page_token;
        assert!(!token.is_empty(), "there is no page {page}");
    }
    token
}

/// The three calls that matter most.
pub(crate) async fn basic(name: &str, place: &Place<'_>, served: &Served) -> Vec<Case> {
    let clients = clients(served).await;
    let second = token(&mut clients[0].clone(), 2).await;
    [
        ("ListTasks, page 1", What::Page(String::new())),
        ("ListTasks, page 2", What::Page(second)),
        ("GetTask", What::Task(ids(place))),
        ("SendMessage", What::Send { at_once: false }),
    ]
    .into_iter()
    .map(|(call, what)| Case {
        name: format!("{name}: {call}"),
        pid: served.pid,
        work: Arc::new(Calls { clients: clients.clone(), what }),
    })
    .collect()
}
