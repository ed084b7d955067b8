//! Everything that is tested from outside, in one program: one link step.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]
#![allow(clippy::print_stdout, reason = "shown with failed tests alone")]
#![allow(clippy::disallowed_methods, reason = "tests spawn, read the clock and the environment")]

mod auth;
mod bench;
mod calls;
mod contract;
mod crash;
mod discovery;
mod faults;
mod grpc;
mod interop;
mod layers;
mod life;
mod listings;
mod model;
mod plans;
mod races;
mod replicas;
mod rig;
mod settings;
mod store;
mod support;
mod tasks;
mod turns;
