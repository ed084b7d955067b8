//! What would run, in text, with secrets hidden.

use std::path::PathBuf;

use crate::auth::{Auth, Mode};
use crate::config::file::Limits;
use crate::config::{
    CardArgs, Checked, Config, ProtocolArgs, RetentionArgs, StoreArgs, duration_text, name_of,
};
use crate::config::{quotas, retention};
use crate::contract::v1;

fn path(path: &Option<PathBuf>) -> String {
    path.as_ref().map_or_else(|| "none".to_owned(), |path| path.display().to_string())
}

fn auth_text(auth: &Auth) -> String {
    if auth.is_none() {
        return "none: every caller is anonymous".to_owned();
    }
    let one = |mode: &Mode| match mode {
        Mode::ApiKeys(keys) => format!("api-key: {}", keys.names().collect::<Vec<_>>().join(", ")),
        Mode::Gateway(gateway) => format!("gateway: {} kinds of peer", gateway.peers.len()),
        Mode::Certificates(of) if of.count() == 0 => "mtls: every holder".to_owned(),
        Mode::Certificates(of) => format!("mtls: {} holders", of.count()),
        Mode::Jwt(jwt) => format!("jwt: {}", jwt.issuers().collect::<Vec<_>>().join(", ")),
    };
    auth.modes().iter().map(one).collect::<Vec<_>>().join("; ")
}

