//! The settings of the agent card, and the files that they name.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::auth::{Auth, is_reserved_tenant};
use crate::card::jws::Signer;
use crate::card::keys::Keys;
use crate::card::{self, Address, JWKS_PATH, Place};
use crate::config::check::{Problems, read};
use crate::config::duration;
use crate::config::file::{Interface, ScopedCard};
use crate::config::identity::check_scope;
use crate::contract::{PROTOCOL_VERSION, v1};
use crate::domain::Tenant;
use crate::service::offers::{Offers, PUSH_NOTIFICATIONS, STREAMING};
use crate::service::retention::Rules;

/// The agent card.
#[derive(Debug, Clone, Args)]
pub struct CardArgs {
    /// Agent card in JSON or TOML [default: what the agent says of itself]
    #[arg(long, env = "A2AD_CARD", value_name = "FILE")]
    pub card: Option<PathBuf>,
    /// Agent card in JSON or TOML for callers with credentials
    #[arg(long, env = "A2AD_EXTENDED_CARD", value_name = "FILE")]
    pub extended_card: Option<PathBuf>,
    /// How long clients may keep the card without asking again
    #[arg(
        long,
        env = "A2AD_CARD_MAX_AGE",
        value_name = "TIME",
        default_value = "1m",
        value_parser = duration
    )]
    pub card_max_age: Duration,
    /// Private keys that sign the card, in PEM or JWK; their public halves are published
    #[arg(long, env = "A2AD_CARD_KEYS", value_name = "FILE[,FILE...]", value_delimiter = ',')]
    pub card_keys: Vec<PathBuf>,
    /// Where the card's signatures say that their keys are [default: `/.well-known/jwks.json` below
    /// an https `--public-url`]
    #[arg(long, env = "A2AD_CARD_JKU", value_name = "URL")]
    pub card_jku: Option<String>,
    /// What is signed where SDKs make other bytes of a card than the protocol: both, or the
    /// protocol's alone
    #[arg(long, env = "A2AD_CARD_FORMS", value_name = "FORMS", default_value = "all")]
    pub card_forms: CardForms,
    /// What the agent card says clients connect to, when it is not `--listen`: `host:port` or a URL
    #[arg(long, env = "A2AD_PUBLIC_URL", value_name = "URL")]
    pub public_url: Option<String>,
}

/// Which bytes of a card are signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CardForms {
    /// Every form that some reader makes of it.
    All,
    /// As the protocol says.
    Protocol,
}

/// The cards as files and settings have them, before the server completes them.
#[derive(Debug, Clone, Default)]
pub struct Cards {
    /// The public card; the agent's own without one.
    pub public: Option<v1::AgentCard>,
    /// The one for callers with credentials.
    pub extended: Option<v1::AgentCard>,
    /// Those for callers with a scope; the first that fits counts.
    pub scoped: Vec<(String, v1::AgentCard)>,
    /// Every interface that the cards name; derived from the address if there is none.
    pub interfaces: Vec<v1::AgentInterface>,
    /// What signs them.
    pub signer: Signer,
    /// How long what has ended is kept, of which they tell.
    pub retention: Rules,
}

impl Cards {
    /// The cards as a server at `place` tells them: completed and signed. `own` is what the agent
    /// says of itself.
    ///
    /// # Errors
    /// Why a card cannot be signed, or not kept with the signatures that it has.
    pub fn offers(
        &self,
        own: v1::AgentCard,
        place: &Place,
        schemes: &BTreeMap<String, v1::SecurityScheme>,
    ) -> Result<Offers, Vec<String>> {
        if !self.signer.keys.signing.is_empty() && !place.is_known() {
            return Err(vec![
                "--card-keys: needs --public-url or [[interfaces]] where --listen is every \
                 address: a card that names whatever was asked for cannot be signed"
                    .to_owned(),
            ]);
        }
        let public = self.public.clone().unwrap_or(own);
        let scoped = self.scoped.iter().map(|(_, card)| card);
        let originals = std::iter::once(&public).chain(&self.extended).chain(scoped);
        let extended = self.extended.clone().map(|card| place.completed(card, schemes));
        let named = self.interfaces.iter().map(|at| at.tenant.as_str());
        let more = self.retention.extension(named);
        let card = place.completed(public.clone(), schemes);
        let of_scope = |(scope, card): &(String, v1::AgentCard)| {
            (scope.clone(), place.completed(card.clone(), schemes))
        };
        let scoped = self.scoped.iter().map(of_scope).collect();
        let mut offers = Offers::with(card, extended, scoped, more.as_slice());
        for (original, card) in originals.zip(offers.cards_mut()) {
            card::jws::is_still_signed(original, card)?;
            self.signer.sign(card)?;
        }
        Ok(offers)
    }
}

