//! Who is let in by a credential that somebody else vouches for, what each may do, and what is told
//! about those who are not let in.

mod certificates;
mod gateways;
pub(crate) mod issuer;
mod program;
mod scopes;
mod tokens;
