//! `a2ad purge` and `a2ad erase`, as an operator runs them.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use a2ad::auth::ApiKey;
use a2ad::client::{Client, Connect, text_message};
use a2ad::contract::v1::{self, SendMessageRequest};
use tempfile::TempDir;

use crate::crash::KEYS;
use crate::support::postgres::{admin, fresh_url};
use crate::support::program::{Program, command};

/// Stands in all that Mallory sends: text, context, message id; and in the name.
const MARK: &str = "mallorymark";
const ANN: &str = "ann";

fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let key = |name: &str| {
        let hash = ApiKey::hash(&format!("{name}-key"));
        format!("[[api_keys]]\nname = \"{name}\"\nsha256 = \"{}\"\n", hex::encode(hash))
    };
    fs::write(folder.path().join("a2ad.toml"), key(ANN) + &key(MARK)).unwrap();
    folder
}

/// Runs the program to its end.
fn run(folder: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = command(folder, arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn done(folder: &Path, arguments: &[&str]) -> String {
    let (code, out, err) = run(folder, arguments);
    assert_eq!(code, Some(0), "{arguments:?}: {out}{err}");
    out
}

async fn client(server: &Program, name: &str) -> Client {
    Connect::to(server.url()).bearer(&format!("{name}-key")).unwrap().connect().await.unwrap()
}

/// Tasks that end, and one that waits for input.
async fn fill(server: &Program, name: &str, ended: usize) {
    let mut client = client(server, name).await;
    let texts = std::iter::repeat_n("hello", ended).chain(["ask"]);
    for (n, text) in texts.enumerate() {
        let message = v1::Message {
            message_id: format!("id-{name}-{n}"),
            context_id: format!("context-{name}"),
            ..text_message(format!("{text} {name}"))
        };
        let request = SendMessageRequest { message: Some(message), ..Default::default() };
        client.send_message(request).await.unwrap();
    }
}

async fn total(server: &Program, name: &str) -> i32 {
    let listed = client(server, name).await.list_tasks(v1::ListTasksRequest::default()).await;
    listed.unwrap().into_inner().total_size
}

fn serve(folder: &Path, store: &[&str]) -> Program {
    let auth = ["--auth", "api-key", "--config", "a2ad.toml", "--log", "warn"];
    Program::serve(folder, &[&auth, store].concat())
}

fn end(mut server: Program) {
    server.signal("TERM");
    assert!(server.wait(Duration::from_secs(30)).success());
}

/// The files of the folder that hold the mark, but for what was written by hand.
fn marked(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let found = entries.filter(|path| {
        let written = ["toml", "log"].iter().any(|end| path.extension().is_some_and(|e| e == *end));
        !written && fs::read(path).unwrap().windows(MARK.len()).any(|at| at == MARK.as_bytes())
    });
    found.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_sqlite_file_is_purged_and_erased_while_no_server_has_it() {
    let folder = folder();
    let here = folder.path();
    let server = serve(here, &[]);
    fill(&server, ANN, 3).await;
    fill(&server, MARK, 2).await;
    for arguments in [
        ["purge", "--older-than", "0s", "--dry-run"].as_slice(),
        &["erase", "--owner", "key:mallorymark", "--yes"],
    ] {
        let (code, _, said) = run(here, arguments);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("in use by another process"), "{said}");
    }
    end(server);

    let would = done(here, &["purge", "--older-than", "0s", "--dry-run"]);
    let lines: Vec<_> = would.lines().map(|l| l.split_whitespace().collect::<Vec<_>>()).collect();
    assert_eq!(lines[..2], [vec!["tenant", "state", "tasks"], vec!["\"\"", "COMPLETED", "5"]]);
    assert_eq!(would.lines().last(), Some("5 tasks that had ended would go"));
    let owner = ["erase", "--owner", "key:mallorymark"];
    let would = done(here, &[&owner[..], &["--dry-run"]].concat());
    assert!(would.contains("3 tasks of key:mallorymark and 3 memories"), "{would}");
    assert!(!marked(here).is_empty(), "nothing went so far");
    let gone = done(here, &[&owner[..], &["--yes"]].concat());
    assert!(gone.contains("3 tasks of key:mallorymark and 3 memories"), "{gone}");
    assert!(gone.contains("the name key:mallorymark is gone as well"), "{gone}");
    assert_eq!(marked(here), Vec::<String>::new(), "no byte of it is left");
    assert!(done(here, &[&owner[..], &["--yes"]].concat()).contains("0 tasks"));

    assert_eq!(done(here, &["purge", "--older-than", "1h"]), "0 tasks that had ended are gone\n");
    assert!(done(here, &["purge", "--older-than", "0s", "--tenant", "blue"]).contains("0 tasks"));
    let gone = done(here, &["purge", "--older-than", "0s", "--purge-batch", "2"]);
    assert!(gone.ends_with("3 tasks that had ended are gone\n"), "{gone}");
    let server = serve(here, &[]);
    assert_eq!((total(&server, ANN).await, total(&server, MARK).await), (1, 0));
    fill(&server, MARK, 1).await;
    assert_eq!(total(&server, MARK).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_store_is_purged_and_erased_beside_its_server() {
    let folder = folder();
    let here = folder.path();
    let url = fresh_url().await;
    let store = ["--store", url.as_str()];
    let server = serve(here, &[&store[..], &["--page-token-keys", KEYS]].concat());
    fill(&server, ANN, 2).await;
    fill(&server, MARK, 2).await;
    let owner = ["erase", "--owner", "key:mallorymark", "--yes"];
    let gone = done(here, &[&owner[..], &store].concat());
    assert!(gone.contains("3 tasks of key:mallorymark and 3 memories"), "{gone}");
    assert!(gone.contains("vacuumed"), "{gone}");
    assert_eq!((total(&server, ANN).await, total(&server, MARK).await), (3, 0));
    let tables =
        "select string_agg(format('select %L || t::text from %I t', table_name, table_name),
          ' union all ')
        from information_schema.tables where table_schema = 'public'";
    let client = admin(&url).await;
    let all: String = client.query_one(tables, &[]).await.unwrap().get(0);
    // Bytes are written in hex there.
    let hex = hex::encode(MARK);
    let rows = client.query(&all, &[]).await.unwrap();
    assert!(rows.len() > 20);
    for row in rows {
        let row: String = row.get(0);
        assert!(!row.contains(MARK) && !row.contains(&hex), "{row}");
    }
    let gone = done(here, &[&["purge", "--older-than", "0s"][..], &store].concat());
    assert!(gone.ends_with("2 tasks that had ended are gone\n"), "{gone}");
    assert_eq!(total(&server, ANN).await, 1);
    // The server believes no number that is gone: what comes next is another owner to it.
    fill(&server, MARK, 1).await;
    assert_eq!(total(&server, MARK).await, 2);
    assert!(done(here, &[&owner[..], &store].concat()).contains("2 tasks of key:mallorymark"));
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    for (arguments, code, word) in [
        (&["purge"][..], 78, "--older-than"),
        (&["purge", "--task-retention", "1s"], 78, "--task-retention"),
        (&["purge", "--older-than", "1d", "--tenant", "a/b"], 78, "--tenant"),
        (&["purge", "--older-than", "1d", "--store", "x"], 78, "--store"),
        (&["purge", "--older-than", "soon"], 64, "soon"),
        (&["purge", "--older-than", "1d"], 1, "there is no a2ad.db"),
        (&["erase"], 64, "--owner"),
        (&["erase", "--owner", ""], 78, "--owner"),
        (&["erase", "--owner", "key:ann"], 78, "--yes"),
        (&["erase", "--owner", "key:ann", "--yes"], 1, "there is no a2ad.db"),
    ] {
        let (found, out, said) = run(here, arguments);
        assert_eq!(found, Some(code), "{arguments:?}: {out}{said}");
        assert!(said.contains(word), "{arguments:?}: {said}");
    }
    assert_eq!(fs::read_dir(here).unwrap().count(), 0, "and no file is made");
}

#[test]
fn a_pipe_is_nobody_who_could_be_asked() {
    let folder = tempfile::tempdir().unwrap();
    let mut erase = command(folder.path(), &["erase", "--owner", "key:ann"]);
    let mut child = erase.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    drop(child.stdin.take().unwrap().write_all(b"key:ann\n"));
    assert_eq!(child.wait().unwrap().code(), Some(78));
}
