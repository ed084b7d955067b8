//! Streams of server-sent events (SSE-01 to SSE-06).

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::Response;
use futures_util::StreamExt as _;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};

use crate::domain::Error;
use crate::service::{EventStream, Streamed};

/// How often a stream with nothing to say says so, that nobody in between takes it for dead.
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(15);
/// A comment, which clients skip (SSE-03).
const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

/// What a binding makes of an event.
#[derive(Debug)]
pub(crate) struct Event {
    /// The name; most have none.
    pub(crate) name: Option<&'static str>,
    /// Where the stream goes on after this one, for callers who asked to know.
    pub(crate) id: Option<i64>,
    /// JSON without line breaks (SSE-02).
    pub(crate) data: Vec<u8>,
}

impl Event {
    fn bytes(self) -> Bytes {
        let mut text = Vec::with_capacity(self.data.len() + 64);
        if let Some(name) = self.name {
            text.extend_from_slice(format!("event: {name}\n").as_bytes());
        }
        if let Some(id) = self.id {
            text.extend_from_slice(format!("id: {id}\n").as_bytes());
        }
        text.extend_from_slice(b"data: ");
        text.extend_from_slice(&self.data);
        text.extend_from_slice(b"\n\n");
        text.into()
    }
}

/// What a binding says of an event, or of how the stream failed.
pub(crate) type Say = Box<dyn FnMut(Result<Streamed, Error>) -> Event + Send>;

/// The answer that `events` are. It asks for an event when the one before has gone out, so a reader
/// that is slow or gone holds one event and no more. An error is the last event.
pub(crate) fn answer(events: EventStream, say: Say) -> Response {
    let stream = futures_util::stream::unfold(Some((events, say)), |state| async {
        let (mut events, mut say) = state?;
        let next = tokio::time::timeout(KEEP_ALIVE_EVERY, events.next()).await;
        let (bytes, goes_on) = match next {
            Err(_silence) => (Bytes::from_static(KEEP_ALIVE), true),
            Ok(None) => return None,
            Ok(Some(event)) => {
                let goes_on = event.is_ok();
                (say(event).bytes(), goes_on)
            }
        };
        Some((Ok::<_, Infallible>(bytes), goes_on.then_some((events, say))))
    });
    with_headers(Body::from_stream(stream))
}

/// A stream of this event alone.
pub(crate) fn one(event: Event) -> Response {
    with_headers(Body::from(event.bytes()))
}

fn with_headers(body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, EVENTS);
    // So that nobody in between keeps events back or keeps them at all (SSE-05).
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}

const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
