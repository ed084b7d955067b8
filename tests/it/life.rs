//! The life of the real program: its starts, its refusals, its ends and their exit codes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use a2ad::client::{Client, Connect};
use a2ad::config::file::File;
use a2ad::contract::v1::{self, TaskState};
use bytes::Bytes;
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost_reflect::DescriptorPool;
use tokio::net::TcpStream;
use tonic::Code;

use crate::rig::{eventually, raw, send, send_at_once, task_of};
use crate::support::program::{Program, command, free_address};

/// An end that waits for nothing takes well under a second.
const PROMPT: Duration = Duration::from_secs(20);

fn run(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

async fn client(program: &Program) -> Client {
    Client::connect(&program.url()).await.unwrap()
}

async fn tasks(client: &mut Client) -> Vec<v1::Task> {
    client.list_tasks(v1::ListTasksRequest::default()).await.unwrap().into_inner().tasks
}

fn state(task: &v1::Task) -> TaskState {
    task.status.as_ref().unwrap().state()
}

#[tokio::test(flavor = "multi_thread")]
async fn without_settings_it_serves_and_keeps_what_it_needs_beside_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let program = Program::serve(folder.path(), &[]);
    let mut client = client(&program).await;
    task_of(client.send_message(send("hello")).await.unwrap());
    assert!(folder.path().join("a2ad.db").exists());
    let key = folder.path().join("a2ad.db.page-key");
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    let output = program.output();
    assert!(output.contains("grpcurl"), "a hint what to try: {output}");
    let key = fs::read_to_string(key).unwrap();
    let secret = key.trim().split_once(':').unwrap().1;
    assert!(!output.contains(secret));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_finds_everything_when_it_starts_again() {
    let folder = tempfile::tempdir().unwrap();
    let address = free_address();
    let program = Program::serve_at(address, folder.path(), &[]);
    let mut before = client(&program).await;
    let done = task_of(before.send_message(send("hello")).await.unwrap());
    let slow = task_of(before.send_message(send_at_once("slow 2")).await.unwrap());
    let asked = task_of(before.send_message(send("ask which colour?")).await.unwrap());
    let page = v1::ListTasksRequest { page_size: Some(1), ..Default::default() };
    let token = before.list_tasks(page.clone()).await.unwrap().into_inner().next_page_token;
    program.kill();

    let program = Program::serve_at(address, folder.path(), &[]);
    let mut after = client(&program).await;
    let found = tasks(&mut after).await;
    let of = |id: &str| found.iter().find(|task| task.id == id).map(state);
    assert_eq!(of(&done.id), Some(TaskState::Completed));
    assert_eq!(of(&asked.id), Some(TaskState::InputRequired));
    assert_eq!(found.len(), 3);
    // Tokens live on, since their key does.
    let next = v1::ListTasksRequest { page_token: token, ..page };
    assert_eq!(after.list_tasks(next).await.unwrap().into_inner().total_size, 3);
    eventually("the end of the slow task", async || {
        let request = v1::GetTaskRequest { id: slow.id.clone(), ..Default::default() };
        let task = after.get_task(request).await.unwrap().into_inner();
        let done = state(&task) == TaskState::Completed;
        assert!(!done || task.artifacts[0].parts.len() == 2, "{task:?}");
        done
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_answers_whoever_waits_and_hands_the_work_back() {
    let folder = tempfile::tempdir().unwrap();
    let address = free_address();
    let quick = ["--drain-delay", "0s", "--grace", "2s"];
    let mut program = Program::serve_at(address, folder.path(), &quick);
    let mut looking = client(&program).await;
    let mut waiting = looking.clone();
    let waiting = tokio::spawn(async move { waiting.send_message(send("slow 4")).await });
    eventually("work under way", async || {
        tasks(&mut looking).await.iter().any(|task| state(task) == TaskState::Working)
    })
    .await;
    program.signal("TERM");
    let status = waiting.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert_eq!(program.wait(PROMPT).code(), Some(0), "{}", program.output());

    let program = Program::serve_at(address, folder.path(), &quick);
    let mut client = client(&program).await;
    let mut chunks = 0;
    eventually("the rest of the work", async || {
        let id = tasks(&mut client).await[0].id.clone();
        let request = v1::GetTaskRequest { id, ..Default::default() };
        let task = client.get_task(request).await.unwrap().into_inner();
        chunks = task.artifacts.iter().map(|artifact| artifact.parts.len()).sum();
        state(&task) == TaskState::Completed
    })
    .await;
    assert_eq!(chunks, 4, "each chunk once, over both lives");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_server_ends_at_once_also_on_sigint() {
    for signal in ["TERM", "INT"] {
        let folder = tempfile::tempdir().unwrap();
        let mut program = Program::serve(folder.path(), &["--drain-delay", "0s"]);
        // An idle connection must not hold it.
        let idle = TcpStream::connect(program.address()).await.unwrap();
        let mut client = client(&program).await;
        tasks(&mut client).await;
        let begin = Instant::now();
        program.signal(signal);
        assert_eq!(program.wait(PROMPT).code(), Some(0), "{}", program.output());
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
        drop(idle);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_skips_the_drain_delay() {
    let folder = tempfile::tempdir().unwrap();
    let mut program = Program::serve(folder.path(), &["--drain-delay", "1h"]);
    program.signal("TERM");
    eventually("the first signal", async || program.output().contains("ending")).await;
    // It still takes calls.
    tasks(&mut client(&program).await).await;
    program.signal("TERM");
    assert_eq!(program.wait(PROMPT).code(), Some(0), "{}", program.output());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_does_not_end_is_cut_and_the_exit_code_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let mut program = Program::serve(folder.path(), &["--drain-delay", "0s", "--grace", "500ms"]);
    // A request whose body never ends.
    let io = TokioIo::new(TcpStream::connect(program.address()).await.unwrap());
    let body = StreamBody::new(tokio_stream::pending::<Result<Frame<Bytes>, std::io::Error>>());
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::post(format!("{}/lf.a2a.v1.A2AService/GetTask", program.url()))
        .header("content-type", "application/grpc")
        .header("a2a-version", "1.0")
        .body(body)
        .unwrap();
    let waiting = tokio::spawn(sender.send_request(request));
    tasks(&mut client(&program).await).await;
    program.signal("TERM");
    assert_eq!(program.wait(PROMPT).code(), Some(1), "{}", program.output());
    drop(waiting);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_on_one_sqlite_file_is_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let first = Program::serve(folder.path(), &[]);
    let listen = free_address().to_string();
    let second = run(folder.path(), &["serve", "--listen", &listen, "--admin-listen", "off"]);
    assert_eq!(second.status.code(), Some(1));
    let words = text(&second.stderr);
    assert!(words.contains("in use by another process") && words.contains("PostgreSQL"), "{words}");
    task_of(client(&first).await.send_message(send("hello")).await.unwrap());
}

#[test]
fn an_address_in_use_is_named_with_its_setting_and_nothing_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = port.local_addr().unwrap().to_string();
    let free = free_address().to_string();
    for (setting, listen, admin) in
        [("--listen", &taken, "127.0.0.1:0"), ("--admin-listen", &free, &*taken)]
    {
        let output = run(folder.path(), &["serve", "--listen", listen, "--admin-listen", admin]);
        assert_eq!(output.status.code(), Some(1));
        let words = text(&output.stderr);
        let told = format!("a2ad: {setting}: cannot listen on {taken}: Address already in use");
        assert!(words.contains(&told), "{words}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "no file was made");
    }
}

#[test]
fn a_settings_file_that_cannot_be_read_is_the_only_problem_told() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a2ad.toml"), "[[api_keys]\n").unwrap();
    let output = run(folder.path(), &["check", "--auth", "api-key", "--config", "a2ad.toml"]);
    assert_eq!(output.status.code(), Some(78));
    let words = text(&output.stderr);
    assert!(words.starts_with("a2ad: --config: a2ad.toml: line 1"), "{words}");
    assert!(!words.contains("--auth"), "what it would have held is not known: {words}");
}

#[test]
fn why_postgresql_does_not_answer_is_told_while_it_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let nobody = format!("postgres://a2ad:s3cret@{}/a2ad", free_address());
    let listen = free_address();
    let arguments = ["--store", &nobody, "--page-token-keys", crate::crash::KEYS];
    let mut program = Program::begin_at(listen, folder.path(), &arguments);
    let until = Instant::now() + PROMPT;
    while !program.output().contains("PostgreSQL does not answer yet") {
        assert!(Instant::now() < until, "{}", program.output());
        std::thread::sleep(Duration::from_millis(10));
    }
    let output = program.output();
    assert!(output.contains("Connection refused"), "{output}");
    assert!(!output.contains("s3cret"), "{output}");
    let refused = std::net::TcpStream::connect(listen);
    assert!(refused.is_err(), "nobody is kept waiting by a server that cannot answer");
    program.signal("TERM");
    assert_eq!(program.wait(PROMPT).code(), Some(0), "{}", program.output());
}

#[test]
fn bad_usage_is_64_and_bad_settings_are_78() {
    let folder = tempfile::tempdir().unwrap();
    for usage in [
        &[][..],
        &["serv"],
        &["serve", "--no-such-flag"],
        &["serve", "--lease", "15"],
        &["serve", "--listen", "nowhere"],
        &["serve", "--auth", "password"],
        &["keys"],
    ] {
        let output = run(folder.path(), usage);
        assert_eq!(output.status.code(), Some(64), "{usage:?}: {}", text(&output.stderr));
    }
    for (settings, word) in [
        (&["--listen", "0.0.0.0:50051"][..], "--insecure"),
        (&["--admin-listen", "[::]:9464"], "--admin-listen"),
        (&["--store", "postgres://db/a2ad"], "--page-token-keys"),
        (&["--store", "oracle://db"], "--store"),
        (&["--store-direct", "postgres://db/a2ad"], "--store-direct"),
        (&["--tls-cert", "cert.pem"], "--tls-key"),
        (&["--tls-cert", "no.pem", "--tls-key", "no.pem"], "no.pem cannot be read"),
        (&["--auth", "api-key"], "[[api_keys]]"),
        (&["--page-token-keys", "k1:abcd"], "32 bytes"),
        (&["--config", "no.toml"], "no.toml cannot be read"),
        (&["--lease", "1ms"], "--lease"),
        (&["--log", "a2ad=loud"], "--log"),
        (&["--public-url", "ftp://x"], "--public-url"),
    ] {
        for command in ["serve", "check"] {
            let arguments: Vec<_> = [command].iter().chain(settings).copied().collect();
            let output = run(folder.path(), &arguments);
            let words = text(&output.stderr);
            assert_eq!(output.status.code(), Some(78), "{arguments:?}: {words}");
            assert!(words.contains(word), "{arguments:?}: {words}");
        }
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was made");
}

#[test]
fn every_problem_is_told_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(
        folder.path(),
        &["check", "--listen", "0.0.0.0:1", "--lease", "1ms", "--tls-key", "x", "--store", "x"],
    );
    let words = text(&output.stderr);
    for flag in ["--listen", "--lease", "--tls-key", "--store"] {
        assert!(words.lines().any(|line| line.starts_with(&format!("a2ad: {flag}"))), "{words}");
    }
}

#[test]
fn what_is_unsafe_runs_when_it_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &["check", "--listen", "0.0.0.0:50051", "--insecure"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("warning: everybody who reaches 0.0.0.0:50051"));
}

#[test]
fn no_secret_is_printed() {
    let folder = tempfile::tempdir().unwrap();
    let key = "ab".repeat(32);
    let keys = format!("k1:{key}");
    let url = "postgres://ann:s3cret@db/a2ad?password=s3cret";
    fs::write(
        folder.path().join("a2ad.toml"),
        format!("[[api_keys]]\nname = 'ann'\nsha256 = '{}'\n", "cd".repeat(32)),
    )
    .unwrap();
    let settings =
        ["--page-token-keys", &keys, "--store", url, "--auth", "api-key", "--config", "a2ad.toml"];
    let good: Vec<_> = ["check"].iter().chain(&settings).copied().collect();
    let bad: Vec<_> = good.iter().chain(&["--lease", "1ms"]).copied().collect();
    let half = format!("k1:{}", "ab".repeat(20));
    let short = ["check", "--page-token-keys", &half];
    let swapped = ["check", "--store", &keys, "--page-token-keys", url];
    for (arguments, code) in [(&good[..], 0), (&bad, 78), (&short, 78), (&swapped, 78)] {
        let output = run(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
        let all = text(&output.stdout) + &text(&output.stderr);
        for secret in ["s3cret", "abab", "cdcd"] {
            assert!(!all.contains(secret), "{arguments:?}: {all}");
        }
    }
    assert!(text(&run(folder.path(), &good).stdout).contains("ann:(hidden)@db"));
    // Nor by the help, which shows the variables that are set.
    let help = command(folder.path(), &["serve", "--help"])
        .env("A2AD_STORE", url)
        .env("A2AD_STORE_DIRECT", url)
        .env("A2AD_PAGE_TOKEN_KEYS", &keys)
        .output()
        .unwrap();
    assert_eq!(help.status.code(), Some(0));
    assert!(!text(&help.stdout).contains("s3cret") && !text(&help.stdout).contains("abab"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_made_api_key_lets_its_holder_in() {
    let folder = tempfile::tempdir().unwrap();
    let made = run(folder.path(), &["keys", "new", "--api-key", "ann"]);
    let (told, entry) = (text(&made.stderr), text(&made.stdout));
    let key = told.split("the key, shown this once: ").nth(1).unwrap().lines().next().unwrap();
    assert!(key.starts_with("a2ad_") && !entry.contains(key));
    assert_eq!(File::parse(&entry).unwrap().api_keys.len(), 1);
    fs::write(folder.path().join("a2ad.toml"), entry).unwrap();

    let program = Program::serve(folder.path(), &["--auth", "api-key", "--config", "a2ad.toml"]);
    let mut stranger = client(&program).await;
    let refused = stranger.list_tasks(v1::ListTasksRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    let mut ann = Connect::to(program.url()).bearer(key).unwrap().connect().await.unwrap();
    task_of(ann.send_message(send("hello")).await.unwrap());
    assert!(!program.output().contains(key));

    let bad = run(folder.path(), &["keys", "new", "--api-key", ""]);
    assert_eq!(bad.status.code(), Some(78));
}

#[test]
fn a_server_that_waits_for_its_database_ends_when_it_is_told() {
    let folder = tempfile::tempdir().unwrap();
    // Nobody listens on the discard port.
    let keys = format!("k:{}", "ab".repeat(32));
    let arguments =
        ["--store", "postgres://nobody@127.0.0.1:9/x", "--page-token-keys", keys.as_str()];
    let mut program = Program::begin(folder.path(), &arguments);
    let deadline = Instant::now() + Duration::from_secs(20);
    while !program.output().contains("does not answer") {
        assert!(Instant::now() < deadline, "{}", program.output());
        std::thread::yield_now();
    }
    program.signal("TERM");
    assert_eq!(program.wait(Duration::from_secs(5)).code(), Some(0));
}

#[test]
fn a_made_page_token_key_is_one_that_works() {
    let folder = tempfile::tempdir().unwrap();
    let key = text(&run(folder.path(), &["keys", "new"]).stdout);
    let check = run(folder.path(), &["check", "--page-token-keys", key.trim()]);
    assert_eq!(check.status.code(), Some(0), "{}", text(&check.stderr));
}

#[test]
fn the_descriptor_set_is_written_whole() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &["descriptor"]);
    assert_eq!(output.stdout, a2ad::contract::DESCRIPTOR_SET);
    let pool = DescriptorPool::decode(output.stdout.as_slice()).unwrap();
    assert!(pool.get_message_by_name("google.rpc.ErrorInfo").is_some());
}

#[test]
fn migrations_are_applied_or_printed() {
    let folder = tempfile::tempdir().unwrap();
    for (store, word) in [("sqlite:x.db", "create table"), ("postgres://", "create table")] {
        let print = run(folder.path(), &["migrate", "--print", "--store", store]);
        assert_eq!(print.status.code(), Some(0));
        assert!(text(&print.stdout).to_lowercase().contains(word), "{store}");
    }
    assert!(!folder.path().join("x.db").exists());
    let refused = run(
        folder.path(),
        &["serve", "--no-migrate", "--listen", "127.0.0.1:0", "--admin-listen", "off"],
    );
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("a2ad migrate"), "{}", text(&refused.stderr));
    let applied = run(folder.path(), &["migrate"]);
    assert_eq!(applied.status.code(), Some(0), "{}", text(&applied.stderr));
    assert!(folder.path().join("a2ad.db").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn log_lines_are_json_when_asked_and_hold_no_content() {
    let folder = tempfile::tempdir().unwrap();
    let program =
        Program::serve(folder.path(), &["--log-format", "json", "--log", "debug,h2=info"]);
    let mut client = client(&program).await;
    task_of(client.send_message(send("top s3cret words")).await.unwrap());
    let bad = v1::GetTaskRequest { id: "s3cret-id".to_owned(), ..Default::default() };
    client.get_task(bad).await.unwrap_err();
    let answer =
        raw::get(program.address(), "/nowhere", &[("authorization", "Bearer s3cret")]).await;
    assert_eq!(answer.status(), 404);
    eventually("a refusal in the log", async || program.output().contains("GetTask")).await;
    let output = program.output();
    for line in output.lines() {
        assert!(serde_json::from_str::<serde_json::Value>(line).is_ok(), "{line}");
    }
    assert!(!output.contains("s3cret"), "{output}");
}

#[test]
fn help_and_version_are_no_failures() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [&["--help"][..], &["--version"], &["serve", "--help"], &["help", "keys"]] {
        let output = run(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert!(!output.stdout.is_empty());
    }
}