/// Where a server would be.
pub(super) struct Site<'a> {
    pub(super) own: v1::AgentCard,
    pub(super) auth: &'a Auth,
    pub(super) listen: SocketAddr,
    pub(super) secure: bool,
    /// Extended cards for callers with a scope.
    pub(super) scoped: &'a [ScopedCard],
    pub(super) retention: Rules,
}

impl CardArgs {
    /// Reads and checks the cards, completed as the server would. Returns with them the public card
    /// that would be told.
    pub(super) fn read(
        &self,
        interfaces: &[Interface],
        site: Site<'_>,
        problems: &mut Problems,
    ) -> (Cards, v1::AgentCard) {
        let Site { own, auth, listen, secure, scoped, retention } = site;
        let public = self.public_url.as_deref().map(|url| Address::parse(url, secure));
        let public = public.and_then(|address| {
            problems.take(address.map_err(|problem| format!("--public-url: {problem}")))
        });
        let cards = Cards {
            public: read_card("--card", self.card.as_deref(), problems),
            extended: read_card("--extended-card", self.extended_card.as_deref(), problems),
            scoped: read_scoped(scoped, problems),
            interfaces: interfaces.iter().filter_map(|one| interface(one, problems)).collect(),
            signer: self.signer(public.as_ref(), problems),
            retention,
        };
        self.check_extended(&cards, auth, problems);
        let own = cards.public.clone().unwrap_or(own);
        let place = Place::new(&cards.interfaces, public, listen, secure).or_of(&own);
        let unsigned = Cards { signer: Signer::default(), ..cards.clone() };
        let offers = match unsigned.offers(own.clone(), &place, &auth.schemes()) {
            Ok(offers) => offers,
            Err(wrong) => {
                wrong.into_iter().for_each(|problem| problems.add(format!("--card: {problem}")));
                return (cards, own);
            }
        };
        let mut sound = true;
        if let Some(card) = &cards.public {
            sound &= claims("--card", card, problems);
            sound &= of_card("--card", offers.card(), problems);
        }
        if let (Some(card), Some(completed)) = (&cards.extended, offers.extended_card()) {
            sound &= claims("--extended-card", card, problems);
            sound &= of_card("--extended-card", completed, problems);
        }
        let completed = offers.cards().skip(1 + usize::from(cards.extended.is_some()));
        for ((scope, card), completed) in cards.scoped.iter().zip(completed) {
            let name = format!("extended_card: {scope}");
            sound &= claims(&name, card, problems);
            sound &= of_card(&name, completed, problems);
        }
        if !sound {
            return (cards, own);
        }
        match cards.offers(own.clone(), &place, &auth.schemes()) {
            Ok(offers) => (cards, offers.card().clone()),
            Err(wrong) => {
                wrong.into_iter().for_each(|problem| problems.add(problem));
                (cards, own)
            }
        }
    }

    fn signer(&self, public: Option<&Address>, problems: &mut Problems) -> Signer {
        let mut keys = Keys::default();
        for path in &self.card_keys {
            let named = |problem| format!("--card-keys: {}: {problem}", path.display());
            let text =
                problems.take(read(path).map_err(|problem| format!("--card-keys: {problem}")));
            if let Some(text) = text {
                problems.take(keys.add(&text).map_err(named));
            }
        }
        if !self.card_keys.is_empty() && keys.signing.is_empty() {
            problems.add("--card-keys: none of the files holds a private key");
        }
        if let Some(jku) = &self.card_jku {
            if self.card_keys.is_empty() {
                problems.add("--card-jku: needs --card-keys");
            }
            if !jku.starts_with("https://") {
                problems.add("--card-jku: must begin with https://");
            }
        }
        let derived = || public.filter(|at| at.is_secure()).map(|at| at.url() + JWKS_PATH);
        Signer {
            keys,
            jku: self.card_jku.clone().or_else(derived),
            protocol_form_only: self.card_forms == CardForms::Protocol,
        }
    }

