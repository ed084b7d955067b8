//! Reading a request's body, within bounds.

use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use crate::bindings::Misfit;
use crate::contract::fault;

/// How much of a request is taken, and how long it may take to arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request's body.
    pub bytes: usize,
    /// From its first byte to its last.
    pub within: Duration,
}

/// The whole body.
///
/// # Errors
/// It has more bytes than are taken, takes too long, or ends before its end.
pub(crate) async fn read(body: Body, limits: Limits) -> Result<Bytes, Misfit> {
    let Limits { bytes: max, within } = limits;
    let too_large = || {
        let text = format!("the request is too large: at most {max} bytes are taken");
        Misfit::new(fault::TOO_LARGE, text)
    };
    // What says its size is refused before it is read.
    if body.size_hint().lower() > u64::try_from(max).unwrap_or(u64::MAX) {
        return Err(too_large());
    }
    match tokio::time::timeout(within, Limited::new(body, max).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => {
            let text = "the request ended before its end";
            Err(Misfit::new(fault::INVALID_REQUEST, text))
        }
        Err(_) => {
            let text = format!("the request took more than {} s to arrive", within.as_secs());
            Err(Misfit::new(fault::TOO_SLOW, text))
        }
    }
}
