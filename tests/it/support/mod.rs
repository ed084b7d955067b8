//! What the tests share.

pub(crate) mod cluster;
pub(crate) mod program;

/// Whether the long forms of the tests were asked for, as `make torture` does.
pub(crate) fn torture() -> bool {
    std::env::var_os("A2AD_TORTURE").is_some_and(|value| !value.is_empty() && value != "0")
}
