//! Media types of requests and answers (AMB-09, AMB-44).

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};

use crate::bindings::Misfit;
use crate::contract::fault;

/// The type of the HTTP+JSON binding.
pub(crate) const A2A_JSON: HeaderValue = HeaderValue::from_static("application/a2a+json");
/// What every client reads.
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Which of the two a body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Body {
    /// `application/json`, or no type at all.
    Json,
    /// `application/a2a+json`.
    A2aJson,
}

/// What a request's body is said to be; parameters such as a charset do not count.
///
/// # Errors
/// It is neither.
pub(crate) fn of_body(headers: &HeaderMap) -> Result<Body, Misfit> {
    let Some(named) = headers.get(CONTENT_TYPE) else { return Ok(Body::Json) };
    let named = named.to_str().unwrap_or("(not text)");
    let essence = named.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence.as_str() {
        "application/json" | "" => Ok(Body::Json),
        "application/a2a+json" => Ok(Body::A2aJson),
        _ => {
            let named: String = named.chars().take(64).collect();
            let text = format!("a body of type {named} is not taken; send application/json");
            Err(Misfit::new(fault::CONTENT_TYPE_NOT_SUPPORTED, text))
        }
    }
}

/// What a caller takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The type of an answer.
    a2a: bool,
    /// The type of an error: the other one only for whoever takes nothing else.
    a2a_error: bool,
}

impl Wanted {
    /// From `Accept`, and from the type of the request's own body where that leaves it open.
    pub(crate) fn new(headers: &HeaderMap, body: Body) -> Self {
        let ranges: Vec<_> = headers
            .get_all(ACCEPT)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .filter_map(Range::parse)
            .collect();
        let of = |kind: &str| {
            let named = ranges.iter().enumerate().filter(|(_, range)| range.kind == kind);
            named.map(|(place, range)| (range.quality, -i64::try_from(place).unwrap_or(0))).max()
        };
        let (a2a, json) = (of("application/a2a+json"), of("application/json"));
        let anything = of("*/*").max(of("application/*"));
        Self {
            a2a: match (a2a, json) {
                (None, None) => body == Body::A2aJson,
                (a2a, json) => a2a > json,
            },
            a2a_error: a2a.is_some() && json.is_none() && anything.is_none(),
        }
    }

    /// The type of an answer.
    pub(crate) fn answer(self) -> HeaderValue {
        if self.a2a { A2A_JSON } else { JSON }
    }

    /// The type of an error.
    pub(crate) fn error(self) -> HeaderValue {
        if self.a2a_error { A2A_JSON } else { JSON }
    }
}

/// One range of `Accept`, unless it is refused there.
struct Range {
    kind: String,
    /// In thousandths.
    quality: u32,
}

impl Range {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(';').map(|part| part.trim().to_ascii_lowercase());
        let kind = parts.next().filter(|kind| !kind.is_empty())?;
        let named = parts.find_map(|part| part.strip_prefix("q=").map(str::to_owned));
        let quality = named.map_or(1.0, |quality| quality.parse::<f64>().unwrap_or(1.0));
        let quality = quality.clamp(0.0, 1.0) * 1000.0;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is from 0 to 1000"
        )]
        let quality = quality as u32;
        (quality > 0).then_some(Self { kind, quality })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(accept: &[&str], body: Body) -> (bool, bool) {
        let mut headers = HeaderMap::new();
        for value in accept {
            headers.append(ACCEPT, value.parse().unwrap());
        }
        let wanted = Wanted::new(&headers, body);
        (wanted.answer() == A2A_JSON, wanted.error() == A2A_JSON)
    }

    #[test]
    fn the_protocols_own_type_is_for_those_who_ask_for_it() {
        use Body::{A2aJson, Json};
        for (accept, body, expected) in [
            (&[][..], Json, (false, false)),
            (&["*/*"], Json, (false, false)),
            (&["application/json"], Json, (false, false)),
            (&["application/json"], A2aJson, (false, false)),
            (&["*/*"], A2aJson, (true, false)),
            (&[], A2aJson, (true, false)),
            (&["application/a2a+json"], Json, (true, true)),
            (&["Application/A2A+JSON; x=1"], Json, (true, true)),
            (&["application/a2a+json, application/json"], Json, (true, false)),
            (&["application/a2a+json", "*/*;q=0.1"], Json, (true, false)),
            (&["application/json, application/a2a+json"], Json, (false, false)),
            (&["application/json;q=0.5, application/a2a+json"], Json, (true, false)),
            (&["application/a2a+json;q=0, application/json"], Json, (false, false)),
            (&["text/event-stream, application/a2a+json"], Json, (true, true)),
            (&["text/html"], Json, (false, false)),
        ] {
            assert_eq!(wanted(accept, body), expected, "{accept:?} {body:?}");
        }
    }

    #[test]
    fn a_body_is_json_in_either_name() {
        let body = |kind: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, kind.parse().unwrap());
            of_body(&headers).map_err(|misfit| misfit.text)
        };
        assert_eq!(of_body(&HeaderMap::new()).ok(), Some(Body::Json));
        assert_eq!(body("application/json; charset=utf-8"), Ok(Body::Json));
        assert_eq!(body("APPLICATION/JSON"), Ok(Body::Json));
        assert_eq!(body("application/a2a+json"), Ok(Body::A2aJson));
        for other in ["text/plain", "application/x-www-form-urlencoded", "application/json-seq"] {
            assert!(body(other).unwrap_err().contains(other));
        }
    }
}
