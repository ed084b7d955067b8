//! TLS for the accept loop: one certificate, both HTTP versions.

use std::sync::Arc;

use clap::ValueEnum;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

/// A server's certificate chain and its private key.
#[derive(Clone)]
pub struct Tls {
    acceptor: TlsAcceptor,
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
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)) })
    }

    /// What does the handshakes.
    #[must_use]
    pub fn acceptor(&self) -> TlsAcceptor {
        self.acceptor.clone()
    }
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
