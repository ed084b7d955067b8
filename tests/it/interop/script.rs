//! A program of another language, run to its end.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// The longest silence of a program before it counts as hung.
const SILENCE_MAX: Duration = Duration::from_secs(300);

/// A path of this package.
pub(super) fn package(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The program at `path`, which `.ci/setup` makes.
pub(super) fn made_by_setup(path: &str) -> Command {
    let path = package(path);
    assert!(path.exists(), "{} is missing: run `make setup`", path.display());
    let mut command = Command::new(path);
    command.env("PYTHONDONTWRITEBYTECODE", "1").env_remove("ONLY");
    command
}

/// A script for Python with the official SDK.
pub(super) fn python(script: &str) -> Command {
    let mut command = made_by_setup("target/interop/venv/bin/python");
    command.arg(package(script));
    command
}

/// Runs `command` until it succeeds and returns the lines that it printed. Each of them goes to
/// `answer`, whose text the program can then read.
pub(super) fn run(
    folder: &Path,
    mut command: Command,
    answer: impl Fn(&str) -> Option<String>,
) -> Vec<String> {
    let errors = folder.join("stderr.log");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(&errors).unwrap())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let lines = lines(&mut child);
    let failed = |child: &mut Child, what: &str| {
        drop(child.kill());
        panic!("{command:?} {what}\n{}", std::fs::read_to_string(&errors).unwrap_or_default());
    };
    let mut printed = Vec::new();
    loop {
        match lines.recv_timeout(SILENCE_MAX) {
            Ok(line) => {
                println!("{line}");
                if let Some(text) = answer(&line) {
                    writeln!(stdin, "{text}").unwrap();
                }
                printed.push(line);
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => failed(&mut child, "hangs"),
        }
    }
    let status = child.wait().unwrap();
    if !status.success() {
        failed(&mut child, &format!("failed: {status}"));
    }
    printed
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
