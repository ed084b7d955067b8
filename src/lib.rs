//! A durable A2A 1.0 task server, and a client for any A2A server: gRPC first.
//!
//! The feature `client` holds what calls a server, the feature `server` what is one.

pub mod contract;
#[cfg(feature = "server")]
pub mod domain;
#[cfg(feature = "server")]
pub mod store;
