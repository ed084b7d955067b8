//! What of a card depends on where its server is.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::card::interfaces::Address;
use crate::contract::v1;

/// Where clients reach a server, as far as it knows.
#[derive(Debug, Clone)]
pub struct Place {
    known: Known,
    /// Whether the settings say so, and not just the socket.
    settled: bool,
}

#[derive(Debug, Clone)]
enum Known {
    /// These interfaces and no others.
    Interfaces(Vec<v1::AgentInterface>),
    /// All bindings at one address.
    Address(Address),
    /// Where a caller connected: the server listens on every address of the machine and cannot
    /// know which one others use. This is the port, for callers that name none.
    AsAsked { port: u16, secure: bool },
}

impl Place {
    /// The `listed` interfaces if there are any, else the `public` address if there is one, else
    /// the one that the server is bound to, which speaks TLS if it is `secure`.
    #[must_use]
    pub fn new(
        listed: &[v1::AgentInterface],
        public: Option<Address>,
        bound: SocketAddr,
        secure: bool,
    ) -> Self {
        let settled = !listed.is_empty() || public.is_some();
        let known = match public {
            _ if !listed.is_empty() => Known::Interfaces(listed.to_vec()),
            Some(public) => Known::Address(public),
            None if bound.ip().is_unspecified() => Known::AsAsked { port: bound.port(), secure },
            None => Known::Address(Address::of_socket(bound, secure)),
        };
        Self { known, settled }
    }

    /// The same for a server whose public card is `card`: where the settings say nothing, the
    /// interfaces that it names itself.
    #[must_use]
    pub fn or_of(mut self, card: &v1::AgentCard) -> Self {
        if !self.settled && !card.supported_interfaces.is_empty() {
            self.known = Known::Interfaces(card.supported_interfaces.clone());
        }
        self
    }

    /// `card` with what the server knows: its interfaces, unless the card has some and the
    /// settings none, and the ways in which callers prove who they are, any one of which is enough
    /// (CARD-10). A card that names some of those is left as it is: its authors know what stands
    /// before the server.
    #[must_use]
    pub fn completed(
        &self,
        mut card: v1::AgentCard,
        schemes: &BTreeMap<String, v1::SecurityScheme>,
    ) -> v1::AgentCard {
        if self.settled || card.supported_interfaces.is_empty() {
            card.supported_interfaces = self.interfaces();
        }
        if card.security_schemes.is_empty() && card.security_requirements.is_empty() {
            for (name, scheme) in schemes {
                card.security_schemes.insert(name.clone(), scheme.clone());
                let mut alternative = v1::SecurityRequirement::default();
                alternative.schemes.insert(name.clone(), v1::StringList::default());
                card.security_requirements.push(alternative);
            }
        }
        card
    }

    fn interfaces(&self) -> Vec<v1::AgentInterface> {
        match &self.known {
            Known::Interfaces(interfaces) => interfaces.clone(),
            Known::Address(address) => address.interfaces(),
            Known::AsAsked { port, secure } => {
                let here = format!("localhost:{port}");
                Address::of_authority(&here, *secure).map_or_else(Vec::new, |at| at.interfaces())
            }
        }
    }

    /// Whether the interfaces are the same for everybody.
    #[must_use]
    pub fn is_known(&self) -> bool {
        !matches!(self.known, Known::AsAsked { .. })
    }

    /// The interfaces for somebody who asked for `authority`, if they depend on that.
    #[must_use]
    pub fn interfaces_at(&self, authority: Option<&str>) -> Option<Vec<v1::AgentInterface>> {
        let Known::AsAsked { port, secure } = &self.known else { return None };
        let asked = authority.and_then(|asked| {
            let whole = Address::of_authority(asked, *secure);
            whole.or_else(|| Address::of_authority(&format!("{asked}:{port}"), *secure))
        });
        Some(asked.map_or_else(|| self.interfaces(), |address| address.interfaces()))
    }
}
