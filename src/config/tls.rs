//! TLS for the accept loop: one certificate, both HTTP versions.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use clap::ValueEnum;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use sha2::{Digest, Sha256};
use tokio::signal::unix::{SignalKind, signal};
use tokio_rustls::TlsAcceptor;

use crate::config::check::read;

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// A server's certificate chain and its private key. Clones share them.
#[derive(Clone)]
pub struct Tls {
    acceptor: Arc<RwLock<TlsAcceptor>>,
    /// What it was read from, to be read again.
    files: Option<Arc<Files>>,
}

/// Where a server's certificate, its key and the authorities of its clients are.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The chain.
    pub chain: PathBuf,
    /// The key.
    pub key: PathBuf,
    /// The authorities of clients, and whether clients need a certificate.
    pub clients: Option<(PathBuf, ClientCerts)>,
}

struct Files {
    places: TlsFiles,
    /// What was read last, hashed: the key is not kept.
    seen: Mutex<[u8; 32]>,
}

/// The text of all files.
struct Texts {
    chain: Vec<u8>,
    key: Vec<u8>,
    clients: Option<(Vec<u8>, ClientCerts)>,
}

impl Texts {
    fn read(places: &TlsFiles) -> Result<Self, String> {
        let named = |flag: &'static str| move |problem| format!("{flag}: {problem}");
        let clients = places.clients.as_ref();
        let clients = clients.map(|(path, wanted)| Ok((read(path)?, *wanted))).transpose();
        Ok(Self {
            chain: read(&places.chain).map_err(named("--tls-cert"))?,
            key: read(&places.key).map_err(named("--tls-key"))?,
            clients: clients.map_err(named("--tls-client-ca"))?,
        })
    }

    fn hash(&self) -> [u8; 32] {
        let clients = self.clients.as_ref().map(|(text, _)| text.as_slice());
        let mut all = Sha256::new();
        for text in [&self.chain, &self.key, clients.unwrap_or_default()] {
            all.update(Sha256::digest(text));
        }
        all.finalize().into()
    }

    fn acceptor(&self) -> Result<TlsAcceptor, String> {
        let clients = self.clients.as_ref().map(|(text, wanted)| (text.as_slice(), *wanted));
        acceptor(&self.chain, &self.key, clients)
            .map_err(|problem| format!("--tls-cert and --tls-key: {problem}"))
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads a certificate chain, the server's own first, and its key, both in PEM. TLS 1.3 and
    /// 1.2 are spoken (AUTHN-01), and by ALPN both `h2` and `http/1.1`.
    ///
    /// # Errors
    /// What is wrong with them, in words that repeat nothing of the key.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, String> {
        Self::with_clients(chain, key, None)
    }

    /// The same, for clients that may have, or must have, a certificate of an authority among
    /// `clients`.
    ///
    /// # Errors
    /// As [`from_pem`](Self::from_pem).
    pub fn with_clients(
        chain: &[u8],
        key: &[u8],
        clients: Option<(&[u8], ClientCerts)>,
    ) -> Result<Self, String> {
        Ok(Self { acceptor: Arc::new(RwLock::new(acceptor(chain, key, clients)?)), files: None })
    }

    /// The same from files, which [`reload`](Self::reload) reads again.
    ///
    /// # Errors
    /// What is wrong with them, in words that name the setting.
    pub fn from_files(places: TlsFiles) -> Result<Self, String> {
        let texts = Texts::read(&places)?;
        let acceptor = Arc::new(RwLock::new(texts.acceptor()?));
        let files = Files { places, seen: Mutex::new(texts.hash()) };
        Ok(Self { acceptor, files: Some(Arc::new(files)) })
    }

    /// Reads the files again. Connections from now on have what is in them, if it has changed;
    /// those that are there stay as they are. Returns whether it has.
    ///
    /// # Errors
    /// What is wrong with them, in words; then what was there before stays.
    pub fn reload(&self) -> Result<bool, String> {
        let Some(files) = &self.files else { return Ok(false) };
        let texts = Texts::read(&files.places)?;
        let mut seen = files.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen == texts.hash() {
            return Ok(false);
        }
        let acceptor = texts.acceptor()?;
        *self.acceptor.write().unwrap_or_else(PoisonError::into_inner) = acceptor;
        *seen = texts.hash();
        Ok(true)
    }

    /// Reloads at SIGHUP, and every ten seconds if the files have changed, for ever.
    pub async fn keep_fresh(self) {
        let mut hangup = signal(SignalKind::hangup()).ok();
        let mut last = None;
        loop {
            let asked = async {
                match &mut hangup {
                    Some(signal) => drop(signal.recv().await),
                    None => std::future::pending().await,
                }
            };
            drop(tokio::time::timeout(LOOK_EVERY, asked).await);
            match self.reload() {
                Ok(false) => {}
                Ok(true) => tracing::info!("the certificates were read again"),
                // The same fault is told once.
                Err(problem) if last.as_ref() != Some(&problem) => {
                    tracing::warn!(error.text = problem, "the certificates stay as they were");
                    last = Some(problem);
                    continue;
                }
                Err(_) => continue,
            }
            last = None;
        }
    }

    /// What does the handshakes.
    #[must_use]
    pub fn acceptor(&self) -> TlsAcceptor {
        self.acceptor.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn acceptor(
    chain: &[u8],
    key: &[u8],
    clients: Option<(&[u8], ClientCerts)>,
) -> Result<TlsAcceptor, String> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(chain)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("the certificate is not PEM: {error}"))?;
    if chain.is_empty() {
        return Err("the certificate file holds no certificate in PEM".to_owned());
    }
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|error| format!("the private key is not PEM: {error}"))?;
    // The provider is named, so that no other part of a program can choose it for us.
    let provider = Arc::new(ring::default_provider());
    let verifier = match clients {
        None => WebPkiClientVerifier::no_client_auth(),
        Some((authorities, wanted)) => verifier(&provider, authorities, wanted)?,
    };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(|error| format!("certificate and key do not go together: {error}"))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Whether clients need a certificate of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ClientCerts {
    /// They may have one.
    Optional,
    /// Without one there is no connection.
    Required,
}

fn verifier(
    provider: &Arc<CryptoProvider>,
    authorities: &[u8],
    wanted: ClientCerts,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authorities) {
        let certificate =
            certificate.map_err(|error| format!("the authority is not PEM: {error}"))?;
        roots
            .add(certificate)
            .map_err(|error| format!("the authority is no certificate: {error}"))?;
    }
    let builder =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    let builder = match wanted {
        ClientCerts::Optional => builder.allow_unauthenticated(),
        ClientCerts::Required => builder,
    };
    builder.build().map_err(|error| format!("the authorities of clients cannot be used: {error}"))
}
