//! The protocol's table of errors: one row for each way a call can fail, with its name and number
//! on every binding.
//!
//! The rows are those of A2A 1.0.1; [`Fault::in_table`] gives those of 1.0.0, which differ in six
//! statuses. A row without a reason travels without `ErrorInfo`: clients map it by its code and
//! would take an unknown reason for an internal error.

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// `google.rpc.ErrorInfo.reason`.
    pub reason: Option<&'static str>,
    /// The gRPC status code.
    pub grpc: i32,
    /// The HTTP status of HTTP+JSON.
    pub http: u16,
    /// The JSON-RPC error code.
    pub jsonrpc: i32,
    /// A message for people where nothing better is known.
    pub text: &'static str,
}

/// Which edition of the protocol fixes the statuses. Reasons and JSON-RPC codes are the same in
/// all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StatusTable {
    /// The first edition of 1.0.
    V1_0_0,
    /// The present one.
    #[default]
    V1_0_1,
}

impl Fault {
    /// This row as `table` has it.
    #[must_use]
    pub fn in_table(mut self, table: StatusTable) -> Self {
        if table == StatusTable::V1_0_1 {
            return self;
        }
        let is = |row: Self| self.reason == row.reason;
        if is(PUSH_NOTIFICATION_NOT_SUPPORTED)
            || is(UNSUPPORTED_OPERATION)
            || is(VERSION_NOT_SUPPORTED)
        {
            self.grpc = 12;
        } else if is(TASK_NOT_CANCELABLE) {
            self.http = 409;
        } else if is(CONTENT_TYPE_NOT_SUPPORTED) {
            self.http = 415;
        } else if is(INVALID_AGENT_RESPONSE) {
            self.http = 502;
        }
        self
    }
}

impl Fault {
    /// The name that HTTP+JSON gives its gRPC status, as in `error.status`.
    #[must_use]
    pub fn status_name(self) -> &'static str {
        // A path that is not there is not found; only for gRPC it is a method.
        if self == METHOD_NOT_FOUND {
            return "NOT_FOUND";
        }
        status_name(self.grpc)
    }

    /// The HTTP status under which JSON-RPC tells this error: 200, but where a client or a proxy
    /// acts on the status alone (JRPC-09, AMB-33).
    #[must_use]
    pub fn jsonrpc_http(self) -> u16 {
        match self.http {
            told @ (401 | 403 | 408 | 413 | 429) => told,
            _ => 200,
        }
    }
}

/// The name of a status of gRPC.
#[must_use]
pub fn status_name(code: i32) -> &'static str {
    match code {
        0 => "OK",
        1 => "CANCELLED",
        3 => "INVALID_ARGUMENT",
        4 => "DEADLINE_EXCEEDED",
        5 => "NOT_FOUND",
        7 => "PERMISSION_DENIED",
        8 => "RESOURCE_EXHAUSTED",
        9 => "FAILED_PRECONDITION",
        12 => "UNIMPLEMENTED",
        13 => "INTERNAL",
        14 => "UNAVAILABLE",
        16 => "UNAUTHENTICATED",
        _ => "UNKNOWN",
    }
}

const fn a2a(
    reason: &'static str,
    jsonrpc: i32,
    grpc: i32,
    http: u16,
    text: &'static str,
) -> Fault {
    Fault { reason: Some(reason), grpc, http, jsonrpc, text }
}

const fn plain(jsonrpc: i32, grpc: i32, http: u16, text: &'static str) -> Fault {
    Fault { reason: None, grpc, http, jsonrpc, text }
}

/// `TaskNotFoundError`: no such task or webhook, or not this caller's.
pub const TASK_NOT_FOUND: Fault = a2a("TASK_NOT_FOUND", -32001, 5, 404, "Task not found");

/// `TaskNotCancelableError`: the task has ended, or cannot be stopped now.
pub const TASK_NOT_CANCELABLE: Fault =
    a2a("TASK_NOT_CANCELABLE", -32002, 9, 400, "Task cannot be canceled");

/// `PushNotificationNotSupportedError`: webhooks are not offered.
pub const PUSH_NOTIFICATION_NOT_SUPPORTED: Fault =
    a2a("PUSH_NOTIFICATION_NOT_SUPPORTED", -32003, 9, 400, "Push notifications are not supported");

/// `UnsupportedOperationError`: the operation, or this use of it, is not offered.
pub const UNSUPPORTED_OPERATION: Fault =
    a2a("UNSUPPORTED_OPERATION", -32004, 9, 400, "This operation is not supported");

/// `ContentTypeNotSupportedError`: a media type that the agent does not handle.
pub const CONTENT_TYPE_NOT_SUPPORTED: Fault =
    a2a("CONTENT_TYPE_NOT_SUPPORTED", -32005, 3, 400, "This content type is not supported");

