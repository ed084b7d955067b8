//! The real program, started and stopped as a user would.

use std::fs::{self, File, OpenOptions};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Long enough for a loaded machine; a healthy start takes a tenth of a second.
const START_MAX: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// A server process. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    address: SocketAddr,
    log: PathBuf,
}

impl Program {
    /// Starts `a2ad serve` with `arguments` at a free address and waits until it answers. Its
    /// output goes to a file in `folder`, where it also works.
    pub(crate) fn serve(folder: &Path, arguments: &[&str]) -> Self {
        Self::serve_at(free_address(), folder, arguments)
    }

    /// The same at a given address, so that clients find a restarted server again.
    pub(crate) fn serve_at(address: SocketAddr, folder: &Path, arguments: &[&str]) -> Self {
        let mut program = Self::begin_at(address, folder, arguments);
        program.wait_until_it_answers();
        program
    }

    /// Starts it at a free address and waits for nothing.
    pub(crate) fn begin(folder: &Path, arguments: &[&str]) -> Self {
        Self::begin_at(free_address(), folder, arguments)
    }

    /// The same at a given address.
    pub(crate) fn begin_at(address: SocketAddr, folder: &Path, arguments: &[&str]) -> Self {
        let listen = address.to_string();
        let mut all = vec!["serve", "--listen", &listen, "--admin-listen", "127.0.0.1:0"];
        all.extend(arguments);
        let log = folder.join(format!("a2ad-{}.log", address.port()));
        let child = command(folder, &all)
            .stdout(appending(&log))
            .stderr(appending(&log))
            .spawn()
            .expect("the program was built with the tests");
        Self { child, address, log }
    }

    fn wait_until_it_answers(&mut self) {
        let deadline = Instant::now() + START_MAX;
        while TcpStream::connect(self.address).is_err() {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("the server ended with {status}:\n{}", self.output());
            }
            assert!(Instant::now() < deadline, "the server does not answer:\n{}", self.output());
            thread::sleep(LOOK_AGAIN);
        }
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What clients connect to.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What it holds of the machine's memory, in bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }

    /// All it wrote so far.
    pub(crate) fn output(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Ends it without a chance to do anything, as `kill -9` does.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends a signal, named as in `kill -NAME`.
    pub(crate) fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    /// Waits until it ends by itself, at most for `within`.
    pub(crate) fn wait(&mut self, within: Duration) -> ExitStatus {
        let deadline = Instant::now() + within;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the server does not end:\n{}", self.output());
            thread::sleep(LOOK_AGAIN);
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        if thread::panicking() {
            // Shown with the failed test alone.
            println!("--- {}\n{}", self.log.display(), self.output());
        }
    }
}

/// The program with `arguments`, working in `folder`, without this process's settings for it.
pub(crate) fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_a2ad"));
    command.args(arguments).current_dir(folder).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("A2AD_") {
            command.env_remove(name);
        }
    }
    command
}

/// Sends a signal to a process of ours.
pub(crate) fn signal(process: u32, name: &str) {
    let kill = format!("kill -{name} {process}");
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success(), "{kill}");
}

/// A loopback address that nobody listens on. It is not of the range that outgoing connections
/// take theirs from, so it stays free while a server restarts.
pub(crate) fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = u16::try_from(std::process::id() % 100).unwrap() * 100;
    for _ in 0..10_000 {
        let port = 20_000 + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 10_000;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
    panic!("there is no free port");
}

fn appending(path: &Path) -> File {
    OpenOptions::new().create(true).append(true).open(path).unwrap()
}
