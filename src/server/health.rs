//! Whether this server should get calls: as the gRPC health service says it, and `/readyz`.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::contract::v1::a2a_service_server::SERVICE_NAME;
use crate::domain::Error;
use crate::domain::error::chain;
use crate::metrics::{self, Metrics};
use crate::store::Store;

/// How often the store is asked, and how long it may take.
const ASK_EVERY: Duration = Duration::from_secs(1);
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// Asks the store every second and tells the health service what came out, until the server
/// drains.
pub(crate) struct Watch {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) reporter: HealthReporter,
    pub(crate) ready: watch::Sender<bool>,
    pub(crate) drain: CancellationToken,
}

impl Watch {
    pub(crate) async fn run(self) {
        loop {
            let answer = tokio::time::timeout(ANSWER_WITHIN, self.store.ping());
            let answer = tokio::select! {
                biased;
                () = self.drain.cancelled() => return self.tell(false).await,
                answer = answer => answer.map_err(Error::unavailable).flatten(),
            };
            if answer.is_ok() != *self.ready.borrow() {
                match &answer {
                    Ok(()) => tracing::info!("the store answers: ready for calls"),
                    Err(error) => tracing::warn!(
                        error.chain = chain(error),
                        "the store does not answer: not ready for calls"
                    ),
                }
                self.tell(answer.is_ok()).await;
            }
            tokio::select! {
                () = self.drain.cancelled() => return self.tell(false).await,
                () = tokio::time::sleep(ASK_EVERY) => {}
            }
        }
    }

    async fn tell(&self, ready: bool) {
        tell(&self.reporter, ready).await;
        self.ready.send_replace(ready);
    }
}

/// Sets the status of the whole server and of the service, which are one.
pub(crate) async fn tell(reporter: &HealthReporter, ready: bool) {
    let status = if ready { ServingStatus::Serving } else { ServingStatus::NotServing };
    reporter.set_service_status("", status).await;
    reporter.set_service_status(SERVICE_NAME, status).await;
}

/// The admin listener: `/healthz` answers as long as the process does, `/readyz` as long as it
/// should get calls, `/metrics` with the numbers.
pub(crate) fn admin(ready: watch::Receiver<bool>, metrics: Metrics) -> Router {
    let readiness = move || {
        let ready = *ready.borrow();
        async move {
            if ready {
                (StatusCode::OK, "ready\n")
            } else {
                (StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
            }
        }
    };
    Router::new()
        .route("/healthz", get(async || (StatusCode::OK, "ok\n")))
        .route("/readyz", get(readiness))
        .route("/metrics", get(move || numbers(metrics.clone())))
}

async fn numbers(metrics: Metrics) -> Response {
    match metrics.text() {
        Ok(text) => ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(error) => {
            tracing::error!(error.chain = chain(&error), "the numbers cannot be written");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
