//! The time that a caller gives a call.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use http::HeaderMap;
use tokio::time::{Instant, timeout_at};

use crate::domain::{Error, Violation};
use crate::service::EventStream;

/// What is wrong with a deadline that cannot be read.
const WRONG: &str = "must be one to eight digits and a unit of H, M, S, m, u or n";

/// The time that a call has left, from `grpc-timeout`: at most eight digits and a unit. Every
/// binding reads it, so that a proxy in front can pass on what it knows.
///
/// # Errors
/// The header cannot be read.
pub fn deadline(headers: &HeaderMap) -> Result<Option<Duration>, Violation> {
    let Some(value) = headers.get("grpc-timeout") else { return Ok(None) };
    parse(value.as_bytes()).map(Some).ok_or_else(|| Violation::new("grpc-timeout", WRONG))
}

/// `events` until `deadline`, which is the last of them if it passes (GRPC-09).
pub(super) fn until(events: EventStream, deadline: Option<Instant>) -> EventStream {
    let Some(deadline) = deadline else { return events };
    stream::unfold(Some(events), move |events| async move {
        let mut events = events?;
        // A timeout looks at its clock only when there is nothing to take.
        if Instant::now() >= deadline {
            return Some((Err(Error::DeadlineExceeded), None));
        }
        match timeout_at(deadline, events.next()).await {
            Ok(Some(item)) => Some((item, Some(events))),
            Ok(None) => None,
            Err(_late) => Some((Err(Error::DeadlineExceeded), None)),
        }
    })
    .boxed()
}

fn parse(text: &[u8]) -> Option<Duration> {
    let (&unit, digits) = text.split_last()?;
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
    match unit {
        b'H' => Some(Duration::from_secs(number * 3600)),
        b'M' => Some(Duration::from_secs(number * 60)),
        b'S' => Some(Duration::from_secs(number)),
        b'm' => Some(Duration::from_millis(number)),
        b'u' => Some(Duration::from_micros(number)),
        b'n' => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::v1;
    use crate::service::Streamed;

    #[tokio::test]
    async fn a_deadline_ends_a_stream_that_always_has_more() {
        let item = || Ok(Streamed { generation: 1, response: v1::StreamResponse::default() });
        let mut events = until(stream::repeat_with(item).boxed(), Some(Instant::now()));
        let late = events.next().await;
        assert!(matches!(late, Some(Err(Error::DeadlineExceeded))), "{late:?}");
        assert!(events.next().await.is_none());
    }

    #[test]
    fn a_deadline_is_up_to_eight_digits_and_a_unit() {
        let parsed = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", text.parse().unwrap());
            deadline(&headers)
        };
        assert_eq!(parsed("200m"), Ok(Some(Duration::from_millis(200))));
        assert_eq!(parsed("99999999H"), Ok(Some(Duration::from_secs(99_999_999 * 3600))));
        assert_eq!(parsed("1n"), Ok(Some(Duration::from_nanos(1))));
        assert_eq!(deadline(&HeaderMap::new()), Ok(None));
        for bad in ["", "S", "5", "5s", "-5S", "1.5S", "999999999S", "5 S"] {
            assert!(parsed(bad).is_err(), "{bad:?}");
        }
    }
}
