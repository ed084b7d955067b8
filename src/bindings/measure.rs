//! What is counted of every answer: its binding, its operation, its code, and how long it took.
//!
//! gRPC says the first two in the path and the code in a header. The bindings that speak JSON leave
//! both with their answer, since JSON-RPC says neither outside of its body.

use std::time::Duration;

use axum::response::Response;

use crate::bindings::operation::Operation;
use crate::contract::fault;
use crate::metrics::Metrics;

/// The operation that an answer is of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Of(pub(super) &'static str);

/// The name of the code with which a call failed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Code(pub(super) &'static str);

/// Where a request is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    binding: &'static str,
    operation: Option<&'static str>,
}

const SERVICE: &str = "/lf.a2a.v1.A2AService/";
const OTHER: &str = "other";

impl Asked {
    /// What a request asks for, as far as its path tells.
    #[must_use]
    pub fn at(path: &str, is_grpc: bool) -> Self {
        if is_grpc {
            let operation = path.strip_prefix(SERVICE).and_then(Operation::named);
            Self { binding: "grpc", operation: Some(operation.map_or(OTHER, Operation::name)) }
        } else if path.bytes().all(|byte| byte == b'/') {
            Self { binding: "jsonrpc", operation: None }
        } else if path.starts_with("/.well-known/") {
            Self { binding: "http", operation: Some("card") }
        } else {
            Self { binding: "http", operation: None }
        }
    }

    /// Counts the answer.
    pub fn count(self, metrics: &Metrics, response: &Response, took: Duration) {
        let told = response.extensions().get::<Of>().map(|of| of.0);
        let operation = self.operation.or(told).filter(|name| is_known(name)).unwrap_or(OTHER);
        let labels = [("binding", self.binding), ("operation", operation)];
        metrics.request_seconds.took(labels, took);
        let [binding, operation] = labels;
        metrics.requests.one([binding, operation, ("code", code(response))]);
    }
}

/// Whether this is the name of something that is asked for, and not of a step on the way there.
fn is_known(name: &str) -> bool {
    name == "card" || Operation::named(name).is_some()
}

fn code(response: &Response) -> &'static str {
    if let Some(Code(name)) = response.extensions().get() {
        return name;
    }
    let status = response.headers().get("grpc-status").and_then(|value| value.to_str().ok());
    match status.map(str::parse::<i32>) {
        Some(Ok(number)) => fault::status_name(number),
        Some(Err(_)) => "UNKNOWN",
        None if response.status().is_client_error() || response.status().is_server_error() => {
            "UNKNOWN"
        }
        None => "OK",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_tells_the_binding_and_never_makes_up_a_label() {
        let of = |path, is_grpc| {
            let Asked { binding, operation } = Asked::at(path, is_grpc);
            (binding, operation)
        };
        assert_eq!(of("/lf.a2a.v1.A2AService/GetTask", true), ("grpc", Some("GetTask")));
        assert_eq!(of("/lf.a2a.v1.A2AService/Made", true), ("grpc", Some("other")));
        assert_eq!(of("/grpc.health.v1.Health/Check", true), ("grpc", Some("other")));
        assert_eq!(of("//", false), ("jsonrpc", None));
        assert_eq!(of("/tasks/x", false), ("http", None));
        assert_eq!(of("/.well-known/agent-card.json", false), ("http", Some("card")));
    }
}
