//! The program's arguments.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

use crate::config::{CardForms, Config, StoreArgs};

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
