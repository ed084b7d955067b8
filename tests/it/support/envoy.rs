//! Envoy with the configuration of `deploy/envoy`, at free addresses, before servers of a test.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::issuer::Issuer;
use super::program::{command, free_address};
use super::{PATIENCE, eventually};
use crate::rig::raw;

const CONFIGURATION: &str = include_str!("../../../deploy/envoy/envoy.yaml");

pub(crate) struct Envoy {
    child: Child,
    edge: SocketAddr,
    transcoder: SocketAddr,
    admin: SocketAddr,
    folder: TempDir,
}

fn program() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/interop/envoy/lib");
    let pythons = fs::read_dir(root).into_iter().flatten().filter_map(Result::ok);
    let found = pythons.map(|python| python.path().join("site-packages/envoy/_bin/envoy"));
    let found = found.into_iter().find(|path| path.exists());
    found.expect("Envoy is missing: run `make setup`")
}

/// The configuration with something else in a place that it must have.
fn put(configuration: String, from: &str, to: &str) -> String {
    assert!(configuration.contains(from), "deploy/envoy/envoy.yaml has no {from:?}");
    configuration.replace(from, to)
}

impl Envoy {
    /// Starts it before two servers, with what differs from the file, and waits for both.
    pub(crate) async fn before(
        servers: [SocketAddr; 2],
        issuer: &Issuer,
        changes: &[(&str, &str)],
    ) -> Self {
        let folder = TempDir::new().unwrap();
        let [edge, transcoder, admin] = [(); 3].map(|()| free_address());
        let mut text = CONFIGURATION.to_owned();
        for (from, to) in changes {
            text = put(text, from, to);
        }
        let file = |name: &str| folder.path().join(name).display().to_string();
        let port = |address: SocketAddr| format!("port_value: {}", address.port());
        text = put(text, "0.0.0.0, port_value: 8080", &format!("127.0.0.1, {}", port(edge)));
        text = put(text, "port_value: 8081", &port(transcoder));
        text = put(text, "port_value: 9901", &port(admin));
        for (n, server) in (1..).zip(servers) {
            let name = format!("a2ad-{n}.internal, port_value: 50051");
            text = put(text, &name, &format!("127.0.0.1, {}", port(server)));
        }
        text = put(text, "/etc/envoy/jwks.json", &file("jwks.json"));
        text = put(text, "/etc/envoy/a2ad.pb", &file("a2ad.pb"));
        fs::write(file("envoy.yaml"), text).unwrap();
        fs::write(file("jwks.json"), issuer.jwks().to_string()).unwrap();
        let descriptors = command(folder.path(), &["descriptor"]).output().unwrap();
        fs::write(file("a2ad.pb"), descriptors.stdout).unwrap();
        let child = Command::new(program())
            .args(["--disable-hot-restart", "--concurrency", "1", "--log-level", "warn", "-c"])
            .arg(file("envoy.yaml"))
            .stdin(Stdio::null())
            .stdout(File::create(file("access.log")).unwrap())
            .stderr(File::create(file("envoy.log")).unwrap())
            .spawn()
            .unwrap();
        let mut envoy = Self { child, edge, transcoder, admin, folder };
        envoy.until_healthy(2).await;
        envoy
    }

    /// Where clients connect.
    pub(crate) fn edge(&self) -> SocketAddr {
        self.edge
    }

    /// What gRPC clients connect to.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.edge)
    }

    /// Where HTTP+JSON is translated to gRPC.
    pub(crate) fn transcoder(&self) -> SocketAddr {
        self.transcoder
    }

    /// A number of Envoy's own, or nothing before there is one.
    pub(crate) async fn stat(&self, name: &str) -> Option<u64> {
        let path = format!("/stats?format=json&filter=^{name}$");
        let answer = raw::get(self.admin, &path, &[]).await;
        let stats: serde_json::Value = serde_json::from_slice(answer.body()).ok()?;
        stats["stats"][0]["value"].as_u64()
    }

    /// Waits until so many servers are healthy in Envoy's eyes.
    pub(crate) async fn until_healthy(&mut self, n: u64) {
        let log = self.folder.path().join("envoy.log");
        let until = std::time::Instant::now() + PATIENCE;
        while tokio::net::TcpStream::connect(self.admin).await.is_err() {
            let ended = self.child.try_wait().unwrap();
            let log = || fs::read_to_string(&log).unwrap();
            assert!(ended.is_none() && std::time::Instant::now() < until, "{ended:?}: {}", log());
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        eventually("Envoy finds the servers", || async {
            let healthy = self.stat("cluster.a2ad.membership_healthy").await?;
            (healthy == n).then_some(())
        })
        .await;
    }

    /// What it logged of requests that are over.
    pub(crate) fn access_log(&self) -> String {
        fs::read_to_string(self.folder.path().join("access.log")).unwrap()
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        if std::thread::panicking() {
            // Shown with the failed test alone.
            let log = self.folder.path().join("envoy.log");
            println!("--- Envoy\n{}", fs::read_to_string(log).unwrap_or_default());
        }
    }
}

/// What `envoy --mode validate` says of the file as it stands, with its own files beside it.
pub(crate) fn validate(issuer: &Issuer) -> (bool, String) {
    let folder = TempDir::new().unwrap();
    let file = |name: &str| folder.path().join(name);
    let text =
        put(CONFIGURATION.to_owned(), "/etc/envoy/", &format!("{}/", folder.path().display()));
    fs::write(file("envoy.yaml"), text).unwrap();
    fs::write(file("jwks.json"), issuer.jwks().to_string()).unwrap();
    fs::write(file("a2ad.pb"), a2ad::contract::DESCRIPTOR_SET).unwrap();
    let output = Command::new(program())
        .args(["--disable-hot-restart", "--mode", "validate", "-c"])
        .arg(file("envoy.yaml"))
        .output()
        .unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    (output.status.success(), text)
}
