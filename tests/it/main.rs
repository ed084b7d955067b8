//! Everything that is tested from outside, in one program: one link step.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]
#![allow(
    clippy::wildcard_enum_match_arm,
    clippy::string_slice,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::type_complexity,
    reason = "what a test does not expect fails it"
)]
#![allow(clippy::print_stdout, reason = "shown with failed tests alone")]
#![allow(clippy::disallowed_methods, reason = "tests spawn, read the clock and the environment")]

mod auth;
mod bench;
mod bindings;
mod calls;
mod card;
mod chaos;
mod choices;
mod clearing;
mod contract;
mod crash;
mod database_faults;
mod deploy;
mod discovery;
mod envoy;
mod faults;
mod grpc;
mod identity;
mod interleavings;
mod interop;
mod json;
mod layers;
mod life;
mod life_table;
mod listings;
mod metrics;
mod model;
mod paging;
mod plans;
mod postgres;
mod postgres_tls;
mod quotas;
mod races;
mod reconnect;
mod replicas;
mod retention;
mod rig;
mod settings;
mod signing;
mod soak;
mod sqlite;
mod store;
mod streams;
mod streams_grpc;
mod support;
mod tasks;
mod tokens;
mod turns;
mod unread;
