//! The contract in JSON.

mod anything;
mod bytes;
mod cases;
mod house;
mod made;
mod oracle;
