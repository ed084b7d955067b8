//! PostgreSQL for the tests: one cluster for each run, one database for each test.
//!
//! `TEST_DATABASE_URL` names another server to use, without the database at its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use a2ad::domain::Clock;
use a2ad::store::postgres::{Postgres, Settings, StatementMode};
use tokio::sync::OnceCell;

use super::PATIENCE;
use super::cluster::{Cluster, Durability};

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
                    let cluster = Cluster::start(Durability::None).await;
                    let base = cluster.url_of("");
                    (Some(cluster), base.trim_end_matches('/').to_owned())
                }
            };
            let maintenance = admin(&format!("{base}/postgres")).await;
            for sql in ["drop database if exists a2ad_template", "create database a2ad_template"] {
                maintenance.batch_execute(sql).await.unwrap();
            }
            let template = Settings::new(format!("{base}/a2ad_template"));
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

/// A store on a database, as a server would have it. A clock replaces the database's.
pub(crate) async fn open(url: &str, clock: Option<Arc<dyn Clock>>) -> Postgres {
    open_with(url, clock, StatementMode::Auto).await
}

/// The same, with statements sent like this.
pub(crate) async fn open_with(
    url: &str,
    clock: Option<Arc<dyn Clock>>,
    mode: StatementMode,
) -> Postgres {
    let mut settings = Settings::new(url);
    settings.statement_mode = mode;
    settings.clock = clock;
    settings.pool_size = 4;
    // A busy machine is not a failure.
    settings.lock_timeout = PATIENCE;
    settings.statement_timeout = PATIENCE;
    Postgres::connect(settings).await.unwrap()
}
