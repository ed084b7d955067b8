//! Server-sent events over both JSON bindings: framing, early errors, cursors, cuts and the end.

use std::net::SocketAddr;
use std::time::Duration;

use a2ad::bindings::{EarlyErrors, Settings};
use a2ad::contract::CURSOR_EXTENSION;
use a2ad::contract::v1;
use serde_json::{Value, json};

use crate::bindings::caller::{Told, exactly};
use crate::bindings::{JSON, V1, answer, asked, message, parsed, rest};
use crate::rig::raw;
use crate::rig::sse::{Event, Events};
use crate::rig::{TestServer, eventually};

/// The two bindings that stream as server-sent events.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Over {
    JsonRpc,
    Rest,
}

pub(crate) const BOTH: [Over; 2] = [Over::JsonRpc, Over::Rest];

impl Over {
    pub(crate) async fn ask(
        self,
        server: SocketAddr,
        method: &str,
        params: Value,
        more: &[(&str, &str)],
    ) -> Events {
        let mut headers = vec![JSON, V1, ("accept", "text/event-stream")];
        headers.extend_from_slice(more);
        match self {
            Self::JsonRpc => {
                let body = json!({"jsonrpc": "2.0", "id": "s", "method": method, "params": params});
                Events::ask(server, "POST", "/", &headers, body.to_string()).await
            }
            Self::Rest if method == "SubscribeToTask" => {
                let path = format!("/tasks/{}:subscribe", params["id"].as_str().unwrap());
                Events::ask(server, "POST", &path, &headers, "").await
            }
            Self::Rest => {
                Events::ask(server, "POST", "/message:stream", &headers, params.to_string()).await
            }
        }
    }

    pub(crate) async fn send(self, server: SocketAddr, text: &str) -> Events {
        self.ask(server, "SendStreamingMessage", json!({"message": message(text)}), &[]).await
    }

    pub(crate) async fn subscribe(
        self,
        server: SocketAddr,
        id: &str,
        more: &[(&str, &str)],
    ) -> Events {
        self.ask(server, "SubscribeToTask", json!({ "id": id }), more).await
    }

    /// What an event says, out of its envelope.
    pub(crate) fn response(self, event: &Event) -> v1::StreamResponse {
        assert_eq!(event.name, None, "{event:?}");
        exactly(match self {
            Self::JsonRpc => {
                assert_eq!(
                    (&event.data["jsonrpc"], &event.data["id"]),
                    (&json!("2.0"), &json!("s"))
                );
                event.data["result"].clone()
            }
            Self::Rest => event.data.clone(),
        })
    }

    /// The error that an event is, and its code.
    fn error(self, event: &Event) -> i64 {
        assert_eq!(event.name.as_deref(), (self == Self::Rest).then_some("error"));
        event.data["error"]["code"].as_i64().unwrap()
    }

    /// An error as its caller reads it.
    pub(crate) fn told(self, error: &Value) -> Told {
        match self {
            Self::JsonRpc => Told::of_jsonrpc(error),
            Self::Rest => Told::of_rest(error),
        }
    }

    fn kind(self, event: &Event) -> String {
        let data = if self == Self::JsonRpc { &event.data["result"] } else { &event.data };
        let members: Vec<_> = data.as_object().unwrap().keys().cloned().collect();
        members.join(" ")
    }
}

#[tokio::test]
async fn a_message_is_streamed_to_its_end() {
    let server = TestServer::start().await;
    for over in BOTH {
        let mut events = over.send(server.addr(), "slow 1").await;
        let headers = events.response().headers().clone();
        assert_eq!(events.response().status(), 200);
        assert_eq!(headers["content-type"], "text/event-stream");
        assert_eq!(headers["cache-control"], "no-cache");
        let events = events.rest().await;
        let kinds: Vec<_> = events.iter().map(|event| over.kind(event)).collect();
        assert_eq!(kinds.first().unwrap(), "task", "{over:?}");
        assert_eq!(kinds.last().unwrap(), "statusUpdate");
        assert!(kinds.iter().any(|kind| kind == "artifactUpdate"), "{kinds:?}");
        assert!(events.iter().all(|event| event.id.is_none()), "nobody asked for cursors");
        let last = over.response(events.last().unwrap());
        assert!(format!("{last:?}").contains("Completed"), "{last:?}");

        let reply = over.send(server.addr(), "reply hi").await.rest().await;
        let kinds: Vec<_> = reply.iter().map(|event| over.kind(event)).collect();
        assert_eq!(kinds, ["message"]);
    }
}

#[tokio::test]
async fn a_stream_that_cannot_begin_is_an_error_like_any_other() {
    let server = TestServer::start().await;
    let absent = "0198c0de-0000-7000-8000-000000000000";
    for over in BOTH {
        let (status, code) = if over == Over::JsonRpc { (200, -32001) } else { (404, 404) };
        let events = over.subscribe(server.addr(), absent, &[]).await;
        assert_eq!(events.response().status(), status);
        assert_eq!(events.response().headers()["content-type"], "application/json");
        let error = events.whole().await;
        assert_eq!(error["error"]["code"], code);
        let events = over.ask(server.addr(), "SendStreamingMessage", json!({}), &[]).await;
        let code = if over == Over::JsonRpc { -32602 } else { 400 };
        assert_eq!(events.whole().await["error"]["code"], code);
    }
}

