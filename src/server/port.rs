//! Taking a port before anything else is done, and listening on it when there is something to say.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

use crate::server::builder::StartError;

/// Connections that wait to be accepted.
const BACKLOG: u32 = 1024;

/// A port that is taken and does not listen yet: connections are refused, as long as nobody could
/// answer them.
#[derive(Debug)]
pub(crate) struct Port {
    socket: TcpSocket,
    setting: &'static str,
    address: SocketAddr,
}

impl Port {
    /// Takes a port, which `setting` chooses.
    pub(crate) fn take(setting: &'static str, address: SocketAddr) -> Result<Self, StartError> {
        let taken = || {
            let socket = match address {
                SocketAddr::V4(_) => TcpSocket::new_v4(),
                SocketAddr::V6(_) => TcpSocket::new_v6(),
            }?;
            // A server that starts again does not wait for connections of the one before.
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            Ok(socket)
        };
        match taken() {
            Ok(socket) => Ok(Self { socket, setting, address }),
            Err(source) => Err(failure(setting, address, source)),
        }
    }

    /// Begins to listen.
    pub(crate) fn listen(self) -> Result<TcpListener, StartError> {
        let Self { socket, setting, address } = self;
        socket.listen(BACKLOG).map_err(|source| failure(setting, address, source))
    }
}

fn failure(setting: &'static str, address: SocketAddr, source: io::Error) -> StartError {
    StartError::Listen { setting, address, source }
}
