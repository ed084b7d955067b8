//! Who is let in by a credential that somebody else vouches for, and what is told about those who
//! are not.

mod gateways;
pub(crate) mod issuer;
mod tokens;
