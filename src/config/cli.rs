//! The program's arguments.

use clap::{Parser, Subcommand};

use crate::config::{Config, StoreArgs};

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
}

/// What to do about keys.
#[derive(Debug, Subcommand)]
pub enum Keys {
    /// Make a key for page tokens, or an API key
    New {
        /// Make an API key of this name, and print its entry for the settings file
        #[arg(long, value_name = "NAME")]
        api_key: Option<String>,
    },
}
