//! Requests that take their time: a body that has not arrived after a while is given up.
//!
//! The JSON bindings read whole bodies and watch the time themselves. gRPC's library does not, so
//! its bodies watch it.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use http_body::{Frame, SizeHint};
use tokio::time::{Sleep, sleep};

use crate::bindings::grpc;
use crate::contract::fault;

/// `body`, which fails in the words of gRPC when it is not whole after `within`.
pub(crate) fn in_time(body: Body, within: Duration) -> Body {
    Body::new(Arriving { body, late: Box::pin(sleep(within)), within })
}

struct Arriving {
    body: Body,
    /// Not looked at as long as there is something to read, so it costs no timer then.
    late: Pin<Box<Sleep>>,
    within: Duration,
}

impl HttpBody for Arriving {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            return Poll::Ready(frame);
        }
        if self.late.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        let text = format!("the request took more than {} s to arrive", self.within.as_secs());
        let status = grpc::status_of_fault(fault::TOO_SLOW, &text);
        Poll::Ready(Some(Err(axum::Error::new(status))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body_util::BodyExt as _;
    use tonic::{Code, Status};

    use super::*;

    #[tokio::test]
    async fn a_body_that_stalls_fails_and_one_that_comes_does_not() {
        let whole = in_time(Body::from("hello"), Duration::ZERO);
        assert_eq!(whole.collect().await.unwrap().to_bytes(), "hello");
        let stalled = Body::from_stream(stream::pending::<Result<Bytes, axum::Error>>());
        let error = in_time(stalled, Duration::from_millis(5)).collect().await.unwrap_err();
        let status = Status::from_error(Box::new(error));
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
    }
}
