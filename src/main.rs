//! The program `a2ad`: arguments, one subcommand, an exit code.
//!
//! | code | when |
//! |---|---|
//! | 0 | done; `serve`: everything ended in order |
//! | 1 | it failed; `serve`: the grace period ran out |
//! | 64 | the arguments cannot be read |
//! | 78 | the settings are wrong or unsafe |

use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

use a2ad::card::jws::Signer;
use a2ad::card::keys::{self, Keys as KeysOfCards};
use a2ad::card::tools;
use a2ad::config::cli::{Algorithm, Card, Cli, Command, Erase, Keys, Purge};
use a2ad::config::{CardForms, Checked, Config, LogForm, StoreArgs, StoreKind};
use a2ad::contract::DESCRIPTOR_SET;
use a2ad::domain::error::chain;
use a2ad::domain::page::KeyRing;
use a2ad::server::{Builder, Place, Signals, clearing};
use a2ad::store::migrate::{self, Dialect};
use a2ad::telemetry::{self, LogFormat};

const USAGE: u8 = 64;
const CONFIGURATION: u8 = 78;

/// Why the program ends early.
enum Failure {
    /// The settings are wrong: all problems.
    Settings(Vec<String>),
    /// Something did not work.
    Other(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Other(error.into())
    }
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(asked) if !asked.use_stderr() => {
            // Help and version are what was asked for.
            return asked.print().map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
        }
        Err(error) => {
            drop(error.print());
            return ExitCode::from(USAGE);
        }
    };
    match run(cli.command) {
        Ok(code) => code,
        Err(Failure::Settings(problems)) => {
            complain(&problems.join("\na2ad: "));
            ExitCode::from(CONFIGURATION)
        }
        Err(Failure::Other(error)) => {
            complain(&chain(&*error));
            ExitCode::FAILURE
        }
    }
}

fn complain(text: &str) {
    // Where nobody reads, nobody can be told.
    drop(writeln!(io::stderr(), "a2ad: {text}"));
}

fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Serve(config) => serve(*config),
        Command::Migrate { store, print } => migrate(store, print),
        Command::Purge(asked) => purge(*asked),
        Command::Erase(asked) => erase(*asked),
        Command::Check(config) => {
            let checked = config.check().map_err(Failure::Settings)?;
            let warnings = checked.warnings.iter().map(|warning| format!("warning: {warning}"));
            say(&checked.lines().into_iter().chain(warnings).collect::<Vec<_>>())
        }
        Command::Descriptor => {
            io::stdout().write_all(DESCRIPTOR_SET)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Keys(Keys::New { card: Some(path), algorithm, api_key: _ }) => {
            new_card_key(&path, algorithm)
        }
        Command::Keys(Keys::New { api_key, .. }) => new_key(api_key.as_deref()),
        Command::Card(Card::Show(config)) => {
            let checked = config.check().map_err(Failure::Settings)?;
            say(&[tools::pretty(&checked.card).map_err(anyhow::Error::msg)?])
        }
        Command::Card(Card::Sign { card, keys, jku, forms }) => {
            let protocol_form_only = forms == CardForms::Protocol;
            let signer = Signer { keys: read_keys(&keys)?, jku, protocol_form_only };
            let signed = tools::sign(&card, &read(&card)?, &signer);
            say(&[signed.map_err(|problems| of_file(&card, problems))?])
        }
        Command::Card(Card::Verify { card, keys }) => {
            let verdicts = tools::verify(&read(&card)?, &read_keys(&keys)?);
            let (lines, good) = verdicts.map_err(|problem| of_file(&card, vec![problem]))?;
            say(&lines)?;
            Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
    }
}

