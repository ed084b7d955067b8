//! What each subcommand does.

use std::fs::OpenOptions;
use std::io::{self, Read as _, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use tokio::runtime::Runtime;

use a2ad::agent::demo::Demo;
use a2ad::auth::ApiKey;
use a2ad::config::{AgentChoice, Checked, Config, StoreArgs, StoreKind, duration_text};
use a2ad::contract::DESCRIPTOR_SET;
use a2ad::domain::SystemClock;
use a2ad::domain::page::KeyRing;
use a2ad::server::{Builder, Server};
use a2ad::store::Store as _;
use a2ad::store::migrate::{self, Dialect};
use a2ad::store::postgres::Postgres;
use a2ad::store::sqlite::{self, Sqlite};
use a2ad::telemetry;

/// A bad setting, as in `sysexits.h`.
const CONFIG: u8 = 78;

fn say(line: &str) -> Result<()> {
    writeln!(io::stdout(), "{line}").context("cannot write to standard output")
}

/// Tells every problem, and the exit code for bad settings.
fn refuse(problems: &[String]) -> ExitCode {
    for problem in problems {
        drop(writeln!(io::stderr(), "a2ad: {problem}"));
    }
    ExitCode::from(CONFIG)
}

/// `a2ad serve`.
pub(crate) fn serve(config: &Config) -> Result<ExitCode> {
    let checked = match config.check() {
        Ok(checked) => checked,
        Err(problems) => return Ok(refuse(&problems)),
    };
    if let Err(problem) = telemetry::start(config.log_format(), &config.log) {
        return Ok(refuse(&[format!("--log: {problem}")]));
    }
    let builder = builder(config, checked)?;
    Runtime::new().context("cannot start the runtime")?.block_on(async {
        let server = builder.start().await.context("cannot start")?;
        tracing::info!(
            listen.addr = %server.address(),
            admin.addr = server.admin_address().map(tracing::field::display),
            store.url = %config.store.store,
            "serving"
        );
        hint(config, &server)?;
        Ok(if server.until_signal().await { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}

fn builder(config: &Config, checked: Checked) -> Result<Builder> {
    let Checked { auth, keys, tls, service } = checked;
    let keys = match (keys, config.key_file()) {
        (Some(keys), _) => Some(keys),
        (None, Some(path)) => Some(kept_keys(&path)?),
        (None, None) => None,
    };
    let agent = match config.agent {
        AgentChoice::Demo => Demo,
    };
    let mut builder = Server::builder(agent)
        .store(config.store.store.expose())
        .migrate(!config.no_migrate)
        .listen(config.listen)
        .admin(Some(config.admin_listen))
        .public_address(config.public_address.clone())
        .auth(auth)
        .tls(tls)
        .page_token_lifetime(config.page_token_lifetime)
        .settings(service)
        .drain(config.drain_delay, config.grace);
    if let Some(keys) = keys {
        builder = builder.page_token_keys(keys);
    }
    if let Some(postgres) = config.store.postgres() {
        builder = builder.postgres(postgres);
    }
    Ok(builder)
}

/// The key beside the SQLite file, made at the first start. It is written whole under another
/// name first, so that a crash leaves no half of it.
fn kept_keys(path: &Path) -> Result<KeyRing> {
    let shown = path.display();
    match std::fs::read_to_string(path) {
        Ok(text) => KeyRing::parse(text.trim()).with_context(|| format!("the key in {shown}")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let (ring, text) = KeyRing::generate().context("no random bytes")?;
            let fresh = path.with_extension("page-key.new");
            let mut options = OpenOptions::new();
            let mut file = options
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&fresh)
                .with_context(|| format!("cannot make {shown}"))?;
            file.write_all(text.as_bytes()).and_then(|()| file.sync_all())?;
            std::fs::rename(&fresh, path).with_context(|| format!("cannot make {shown}"))?;
            Ok(ring)
        }
        Err(error) => Err(error).with_context(|| format!("cannot read {shown}")),
    }
}

/// What to try, for people who have just started it.
fn hint(config: &Config, server: &Server) -> Result<()> {
    let address = server.address();
    let scheme = if config.tls_cert.is_some() { "https" } else { "http" };
    say(&format!("a2ad serves A2A 1.0 over gRPC on {address}, tasks in {}.", config.store.store))?;
    say(&format!("Card:  curl {scheme}://{address}/.well-known/agent-card.json"))?;
    let plain = if config.tls_cert.is_some() { "" } else { " -plaintext" };
    say(&format!(
        "Send:  grpcurl{plain} -H 'a2a-version: 1.0' -d '{{\"message\": {{\"messageId\": \"m1\", \
         \"role\": \"ROLE_USER\", \"parts\": [{{\"text\": \"hello\"}}]}}}}' {address} \
         lf.a2a.v1.A2AService/SendMessage"
    ))
}

/// `a2ad migrate`.
pub(crate) fn migrate(store: &StoreArgs, print: bool) -> Result<ExitCode> {
    let kind = store.store.kind();
    let dialect = match kind {
        Some(StoreKind::Postgres) => Dialect::Postgres,
        Some(StoreKind::SqliteFile(_) | StoreKind::SqliteMemory) => Dialect::Sqlite,
        None => {
            let problem = "--store is none: use sqlite:FILE or postgres://...".to_owned();
            return Ok(refuse(&[problem]));
        }
    };
    if print {
        say(&migrate::text(dialect))?;
        return Ok(ExitCode::SUCCESS);
    }
    Runtime::new().context("cannot start the runtime")?.block_on(async {
        if let Some(settings) = store.postgres() {
            let (from, to) = Postgres::migrate(&settings).await.context("cannot migrate")?;
            say(&format!("schema version {from} is now {to}"))?;
        } else if let Some(StoreKind::SqliteFile(path)) = kind {
            let location = sqlite::Location::File(path.into());
            let settings = sqlite::Settings::new(location, Arc::new(SystemClock));
            let store = Sqlite::open(settings).await.context("cannot migrate")?;
            store.close().await;
            say(&format!("schema version is {}", migrate::newest(Dialect::Sqlite)))?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// `a2ad check`.
pub(crate) fn check(config: &Config) -> Result<ExitCode> {
    let checked = match config.check() {
        Ok(checked) => checked,
        Err(problems) => return Ok(refuse(&problems)),
    };
    let keys = match (&checked.keys, config.key_file()) {
        (Some(keys), _) => format!("{keys:?} (ids)"),
        (None, Some(path)) => format!("kept in {}", path.display()),
        (None, None) => "made for this run".to_owned(),
    };
    let service = &checked.service;
    say(&format!("listen           {}", config.listen))?;
    say(&format!("admin            {}", config.admin_listen))?;
    say(&format!("tls              {}", if checked.tls.is_some() { "on" } else { "off" }))?;
    say(&format!("store            {}", config.store.store))?;
    if let Some(direct) = &config.store.store_direct {
        say(&format!("store, direct    {direct}"))?;
    }
    say(&format!(
        "migrations       {}",
        if config.no_migrate { "not applied" } else { "applied" }
    ))?;
    say(&format!("auth             {:?}", checked.auth))?;
    say(&format!("page-token keys  {keys}"))?;
    say(&format!("agent            {:?}", config.agent))?;
    say(&format!("dedupe           {:?}", service.dedupe))?;
    say(&format!("lease            {}", duration_text(service.lease)))?;
    say(&format!("grace            {}", duration_text(service.grace)))?;
    say(&format!("max attempts     {}", service.max_attempts))?;
    say(&format!("runners          {}", service.runners))?;
    say("the settings are good")?;
    Ok(ExitCode::SUCCESS)
}

/// `a2ad descriptor`.
pub(crate) fn descriptor() -> Result<ExitCode> {
    io::stdout().write_all(DESCRIPTOR_SET).context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// `a2ad keys new`.
pub(crate) fn new_key(api_key: Option<&str>) -> Result<ExitCode> {
    let Some(name) = api_key else {
        let (_, text) = KeyRing::generate().context("no random bytes")?;
        say(&text)?;
        return Ok(ExitCode::SUCCESS);
    };
    let mut bytes = [0; 32];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .context("no random bytes")?;
    let key = format!("a2ad_{}", hex(&bytes));
    if let Err(problem) = ApiKey::new(name, ApiKey::hash(&key), &[]) {
        return Ok(refuse(&[problem]));
    }
    say(&format!("# The key, shown once; give it to the caller: {key}"))?;
    say("[[api_keys]]")?;
    say(&format!("name = {name:?}"))?;
    say(&format!("sha256 = \"{}\"", hex(&ApiKey::hash(&key))))?;
    say("tenants = [\"\"]")?;
    Ok(ExitCode::SUCCESS)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
