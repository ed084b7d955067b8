//! A durable A2A 1.0 task server, and a client for any A2A server: gRPC first.
//!
//! In reading order: [`contract`] is the protocol as types; `domain` what is reasoned about, without
//! I/O; `card` says what is offered; `store` keeps it; `agent` does the work; `service` has the operations; `auth` and `bindings`
//! are the way in; `server` puts them together with the settings of `config`. [`client`] calls any
//! server.
//!
//! The feature `client` holds what calls a server, the feature `server` what is one; both are on by
//! default.

#[cfg(feature = "server")]
pub mod agent;
#[cfg(feature = "server")]
pub mod auth;
#[cfg(feature = "server")]
pub mod bindings;
#[cfg(feature = "server")]
pub mod card;
#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "server")]
pub mod config;
pub mod contract;
#[cfg(feature = "server")]
pub mod domain;
#[cfg(feature = "server")]
pub mod metrics;
#[cfg(feature = "server")]
pub mod server;
#[cfg(feature = "server")]
pub mod service;
#[cfg(feature = "server")]
pub mod store;
#[cfg(feature = "server")]
pub mod telemetry;

/// Writes `async fn` in implementations of [`agent::Agent`] and [`store::Store`].
#[cfg(feature = "server")]
pub use async_trait::async_trait;

/// The README's Rust blocks are compiled with the tests.
#[cfg(all(doctest, feature = "server"))]
#[doc = include_str!("../README.md")]
struct Readme;