    /// The files of private keys that others can read, in words.
    pub(super) fn warnings(&self) -> impl Iterator<Item = String> {
        let open = |path: &&PathBuf| {
            let data = std::fs::metadata(path);
            data.is_ok_and(|data| data.permissions().mode() & 0o007 != 0)
        };
        self.card_keys.iter().filter(open).map(|path| {
            format!("--card-keys: everybody on this machine can read {}", path.display())
        })
    }

    fn check_extended(&self, cards: &Cards, auth: &Auth, problems: &mut Problems) {
        if self.extended_card.is_none() && cards.scoped.is_empty() {
            return;
        }
        if auth.is_none() {
            problems.add(
                "--extended-card: needs another --auth than none, since it is for callers with credentials",
            );
        }
        let denied = |card: &v1::AgentCard| {
            card.capabilities.as_ref().and_then(|of| of.extended_agent_card) == Some(false)
        };
        if cards.public.as_ref().is_some_and(denied) {
            problems.add(
                "--card: capabilities.extendedAgentCard: is false, but --extended-card or the \
                 settings file names one; leave the member out",
            );
        }
    }
}

fn read_card(flag: &str, path: Option<&Path>, problems: &mut Problems) -> Option<v1::AgentCard> {
    let path = path?;
    let bytes = problems.take(read(path).map_err(|problem| format!("{flag}: {problem}")))?;
    match card::read::from_file(path, &bytes) {
        Ok(card) => Some(card),
        Err(wrong) => {
            for problem in wrong {
                problems.add(format!("{flag}: {}: {problem}", path.display()));
            }
            None
        }
    }
}

fn read_scoped(scoped: &[ScopedCard], problems: &mut Problems) -> Vec<(String, v1::AgentCard)> {
    let mut cards: Vec<(String, v1::AgentCard)> = Vec::new();
    for ScopedCard { scope, card } in scoped {
        if let Err(problem) = check_scope(scope) {
            problems.add(format!("extended_card: {problem}"));
        }
        if cards.iter().any(|(known, _)| known == scope) {
            problems.add(format!("extended_card: the scope {scope} stands there twice"));
        }
        let card = read_card(&format!("extended_card: {scope}"), Some(card), problems);
        cards.extend(card.map(|card| (scope.clone(), card)));
    }
    cards
}

/// Whether nothing is wrong with it.
fn of_card(flag: &str, card: &v1::AgentCard, problems: &mut Problems) -> bool {
    let wrong = card::check::problems(card);
    for problem in &wrong {
        problems.add(format!("{flag}: {problem}"));
    }
    wrong.is_empty()
}

/// Whether a card's file says of this server only what it can do.
fn claims(flag: &str, card: &v1::AgentCard, problems: &mut Problems) -> bool {
    let Some(capabilities) = &card.capabilities else { return true };
    let mut sound = true;
    for (member, claimed, can) in [
        ("streaming", capabilities.streaming, STREAMING),
        ("pushNotifications", capabilities.push_notifications, PUSH_NOTIFICATIONS),
    ] {
        if claimed == Some(true) && !can {
            sound = false;
            problems.add(format!(
                "{flag}: capabilities.{member}: this server does not offer that; leave it out or \
                 write false"
            ));
        }
    }
    sound
}

fn interface(interface: &Interface, problems: &mut Problems) -> Option<v1::AgentInterface> {
    let Interface { binding, url, tenant } = interface;
    let known = card::interfaces::SPOKEN.iter().find(|known| known.eq_ignore_ascii_case(binding));
    if let Some(known) = known.filter(|known| *known != binding) {
        problems.add(format!("interfaces: the binding {binding:?} must be written {known:?}"));
        return None;
    }
    let checked = card::interfaces::check_url(binding, url)
        .map_err(|problem| format!("interfaces: the url {url:?} of {binding} {problem}"));
    problems.take(checked)?;
    let tenant = Tenant::parse("tenant", tenant)
        .map_err(|violation| format!("interfaces: the tenant {tenant:?} {}", violation.problem));
    let tenant = problems.take(tenant)?;
    if is_reserved_tenant(tenant.as_str()) {
        let tenant = tenant.as_str();
        problems.add(format!("interfaces: the tenant {tenant} would hide a path of the protocol"));
    }
    Some(v1::AgentInterface {
        url: url.clone(),
        protocol_binding: binding.clone(),
        tenant: tenant.as_str().to_owned(),
        protocol_version: PROTOCOL_VERSION.to_owned(),
    })
}
