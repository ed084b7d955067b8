//! Keeps the room of an answer until its last byte has left for the client.
//!
//! The room goes with the bytes themselves: whatever the HTTP library does with them, queues them or
//! drops them with their connection, they give it back when they are freed.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use http_body::{Frame, SizeHint};

use crate::service::room::{Hold, Share};

/// The most bytes that are handed on at a time, so that an answer is seen to move.
const SLICE: usize = 64 * 1024;

/// Gives each call the room of its connection, and its answer the room that the call took.
pub(crate) async fn hold(mut request: Request, next: Next) -> Response {
    let Some(share) = request.extensions().get::<Arc<Share>>() else {
        return next.run(request).await;
    };
    let room = share.call();
    request.extensions_mut().insert(room.clone());
    let response = next.run(request).await;
    match room.taken() {
        None => response,
        Some(hold) => {
            response.map(|body| Body::new(Held { body, rest: Bytes::new(), hold: Arc::new(hold) }))
        }
    }
}

/// A body whose bytes hold room.
struct Held {
    body: Body,
    /// What is left of the last frame.
    rest: Bytes,
    hold: Arc<Hold>,
}

/// Some of those bytes.
struct Slice {
    bytes: Bytes,
    hold: Arc<Hold>,
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Slice {
    fn drop(&mut self) {
        self.hold.moved();
    }
}

impl Held {
    fn slice(&mut self) -> Option<Frame<Bytes>> {
        if self.rest.is_empty() {
            return None;
        }
        let bytes = self.rest.split_to(self.rest.len().min(SLICE));
        let hold = Arc::clone(&self.hold);
        Some(Frame::data(Bytes::from_owner(Slice { bytes, hold })))
    }
}

impl http_body::Body for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        loop {
            if let Some(slice) = self.slice() {
                return Poll::Ready(Some(Ok(slice)));
            }
            match std::task::ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                end => return Poll::Ready(end),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = u64::try_from(self.rest.len()).unwrap_or(u64::MAX);
        let body = self.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower().saturating_add(rest));
        if let Some(upper) = body.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint
    }
}
