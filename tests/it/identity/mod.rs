//! Who is let in by a token, and what is told about those who are not.

pub(crate) mod issuer;
mod tokens;
