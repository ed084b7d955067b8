//! The accept loop: HTTP/1.1 and HTTP/2, in clear and over TLS, on one port.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::http::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use crate::auth::PeerCertificate;
use crate::config::Tls;
use crate::service::room::{Budget, Share};

/// What a connection may cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Connections at one time; more wait to be accepted.
    pub(crate) connections_max: usize,
    /// Requests at one time on one HTTP/2 connection.
    pub(crate) streams_max: u32,
}

/// How long a client may take for its TLS handshake, and for the headers of a request.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(5);
const HEADERS_WITHIN: Duration = Duration::from_secs(10);
/// A silent HTTP/2 connection is asked whether it lives, and closed if it does not say so.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(30);
const KEEPALIVE_WITHIN: Duration = Duration::from_secs(10);
/// The most bytes of headers.
const HEADER_BYTES_MAX: u32 = 32 * 1024;
/// What one HTTP/2 stream may have on its way, so that a message of 3 MiB needs few round trips.
const STREAM_WINDOW: u32 = 1024 * 1024;

/// The two ends of a listener.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stop {
    /// No connection is accepted any more; those that are open finish the requests they have.
    pub(crate) accepting: CancellationToken,
    /// Connections that are still open are cut.
    pub(crate) serving: CancellationToken,
}

/// A bound port and what answers on it.
pub(crate) struct Acceptor {
    pub(crate) listener: TcpListener,
    pub(crate) tls: Option<Tls>,
    pub(crate) app: Router,
    pub(crate) limits: Limits,
    /// Room for answers; nothing here is large without one.
    pub(crate) budget: Option<Budget>,
}

impl Acceptor {
    /// Accepts until `stop.accepting`. Connections run on `connections`.
    pub(crate) async fn run(self, connections: TaskTracker, stop: Stop) {
        let Self { listener, tls, app, limits, budget } = self;
        let http = Arc::new(http(limits));
        let places = Arc::new(Semaphore::new(limits.connections_max));
        let mut rest = FIRST_REST;
        loop {
            let accepted = tokio::select! {
                () = stop.accepting.cancelled() => return,
                accepted = accept(&listener, &places) => accepted,
            };
            let (stream, peer, place) = match accepted {
                Ok(accepted) => accepted,
                Err(error) if is_of_one_connection(&error) => continue,
                Err(error) => {
                    // Most likely no file descriptor is left: wait until some are given back.
                    tracing::warn!(error.text = %error, "cannot accept connections");
                    tokio::time::sleep(rest).await;
                    rest = (rest * 2).min(Duration::from_secs(1));
                    continue;
                }
            };
            rest = FIRST_REST;
            let share = budget.as_ref().map(Budget::connection);
            let (http, app, stop) = (Arc::clone(&http), app.clone(), stop.clone());
            let connection = Connection { http, app, peer, stop, share };
            let tls = tls.clone();
            connections.spawn(async move {
                connection.secure(stream, tls).await;
                drop(place);
            });
        }
    }
}

const FIRST_REST: Duration = Duration::from_millis(5);

type Place = tokio::sync::OwnedSemaphorePermit;

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> io::Result<(TcpStream, SocketAddr, Place)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    // Small answers must not wait for the acknowledgement of earlier ones.
    stream.set_nodelay(true)?;
    Ok((stream, peer, place))
}

/// Whether only the connection that was about to be accepted is broken.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, InvalidInput};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | InvalidInput)
}

fn http(limits: Limits) -> auto::Builder<TokioExecutor> {
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1().timer(TokioTimer::new()).header_read_timeout(HEADERS_WITHIN);
    http.http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams_max)
        .max_header_list_size(HEADER_BYTES_MAX)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(4 * STREAM_WINDOW)
        .keep_alive_interval(KEEPALIVE_EVERY)
        .keep_alive_timeout(KEEPALIVE_WITHIN);
    http
}

/// One connection, from its first byte to its end.
struct Connection {
    http: Arc<auto::Builder<TokioExecutor>>,
    app: Router,
    peer: SocketAddr,
    stop: Stop,
    share: Option<Arc<Share>>,
}

impl Connection {
    /// Serves `stream`, after the handshake if the port speaks TLS.
    async fn secure(self, stream: TcpStream, tls: Option<Tls>) {
        let Some(tls) = tls else { return self.serve(stream, None).await };
        let peer = self.peer;
        match tokio::time::timeout(HANDSHAKE_WITHIN, tls.acceptor().accept(stream)).await {
            Ok(Ok(stream)) => {
                let chain = stream.get_ref().1.peer_certificates();
                let certificate = chain.and_then(|chain| chain.first());
                let certificate = certificate.map(|der| Arc::new(PeerCertificate::read(der)));
                self.serve(stream, certificate).await;
            }
            Ok(Err(error)) => {
                tracing::debug!(peer.addr = %peer, error.text = %error, "TLS handshake failed");
            }
            Err(_) => tracing::debug!(peer.addr = %peer, "TLS handshake took too long"),
        }
    }

    async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        self,
        stream: S,
        certificate: Option<Arc<PeerCertificate>>,
    ) {
        let Self { http, app, peer, stop, share } = self;
        let cut = share.as_ref().map_or_else(CancellationToken::new, |share| share.cut());
        let app = app.map_request(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(ConnectInfo(peer));
            if let Some(certificate) = &certificate {
                request.extensions_mut().insert(Arc::clone(certificate));
            }
            if let Some(share) = &share {
                request.extensions_mut().insert(Arc::clone(share));
            }
            request
        });
        let connection = http
            .serve_connection_with_upgrades(TokioIo::new(stream), TowerToHyperService::new(app));
        let mut connection = std::pin::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = cut.cancelled() => return,
            () = stop.accepting.cancelled() => {
                // GOAWAY on HTTP/2, `connection: close` on HTTP/1.1.
                connection.as_mut().graceful_shutdown();
                tokio::select! {
                    ended = connection.as_mut() => ended,
                    () = cut.cancelled() => return,
                    () = stop.serving.cancelled() => return,
                }
            }
        };
        if let Err(error) = ended {
            tracing::debug!(peer.addr = %peer, error.text = %error, "connection ended");
        }
    }
}
