//! PgBouncer in transaction mode before the tests' PostgreSQL, one of each kind for a run.

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use tokio::sync::OnceCell;

use super::eventually;
use super::program::free_address;

/// `$1` is PgBouncer, `$2` its settings; it ends with the pipe.
const KEEPER: &str = r#"
"$1" "$2" >/dev/null 2>&1 </dev/null &
pid=$!
cat >/dev/null
kill -INT $pid 2>/dev/null
wait
"#;
/// Neither runs as root.
const NOBODY: u32 = 65_534;

struct Bouncer {
    port: u16,
    _folder: TempDir,
    _keeper: Child,
}

fn program() -> &'static str {
    let places = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer", "/usr/local/bin/pgbouncer"];
    let found = places.into_iter().find(|place| Path::new(place).exists());
    found.expect("PgBouncer is missing: run `make setup`")
}

fn start(server: &str, more: &str) -> Bouncer {
    let (host, port) = server.rsplit_once(':').unwrap();
    let folder = TempDir::new().unwrap();
    let listen = free_address().port();
    let settings = folder.path().join("pgbouncer.ini");
    let text = format!(
        "[databases]\n* = host={host} port={port}\n[pgbouncer]\npool_mode = transaction\n\
         listen_addr = 127.0.0.1\nlisten_port = {listen}\nunix_socket_dir =\nauth_type = any\n\
         max_client_conn = 500\ndefault_pool_size = 3\n{more}\n"
    );
    // A user for every connection, as `auth_type = any` asks for.
    let text = text.replace("* = ", "* = user=postgres ");
    fs::write(&settings, text).unwrap();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", KEEPER, "keeper", program()]).arg(&settings).stdin(Stdio::piped());
    let is_root = {
        use std::os::unix::fs::MetadataExt as _;
        fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
    };
    if is_root {
        chown(folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        command.uid(NOBODY).gid(NOBODY);
    }
    Bouncer { port: listen, _folder: folder, _keeper: command.spawn().unwrap() }
}

/// The URL of a database through PgBouncer, for one that is reached at `url` directly.
pub(crate) async fn through(url: &str) -> String {
    through_one_that(false, url).await
}

/// The same, through one that refuses unknown parameters at the start of a connection, or through
/// one that ignores them.
pub(crate) async fn through_one_that(ignores: bool, url: &str) -> String {
    static SHARED: [OnceCell<Bouncer>; 2] = [OnceCell::const_new(), OnceCell::const_new()];
    let (_, rest) = url.split_once('@').unwrap();
    let (server, database) = rest.split_once('/').unwrap();
    let more = if ignores { "ignore_startup_parameters = options" } else { "" };
    let bouncer = &SHARED[usize::from(ignores)];
    let bouncer = bouncer.get_or_init(|| async { start(server, more) }).await;
    let url = format!("postgres://postgres@127.0.0.1:{}/{database}", bouncer.port);
    eventually("PgBouncer answers", || async {
        let (_client, connection) =
            tokio_postgres::connect(&url, tokio_postgres::NoTls).await.ok()?;
        drop(connection);
        Some(())
    })
    .await;
    url
}
