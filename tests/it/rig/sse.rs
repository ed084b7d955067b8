//! A reader of server-sent events, one at a time.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    pub(crate) name: Option<String>,
    pub(crate) id: Option<i64>,
    pub(crate) data: Value,
}

/// A stream, on a connection of its own that is cut when this value goes.
pub(crate) struct Events {
    response: Response<Incoming>,
    unread: Vec<u8>,
    /// Comments so far.
    pub(crate) comments: usize,
    connection: JoinHandle<()>,
}

impl Drop for Events {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Events {
    /// Asks over HTTP/1.1.
    pub(crate) async fn ask(
        server: SocketAddr,
        verb: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Self {
        let mut request = Request::builder().method(verb).uri(path).header("host", "x");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into())).unwrap();
        let io = TokioIo::new(TcpStream::connect(server).await.unwrap());
        let (mut sender, connection) = http1::handshake(io).await.unwrap();
        let connection = tokio::spawn(async move { drop(connection.await) });
        let response = sender.send_request(request).await.unwrap();
        Self { response, unread: Vec::new(), comments: 0, connection }
    }

    pub(crate) fn response(&self) -> &Response<Incoming> {
        &self.response
    }

    /// The whole body, for an answer that is no stream.
    pub(crate) async fn whole(mut self) -> Value {
        let body = self.response.body_mut().collect().await.unwrap().to_bytes();
        serde_json::from_slice(&body).unwrap()
    }

    /// The next event; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(end) = self.unread.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.unread.drain(..end + 2).collect();
                match self.event(std::str::from_utf8(&block).unwrap()) {
                    Some(event) => return Some(event),
                    None => continue,
                }
            }
            let Some(frame) = self.response.body_mut().frame().await else {
                assert!(self.unread.is_empty(), "half an event");
                return None;
            };
            self.unread.extend_from_slice(frame.unwrap().data_ref().unwrap());
        }
    }

    /// A block of lines, strictly: one line of data, no others than we send.
    fn event(&mut self, block: &str) -> Option<Event> {
        let mut event = Event { name: None, id: None, data: Value::Null };
        let mut n_data = 0;
        for line in block.lines().filter(|line| !line.is_empty()) {
            match line.split_once(": ") {
                Some(("data", json)) => {
                    event.data = serde_json::from_str(json).unwrap();
                    n_data += 1;
                }
                Some(("event", name)) => event.name = Some(name.to_owned()),
                Some(("id", id)) => event.id = Some(id.parse().unwrap()),
                Some(("", _)) => self.comments += 1,
                other => panic!("{other:?} in {block:?}"),
            }
        }
        assert!(n_data <= 1, "{block:?}");
        (n_data == 1).then_some(event)
    }

    /// All that is left.
    pub(crate) async fn rest(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }
}
