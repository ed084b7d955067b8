//! Official SDKs against the real program: `tests/interop/README.md` says what they do.
//!
//! The programs there talk and check; this side starts a server for each, and holds what they tell
//! against the tables of that page.

mod newcomers;
mod paging;
mod script;
mod sdks;
