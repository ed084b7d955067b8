//! `docs/settings.md` against the program: every setting, with its variable and its default.

use a2ad::config::cli::Cli;
use a2ad::config::file::File;
use clap::{Arg, CommandFactory};

const DOCUMENT: &str = include_str!("../../docs/settings.md");

fn settings() -> Vec<Arg> {
    let mut program = Cli::command();
    program.build();
    let serve = program.find_subcommand("serve").unwrap();
    serve.get_arguments().filter(|arg| arg.get_id() != "help").cloned().collect()
}

/// The row of a setting, as the document must have it.
fn row(arg: &Arg) -> String {
    let flag = arg.get_long().unwrap();
    let variable = arg.get_env().unwrap().to_str().unwrap();
    let value = arg.get_action().takes_values().then(|| arg.get_value_names().unwrap()[0].as_str());
    let choices: Vec<_> =
        arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    let value = match value {
        Some(_) if !choices.is_empty() => format!(" {}", choices.join("\\|")),
        Some(value) => format!(" {value}"),
        None => String::new(),
    };
    let default = arg.get_default_values().first().and_then(|value| value.to_str());
    let default = default.filter(|_| arg.get_action().takes_values());
    let default = default.map_or_else(String::new, |default| format!("`{default}`"));
    let help = arg.get_help().unwrap().to_string();
    format!("| `--{flag}{value}` | `{variable}` | {default} | {help} |")
}

#[test]
fn the_document_has_every_setting_as_the_help_tells_it() {
    let rows: Vec<_> = settings().iter().map(row).collect();
    let found: Vec<_> = DOCUMENT.lines().filter(|line| line.starts_with("| `--")).collect();
    assert!(rows == found, "docs/settings.md should say:\n\n{}\n", rows.join("\n"));
}

#[test]
fn every_setting_has_the_variable_of_its_name() {
    for arg in settings() {
        let flag = arg.get_long().unwrap().to_uppercase().replace('-', "_");
        assert_eq!(arg.get_env().unwrap().to_str(), Some(format!("A2AD_{flag}").as_str()));
    }
}

#[test]
fn what_holds_a_secret_is_hidden() {
    for arg in settings() {
        let name = arg.get_long().unwrap();
        let secret = ["page-token-keys", "store", "store-direct"].contains(&name);
        assert_eq!(arg.is_hide_env_values_set(), secret, "--{name}");
    }
}

#[test]
fn the_documents_settings_file_is_read_and_shows_every_default() {
    let toml = DOCUMENT.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let file = File::parse(toml).unwrap();
    assert_eq!(file.api_keys.len(), 2);
    assert_eq!(file.limits, a2ad::config::file::Limits::default(), "and no limit is left out");
    // Every limit is there: without any one of them, the text does not name its default.
    let names = toml.split("[limits]").nth(1).unwrap();
    let count = names.lines().filter(|line| line.contains(" = ")).count();
    let known = format!("{:?}", file.limits);
    let known = known.split("rates: ").next().unwrap().matches(": ").count();
    assert_eq!(count, known);
}

#[test]
fn the_documents_quotas_are_read() {
    let toml = DOCUMENT.split("```toml\n").nth(2).unwrap().split("```").next().unwrap();
    let quotas = File::parse(toml).unwrap().limits.quotas().unwrap();
    assert!(quotas.caller.streams.is_some() && quotas.caller.open_tasks.is_some());
    assert!(quotas.tenant.streams.is_some() && quotas.tenant.open_tasks.is_some());
    assert_eq!(quotas.rates.iter().flatten().count(), 2);
}