fn say(lines: &[String]) -> Result<ExitCode, Failure> {
    let mut out = io::stdout().lock();
    for line in lines {
        writeln!(out, "{line}")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn serve(config: Config) -> Result<ExitCode, Failure> {
    let checked = config.check().map_err(Failure::Settings)?;
    let form = match checked.config.log_format {
        LogForm::Text => LogFormat::Text,
        LogForm::Json => LogFormat::Json,
    };
    telemetry::start(form, &checked.config.log).map_err(anyhow::Error::msg)?;
    for warning in &checked.warnings {
        tracing::warn!("{warning}");
    }
    let hint = hint(&checked);
    let drained = runtime()?.block_on(async {
        let mut signals = Signals::listen();
        // A database that does not answer yet is waited for; who ends that has lost nothing.
        let server = tokio::select! {
            biased;
            name = signals.next() => {
                tracing::info!(signal = name, "ended before it served");
                return Ok(true);
            }
            started = Builder::configured(checked).start() => started?,
        };
        if let Some(hint) = hint {
            complain(&hint);
        }
        Ok::<_, Failure>(server.until(signals).await)
    })?;
    Ok(if drained { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()
}

/// What to try, for people who start it by hand and without settings.
fn hint(checked: &Checked) -> Option<String> {
    let config = &checked.config;
    let by_hand = config.is_open()
        && config.log_format == LogForm::Text
        && checked.tls.is_none()
        && config.listen.port() != 0;
    by_hand.then(|| {
        format!(
            "ready. Try this from another terminal:\n\n  grpcurl -plaintext -H 'a2a-version: 1.0' \
             -d '{{\"message\":{{\"messageId\":\"1\",\"role\":\"ROLE_USER\",\
             \"parts\":[{{\"text\":\"hello\"}}]}}}}' {0} lf.a2a.v1.A2AService/SendMessage\n  \
             grpcurl -plaintext -H 'a2a-version: 1.0' {0} lf.a2a.v1.A2AService/ListTasks\n\n\
             Tasks are kept in {1}. Ctrl-C ends the server; a second one ends it sooner.",
            config.listen, config.store.store
        )
    })
}

fn migrate(store: StoreArgs, print: bool) -> Result<ExitCode, Failure> {
    let problems = store.problems();
    if !problems.is_empty() {
        return Err(Failure::Settings(problems));
    }
    let dialect = match store.store.kind() {
        Some(StoreKind::Postgres) => Dialect::Postgres,
        _ => Dialect::Sqlite,
    };
    if print {
        return say(&[migrate::text(dialect).trim_end().to_owned()]);
    }
    let shown = store.store.to_string();
    let place = Place::configured(store, true);
    let (from, to) = runtime()?.block_on(place.migrate())?;
    say(&[if from == to {
        format!("{shown} has schema version {to}")
    } else {
        format!("{shown} had schema version {from} and now has {to}")
    }])
}

fn purge(asked: Purge) -> Result<ExitCode, Failure> {
    let rules = asked.rules().map_err(Failure::Settings)?;
    let place = Place::configured(asked.store, false);
    let cleared = runtime()?.block_on(clearing::purge(&place, &rules, asked.dry_run))?;
    let tasks = clearing::count(&cleared.tasks);
    let mut lines = clearing::table(&cleared.tasks);
    let verb = if asked.dry_run { "would go" } else { "are gone" };
    lines.push(format!("{tasks} tasks that had ended {verb}"));
    if cleared.logs > 0 {
        lines.push(format!("the events of {} further tasks are gone", cleared.logs));
    }
    say(&lines)
}

fn erase(asked: Erase) -> Result<ExitCode, Failure> {
    let scope = asked.scope().map_err(Failure::Settings)?;
    if !asked.dry_run && !asked.yes && !is_meant(&asked)? {
        return Err(anyhow::Error::msg("that is not the owner's name; nothing was erased").into());
    }
    let on_postgres = asked.store.store.kind() == Some(StoreKind::Postgres);
    let place = Place::configured(asked.store, false);
    let erased = runtime()?.block_on(clearing::erase(&place, &scope, asked.dry_run))?;
    let tasks = clearing::count(&erased.tasks);
    let mut lines = clearing::table(&erased.tasks);
    let verb = if asked.dry_run { "would go" } else { "are gone" };
    let (sent, owner) = (erased.sent_messages, scope.owner());
    lines.push(format!("{tasks} tasks of {owner} and {sent} memories of sent messages {verb}"));
    if erased.name {
        lines.push(format!("the name {owner} is gone as well"));
    }
    if on_postgres && !asked.dry_run {
        lines.push(
            "PostgreSQL keeps the bytes in dead rows until they are vacuumed and written over, and \
             in its log and backups for as long as those are kept"
                .to_owned(),
        );
    }
    say(&lines)
}

/// Asks for the owner's name once more.
fn is_meant(asked: &Erase) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() {
        let needed = "--yes: needed where nobody can be asked".to_owned();
        return Err(Failure::Settings(vec![needed]));
    }
    let Erase { owner, tenant, .. } = asked;
    complain(&format!(
        "all of {owner} in the tenant {tenant:?} goes for good; type the name again:"
    ));
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(answer.trim_end() == owner)
}

/// A file's bytes, or those of standard input.
fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    if path == Path::new("-") {
        let mut bytes = Vec::new();
        io::stdin().read_to_end(&mut bytes)?;
        return Ok(bytes);
    }
    std::fs::read(path).map_err(|error| of_file(path, vec![format!("cannot be read: {error}")]))
}

/// What is wrong with a file.
fn of_file(path: &Path, problems: Vec<String>) -> Failure {
    let named = |problem| format!("{}: {problem}", path.display());
    Failure::Settings(problems.into_iter().map(named).collect())
}

fn read_keys(paths: &[PathBuf]) -> Result<KeysOfCards, Failure> {
    let mut keys = KeysOfCards::default();
    for path in paths {
        keys.add(&read(path)?).map_err(|problem| of_file(path, vec![problem]))?;
    }
    Ok(keys)
}

fn new_card_key(path: &Path, algorithm: Algorithm) -> Result<ExitCode, Failure> {
    let algorithm = match algorithm {
        Algorithm::Es256 => keys::Algorithm::Es256,
        Algorithm::Eddsa => keys::Algorithm::EdDsa,
    };
    let made = tools::new_key(algorithm, path);
    let public =
        made.map_err(|error| of_file(path, vec![format!("cannot be written: {error}")]))?;
    complain(&format!("the private key is in {}; its public half is this:", path.display()));
    say(&[public])
}

fn new_key(api_key: Option<&str>) -> Result<ExitCode, Failure> {
    let Some(name) = api_key else {
        let (_, text) = KeyRing::generate()?;
        return say(&[text]);
    };
    let (key, entry) = a2ad::config::new_api_key(name).map_err(|p| Failure::Settings(vec![p]))?;
    // Only the entry goes to standard output, so that it can be sent to a file without the key.
    complain(&format!("the key, shown this once: {key}"));
    complain("its entry for the settings file, on standard output:");
    say(&[entry])
}
