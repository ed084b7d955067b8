//! A private PostgreSQL for the tests: one cluster for each run, one database for each test.
//!
//! `TEST_DATABASE_URL` names another server to use. The cluster ends with the test process,
//! however that ends: a shell holds the other end of a pipe and cleans up when it closes.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use a2ad::domain::Clock;
use a2ad::store::postgres::{Postgres, Settings};
use tokio::sync::OnceCell;

/// Runs as the first argument's folder says; ends when standard input does.
const KEEPER: &str = r#"
"$1/postgres" -D "$2/data" -h 127.0.0.1 -p "$3" -k "$2" -c max_connections=300 \
  -c shared_buffers=256MB -c fsync="$4" -c synchronous_commit=on -c full_page_writes="$4" \
  -c autovacuum=on >>"$2/log" 2>&1 </dev/null &
pid=$!
echo $pid >"$2/pid"
cat >/dev/null
kill -INT $pid 2>/dev/null
wait $pid
rm -rf "$2"
"#;

/// A running cluster.
pub(crate) struct Cluster {
    port: u16,
    folder: PathBuf,
    bin: PathBuf,
    fsync: bool,
    keeper: Option<Child>,
}

fn binaries() -> PathBuf {
    let newest = || {
        let mut found: Vec<_> = std::fs::read_dir("/usr/lib/postgresql")
            .ok()?
            .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
            .filter(|bin| bin.join("postgres").exists())
            .collect();
        found.sort();
        found.pop()
    };
    std::env::var_os("PG_BIN")
        .map(PathBuf::from)
        .or_else(newest)
        .expect("no PostgreSQL server is installed: run `make setup`, or set PG_BIN to its folder")
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").is_ok_and(|of| of.uid() == 0)
}

/// PostgreSQL does not run as root, so everything of it runs as `nobody` there.
fn command(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(program);
    command
}

impl Cluster {
    /// Makes and starts a cluster; `fsync` for tests that kill it.
    pub(crate) fn start(fsync: bool) -> Self {
        let bin = binaries();
        let folder = tempfile::Builder::new().prefix("a2ad-pg-").tempdir().unwrap().keep();
        if is_root() {
            std::os::unix::fs::chown(&folder, Some(65534), Some(65534)).unwrap();
        }
        let made = command(&bin.join("initdb"))
            .arg("-D")
            .arg(folder.join("data"))
            .args(["-U", "postgres", "--auth=trust", "-E", "UTF8", "--locale=C", "--no-sync"])
            .env("HOME", &folder)
            .output()
            .unwrap();
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut cluster = Self { port, folder, bin, fsync, keeper: None };
        cluster.run();
        cluster
    }

    fn run(&mut self) {
        let keeper = command(Path::new("/bin/sh"))
            .args(["-c", KEEPER, "keeper"])
            .arg(&self.bin)
            .arg(&self.folder)
            .arg(self.port.to_string())
            .arg(if self.fsync { "on" } else { "off" })
            .stdin(Stdio::piped())
            .env("HOME", &self.folder)
            .spawn()
            .unwrap();
        self.keeper = Some(keeper);
    }

    /// Kills every process of it at once, as a power cut would, and starts it again.
    pub(crate) fn crash_and_restart(&mut self) {
        let mut keeper = self.keeper.take().unwrap();
        // Without the shell first, so that it does not clean up.
        keeper.kill().unwrap();
        keeper.wait().unwrap();
        let pid = std::fs::read_to_string(self.folder.join("pid")).unwrap();
        let killed = Command::new("kill").args(["-9", pid.trim()]).status().unwrap();
        assert!(killed.success(), "PostgreSQL was not running");
        // Its children notice that it is gone, and the socket is free when they are.
        let until = std::time::Instant::now() + super::PATIENCE;
        while std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
            assert!(std::time::Instant::now() < until, "PostgreSQL did not die");
            std::thread::yield_now();
        }
        drop(std::fs::remove_file(self.folder.join("data/postmaster.pid")));
        self.run();
    }

    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// What the server has logged so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(mut keeper) = self.keeper.take() {
            drop(keeper.stdin.take());
            drop(keeper.wait());
        }
    }
}

/// A connection that is driven in the background.
pub(crate) async fn admin(url: &str) -> tokio_postgres::Client {
    super::eventually("PostgreSQL answers", || async {
        let (client, connection) =
            tokio_postgres::connect(url, tokio_postgres::NoTls).await.ok()?;
        tokio::spawn(async move { drop(connection.await) });
        Some(client)
    })
    .await
}

struct Shared {
    _cluster: Option<Cluster>,
    base: String,
}

/// The server's URL up to the database's name, with a migrated template in it.
async fn shared() -> &'static Shared {
    static SHARED: OnceCell<Shared> = OnceCell::const_new();
    SHARED
        .get_or_init(|| async {
            let (cluster, base) = match std::env::var_os("TEST_DATABASE_URL") {
                Some(url) => (None, url.to_str().unwrap().trim_end_matches('/').to_owned()),
                None => {
                    let cluster = Cluster::start(false);
                    let base = cluster.url("");
                    (Some(cluster), base.trim_end_matches('/').to_owned())
                }
            };
            let maintenance = admin(&format!("{base}/postgres")).await;
            for sql in ["drop database if exists a2ad_template", "create database a2ad_template"] {
                maintenance.batch_execute(sql).await.unwrap();
            }
            let template = Settings::new(&format!("{base}/a2ad_template"));
            Postgres::migrate(&template).await.unwrap();
            Shared { _cluster: cluster, base }
        })
        .await
}

async fn create(template: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let shared = shared().await;
    let name = format!("t{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let maintenance = admin(&format!("{}/postgres", shared.base)).await;
    let sql = format!("create database {name} template {template}");
    maintenance.batch_execute(&sql).await.unwrap();
    format!("{}/{name}", shared.base)
}

/// The URL of a fresh database with the newest schema.
pub(crate) async fn fresh_url() -> String {
    create("a2ad_template").await
}

/// The URL of a fresh database without any schema.
pub(crate) async fn empty_url() -> String {
    create("template0").await
}

/// A store on a fresh database. A clock replaces the database's.
pub(crate) async fn fresh_store(clock: Option<Arc<dyn Clock>>) -> Postgres {
    open(&fresh_url().await, clock).await
}

/// Another store on a database, as another server would have it.
pub(crate) async fn open(url: &str, clock: Option<Arc<dyn Clock>>) -> Postgres {
    let mut settings = Settings::new(url);
    settings.clock = clock;
    settings.pool_size = 4;
    Postgres::connect(settings).await.unwrap()
}
