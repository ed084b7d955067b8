//! What asks a process to end: SIGTERM and SIGINT.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals that were asked for. From then on they do not end the process by themselves.
#[derive(Debug)]
pub struct Signals {
    term: Option<Signal>,
    int: Option<Signal>,
}

impl Signals {
    /// Asks for SIGTERM and SIGINT. Where the system has none to give, nothing ever comes.
    #[must_use]
    pub fn listen() -> Self {
        let listen = |kind| {
            signal(kind)
                .map_err(|error| tracing::error!(error.text = %error, "cannot wait for signals"))
                .ok()
        };
        Self { term: listen(SignalKind::terminate()), int: listen(SignalKind::interrupt()) }
    }

    /// None at all.
    pub(crate) fn none() -> Self {
        Self { term: None, int: None }
    }

    /// Waits for the next one and returns its name.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            () = received(self.term.as_mut()) => "SIGTERM",
            () = received(self.int.as_mut()) => "SIGINT",
        }
    }
}

async fn received(signal: Option<&mut Signal>) {
    let Some(signal) = signal else { return std::future::pending().await };
    if signal.recv().await.is_none() {
        std::future::pending::<()>().await;
    }
}
