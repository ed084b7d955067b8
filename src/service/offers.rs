//! What the agent card offers, and so what is refused (CAP-01 to CAP-07).
//!
//! A capability that a card leaves open is what this server can do. One that it denies is refused,
//! whether or not the server could. One that it claims and the server does not have is denied: a
//! card that is served never lies.

use crate::contract::{CURSOR_EXTENSION, RETENTION_EXTENSION, v1};
use crate::domain::Error;
use crate::service::Call;

/// Whether this server streams.
pub const STREAMING: bool = true;
/// Whether this server calls webhooks.
pub const PUSH_NOTIFICATIONS: bool = false;

/// The extensions that this server itself has, beside those of an agent's card.
#[must_use]
pub fn own_extensions() -> Vec<v1::AgentExtension> {
    vec![v1::AgentExtension {
        uri: CURSOR_EXTENSION.to_owned(),
        description:
            "Server-sent events carry ids; a subscription with Last-Event-ID goes on after \
                      the event of that id, without a first task, also once the task has ended."
                .to_owned(),
        required: false,
        params: None,
    }]
}

/// Which calls must name the extensions that the card requires (AMB-11).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RequireExtensions {
    /// SendMessage and SendStreamingMessage.
    #[default]
    Sends,
    /// All but GetExtendedAgentCard, which says what is required.
    All,
}

/// What is offered: the card, completed, and the extended one if there is one.
#[derive(Debug, Clone, Default)]
pub struct Offers {
    card: v1::AgentCard,
    extended: Option<v1::AgentCard>,
    /// Those for callers with a scope, the first that fits before the extended one.
    scoped: Vec<(String, v1::AgentCard)>,
    required: Vec<String>,
}

impl Offers {
    /// What `card` says, completed with what this server can do. `extended` is for callers with
    /// credentials.
    #[must_use]
    pub fn new(card: v1::AgentCard, extended: Option<v1::AgentCard>) -> Self {
        Self::with(card, extended, Vec::new(), &[])
    }

    /// The same with extended cards for callers who have a scope, and with extensions that depend
    /// on the settings.
    #[must_use]
    pub fn with(
        card: v1::AgentCard,
        extended: Option<v1::AgentCard>,
        scoped: Vec<(String, v1::AgentCard)>,
        more: &[v1::AgentExtension],
    ) -> Self {
        let is_extended = extended.is_some() || !scoped.is_empty();
        let scoped = scoped.into_iter().map(|(of, card)| (of, completed(card, is_extended, more)));
        let scoped: Vec<_> = scoped.collect();
        let card = completed(card, is_extended, more);
        let extended = extended.map(|extended| completed(extended, is_extended, more));
        let extensions = card.capabilities.iter().flat_map(|of| &of.extensions);
        let required = extensions.filter(|one| one.required).map(|one| one.uri.clone()).collect();
        Self { card, extended, scoped, required }
    }

    /// The public card.
    #[must_use]
    pub fn card(&self) -> &v1::AgentCard {
        &self.card
    }

    /// The card for callers with credentials.
    #[must_use]
    pub fn extended_card(&self) -> Option<&v1::AgentCard> {
        self.extended.as_ref()
    }

    /// The public card, the extended one if there is one, and those for scopes, to be signed.
    pub fn cards_mut(&mut self) -> impl Iterator<Item = &mut v1::AgentCard> {
        let scoped = self.scoped.iter_mut().map(|(_, card)| card);
        std::iter::once(&mut self.card).chain(&mut self.extended).chain(scoped)
    }

    /// The same, to be looked at.
    pub fn cards(&self) -> impl Iterator<Item = &v1::AgentCard> {
        let scoped = self.scoped.iter().map(|(_, card)| card);
        std::iter::once(&self.card).chain(&self.extended).chain(scoped)
    }

    /// The URIs of all extensions of all cards.
    #[must_use]
    pub fn extensions(&self) -> Vec<String> {
        let capabilities = self.cards().filter_map(|card| card.capabilities.as_ref());
        let mut uris: Vec<String> = Vec::new();
        for extension in capabilities.flat_map(|of| &of.extensions) {
            if !uris.contains(&extension.uri) {
                uris.push(extension.uri.clone());
            }
        }
        uris
    }

