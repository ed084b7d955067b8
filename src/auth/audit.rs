//! Who was refused, for the log: one event each, under the target `a2ad::audit`, without any part
//! of a credential. Whoever counts refusals counts them here.

use std::net::SocketAddr;

use crate::auth::{Auth, Refused};
use crate::domain::Caller;

impl Auth {
    /// Notes that nobody was let in (AUTHN-05).
    pub fn note_refused(&self, operation: &str, peer: Option<SocketAddr>, refused: &Refused) {
        let peer = peer.map(|peer| peer.to_string());
        tracing::info!(
            target: "a2ad::audit",
            event = "unauthenticated",
            auth.mode = refused.mode,
            auth.reason = refused.reason.name(),
            peer.addr = peer,
            rpc.operation = operation,
            "credentials refused"
        );
    }

    /// Notes that somebody who was let in has asked for more than he may.
    pub fn note_denied(
        &self,
        operation: &str,
        peer: Option<SocketAddr>,
        caller: &Caller,
        reason: &'static str,
    ) {
        let peer = peer.map(|peer| peer.to_string());
        tracing::info!(
            target: "a2ad::audit",
            event = "denied",
            auth.reason = reason,
            auth.principal = caller.principal().as_str(),
            peer.addr = peer,
            rpc.operation = operation,
            "call denied"
        );
    }
}
