//! The program's arguments.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::config::{CardForms, Config, RetentionArgs, StoreArgs, duration};

/// A durable A2A 1.0 task server.
#[derive(Debug, Parser)]
#[command(name = "a2ad", version, about, subcommand_required = true, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What the program does.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve tasks until a signal
    ///
    /// Every setting is a flag or its `A2AD_` variable. Without any, tasks are kept in `a2ad.db`
    /// and served on 127.0.0.1:50051 to everybody on this machine, by the demo agent.
    Serve(Box<Config>),
    /// Bring the store's schema up to date
    Migrate {
        /// Which store.
        #[command(flatten)]
        store: StoreArgs,
        /// Print the SQL of all migrations instead of running any
        #[arg(long)]
        print: bool,
    },
    /// Delete tasks that ended long enough ago, as the server does by itself
    ///
    /// Beside servers that run on PostgreSQL; an SQLite file belongs to one process at a time, so
    /// stop its server before. A task that has not ended is never deleted.
    Purge(Box<Purge>),
    /// Delete all that is one owner's, tasks that have not ended included
    ///
    /// What runs for them is stopped, and whoever waits is told that there is no such task. Take
    /// the owner's credentials away first. An SQLite file is written anew afterwards.
    Erase(Box<Erase>),
    /// Check the settings of `serve` and print what would run
    Check(Box<Config>),
    /// Write the contract as a `FileDescriptorSet`, for gateways and tools
    Descriptor,
    /// Make keys
    #[command(subcommand)]
    Keys(Keys),
    /// Show, sign and verify agent cards
    #[command(subcommand)]
    Card(Card),
}

/// What is purged.
#[derive(Debug, Args)]
pub struct Purge {
    /// Which store.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Settings file in TOML, for what tenants have of their own
    #[arg(long, env = "A2AD_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// How long what has ended is kept.
    #[command(flatten)]
    pub retention: RetentionArgs,
    /// Tasks that ended longer ago, whatever the settings say
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub older_than: Option<Duration>,
    /// Only of this tenant; the default tenant is the empty text
    #[arg(long, value_name = "NAME")]
    pub tenant: Option<String>,
    /// Say how many tasks would go, and delete nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Who is erased.
#[derive(Debug, Args)]
pub struct Erase {
    /// Which store.
    #[command(flatten)]
    pub store: StoreArgs,
    /// The tenant; the default tenant is the empty text
    #[arg(long, value_name = "NAME", default_value = "")]
    pub tenant: String,
    /// The owner, as in `key:ann`
    #[arg(long, value_name = "PRINCIPAL")]
    pub owner: String,
    /// Say what would go, and delete nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
}

/// What to do about agent cards.
#[derive(Debug, Subcommand)]
pub enum Card {
    /// Print the card that `serve` would tell with these settings
    Show(Box<Config>),
    /// Sign a card and print it with its signatures
    Sign {
        /// The card, in JSON or TOML
        card: PathBuf,
        /// Private keys, in PEM or JWK; each adds a signature
        #[arg(long, value_name = "FILE[,FILE...]", value_delimiter = ',', required = true)]
        keys: Vec<PathBuf>,
        /// Where the signatures say that their keys are
        #[arg(long, value_name = "URL")]
        jku: Option<String>,
        /// What is signed where SDKs make other bytes of a card than the protocol
        #[arg(long, value_name = "FORMS", default_value = "all")]
        forms: CardForms,
    },
    /// Verify the signatures of a card; the exit code says whether any of them is good
    Verify {
        /// The card, in JSON; `-` reads it from standard input
        card: PathBuf,
        /// Keys that are trusted: JWKs, JWK sets, or private keys
        #[arg(long, value_name = "FILE[,FILE...]", value_delimiter = ',', required = true)]
        keys: Vec<PathBuf>,
    },
}

/// What a card is signed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Algorithm {
    /// ECDSA with P-256.
    Es256,
    /// Ed25519.
    Eddsa,
}

/// What to do about keys.
#[derive(Debug, Subcommand)]
pub enum Keys {
    /// Make a key for page tokens, an API key, or a key that signs agent cards
    New {
        /// Make an API key of this name, and print its entry for the settings file
        #[arg(long, value_name = "NAME")]
        api_key: Option<String>,
        /// Make a key that signs agent cards in this new file, and print its public half
        #[arg(long, value_name = "FILE", conflicts_with = "api_key")]
        card: Option<PathBuf>,
        /// What that key signs with
        #[arg(long, value_name = "NAME", default_value = "es256", requires = "card")]
        algorithm: Algorithm,
    },
}