    fn has(&self, capability: impl Fn(&v1::AgentCapabilities) -> Option<bool>) -> bool {
        self.card.capabilities.as_ref().and_then(capability).unwrap_or(false)
    }

    /// Whether streaming is offered (CAP-04). It comes before any look at a task (CAP-07).
    ///
    /// # Errors
    /// [`Error::Unsupported`].
    pub(super) fn streaming(&self) -> Result<(), Error> {
        let refused = || "streaming is not supported; the agent card says so".to_owned();
        if self.has(|of| of.streaming) { Ok(()) } else { Err(Error::Unsupported(refused())) }
    }

    /// Whether webhooks are offered (CAP-02, CAP-03).
    ///
    /// # Errors
    /// [`Error::PushNotSupported`].
    pub(super) fn push_notifications(&self) -> Result<(), Error> {
        if self.has(|of| of.push_notifications) { Ok(()) } else { Err(Error::PushNotSupported) }
    }

    /// The extended card, for a caller with credentials (CAP-05, XCARD-01 to XCARD-04): the first
    /// whose scope the caller has, else the one for everybody with credentials.
    ///
    /// # Errors
    /// [`Error::ScopeMissing`] when there are cards for scopes alone;
    /// [`Error::Unsupported`] when the card does not offer it,
    /// [`Error::ExtendedCardNotConfigured`] when there is none, [`Error::Unauthenticated`].
    pub(super) fn extended(&self, call: &Call) -> Result<v1::AgentCard, Error> {
        if !self.has(|of| of.extended_agent_card) {
            return Err(Error::Unsupported("there is no extended agent card".to_owned()));
        }
        if call.caller.is_anonymous() {
            let needed = "the extended agent card is for callers with credentials".to_owned();
            return Err(Error::Unauthenticated(needed));
        }
        let fits = |(scope, _): &&(String, v1::AgentCard)| call.caller.has_scope(scope);
        let scoped = self.scoped.iter().find(fits).map(|(_, card)| card);
        if let Some(card) = scoped.or(self.extended.as_ref()) {
            return Ok(card.clone());
        }
        Err(match self.scoped.first() {
            Some((scope, _)) => Error::ScopeMissing { scope: scope.clone() },
            None => Error::ExtendedCardNotConfigured,
        })
    }

    /// Whether `call` names every extension that the card requires (CAP-06, EXT-05).
    ///
    /// # Errors
    /// [`Error::ExtensionRequired`] with the first that is missing.
    pub(super) fn required_extensions(&self, call: &Call) -> Result<(), Error> {
        match self.required.iter().find(|uri| !call.extensions.contains(uri)) {
            Some(missing) => Err(Error::ExtensionRequired(missing.clone())),
            None => Ok(()),
        }
    }
}

