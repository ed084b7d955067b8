//! A server that runs, and how it ends.
//!
//! In this order: health says NOT_SERVING while calls are still taken, so that balancers look
//! elsewhere; then no connection is accepted and open ones are told to finish; the service hands
//! its turns back and answers whoever waits with UNAVAILABLE; what has not ended within the grace
//! period is cut; the store is closed last.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::agent::Agent;
use crate::auth::Auth;
use crate::bindings::{self, Door};
use crate::config::Tls;
use crate::config::file::Limits;
use crate::server::accept::{self, Acceptor, Stop};
use crate::server::builder::{Builder, StartError};
use crate::server::card::Card;
use crate::server::health::{Watch, admin, tell};
use crate::server::routes::app;
use crate::server::signals::Signals;
use crate::service::Service;
use crate::service::room::Budget;
use crate::store::Store;

/// A server that runs. Dropped without [`stop`](Self::stop), it is cut at once.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    admin_address: Option<SocketAddr>,
    service: Service,
    store: Arc<dyn Store>,
    ready: watch::Receiver<bool>,
    draining: CancellationToken,
    stop: Stop,
    stop_admin: Stop,
    tasks: TaskTracker,
    drain_delay: Duration,
    grace: Duration,
}

/// What a running server is made of.
pub(crate) struct Parts {
    pub(crate) service: Service,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) auth: Auth,
    pub(crate) bindings: bindings::Settings,
    pub(crate) tls: Option<Tls>,
    pub(crate) limits: Limits,
    pub(crate) card: Card,
    pub(crate) drain_delay: Duration,
    pub(crate) grace: Duration,
}

impl Server {
    /// Begins a server around an agent: on a free port of this machine, with its tasks in memory.
    pub fn builder(agent: impl Agent) -> Builder {
        Builder::new(Arc::new(agent))
    }

    /// Serves on ports that are bound already.
    pub(crate) async fn start_on(
        parts: Parts,
        listener: TcpListener,
        admin_listener: Option<TcpListener>,
    ) -> Result<Self, StartError> {
        let Parts { service, store, card, auth, bindings, tls, limits, drain_delay, grace } = parts;
        let bound = local(&listener)?;
        let numbers = service.metrics().clone();
        let (stop, stop_admin) = (Stop::default(), Stop::default());
        let accepting = stop.accepting.clone();
        let tasks = TaskTracker::new();
        for keys in auth.upkeep() {
            keys.begin();
            let stop = stop.accepting.clone();
            tasks.spawn(async move { stop.run_until_cancelled(keys.run()).await });
        }
        if let Some(tls) = tls.clone() {
            let stop = stop.accepting.clone();
            tasks.spawn(async move { stop.run_until_cancelled(tls.keep_fresh()).await });
        }
        let door =
            Door::new(auth, service.offers().extensions(), bindings, service.metrics().clone());
        let (app, reporter) =
            app(service.clone(), door, card, limits.receive_bytes, accepting).await?;
        let budget = Some(Budget::new(limits.of_answers()));
        let limits = accept::Limits {
            connections_max: limits.connections,
            streams_max: limits.streams_per_connection,
        };

        let draining = CancellationToken::new();
        // The store has just been opened; the first look follows within the second.
        tell(&reporter, true).await;
        let (sender, ready) = watch::channel(true);
        let watch =
            Watch { store: Arc::clone(&store), reporter, ready: sender, drain: draining.clone() };
        tasks.spawn(watch.run());

        let secure = tls.is_some();
        tasks.spawn(
            Acceptor { listener, tls, app, limits, budget }.run(tasks.clone(), stop.clone()),
        );
        tracing::info!(listen.addr = %bound, listen.tls = secure, "serving");

        let admin_address = admin_listener.as_ref().map(local).transpose()?;
        if let (Some(listener), Some(addr)) = (admin_listener, admin_address) {
            let admin = Acceptor {
                listener,
                tls: None,
                app: admin(ready.clone(), numbers.clone()),
                limits,
                budget: None,
            };
            // Beside the tracker: probes are answered until the very end.
            let (untracked, stop) = (TaskTracker::new(), stop_admin.clone());
            untracked.clone().spawn(admin.run(untracked, stop));
            tracing::info!(listen.addr = %addr, "serving /healthz and /readyz");
        }
        Ok(Self {
            address: bound,
            admin_address,
            service,
            store,
            ready,
            draining,
            stop,
            stop_admin,
            tasks,
            drain_delay,
            grace,
        })
    }

    /// Where clients connect: the real port, if port 0 was asked for.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where `/healthz` and `/readyz` are, if anywhere.
    #[must_use]
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin_address
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

    /// Whether the store answered when it was asked last, and the server is not about to end.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    /// Serves until SIGTERM or SIGINT, then ends in order. A second signal skips the drain delay,
    /// and a third what is left of the grace period. Returns as [`stop`](Self::stop) does.
    pub async fn until_signal(self) -> bool {
        self.until(Signals::listen()).await
    }

    /// As [`until_signal`](Self::until_signal), for signals that were listened to before the
    /// server started: one that comes meanwhile then ends it in order too.
    pub async fn until(self, mut signals: Signals) -> bool {
        let name = signals.next().await;
        tracing::info!(signal = name, "ending");
        self.end(signals).await
    }

    /// Ends in order. Returns whether every call was answered, and every turn finished or handed
    /// back, within the grace period. Nothing that was acknowledged is lost either way.
    pub async fn stop(self) -> bool {
        self.end(Signals::none()).await
    }

    async fn end(self, mut hurry: Signals) -> bool {
        self.draining.cancel();
        tokio::select! {
            () = tokio::time::sleep(self.drain_delay) => {}
            _ = hurry.next() => {}
        }
        self.stop.accepting.cancel();
        self.service.drain();
        self.tasks.close();
        // Both at once: calls that wait end because the service drains.
        let work = async {
            let calls = tokio::time::timeout(self.grace, self.tasks.wait());
            let (calls, turns) = tokio::join!(calls, self.service.stopped(self.grace));
            (calls.is_ok(), turns)
        };
        let (calls, turns) = tokio::select! {
            ended = work => ended,
            _ = hurry.next() => (false, self.service.stopped(HURRY_WITHIN).await),
        };
        self.stop.serving.cancel();
        if tokio::time::timeout(CLOSE_WITHIN, self.store.close()).await.is_err() {
            tracing::warn!("the store did not close in time");
        }
        self.stop_admin.accepting.cancel();
        if calls && turns {
            tracing::info!("drained");
        } else {
            tracing::warn!(calls.ended = calls, turns.ended = turns, "cut before all had ended");
        }
        calls && turns
    }
}

/// How long turns have to be handed back when nobody wants to wait for them.
const HURRY_WITHIN: Duration = Duration::from_secs(1);
/// How long the store may take for what is under way.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);

impl Drop for Server {
    fn drop(&mut self) {
        self.service.drain();
        for token in [
            &self.draining,
            &self.stop.accepting,
            &self.stop.serving,
            &self.stop_admin.accepting,
            &self.stop_admin.serving,
        ] {
            token.cancel();
        }
    }
}

fn local(listener: &TcpListener) -> Result<SocketAddr, StartError> {
    let address = (std::net::Ipv4Addr::UNSPECIFIED, 0).into();
    let unknown = |source| StartError::Listen { setting: "a port", address, source };
    listener.local_addr().map_err(unknown)
}
