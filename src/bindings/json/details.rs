//! A [`Failure`] as the bindings that speak JSON tell it.

use serde_json::{Map, Value, json};

use crate::bindings::Failure;
use crate::contract::ERROR_DOMAIN;

const TYPES: &str = "type.googleapis.com/google.rpc.";

/// `google.rpc` details, `ErrorInfo` first: some clients read no further (ERR-02, ERR-05). The
/// same as on gRPC, in the same order.
fn details(failure: &Failure) -> Vec<Value> {
    let mut details = Vec::new();
    if let Some(reason) = failure.fault.reason {
        let mut info = json!({
            "@type": format!("{TYPES}ErrorInfo"), "reason": reason, "domain": ERROR_DOMAIN,
        });
        if !failure.metadata.is_empty() {
            let metadata: Map<_, _> = failure
                .metadata
                .iter()
                .map(|(key, value)| ((*key).to_owned(), Value::from(value.as_str())))
                .collect();
            info["metadata"] = metadata.into();
        }
        details.push(info);
    }
    if !failure.violations.is_empty() {
        let violations: Vec<_> = failure
            .violations
            .iter()
            .map(|v| json!({"field": v.field, "description": v.problem}))
            .collect();
        let kind = format!("{TYPES}BadRequest");
        details.push(json!({"@type": kind, "fieldViolations": violations}));
    }
    if let Some(delay) = failure.retry_in {
        let delay = format!("{}s", delay.as_secs());
        details.push(json!({"@type": format!("{TYPES}RetryInfo"), "retryDelay": delay}));
    }
    details
}

/// The error object of a JSON-RPC response, which has no other members (JRPC-08).
#[must_use]
pub fn jsonrpc(failure: &Failure) -> Value {
    let mut error = json!({"code": failure.fault.jsonrpc, "message": failure.text});
    let details = details(failure);
    if !details.is_empty() {
        error["data"] = details.into();
    }
    error
}

/// The body of an HTTP+JSON error: `google.rpc.Status` inside of `error`.
#[must_use]
pub fn rest(failure: &Failure) -> Value {
    let mut error = json!({
        "code": failure.fault.http,
        "status": failure.fault.status_name(),
        "message": failure.text,
    });
    let details = details(failure);
    if !details.is_empty() {
        error["details"] = details.into();
    }
    json!({ "error": error })
}
