//! What the tests have for PostgreSQL and for the program.

#![allow(dead_code, reason = "the tests use more of it")]

#[path = "../../tests/it/support/cluster.rs"]
pub(crate) mod cluster;
#[path = "../../tests/it/support/program.rs"]
pub(crate) mod program;