/// `card` with the capabilities that it leaves open, and this server's own extensions.
fn completed(
    mut card: v1::AgentCard,
    extended: bool,
    more: &[v1::AgentExtension],
) -> v1::AgentCard {
    let capabilities = card.capabilities.get_or_insert_default();
    let can = |claimed: Option<bool>, can| Some(can && claimed.unwrap_or(true));
    capabilities.streaming = can(capabilities.streaming, STREAMING);
    capabilities.push_notifications = can(capabilities.push_notifications, PUSH_NOTIFICATIONS);
    capabilities.extended_agent_card.get_or_insert(extended);
    for own in own_extensions() {
        if !capabilities.extensions.iter().any(|known| known.uri == own.uri) {
            capabilities.extensions.push(own);
        }
    }
    // What they say is what the settings are, whatever the card says.
    capabilities.extensions.retain(|known| known.uri != RETENTION_EXTENSION);
    capabilities.extensions.extend_from_slice(more);
    card
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{Caller, Principal, Tenants};

    fn call(extensions: &[&str]) -> Call {
        let extensions = extensions.iter().map(|&uri| uri.to_owned()).collect();
        Call { caller: Caller::anonymous(), peer: None, trace: None, extensions, room: None }
    }

    fn offers(capabilities: v1::AgentCapabilities, extended: Option<v1::AgentCard>) -> Offers {
        let capabilities = Some(capabilities);
        Offers::new(v1::AgentCard { capabilities, ..Default::default() }, extended)
    }

    #[test]
    fn a_card_denies_what_the_server_could_do() {
        let denies = v1::AgentCapabilities {
            streaming: Some(false),
            push_notifications: Some(false),
            extended_agent_card: Some(false),
            extensions: Vec::new(),
        };
        let offers = offers(denies, Some(v1::AgentCard::default()));
        assert!(matches!(offers.streaming(), Err(Error::Unsupported(_))));
        assert!(matches!(offers.push_notifications(), Err(Error::PushNotSupported)));
        assert!(matches!(offers.extended(&call(&[])), Err(Error::Unsupported(_))));
    }

    #[test]
    fn a_card_that_leaves_it_open_says_what_the_server_can_do() {
        let offers = offers(v1::AgentCapabilities::default(), None);
        assert_eq!(offers.streaming().is_ok(), STREAMING);
        assert_eq!(offers.push_notifications().is_ok(), PUSH_NOTIFICATIONS);
        assert!(matches!(offers.extended(&call(&[])), Err(Error::Unsupported(_))));
    }

    #[test]
    fn the_extended_card_is_for_callers_with_credentials() {
        let principal = Principal::parse("principal", "key:ann").unwrap();
        let ann = Call { caller: Caller::new(principal, Tenants::Any), ..call(&[]) };
        let extended = v1::AgentCard { name: "more".to_owned(), ..Default::default() };
        let offered = offers(v1::AgentCapabilities::default(), Some(extended));
        assert!(matches!(offered.extended(&call(&[])), Err(Error::Unauthenticated(_))));
        assert_eq!(offered.extended(&ann).unwrap().name, "more");

        let claims =
            v1::AgentCapabilities { extended_agent_card: Some(true), ..Default::default() };
        let claimed = offers(claims, None);
        assert!(matches!(claimed.extended(&ann), Err(Error::ExtendedCardNotConfigured)));
    }

    #[test]
    fn the_first_card_whose_scope_a_caller_has_is_his() {
        let named = |name: &str| v1::AgentCard { name: name.to_owned(), ..Default::default() };
        let scoped = || vec![("a".to_owned(), named("for a")), ("b".to_owned(), named("for b"))];
        let told = |offers: &Offers, scopes: &[&str]| {
            let principal = Principal::parse("principal", "key:ann").unwrap();
            let scopes = scopes.iter().map(|&scope| scope.to_owned()).collect();
            let caller = Caller::new(principal, Tenants::Any).with_scopes(scopes);
            match offers.extended(&Call { caller, ..call(&[]) }) {
                Ok(card) => card.name,
                Err(error) => error.to_string(),
            }
        };
        let both = Offers::with(named("public"), Some(named("for all")), scoped(), &[]);
        assert_eq!(told(&both, &[]), "for all");
        assert_eq!(told(&both, &["b"]), "for b");
        assert_eq!(told(&both, &["b", "a"]), "for a");
        let alone = Offers::with(named("public"), None, scoped(), &[]);
        assert_eq!(told(&alone, &["b"]), "for b");
        assert_eq!(told(&alone, &[]), "this operation needs the scope a");
        assert!(matches!(alone.extended(&call(&[])), Err(Error::Unauthenticated(_))));
    }

    #[test]
    fn every_required_extension_must_be_named() {
        let extension = |uri: &str, required| v1::AgentExtension {
            uri: uri.to_owned(),
            required,
            ..Default::default()
        };
        let capabilities = v1::AgentCapabilities {
            extensions: vec![extension("a", true), extension("b", false), extension("c", true)],
            ..Default::default()
        };
        let offers = offers(capabilities, None);
        let missing = |call: &Call| match offers.required_extensions(call) {
            Ok(()) => String::new(),
            Err(Error::ExtensionRequired(uri)) => uri,
            Err(other) => panic!("{other:?}"),
        };
        assert_eq!(missing(&call(&[])), "a");
        assert_eq!(missing(&call(&["a", "b"])), "c");
        assert_eq!(missing(&call(&["c", "a"])), "");
    }
}