#[tokio::test]
async fn old_clients_can_have_early_errors_as_a_stream() {
    let settings = Settings { early_errors: EarlyErrors::Events, ..Settings::default() };
    let server = TestServer::with(|server| server.bindings(settings)).await;
    let mut events = Over::JsonRpc.subscribe(server.addr(), "x", &[]).await;
    assert_eq!(events.response().status(), 200);
    assert_eq!(events.response().headers()["content-type"], "text/event-stream");
    let all = events.rest().await;
    assert_eq!(all.len(), 1);
    assert_eq!((Over::JsonRpc.error(&all[0]), &all[0].data["id"]), (-32001, &json!("s")));
    // HTTP+JSON has statuses for that.
    let events = Over::Rest.subscribe(server.addr(), "x", &[]).await;
    assert_eq!(events.response().status(), 404);
}

#[tokio::test]
async fn subscribing_works_by_get_and_by_post_and_every_stream_is_the_same() {
    let server = TestServer::start().await;
    let addr = server.addr();
    let task = asked(addr).await;
    let path = format!("/tasks/{task}:subscribe");
    let mut streams = vec![
        (Over::JsonRpc, Over::JsonRpc.subscribe(addr, &task, &[]).await),
        (Over::Rest, Over::Rest.subscribe(addr, &task, &[]).await),
        (Over::Rest, Events::ask(addr, "GET", &path, &[V1], "").await),
        (Over::Rest, Events::ask(addr, "POST", &path, &[JSON, V1], "{}").await),
    ];
    let mut first = Vec::new();
    for (over, events) in &mut streams {
        let event = events.next().await.unwrap();
        assert_eq!(over.kind(&event), "task");
        first.push(over.response(&event));
    }
    answer(addr, &task).await;
    let mut all = Vec::new();
    for (over, events) in &mut streams {
        let rest = events.rest().await;
        all.push(rest.iter().map(|event| over.response(event)).collect::<Vec<_>>());
    }
    assert!(first.iter().all(|one| one == &first[0]));
    assert!(all.iter().all(|one| one == &all[0]), "{all:?}");
    assert!(!all[0].is_empty());
    let events = Events::ask(addr, "GET", &path, &[V1], "").await;
    assert_eq!(events.response().status(), 400, "a task that has ended is not streamed");
}

#[tokio::test]
async fn a_stream_goes_on_after_the_id_of_an_event() {
    let server = TestServer::start().await;
    let addr = server.addr();
    let extension = ("a2a-extensions", CURSOR_EXTENSION);
    for over in BOTH {
        let task = asked(addr).await;
        let mut whole = over.subscribe(addr, &task, &[extension]).await;
        assert_eq!(whole.response().headers()["a2a-extensions"], CURSOR_EXTENSION);
        let first = whole.next().await.unwrap();
        answer(addr, &task).await;
        let mut events = vec![first];
        events.extend(whole.rest().await);
        let ids: Vec<_> = events.iter().map(|event| event.id.unwrap()).collect();
        assert!(ids.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{ids:?}");
        // The task has ended, and the rest is there all the same.
        for (n, id) in ids.iter().enumerate() {
            let after = id.to_string();
            let resumed = [extension, ("last-event-id", after.as_str())];
            let rest = over.subscribe(addr, &task, &resumed).await.rest().await;
            assert_eq!(rest, events[n + 1..], "{over:?} after {id}");
        }
        for bad in ["x", "-1", "99999", ""] {
            let events = over.subscribe(addr, &task, &[extension, ("last-event-id", bad)]).await;
            let answer = events.whole().await;
            assert!(answer["error"]["code"].is_number(), "{bad:?}: {answer}");
        }
        // Without the extension, the header has no meaning.
        let plain = over.subscribe(addr, &task, &[("last-event-id", "1")]).await;
        assert!(plain.whole().await["error"].is_object());
    }
}

#[tokio::test]
async fn a_server_that_ends_says_so_in_the_stream() {
    for over in BOTH {
        let server =
            TestServer::with(|server| server.drain(Duration::ZERO, Duration::from_secs(30))).await;
        let task = asked(server.addr()).await;
        let mut events = over.subscribe(server.addr(), &task, &[]).await;
        assert_eq!(over.kind(&events.next().await.unwrap()), "task");
        let ending = tokio::spawn(server.into_server().stop());
        let last = events.rest().await;
        assert_eq!(last.len(), 1, "{last:?}");
        assert_eq!(over.error(&last[0]), if over == Over::JsonRpc { -32603 } else { 503 });
        drop(events);
        assert!(ending.await.unwrap(), "drained");
    }
}

#[tokio::test]
async fn a_deadline_ends_a_stream_and_not_the_work() {
    let server = TestServer::start().await;
    for over in BOTH {
        let task = asked(server.addr()).await;
        let late = ("grpc-timeout", "300m");
        let mut events = over.subscribe(server.addr(), &task, &[late]).await;
        let all = events.rest().await;
        assert_eq!(all.len(), 2, "{all:?}");
        assert_eq!(over.error(&all[1]), if over == Over::JsonRpc { -32603 } else { 504 });
    }
}

#[tokio::test]
async fn a_notification_that_would_stream_is_done_and_not_answered() {
    let server = TestServer::start().await;
    let addr = server.addr();
    let params = json!({"message": message("hello")});
    let body = json!({"jsonrpc": "2.0", "method": "SendStreamingMessage", "params": params});
    let response = raw::http(addr, "POST", "/", &[JSON, V1], body.to_string()).await;
    assert_eq!((response.status().as_u16(), response.body().len()), (204, 0));
    eventually("the work", async || {
        let listed = parsed(&rest(addr, "GET", "/tasks?status=TASK_STATE_COMPLETED", "").await);
        listed["totalSize"] == 1
    })
    .await;
}
