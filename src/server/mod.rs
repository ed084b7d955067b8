//! A running server: listeners, layers, health, reflection, and an orderly end.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use a2ad::agent::demo::Demo;
//! use a2ad::server::Server;
//!
//! let server = Server::builder(Demo).store("sqlite:a2ad.db").start().await?;
//! println!("serving on {}", server.address());
//! server.until_signal().await;
//! # Ok(())
//! # }
//! ```

mod accept;
mod builder;
mod card;
mod health;
mod layers;
mod tls;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::service::Service;
use crate::store::Store;

pub use builder::{Builder, StartError};
pub use tls::Tls;

/// A server that runs until it is told to stop.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    admin: Option<SocketAddr>,
    service: Service,
    store: Arc<dyn Store>,
    connections: TaskTracker,
    background: TaskTracker,
    /// Not ready for calls any more, but still taking them.
    unready: CancellationToken,
    /// No new connections and no new requests.
    closing: CancellationToken,
    drain_delay: Duration,
    grace: Duration,
}

impl Server {
    /// Begins a server around an agent.
    pub fn builder(agent: impl crate::agent::Agent) -> Builder {
        Builder::new(Arc::new(agent))
    }

    /// Where it listens: the real port, if port 0 was asked for.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where health is told over plain HTTP, if anywhere.
    #[must_use]
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// The service behind the bindings, for calls from inside the same program.
    #[must_use]
    pub fn service(&self) -> &Service {
        &self.service
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Serves until the process is told to end (SIGTERM, SIGINT), then stops as
    /// [`stop`](Self::stop) does. Returns whether everything ended in time.
    pub async fn until_signal(self) -> bool {
        match (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
            (Ok(mut terminate), Ok(mut interrupt)) => {
                tokio::select! {
                    _ = terminate.recv() => tracing::info!("SIGTERM: draining"),
                    _ = interrupt.recv() => tracing::info!("SIGINT: draining"),
                }
            }
            (Err(error), _) | (_, Err(error)) => {
                tracing::error!(error.text = %error, "cannot hear signals; stopping");
            }
        }
        self.stop().await
    }

    /// Stops in order: not ready, still serving for the drain delay; then no new requests,
    /// waiting callers are told to try again, and turns end or are handed back within the grace
    /// period. Returns whether all of it was done in time.
    pub async fn stop(self) -> bool {
        self.unready.cancel();
        if !self.drain_delay.is_zero() {
            tokio::time::sleep(self.drain_delay).await;
        }
        self.service.drain();
        self.closing.cancel();
        let (turns, connections) = tokio::join!(
            self.service.stopped(self.grace),
            tokio::time::timeout(self.grace, self.connections.wait()),
        );
        let drained = turns && connections.is_ok();
        self.store.close().await;
        self.background.close();
        let background = tokio::time::timeout(Duration::from_secs(1), self.background.wait()).await;
        if drained && background.is_ok() {
            tracing::info!("drained");
        } else {
            tracing::warn!(
                turns,
                connections = connections.is_ok(),
                "cut off at the end of the grace period"
            );
        }
        drained
    }
}
