//! The program `a2ad`: arguments, one subcommand, an exit code.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use a2ad::config::{Config, StoreArgs};

mod commands;

/// A durable A2A 1.0 task server.
#[derive(Debug, Parser)]
#[command(name = "a2ad", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serves A2A until it is told to stop
    Serve(Box<Config>),
    /// Applies the database's migrations
    Migrate {
        /// Where tasks are kept.
        #[command(flatten)]
        store: StoreArgs,
        /// Print the SQL of all migrations instead, for a schema that is managed elsewhere
        #[arg(long)]
        print: bool,
    },
    /// Checks the settings and prints what would run, without secrets
    Check(Box<Config>),
    /// Prints the contract's descriptor set, for gateways and tools
    Descriptor,
    /// Keys
    Keys {
        #[command(subcommand)]
        command: Keys,
    },
}

#[derive(Debug, Subcommand)]
enum Keys {
    /// Makes a page-token key, or an API key with its entry for the settings file
    New {
        /// Make an API key for a caller of this name
        #[arg(long, value_name = "NAME")]
        api_key: Option<String>,
    },
}

/// Bad usage, as in `sysexits.h`.
const USAGE: u8 = 64;

fn main() -> ExitCode {
    let parsed = Arguments::command()
        .try_get_matches()
        .and_then(|matches| Arguments::from_arg_matches(&matches));
    let arguments = match parsed {
        Ok(arguments) => arguments,
        Err(error) => {
            let is_help = !error.use_stderr();
            drop(error.print());
            return if is_help { ExitCode::SUCCESS } else { ExitCode::from(USAGE) };
        }
    };
    let outcome = match arguments.command {
        Command::Serve(config) => commands::serve(&config),
        Command::Migrate { store, print } => commands::migrate(&store, print),
        Command::Check(config) => commands::check(&config),
        Command::Descriptor => commands::descriptor(),
        Command::Keys { command: Keys::New { api_key } } => commands::new_key(api_key.as_deref()),
    };
    outcome.unwrap_or_else(|error| {
        drop(writeln!(io::stderr(), "a2ad: {error:#}"));
        ExitCode::FAILURE
    })
}
