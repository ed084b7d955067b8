//! The official Python SDK against the real program, over gRPC, on both stores.
//!
//! The scripts in `tests/interop/python` talk and check; this side starts the server, and deletes
//! a row when a script asks for it.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;
use uuid::Uuid;

use crate::support::program::{Program, command};
use crate::support::torture;

/// The longest silence of a script before it counts as hung.
const SILENCE_MAX: Duration = Duration::from_secs(300);

fn package(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Runs a script and gives each line that it prints to `answer`, whose text it can then read.
fn run(folder: &Path, script: &str, arguments: &[&str], answer: impl Fn(&str) -> Option<String>) {
    let python = package("target/interop-venv/bin/python");
    assert!(python.exists(), "{} is missing: run `make setup`", python.display());
    let errors = folder.join("python.log");
    let mut child = Command::new(python)
        .arg(package(script))
        .args(arguments)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(&errors).unwrap())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let lines = lines(&mut child);
    let failed = |child: &mut Child, what: &str| {
        drop(child.kill());
        panic!("{script} {what}\n{}", std::fs::read_to_string(&errors).unwrap_or_default());
    };
    loop {
        match lines.recv_timeout(SILENCE_MAX) {
            Ok(line) => {
                println!("{script}: {line}");
                if let Some(text) = answer(&line) {
                    writeln!(stdin, "{text}").unwrap();
                }
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => failed(&mut child, "hangs"),
        }
    }
    let status = child.wait().unwrap();
    if !status.success() {
        failed(&mut child, &format!("failed: {status}"));
    }
}

fn lines(child: &mut Child) -> mpsc::Receiver<String> {
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in stdout.lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

fn converse(folder: &Path, server: &Program) {
    run(folder, "tests/interop/python/conversations.py", &[&server.url()], |_| None);
}

fn first_steps(folder: &Path, server: &Program) {
    let asked = std::cell::RefCell::new(None);
    for text in ["hello", "slow 1", "reply hi", "ask why?"] {
        run(folder, "examples/client.py", &[text, &server.url()], |line| {
            let found = line.strip_prefix("task ")?.strip_suffix(" TASK_STATE_INPUT_REQUIRED")?;
            asked.replace(Some(found.to_owned()));
            None
        });
    }
    let asked = asked.take().expect("the task of the question was told");
    run(folder, "examples/client.py", &["because", &server.url(), "--task", &asked], |_| None);
    // Newest first, three tasks, and the one that was answered at the front.
    let listed = std::cell::RefCell::new(Vec::new());
    run(folder, "examples/client.py", &["--list", &server.url()], |line| {
        listed.borrow_mut().push(line.to_owned());
        None
    });
    let listed = listed.take();
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
    let arguments = ["hello", &server.url(), "--api-key", key];
    run(folder.path(), "examples/client.py", &arguments, |_| None);
}

fn page(folder: &Path, server: &Program, delete: impl Fn(Uuid)) {
    let n_tasks = if torture() { "1000" } else { "200" };
    run(folder, "tests/interop/python/pages.py", &[&server.url(), n_tasks], |line| {
        let task = line.strip_prefix("delete ")?;
        delete(task.parse().unwrap());
        Some("deleted".to_owned())
    });
}

#[test]
fn the_readme_names_the_tested_sdk() {
    let text = |path| std::fs::read_to_string(package(path)).unwrap();
    let requirements = text("tests/interop/requirements.txt");
    let sdk = requirements.lines().find(|line| line.starts_with("a2a-sdk")).unwrap();
    assert!(text("README.md").contains(&format!("install '{sdk}'")), "README names another SDK");
}

mod sqlite {
    use super::*;

    fn serve(folder: &TempDir) -> Program {
        Program::serve(folder.path(), &["--store", "sqlite:interop.db"])
    }

    #[test]
    fn the_python_sdk_converses() {
        let folder = TempDir::new().unwrap();
        let server = serve(&folder);
        converse(folder.path(), &server);
    }

    #[test]
    fn what_readme_tells_a_newcomer_works() {
        let folder = TempDir::new().unwrap();
        let server = serve(&folder);
        first_steps(folder.path(), &server);
    }

    #[test]
    fn the_python_sdk_pages_through_all_tasks() {
        let folder = TempDir::new().unwrap();
        let server = serve(&folder);
        page(folder.path(), &server, |task| {
            let database = rusqlite::Connection::open(folder.path().join("interop.db")).unwrap();
            database.busy_timeout(Duration::from_secs(10)).unwrap();
            let n = database.execute("delete from tasks where id = ?1", [task.as_bytes()]);
            assert_eq!(n, Ok(1));
        });
    }
}

mod postgres {
    use super::*;
    use crate::crash::KEYS;
    use crate::support::postgres::{admin, empty_url};

    fn serve(folder: &TempDir, url: &str) -> Program {
        Program::serve(folder.path(), &["--store", url, "--page-token-keys", KEYS])
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_python_sdk_converses() {
        let folder = TempDir::new().unwrap();
        converse(folder.path(), &serve(&folder, &empty_url().await));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_python_sdk_pages_through_all_tasks() {
        let folder = TempDir::new().unwrap();
        let url = empty_url().await;
        let server = serve(&folder, &url);
        let database = admin(&url).await;
        let runtime = tokio::runtime::Handle::current();
        page(folder.path(), &server, |task| {
            let params: [&(dyn tokio_postgres::types::ToSql + Sync); 1] = [&task];
            let delete = database.execute("delete from tasks where id = $1", &params);
            let n = tokio::task::block_in_place(|| runtime.block_on(delete));
            assert_eq!(n.unwrap(), 1);
        });
    }
}
