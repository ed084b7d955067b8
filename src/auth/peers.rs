//! Which other ends of connections are gateways.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use crate::auth::PeerCertificate;

/// A kind of peer that is believed about its clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// On this machine.
    Loopback,
    /// In a network: an address, and how many of its bits count.
    Network(IpAddr, u8),
    /// The holder of the client certificate with this SHA-256.
    Certificate([u8; 32]),
}

impl FromStr for Peer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const FORMS: &str = "write loopback, an address, a network such as 10.0.0.0/8, or sha256: \
                             and the 64 hex digits of a client certificate's SHA-256";
        let wrong = || format!("{text:?} is no peer: {FORMS}");
        if text == "loopback" {
            return Ok(Self::Loopback);
        }
        if let Some(digits) = text.strip_prefix("sha256:") {
            let bytes = hex::decode(digits.replace(':', "")).ok();
            let bytes = bytes.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
            return bytes.map(Self::Certificate).ok_or_else(wrong);
        }
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u8>().map_err(|_e| wrong())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_e| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        if bits > most {
            return Err(wrong());
        }
        if bits == 0 {
            return Err(format!("{text} is everybody, who cannot be believed"));
        }
        Ok(Self::Network(address, bits))
    }
}

impl Peer {
    /// Whether this is the other end of a connection from `address` with `certificate`.
    pub(super) fn is(
        &self,
        address: Option<SocketAddr>,
        certificate: Option<&PeerCertificate>,
    ) -> bool {
        // An IPv4 peer of a socket for both looks like IPv6.
        let ip = address.map(|address| address.ip().to_canonical());
        match self {
            Self::Loopback => ip.is_some_and(|ip| ip.is_loopback()),
            Self::Network(network, bits) => ip.is_some_and(|ip| is_within(ip, *network, *bits)),
            Self::Certificate(fingerprint) => {
                certificate.is_some_and(|certificate| certificate.fingerprint() == fingerprint)
            }
        }
    }
}

fn is_within(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    let (address, network, width) = match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(n)) => (u32::from(a).into(), u32::from(n).into(), 32),
        (IpAddr::V6(a), IpAddr::V6(n)) => (u128::from(a), u128::from(n), 128),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return false,
    };
    let rest = u32::from(width - bits.min(width));
    address.checked_shr(rest) == network.checked_shr(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_hold_their_addresses_and_no_others() {
        let is = |peer: &str, address: &str| {
            let address = SocketAddr::new(address.parse().unwrap(), 1);
            peer.parse::<Peer>().unwrap().is(Some(address), None)
        };
        for (peer, address) in [
            ("loopback", "127.0.0.1"),
            ("loopback", "::1"),
            ("loopback", "::ffff:127.0.0.1"),
            ("10.0.0.0/8", "10.255.0.1"),
            ("10.0.0.0/8", "::ffff:10.1.2.3"),
            ("10.1.2.3", "10.1.2.3"),
            ("fd00::/8", "fd12::1"),
            ("192.168.0.0/23", "192.168.1.255"),
        ] {
            assert!(is(peer, address), "{peer} {address}");
        }
        for (peer, address) in [
            ("loopback", "10.0.0.1"),
            ("10.0.0.0/8", "11.0.0.1"),
            ("10.1.2.3", "10.1.2.4"),
            ("192.168.0.0/23", "192.168.2.0"),
            ("fd00::/8", "fe80::1"),
            ("fd00::/8", "10.0.0.1"),
            ("10.0.0.0/8", "a00::"),
        ] {
            assert!(!is(peer, address), "{peer} {address}");
        }
        assert!(!Peer::Loopback.is(None, None));
    }

    #[test]
    fn what_is_no_peer_is_refused() {
        for bad in ["", "unix", "10.0.0.0/33", "10.0.0.0/x", "0.0.0.0/0", "::/0", "sha256:ab"] {
            assert!(bad.parse::<Peer>().is_err(), "{bad}");
        }
    }
}
