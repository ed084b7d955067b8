//! TLS to PostgreSQL: who is trusted, who is not, and that everything that connects uses it.

use std::error::Error as _;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use a2ad::domain::Error;
use a2ad::domain::error::chain;
use a2ad::store::Store as _;
use a2ad::store::postgres::{ConnectError, Postgres, Settings};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;

use crate::store::{ann, more, new};
use crate::support::cluster::{Cluster, Durability};
use crate::support::eventually;
use crate::support::postgres::admin;

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A PostgreSQL whose certificate is for `localhost`, and a folder with two authorities: `ours`,
/// which signed it, and `another`.
async fn cluster() -> (Cluster, TempDir) {
    let cluster = Cluster::start(Durability::None).await;
    let (ours, another) = (authority("ours"), authority("another"));
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &ours).unwrap();
    cluster.put("server.crt", &certificate.pem());
    cluster.put("server.key", &key.serialize_pem());
    let admin = admin(&cluster.url()).await;
    for sql in ["alter system set ssl = on", "select pg_reload_conf()"] {
        admin.batch_execute(sql).await.unwrap();
    }
    eventually("PostgreSQL takes TLS", || async {
        let row = admin.query_one("show ssl", &[]).await.unwrap();
        (row.get::<_, &str>(0) == "on").then_some(())
    })
    .await;
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("ours.pem"), ours.pem()).unwrap();
    fs::write(folder.path().join("another.pem"), another.pem()).unwrap();
    (cluster, folder)
}

fn url(cluster: &Cluster, host: &str, mode: &str, folder: &Path, file: &str) -> String {
    let base = cluster.url().replace("127.0.0.1", host);
    format!("{base}?{mode}&sslrootcert={}", folder.join(file).display())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_that_connects_speaks_tls_and_knows_the_server() {
    let (cluster, folder) = cluster().await;
    let watcher = admin(&cluster.url()).await;
    for mode in ["sslmode=require", "sslmode=verify-ca", "sslmode=verify-full"] {
        let url = url(&cluster, "localhost", mode, folder.path(), "ours.pem");
        let mut settings = Settings::new(url);
        settings.pool_size = 1;
        settings.statement_timeout = Duration::from_millis(300);
        let store = Postgres::connect(settings).await.unwrap();
        let begun = new("c", true);
        let task = begun.target.task();
        store.accept(&ann(), &begun).await.unwrap();
        // The pool's, the one that listens and the one that sends hints.
        let count = "select count(*), count(*) filter (where s.ssl) from pg_stat_activity a
                     join pg_stat_ssl s using (pid) where a.application_name = 'a2ad'";
        eventually("all connections are there", || async {
            let row = watcher.query_one(count, &[]).await.unwrap();
            let (all, secure): (i64, i64) = (row.get(0), row.get(1));
            assert_eq!(all, secure, "{mode}: a connection without TLS");
            (all >= 3).then_some(())
        })
        .await;
        // A cancel is a connection of its own.
        let mut holder = admin(&cluster.url()).await;
        let lock = holder.transaction().await.unwrap();
        lock.batch_execute("select 1 from tasks for update").await.unwrap();
        let late = store.accept(&ann(), &more(task, "m-2")).await.unwrap_err();
        assert!(matches!(late, Error::Unavailable(_)), "{late:?}");
        assert!(late.source().unwrap().to_string().contains("db error"), "{}", chain(&late));
        lock.commit().await.unwrap();
        store.accept(&ann(), &more(task, "m-2")).await.unwrap();
        store.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_cannot_prove_who_it_is_is_refused_at_once() {
    let (cluster, folder) = cluster().await;
    let began = Instant::now();
    for (host, file, word) in [
        ("localhost", "another.pem", "UnknownIssuer"),
        ("127.0.0.1", "ours.pem", "not valid for name"),
    ] {
        for mode in ["sslmode=require", "sslmode=verify-full"] {
            let settings = Settings::new(url(&cluster, host, mode, folder.path(), file));
            let refused = Postgres::connect(settings).await.unwrap_err();
            assert!(matches!(refused, ConnectError::Refused(_)), "{refused:?}");
            let words = chain(&refused);
            assert!(words.contains(word), "{words}");
        }
    }
    assert!(began.elapsed() < Settings::new("").start_timeout, "it was tried again");
    let rows = admin(&cluster.url()).await.query("select from pg_tables", &[]).await.unwrap();
    assert!(!rows.is_empty(), "the server itself is well");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_tls_is_refused_when_tls_is_asked_for() {
    let (authorities, cluster) = (TempDir::new().unwrap(), Cluster::start(Durability::None).await);
    fs::write(authorities.path().join("ours.pem"), authority("ours").pem()).unwrap();
    let url = url(&cluster, "localhost", "sslmode=require", authorities.path(), "ours.pem");
    let refused = Postgres::connect(Settings::new(url)).await.unwrap_err();
    assert!(matches!(refused, ConnectError::Refused(_)), "{refused:?}");
    assert!(chain(&refused).contains("does not support TLS"), "{}", chain(&refused));
}

#[tokio::test]
async fn an_authority_that_cannot_be_used_is_told_by_its_name() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("empty.pem"), "").unwrap();
    fs::write(folder.path().join("ours.pem"), authority("ours").pem()).unwrap();
    for (parameters, file, word) in [
        ("sslmode=require", "absent.pem", "absent.pem cannot be read"),
        ("sslmode=require", "empty.pem", "no CA certificate"),
        ("application_name=x", "ours.pem", "add sslmode=verify-full"),
        ("sslmode=disable", "ours.pem", "add sslmode=verify-full"),
    ] {
        let file = folder.path().join(file);
        let url = format!("postgres://ann:s3cret@db/a?{parameters}&sslrootcert={}", file.display());
        let refused = Postgres::connect(Settings::new(url)).await.unwrap_err();
        let words = chain(&refused);
        assert!(words.contains(word), "{words}");
        assert!(!format!("{words} {refused:?}").contains("s3cret"), "{words}");
    }
}
