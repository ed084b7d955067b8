//! A TCP proxy before several servers: each connection goes to the next one, until it is cut.

use std::net::SocketAddr;
use std::sync::Mutex;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// A round-robin proxy. Dropping it cuts all that goes through it.
#[derive(Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    open: std::sync::Arc<Mutex<CancellationToken>>,
    listening: tokio::task::JoinHandle<()>,
}

impl Proxy {
    pub(crate) async fn before(servers: Vec<SocketAddr>) -> Self {
        let listener = TcpListener::bind(super::any_port()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let open = std::sync::Arc::new(Mutex::new(CancellationToken::new()));
        let current = std::sync::Arc::clone(&open);
        let listening = tokio::spawn(async move {
            for server in servers.iter().cycle() {
                let (mut client, _) = listener.accept().await.unwrap();
                let cut = current.lock().unwrap().clone();
                let server = *server;
                tokio::spawn(async move {
                    let mut server = TcpStream::connect(server).await.unwrap();
                    client.set_nodelay(true).unwrap();
                    server.set_nodelay(true).unwrap();
                    tokio::select! {
                        _ = copy_bidirectional(&mut client, &mut server) => {}
                        () = cut.cancelled() => {}
                    }
                });
            }
        });
        Self { address, open, listening }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Cuts every connection that is open.
    pub(crate) fn cut(&self) {
        let cut = std::mem::take(&mut *self.open.lock().unwrap());
        cut.cancel();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.cut();
        self.listening.abort();
    }
}
