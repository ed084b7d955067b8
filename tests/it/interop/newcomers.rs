//! What README tells a newcomer to run.

use std::path::Path;

use tempfile::TempDir;

use crate::interop::script::{python, run};
use crate::support::program::{Program, command};

fn client(folder: &Path, arguments: &[&str]) -> Vec<String> {
    let mut command = python("examples/client.py");
    command.args(arguments);
    run(folder, command, |_| None)
}

#[test]
fn what_readme_tells_a_newcomer_works() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let server = Program::serve(folder, &["--store", "sqlite:interop.db"]);
    let mut asked = None;
    for text in ["hello", "slow 1", "reply hi", "ask why?"] {
        for line in client(folder, &[text, &server.url()]) {
            let task = line.strip_prefix("task ");
            let found = task.and_then(|task| task.strip_suffix(" TASK_STATE_INPUT_REQUIRED"));
            if let Some(found) = found {
                asked = Some(found.to_owned());
            }
        }
    }
    let asked = asked.expect("the task of the question was told");
    client(folder, &["because", &server.url(), "--task", &asked]);
    // Newest first, three tasks, and the one that was answered at the front.
    let listed = client(folder, &["--list", &server.url()]);
    assert_eq!(listed[0], "the newest 3 of 3 tasks:", "{listed:?}");
    assert_eq!(listed[1], format!("  {asked} TASK_STATE_COMPLETED"), "{listed:?}");
}

#[test]
fn the_example_client_sends_a_key() {
    let folder = TempDir::new().unwrap();
    let made = command(folder.path(), &["keys", "new", "--api-key", "ann"]).output().unwrap();
    std::fs::write(folder.path().join("a2ad.toml"), &made.stdout).unwrap();
    let told = String::from_utf8(made.stderr).unwrap();
    let (_, key) = told.lines().next().unwrap().split_once("once: ").unwrap();
    let server = Program::serve(folder.path(), &["--auth", "api-key", "--config", "a2ad.toml"]);
    client(folder.path(), &["hello", &server.url(), "--api-key", key]);
}