/// `InvalidAgentResponseError`: the agent broke the protocol.
pub const INVALID_AGENT_RESPONSE: Fault =
    a2a("INVALID_AGENT_RESPONSE", -32006, 13, 500, "The agent's response was not valid");

/// `ExtendedAgentCardNotConfiguredError`: declared in the card but not set up.
pub const EXTENDED_AGENT_CARD_NOT_CONFIGURED: Fault = a2a(
    "EXTENDED_AGENT_CARD_NOT_CONFIGURED",
    -32007,
    9,
    400,
    "The extended agent card is not configured",
);

/// `ExtensionSupportRequiredError`: the caller did not name a required extension.
pub const EXTENSION_SUPPORT_REQUIRED: Fault =
    a2a("EXTENSION_SUPPORT_REQUIRED", -32008, 9, 400, "A required extension is not supported");

/// `VersionNotSupportedError`: the protocol version asked for is not offered.
pub const VERSION_NOT_SUPPORTED: Fault =
    a2a("VERSION_NOT_SUPPORTED", -32009, 9, 400, "This protocol version is not supported");

/// The body is not JSON. Its own code on JSON-RPC, an invalid request elsewhere.
pub const INVALID_JSON: Fault = a2a("INVALID_REQUEST", -32700, 3, 400, "Invalid JSON payload");

/// The body is JSON but not a request.
pub const INVALID_REQUEST: Fault =
    a2a("INVALID_REQUEST", -32600, 3, 400, "Request payload validation error");

/// No such method, rpc or route.
pub const METHOD_NOT_FOUND: Fault = a2a("METHOD_NOT_FOUND", -32601, 12, 404, "Method not found");

/// A parameter is wrong or missing.
pub const INVALID_PARAMS: Fault = a2a("INVALID_PARAMS", -32602, 3, 400, "Invalid parameters");

/// A fault of the server that the caller can do nothing about.
pub const INTERNAL_ERROR: Fault = a2a("INTERNAL_ERROR", -32603, 13, 500, "Internal error");

/// No credentials, or bad ones. On JSON-RPC the HTTP status is 401 as well.
pub const UNAUTHENTICATED: Fault =
    a2a("UNAUTHENTICATED", -31401, 16, 401, "Authentication is required");

/// The caller lacks a right. On JSON-RPC the HTTP status is 403 as well.
pub const PERMISSION_DENIED: Fault = plain(-31403, 7, 403, "Permission denied");

/// Not now; the same call may succeed later.
pub const UNAVAILABLE: Fault = plain(-32603, 14, 503, "Temporarily unavailable");

/// Too many calls. On JSON-RPC the HTTP status is 429 as well.
pub const RESOURCE_EXHAUSTED: Fault = plain(-32603, 8, 429, "Too many requests");

/// The request has more bytes than are taken. On JSON-RPC the HTTP status is 413 as well (GRPC-11).
pub const TOO_LARGE: Fault = plain(-32600, 8, 413, "The request is too large");

/// The request did not come to its end in time. On JSON-RPC the HTTP status is 408 as well.
pub const TOO_SLOW: Fault = plain(-32600, 4, 408, "The request took too long to arrive");

/// The path is known and takes other methods of HTTP.
pub const METHOD_NOT_ALLOWED: Fault = plain(-32600, 12, 405, "Method not allowed");

/// The caller's time ran out first.
pub const DEADLINE_EXCEEDED: Fault = plain(-32603, 4, 504, "Deadline exceeded");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_edition_differs_in_six_statuses() {
        let of = |fault: Fault| {
            let old = fault.in_table(StatusTable::V1_0_0);
            assert_eq!(fault.in_table(StatusTable::V1_0_1), fault);
            assert_eq!(
                (old.reason, old.jsonrpc, old.text),
                (fault.reason, fault.jsonrpc, fault.text)
            );
            (old.grpc, old.http)
        };
        assert_eq!(of(TASK_NOT_FOUND), (5, 404));
        assert_eq!(of(TASK_NOT_CANCELABLE), (9, 409));
        assert_eq!(of(PUSH_NOTIFICATION_NOT_SUPPORTED), (12, 400));
        assert_eq!(of(UNSUPPORTED_OPERATION), (12, 400));
        assert_eq!(of(CONTENT_TYPE_NOT_SUPPORTED), (3, 415));
        assert_eq!(of(INVALID_AGENT_RESPONSE), (13, 502));
        assert_eq!(of(EXTENDED_AGENT_CARD_NOT_CONFIGURED), (9, 400));
        assert_eq!(of(EXTENSION_SUPPORT_REQUIRED), (9, 400));
        assert_eq!(of(VERSION_NOT_SUPPORTED), (12, 400));
        for common in [INVALID_JSON, INVALID_PARAMS, UNAVAILABLE, PERMISSION_DENIED] {
            assert_eq!(of(common), (common.grpc, common.http));
        }
    }
}
