//! Where clients reach a server, and how a card says it (CARD-03 to CARD-09).

use std::net::SocketAddr;

use http::uri::Authority;

use crate::contract::{PROTOCOL_VERSION, v1};

/// The bindings that this server speaks, in the order of preference (CARD-04, GEN-07).
pub const SPOKEN: &[&str] = &[GRPC, JSONRPC, HTTP_JSON];

/// gRPC, as cards call it.
pub const GRPC: &str = "GRPC";
/// JSON-RPC, as cards call it.
pub const JSONRPC: &str = "JSONRPC";
/// HTTP+JSON, as cards call it.
pub const HTTP_JSON: &str = "HTTP+JSON";

/// A server's address, for clients: where all bindings are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    secure: bool,
    authority: String,
    path: String,
}

impl Address {
    /// Reads `host:port`, or an `http://` or `https://` URL with or without a port and a path.
    /// Without a scheme it is `secure` that says which of the two.
    ///
    /// # Errors
    /// What would be right, in words.
    pub fn parse(text: &str, secure: bool) -> Result<Self, String> {
        let wrong = || {
            "write host:port, or http://host or https://host, with or without a port and a path"
                .to_owned()
        };
        let (secure, place, port) = match text.split_once("://") {
            Some(("http", place)) => (false, place, Some(80)),
            Some(("https", place)) => (true, place, Some(443)),
            Some(_) => return Err(wrong()),
            None => (secure, text, None),
        };
        let (place, path) = place.split_at(place.find('/').unwrap_or(place.len()));
        let authority: Authority = place.parse().ok().ok_or_else(wrong)?;
        let path = path.trim_end_matches('/');
        if authority.as_str().contains('@')
            || authority.host().is_empty()
            || path.contains(['?', '#', ' '])
        {
            return Err(wrong());
        }
        let port = authority.port_u16().or(port).ok_or_else(wrong)?;
        let authority = format!("{}:{port}", authority.host());
        Ok(Self { secure, authority, path: path.to_owned() })
    }

    /// Where a socket is bound.
    #[must_use]
    pub fn of_socket(address: SocketAddr, secure: bool) -> Self {
        Self { secure, authority: address.to_string(), path: String::new() }
    }

    /// `host:port` and nothing more, as a caller may claim it.
    #[must_use]
    pub fn of_authority(text: &str, secure: bool) -> Option<Self> {
        let plain = !text.contains('/');
        plain.then(|| Self::parse(text, secure).ok()).flatten()
    }

    /// `host:port`.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The URL below which HTTP is served, without a slash at its end; a scheme's own port is
    /// left out.
    #[must_use]
    pub fn url(&self) -> String {
        let (scheme, own_port) = if self.secure { ("https", ":443") } else { ("http", ":80") };
        let place = self.authority.strip_suffix(own_port).unwrap_or(&self.authority);
        format!("{scheme}://{place}{}", self.path)
    }

    /// Whether clients reach it by TLS.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    /// Each binding that is spoken, at this address.
    #[must_use]
    pub fn interfaces(&self) -> Vec<v1::AgentInterface> {
        let interface = |binding: &&str| v1::AgentInterface {
            url: if *binding == GRPC { self.authority.clone() } else { self.url() },
            protocol_binding: (*binding).to_owned(),
            protocol_version: PROTOCOL_VERSION.to_owned(),
            tenant: String::new(),
        };
        SPOKEN.iter().map(interface).collect()
    }
}

/// What is wrong with the URL of an interface: gRPC has `host:port`, the other bindings of the
/// protocol an absolute URL (CARD-08).
///
/// # Errors
/// What would be right, in words.
pub fn check_url(binding: &str, url: &str) -> Result<(), String> {
    match binding {
        GRPC => {
            let authority: Option<Authority> = url.parse().ok();
            let whole = authority.filter(|at| !at.host().is_empty() && !at.as_str().contains('@'));
            match whole.and_then(|at| at.port_u16()) {
                Some(_) => Ok(()),
                None => Err("must be host:port".to_owned()),
            }
        }
        _ if url.starts_with("http://") || url.starts_with("https://") => {
            let address = Address::parse(url, true);
            address.map(drop).map_err(|_wrong| "must be an absolute URL".to_owned())
        }
        JSONRPC | HTTP_JSON => Err("must begin with http:// or https://".to_owned()),
        _ if url.is_empty() => Err("must be set".to_owned()),
        // A binding of somebody else's has URLs of its own.
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_in_each_of_its_forms() {
        for (text, secure, authority, url) in [
            ("a2a.example:8443", true, "a2a.example:8443", "https://a2a.example:8443"),
            ("127.0.0.1:50051", false, "127.0.0.1:50051", "http://127.0.0.1:50051"),
            ("https://a2a.example", false, "a2a.example:443", "https://a2a.example"),
            ("http://a2a.example/", true, "a2a.example:80", "http://a2a.example"),
            (
                "https://x.example:9/agents/one/",
                false,
                "x.example:9",
                "https://x.example:9/agents/one",
            ),
            ("[::1]:80", false, "[::1]:80", "http://[::1]"),
        ] {
            let address = Address::parse(text, secure).unwrap();
            assert_eq!((address.authority(), address.url().as_str()), (authority, url), "{text}");
        }
        for bad in [
            "",
            "a2a.example",
            "ftp://x:1",
            "user@x:1",
            "https://",
            "https://x?y",
            ":80",
            "x:99999",
        ] {
            assert!(Address::parse(bad, true).is_err(), "{bad}");
        }
    }

    #[test]
    fn urls_have_the_form_of_their_binding() {
        for (binding, url, good) in [
            (GRPC, "x.example:443", true),
            (GRPC, "https://x.example", false),
            (GRPC, "x.example", false),
            (JSONRPC, "https://x.example/a", true),
            (JSONRPC, "x.example:443", false),
            (HTTP_JSON, "http://x.example", true),
            (HTTP_JSON, "", false),
            ("https://b.example/binding", "mqtt://x", true),
            ("https://b.example/binding", "", false),
        ] {
            assert_eq!(check_url(binding, url).is_ok(), good, "{binding} {url}");
        }
    }
}
