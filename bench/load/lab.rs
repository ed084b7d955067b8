//! What is measured on: PostgreSQL, its databases, and the servers on them.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use a2ad::auth::ApiKey;
use a2ad::store::postgres::statements::Key;
use a2ad::store::postgres::{Postgres, Settings};
use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};

use crate::fill;
use crate::process;
use crate::support::cluster::{Cluster, Durability};
use crate::support::program::{Program, free_address};

/// What the load generator calls with.
pub(crate) const API_KEY: &str = "a-key-for-measurements-alone";
/// How many tenants that key may name, beside the default one.
pub(crate) const TENANTS: usize = 1000;

/// As a small production server: memory for the hot part, and no checkpoint within a round.
const SETTINGS: &[&str] = &["shared_buffers=1GB", "max_wal_size=8GB", "checkpoint_timeout=30min"];

/// PostgreSQL and a folder for the rest.
pub(crate) struct Lab {
    cluster: Cluster,
    folder: TempDir,
    postmaster: u32,
}

/// A database of some size.
pub(crate) struct Place<'a> {
    lab: &'a Lab,
    /// What it is called in reports: the number of its tasks.
    pub(crate) name: String,
    pub(crate) tasks: i64,
    pub(crate) url: String,
    /// The measured owner.
    pub(crate) key: Key,
}

/// A server to call.
pub(crate) struct Served {
    pub(crate) url: String,
    pub(crate) pid: u32,
    _process: Process,
}

enum Process {
    Server { _program: Program },
    Partner(Child),
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Self::Partner(child) = self {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// A connection that is driven in the background.
pub(crate) async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

impl Lab {
    pub(crate) async fn start() -> Self {
        let cluster = Cluster::start_with(Durability::Full, SETTINGS).await;
        let admin = connect(&cluster.url()).await;
        let row = admin.query_one("select pg_backend_pid()", &[]).await.unwrap();
        let postmaster = process::parent_of(u32::try_from(row.get::<_, i32>(0)).unwrap());
        let folder = TempDir::new().unwrap();
        let mut tenants = "\"\"".to_owned();
        for n in 0..TENANTS {
            write!(tenants, ", \"t{n}\"").unwrap();
        }
        let hash: String = ApiKey::hash(API_KEY).iter().map(|b| format!("{b:02x}")).collect();
        let entry =
            format!("[[api_keys]]\nname = \"bench\"\nsha256 = \"{hash}\"\ntenants = [{tenants}]\n");
        fs::write(folder.path().join("settings.toml"), entry).unwrap();
        Self { cluster, folder, postmaster }
    }

    /// CPU seconds of all of PostgreSQL.
    pub(crate) fn database_cpu(&self) -> f64 {
        process::cpu_of_family(self.postmaster)
    }

    /// `a2ad serve` on any store, for callers with an API key.
    pub(crate) fn server(&self, arguments: &[&str]) -> Served {
        let mut all = vec!["--auth", "api-key", "--config", "settings.toml"];
        all.extend(arguments);
        let program = Program::serve(self.folder.path(), &all);
        let (url, pid) = (program.url(), program.pid());
        Served { url, pid, _process: Process::Server { _program: program } }
    }

    /// Where files may be.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// How to reach the database that every PostgreSQL has.
    pub(crate) fn maintenance(&self) -> String {
        self.cluster.url()
    }

    /// A fresh database that holds so many tasks.
    pub(crate) async fn place(&self, tasks: i64) -> Place<'_> {
        let started = Instant::now();
        let name = format!("tasks_{tasks}");
        let url = self.cluster.url_of(&name);
        let admin = connect(&self.cluster.url()).await;
        admin.batch_execute(&format!("create database {name}")).await.unwrap();
        Postgres::migrate(&Settings::new(url.clone())).await.unwrap();
        let client = connect(&url).await;
        fill::fill(&client, tasks).await;
        client.batch_execute("checkpoint").await.unwrap();
        println!("filled {name} in {:.1} s", started.elapsed().as_secs_f64());
        Place { lab: self, name: thousands(tasks), tasks, url, key: Key { tenant: 1, owner: 1 } }
    }
}

/// `100,000`.
pub(crate) fn thousands(n: i64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

impl Place<'_> {
    /// How many tasks the measured owner has.
    pub(crate) fn owned(&self) -> i64 {
        self.tasks / 5
    }

    /// Ids of tasks of the measured owner, far from each other.
    pub(crate) fn ids(&self) -> Vec<String> {
        let owned = self.owned();
        (0..owned.min(5000))
            .map(|n| 5 * (1 + n * 7919 % owned))
            .map(|n| format!("01900000-0000-7000-8000-{n:012x}"))
            .collect()
    }

    /// `a2ad serve` on it, as in production.
    pub(crate) fn server(&self, arguments: &[&str]) -> Served {
        let keys = format!("k1:{}", "ab".repeat(32));
        let mut all = vec!["--store", &self.url, "--page-token-keys", &keys];
        all.extend(arguments);
        self.lab.server(&all)
    }

    /// The floor on it.
    pub(crate) fn floor(&self) -> Served {
        partner("floor", &[&self.url])
    }
}

/// The ceiling.
pub(crate) fn canned() -> Served {
    partner("canned", &[])
}

/// This program in another part, as a process of its own that ends with this one.
fn partner(part: &str, arguments: &[&str]) -> Served {
    let address = free_address();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg(part).arg(address.to_string()).args(arguments).stdin(Stdio::piped());
    let child = command.spawn().unwrap();
    let pid = child.id();
    wait_for(address);
    Served { url: format!("http://{address}"), pid, _process: Process::Partner(child) }
}

fn wait_for(address: SocketAddr) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while std::net::TcpStream::connect(address).is_err() {
        assert!(Instant::now() < deadline, "nobody answers at {address}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
