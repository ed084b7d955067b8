//! Every scenario by every official SDK on every binding that it has.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::interop::script::{made_by_setup, package, python, run};
use crate::support::program::Program;

/// The bindings of A2A, by their names in agent cards.
const ALL: &[&str] = &["GRPC", "JSONRPC", "HTTP+JSON"];

/// The rows of the table under `heading`, without its head.
fn table(heading: &str) -> Vec<Vec<String>> {
    let page = std::fs::read_to_string(package("tests/interop/README.md")).unwrap();
    let (_, section) = page.split_once(&format!("\n## {heading}\n")).expect("the heading is there");
    let section = section.split("\n## ").next().unwrap();
    let cells = |line: &str| {
        let cells = line.trim_matches('|').split('|');
        cells.map(|cell| cell.trim().trim_matches('`').to_owned()).collect::<Vec<_>>()
    };
    section.lines().filter(|line| line.starts_with("| `")).map(cells).collect()
}

/// Runs the program of a language on `bindings` and holds what it tells against the page.
fn drive(language: &str, bindings: &[&str], mut command: Command, folder: &Path, server: &Program) {
    let scenarios: BTreeSet<_> =
        table("Scenarios").into_iter().map(|mut row| row.remove(0)).collect();
    assert!(scenarios.len() > 20, "{scenarios:?}");
    command.arg(server.url()).args(bindings);
    let told = run(folder, command, |_| None);

    for binding in bindings {
        let prefix = format!("ok {binding} ");
        let done = told.iter().filter_map(|line| line.strip_prefix(&prefix)).map(str::to_owned);
        let done: BTreeSet<_> = done.collect();
        assert_eq!(done, scenarios, "{language} over {binding}, and the scenarios of the page");
    }
    let met: BTreeSet<_> = told.iter().filter_map(|line| line.strip_prefix("fault ")).collect();
    let rows = table("What the SDKs do wrong");
    let mine = rows.iter().filter(|row| row[0].starts_with(&format!("{language}-")));
    let known: BTreeSet<_> = mine.map(|row| row[0].as_str()).collect();
    assert_eq!(met, known, "the faults that {language} met, and those of the page");
}

/// What was built is what stands in `tests/interop` now.
fn assert_up_to_date(folder: &str) {
    let from = package(&format!("tests/interop/{folder}"));
    for entry in std::fs::read_dir(&from).unwrap() {
        let name = entry.unwrap().file_name();
        let built = package(&format!("target/interop/{folder}/built-from")).join(&name);
        let same =
            std::fs::read(from.join(&name)).unwrap() == std::fs::read(built).unwrap_or_default();
        assert!(same, "{} was changed: run `make setup`", from.join(&name).display());
    }
}

fn with_python() -> Command {
    python("tests/interop/python/run.py")
}

fn with_javascript() -> Command {
    assert_up_to_date("javascript");
    let mut command = made_by_setup("target/interop/javascript/node");
    command.arg("run.js").current_dir(package("target/interop/javascript"));
    command
}

fn with_go() -> Command {
    assert_up_to_date("go");
    made_by_setup("target/interop/go/client")
}

/// With the contract, which it needs to carry its messages over into it.
fn with_java(folder: &Path) -> Command {
    assert_up_to_date("java");
    let descriptors = folder.join("a2ad.pb");
    std::fs::write(&descriptors, a2ad::contract::DESCRIPTOR_SET).unwrap();
    let mut command = made_by_setup("target/interop/java/java");
    command.env("A2A_DESCRIPTORS", descriptors);
    let folder = package("target/interop/java");
    let path = format!("{0}/classes:{0}/lib/*", folder.display());
    command.args(["-cp", &path, "Run"]);
    command
}

#[test]
fn every_sdk_is_pinned_and_the_pages_name_it() {
    let text = |path| std::fs::read_to_string(package(path)).unwrap();
    let requirements = text("tests/interop/python/requirements.txt");
    let sdk = requirements.lines().find(|line| line.starts_with("a2a-sdk")).unwrap();
    assert!(text("README.md").contains(&format!("install '{sdk}'")), "README names another SDK");
    for (path, pin) in [
        ("tests/interop/javascript/package.json", "\"@a2a-js/sdk\": \"1.3.0\""),
        ("tests/interop/go/go.mod", "github.com/a2aproject/a2a-go/v2 v2.4.0"),
        ("tests/interop/java/pom.xml", "<a2a.version>1.0.0.Alpha3</a2a.version>"),
    ] {
        assert!(text(path).contains(pin), "{path} does not say {pin}");
    }
    // Nothing names the place that packages come from.
    let lock = text("tests/interop/javascript/package-lock.json");
    assert!(!lock.contains("\"resolved\""), "run npm with the .npmrc beside the lock file");
}

mod sqlite {
    use super::*;

    fn serve(folder: &TempDir) -> Program {
        Program::serve(folder.path(), &["--store", "sqlite:interop.db"])
    }

    #[test]
    fn the_python_sdk_has_its_way() {
        let folder = TempDir::new().unwrap();
        drive("python", ALL, with_python(), folder.path(), &serve(&folder));
    }

    #[test]
    fn the_javascript_sdk_has_its_way() {
        let folder = TempDir::new().unwrap();
        drive("js", ALL, with_javascript(), folder.path(), &serve(&folder));
    }

    #[test]
    fn the_java_sdk_has_its_way() {
        let folder = TempDir::new().unwrap();
        drive(
            "java",
            &["GRPC", "JSONRPC"],
            with_java(folder.path()),
            folder.path(),
            &serve(&folder),
        );
    }
}

mod postgres {
    use super::*;
    use crate::crash::KEYS;
    use crate::support::postgres::empty_url;

    async fn serve(folder: &TempDir) -> Program {
        let store = empty_url().await;
        Program::serve(folder.path(), &["--store", &store, "--page-token-keys", KEYS])
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_python_sdk_has_its_way() {
        let folder = TempDir::new().unwrap();
        drive("python", ALL, with_python(), folder.path(), &serve(&folder).await);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_go_sdk_has_its_way() {
        let folder = TempDir::new().unwrap();
        drive("go", ALL, with_go(), folder.path(), &serve(&folder).await);
    }
}
