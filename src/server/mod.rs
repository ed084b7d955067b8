//! A running server: listeners, layers, health, reflection, the card, and how all of it ends.
//!
//! ```no_run
//! # async fn example() -> Result<(), a2ad::server::StartError> {
//! use a2ad::agent::demo::Demo;
//! use a2ad::server::Server;
//!
//! let server = Server::builder(Demo).store("sqlite:tasks.db").start().await?;
//! println!("serving on {}", server.address());
//! server.until_signal().await;
//! # Ok(())
//! # }
//! ```

mod accept;
mod arrival;
mod builder;
mod card;
pub mod clearing;
mod ending;
mod health;
mod layers;
mod open;
mod page_keys;
mod port;
mod routes;
mod running;
mod signals;
mod unsent;

pub use crate::config::Tls;

pub use builder::{Builder, StartError};
pub use open::{OpenError, Place};
pub use running::Server;
pub use signals::Signals;
