//! Streams that know no end of their own, such as a health watch: they end when the server does.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::bindings::grpc;
use crate::domain::Error;

/// Ends what `next` answers with UNAVAILABLE as soon as `stop` is cancelled, so that an open
/// stream does not use up the grace period and clients look for another server at once.
pub(crate) async fn end_with(
    State(stop): State<CancellationToken>,
    request: Request,
    next: Next,
) -> Response {
    let response = next.run(request).await;
    response
        .map(|body| Body::new(Ending { body, stop: Box::pin(stop.cancelled_owned()), over: false }))
}

struct Ending {
    body: Body,
    stop: Pin<Box<WaitForCancellationFutureOwned>>,
    over: bool,
}

impl HttpBody for Ending {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.over {
            return Poll::Ready(None);
        }
        // What is there goes out first.
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            return Poll::Ready(frame);
        }
        if self.stop.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        self.over = true;
        let mut trailers = HeaderMap::new();
        let told = grpc::status(&Error::ShuttingDown).add_header(&mut trailers);
        Poll::Ready(told.is_ok().then(|| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.over || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
