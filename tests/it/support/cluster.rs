//! A private PostgreSQL server in a temporary folder, which a test may kill and start again.
//!
//! It ends with the test process, however that ends: a shell holds the other end of a pipe, and
//! stops the server and deletes the folder when the pipe closes.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio_postgres::NoTls;

use super::program::{free_address, signal};

/// `$1` is PostgreSQL, `$2` the folder; what follows are its arguments.
const KEEPER: &str = r#"
server=$1; folder=$2; shift 2
"$server" "$@" >>"$folder/log" 2>&1 </dev/null &
echo $! >"$folder/pid"
cat >/dev/null
kill -QUIT "$(cat "$folder/pid")" 2>/dev/null
wait
rm -rf "$folder"
"#;
const START_MAX: Duration = Duration::from_secs(60);
/// PostgreSQL refuses to run as root; then it runs as `nobody`.
const NOBODY: u32 = 65_534;

/// What a server may forget when the machine loses power.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Nothing: `fsync` is on.
    Full,
    /// Everything: for tests that never kill it.
    None,
}

/// A running PostgreSQL. Dropping it kills it and deletes its folder.
#[derive(Debug)]
pub(crate) struct Cluster {
    programs: PathBuf,
    folder: TempDir,
    port: u16,
    durability: Durability,
    settings: &'static [&'static str],
    keeper: Child,
}

impl Cluster {
    /// Makes an empty one and waits until it answers.
    pub(crate) async fn start(durability: Durability) -> Self {
        Self::start_with(durability, &[]).await
    }

    /// The same with settings of its own, each as `name=value`.
    pub(crate) async fn start_with(
        durability: Durability,
        settings: &'static [&'static str],
    ) -> Self {
        let programs = programs();
        let folder = TempDir::new().unwrap();
        if is_root() {
            chown(folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let data = folder.path().join("data");
        let made = command(programs.join("initdb"), folder.path())
            .arg("-D")
            .arg(&data)
            .args(["-U", "postgres", "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C"])
            .output()
            .unwrap();
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let port = free_address().port();
        let keeper = spawn(&programs, folder.path(), port, durability, settings);
        let cluster = Self { programs, folder, port, durability, settings, keeper };
        cluster.wait_until_it_answers().await;
        cluster
    }

    /// How a2ad finds it.
    pub(crate) fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// How a2ad finds one of its databases.
    pub(crate) fn url_of(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// Puts a file into its data folder that nobody else can read.
    pub(crate) fn put(&self, name: &str, text: &str) {
        use std::os::unix::fs::OpenOptionsExt as _;
        let path = self.folder.path().join("data").join(name);
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        if is_root() {
            chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }

    /// What the server has logged so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Ends all of its processes without a chance to do anything.
    pub(crate) fn kill(&mut self) {
        // Without its keeper first, so that nobody tidies up.
        self.keeper.kill().unwrap();
        self.keeper.wait().unwrap();
        let pid = fs::read_to_string(self.folder.path().join("pid")).unwrap();
        let server: u32 = pid.trim().parse().unwrap();
        let children = children_of(server);
        signal(server, "KILL");
        for child in &children {
            // It may have noticed its parent's end already.
            drop(Command::new("sh").args(["-c", &format!("kill -KILL {child}")]).output());
        }
        // A new server refuses to start while one of the old processes holds its memory.
        let deadline = Instant::now() + START_MAX;
        while std::iter::once(server).chain(children.iter().copied()).any(is_alive) {
            assert!(Instant::now() < deadline, "PostgreSQL does not die");
            std::thread::yield_now();
        }
    }

    /// Ends it by a signal of PostgreSQL's own: `INT` is fast, `QUIT` immediate.
    pub(crate) fn stop(&mut self, name: &str) {
        self.keeper.kill().unwrap();
        self.keeper.wait().unwrap();
        let pid = fs::read_to_string(self.folder.path().join("pid")).unwrap();
        let server: u32 = pid.trim().parse().unwrap();
        signal(server, name);
        let deadline = Instant::now() + START_MAX;
        while is_alive(server) {
            assert!(Instant::now() < deadline, "PostgreSQL does not stop");
            std::thread::yield_now();
        }
    }

    /// Starts it again after [`kill`](Self::kill) or [`stop`](Self::stop), with the same data at the same address.
    pub(crate) async fn start_again(&mut self) {
        // Its process may linger as a zombie that nobody has waited for, and look alive.
        let socket = format!(".s.PGSQL.{}.lock", self.port);
        for left in ["data/postmaster.pid", &socket] {
            drop(fs::remove_file(self.folder.path().join(left)));
        }
        let folder = self.folder.path();
        self.keeper = spawn(&self.programs, folder, self.port, self.durability, self.settings);
        self.wait_until_it_answers().await;
    }

    async fn wait_until_it_answers(&self) {
        let deadline = Instant::now() + START_MAX;
        while let Err(error) = tokio_postgres::connect(&self.url(), NoTls).await {
            assert!(
                Instant::now() < deadline,
                "PostgreSQL does not answer: {error}\n{}",
                self.log()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        drop(self.keeper.wait());
    }
}

/// Where PostgreSQL's programs are: `PG_BIN`, or Debian's newest.
fn programs() -> PathBuf {
    if let Some(folder) = std::env::var_os("PG_BIN") {
        return folder.into();
    }
    let mut versions: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let folder = entry.ok()?.path();
            let version = folder.file_name()?.to_str()?.parse().ok()?;
            let programs = folder.join("bin");
            programs.join("postgres").exists().then_some((version, programs))
        })
        .collect();
    versions.sort();
    let newest = versions.pop();
    newest.expect("PostgreSQL is missing: run `make setup`, or set PG_BIN to its programs").1
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

fn command(program: impl AsRef<std::ffi::OsStr>, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).env("HOME", folder).stdin(Stdio::null());
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

fn spawn(
    programs: &Path,
    folder: &Path,
    port: u16,
    durability: Durability,
    settings: &[&str],
) -> Child {
    let mut command = command("/bin/sh", folder);
    command.args(["-c", KEEPER, "keeper"]).arg(programs.join("postgres")).arg(folder);
    command.arg("-D").arg(folder.join("data")).arg("-k").arg(folder);
    command.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-c", "max_connections=300"]);
    if durability == Durability::None {
        for setting in ["fsync=off", "synchronous_commit=off", "full_page_writes=off"] {
            command.args(["-c", setting]);
        }
    }
    for setting in settings {
        command.args(["-c", setting]);
    }
    command.stdin(Stdio::piped()).spawn().unwrap()
}

fn is_alive(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status"));
    status.is_ok_and(|status| !status.contains("State:\tZ"))
}

fn children_of(parent: u32) -> Vec<u32> {
    let wanted = format!("PPid:\t{parent}");
    let processes = fs::read_dir("/proc").unwrap();
    processes
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|process: &u32| {
            let status = fs::read_to_string(format!("/proc/{process}/status"));
            status.is_ok_and(|status| status.lines().any(|line| line == wanted))
        })
        .collect()
}