impl Checked {
    /// What would run, a setting a line.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let parts = [self.reach(), self.discovery(), self.work(), self.kept(), self.limits()];
        let pairs = parts.into_iter().flatten();
        let pairs = pairs.map(|(name, value)| (name.to_owned(), value));
        let quotas = self.limits.quotas().map(|quotas| quotas::words(&quotas)).unwrap_or_default();
        let quotas = quotas.into_iter().chain(retention::words(&self.retention));
        pairs.chain(quotas).map(|(name, value)| format!("{name:<34} {value}")).collect()
    }

    /// Who reaches what.
    fn reach(&self) -> Vec<(&'static str, String)> {
        // Without `..`: a new setting is shown here or in `work`, or does not compile.
        let Config {
            config,
            listen,
            admin_listen,
            card: _,
            tls_cert,
            tls_key,
            tls_client_ca,
            tls_client_certs,
            auth: _,
            insecure,
            store: StoreArgs { store, store_direct, statement_mode, store_connections },
            no_migrate,
            page_token_keys: _,
            page_token_lifetime,
            agent: _,
            dedupe: _,
            dedupe_window: _,
            retention: _,
            history: _,
            list_history: _,
            protocol: _,
            lease: _,
            max_attempts: _,
            max_turns: _,
            cancel_grace: _,
            grace: _,
            drain_delay: _,
            log_format: _,
            log: _,
        } = &self.config;
        let auth = auth_text(&self.auth);
        let keys = match &self.page_token_keys {
            Some(keys) => format!("{keys:?} (keys hidden)"),
            None => "made at the first start and kept beside the store".to_owned(),
        };
        let direct =
            store_direct.as_ref().map_or_else(|| "as --store".to_owned(), ToString::to_string);
        vec![
            ("config", path(config)),
            ("listen", listen.to_string()),
            ("admin-listen", admin_listen.to_string()),
            ("tls-cert", path(tls_cert)),
            ("tls-key", path(tls_key)),
            ("tls-client-ca", path(tls_client_ca)),
            ("tls-client-certs", name_of(*tls_client_certs)),
            ("auth", auth),
            ("insecure", insecure.to_string()),
            ("store", store.to_string()),
            ("store-direct", direct),
            ("statement-mode", name_of(*statement_mode)),
            ("store-connections", store_connections.to_string()),
            ("no-migrate", no_migrate.to_string()),
            ("page-token-keys", keys),
            ("page-token-lifetime", duration_text(*page_token_lifetime)),
        ]
    }

    /// What clients find out.
    fn discovery(&self) -> Vec<(&'static str, String)> {
        // As above.
        let CardArgs {
            card,
            extended_card,
            card_max_age,
            card_keys: _,
            card_jku: _,
            card_forms,
            public_url,
        } = &self.config.card;
        let signer = &self.cards.signer;
        let kids: Vec<_> = signer.keys.signing.iter().map(|key| key.public().kid()).collect();
        let kids = if kids.is_empty() { "none".to_owned() } else { kids.join(", ") };
        let own = || "the agent's own".to_owned();
        let public = public_url.as_deref().unwrap_or("the address of --listen");
        let interfaces = match self.cards.interfaces.as_slice() {
            [] => "each binding at the public address".to_owned(),
            listed => {
                let one = |at: &v1::AgentInterface| format!("{} {}", at.protocol_binding, at.url);
                listed.iter().map(one).collect::<Vec<_>>().join(", ")
            }
        };
        vec![
            ("card", card.as_ref().map_or_else(own, |_| path(card))),
            ("extended-card", path(extended_card)),
            ("card-max-age", duration_text(*card_max_age)),
            ("card-keys", kids),
            ("card-jku", signer.jku.clone().unwrap_or_else(|| "none".to_owned())),
            ("card-forms", name_of(*card_forms)),
            ("public-url", public.to_owned()),
            ("interfaces", interfaces),
        ]
    }

    /// How long what has ended is kept.
    fn kept(&self) -> Vec<(&'static str, String)> {
        // As above.
        let RetentionArgs { task_retention, event_retention, purge_batch, purge_pause } =
            self.config.retention;
        vec![
            ("task-retention", task_retention.to_string()),
            ("event-retention", event_retention.to_string()),
            ("purge-batch", purge_batch.to_string()),
            ("purge-pause", duration_text(purge_pause)),
        ]
    }

    /// How work is done, and when it stops.
    fn work(&self) -> Vec<(&'static str, String)> {
        let config = &self.config;
        // As above.
        let ProtocolArgs {
            missing_version,
            status_table,
            early_stream_errors,
            require_extensions,
            send_wait,
            send_stream_ends,
            subscribe_ends,
            cancel_again,
            agent_role,
        } = config.protocol;
        vec![
            ("agent", name_of(config.agent)),
            ("dedupe", name_of(config.dedupe)),
            ("dedupe-window", duration_text(config.dedupe_window)),
            ("history", config.history.to_string()),
            ("list-history", config.list_history.to_string()),
            ("missing-version", name_of(missing_version)),
            ("status-table", name_of(status_table)),
            ("early-stream-errors", name_of(early_stream_errors)),
            ("require-extensions", name_of(require_extensions)),
            ("send-wait", send_wait.to_string()),
            ("send-stream-ends", name_of(send_stream_ends)),
            ("subscribe-ends", name_of(subscribe_ends)),
            ("cancel-again", name_of(cancel_again)),
            ("agent-role", name_of(agent_role)),
            ("lease", duration_text(config.lease)),
            ("max-attempts", config.max_attempts.to_string()),
            ("max-turns", config.max_turns.to_string()),
            ("cancel-grace", duration_text(config.cancel_grace)),
            ("grace", duration_text(config.grace)),
            ("drain-delay", duration_text(config.drain_delay)),
            ("log-format", name_of(config.log_format)),
            ("log", config.log.clone()),
        ]
    }

    /// How much is taken, with the names of the settings file.
    fn limits(&self) -> Vec<(&'static str, String)> {
        // As above.
        let Limits {
            connections,
            streams_per_connection,
            receive_bytes,
            message_bytes,
            part_bytes,
            parts,
            status_bytes,
            chunk_bytes,
            page_bytes,
            task_bytes,
            unsent_bytes,
            unsent_bytes_per_connection,
            rates: _,
            caller: _,
            tenant: _,
        } = self.limits;
        vec![
            ("limits.connections", connections.to_string()),
            ("limits.streams_per_connection", streams_per_connection.to_string()),
            ("limits.receive_bytes", receive_bytes.to_string()),
            ("limits.message_bytes", message_bytes.to_string()),
            ("limits.part_bytes", part_bytes.to_string()),
            ("limits.parts", parts.to_string()),
            ("limits.status_bytes", status_bytes.to_string()),
            ("limits.chunk_bytes", chunk_bytes.to_string()),
            ("limits.page_bytes", page_bytes.to_string()),
            ("limits.task_bytes", task_bytes.to_string()),
            ("limits.unsent_bytes", unsent_bytes.to_string()),
            ("limits.unsent_bytes_per_connection", unsent_bytes_per_connection.to_string()),
        ]
    }
}
