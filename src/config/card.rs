//! The settings of the agent card, and the files that they name.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use crate::auth::{Auth, is_reserved_tenant};
use crate::card::{self, Address, Place};
use crate::config::check::{Problems, read};
use crate::config::duration;
use crate::config::file::Interface;
use crate::contract::{PROTOCOL_VERSION, v1};
use crate::domain::Tenant;
use crate::service::offers::{Offers, PUSH_NOTIFICATIONS, STREAMING};

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
    /// What the agent card says clients connect to, when it is not `--listen`: `host:port` or a URL
    #[arg(long, env = "A2AD_PUBLIC_URL", value_name = "URL")]
    pub public_url: Option<String>,
}

/// The cards as files and settings have them, before the server completes them.
#[derive(Debug, Clone, Default)]
pub struct Cards {
    /// The public card; the agent's own without one.
    pub public: Option<v1::AgentCard>,
    /// The one for callers with credentials.
    pub extended: Option<v1::AgentCard>,
    /// Every interface that the cards name; derived from the address if there is none.
    pub interfaces: Vec<v1::AgentInterface>,
}

impl CardArgs {
    /// Reads and checks the cards, completed as the server would. `listen` is where it would be.
    pub(super) fn read(
        &self,
        interfaces: &[Interface],
        auth: &Auth,
        (listen, secure): (SocketAddr, bool),
        problems: &mut Problems,
    ) -> Cards {
        let cards = Cards {
            public: read_card("--card", self.card.as_deref(), problems),
            extended: read_card("--extended-card", self.extended_card.as_deref(), problems),
            interfaces: interfaces.iter().filter_map(|one| interface(one, problems)).collect(),
        };
        let public = self.public_url.as_deref().map(|url| Address::parse(url, secure));
        let public = public.and_then(|address| {
            problems.take(address.map_err(|problem| format!("--public-url: {problem}")))
        });
        self.check_extended(&cards, auth, problems);
        let own = cards.public.clone().unwrap_or_default();
        let place = Place::new(&cards.interfaces, public, listen, secure).or_of(&own);
        let completed = Offers::new(
            place.completed(own, &auth.schemes()),
            cards.extended.clone().map(|card| place.completed(card, &auth.schemes())),
        );
        if let Some(card) = &cards.public {
            claims("--card", card, problems);
            of_card("--card", completed.card(), problems);
        }
        if let (Some(card), Some(completed)) = (&cards.extended, completed.extended_card()) {
            claims("--extended-card", card, problems);
            of_card("--extended-card", completed, problems);
        }
        cards
    }

    fn check_extended(&self, cards: &Cards, auth: &Auth, problems: &mut Problems) {
        if self.extended_card.is_none() {
            return;
        }
        if matches!(auth, Auth::None) {
            problems.add(
                "--extended-card: needs --auth api-key, since it is for callers with credentials",
            );
        }
        let denied = |card: &v1::AgentCard| {
            card.capabilities.as_ref().and_then(|of| of.extended_agent_card) == Some(false)
        };
        if cards.public.as_ref().is_some_and(denied) {
            problems.add(
                "--card: capabilities.extendedAgentCard: is false, but --extended-card names one; \
                 leave the member out",
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

fn of_card(flag: &str, card: &v1::AgentCard, problems: &mut Problems) {
    for problem in card::check::problems(card) {
        problems.add(format!("{flag}: {problem}"));
    }
}

/// What a card's file says that this server can do, and it cannot.
fn claims(flag: &str, card: &v1::AgentCard, problems: &mut Problems) {
    let Some(capabilities) = &card.capabilities else { return };
    for (member, claimed, can) in [
        ("streaming", capabilities.streaming, STREAMING),
        ("pushNotifications", capabilities.push_notifications, PUSH_NOTIFICATIONS),
    ] {
        if claimed == Some(true) && !can {
            problems.add(format!(
                "{flag}: capabilities.{member}: this server does not offer that; leave it out or \
                 write false"
            ));
        }
    }
}

fn interface(interface: &Interface, problems: &mut Problems) -> Option<v1::AgentInterface> {
    let Interface { binding, url, tenant } = interface;
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
