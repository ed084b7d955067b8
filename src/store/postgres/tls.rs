//! TLS to PostgreSQL.
//!
//! Of libpq's parameters, `sslmode` and `sslrootcert` count. A certificate is always verified, with
//! the server's name, as `verify-full` does: TLS that does not know who is there protects from
//! nothing. So `require` and `verify-ca` mean the same here, and `prefer` means no TLS.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use percent_encoding::percent_decode_str;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::store::postgres::fault::ConnectError;

/// The value of `sslrootcert` that names this machine's authorities, as in libpq.
const SYSTEM: &str = "system";

/// A URL that the driver reads, and whom to trust.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) url: String,
    /// The authorities in this file alone; without it, those of this machine.
    pub(super) authorities: Option<PathBuf>,
}

/// Takes out of a URL what the driver does not know.
pub(super) fn wanted(url: &str) -> Wanted {
    let Some((place, parameters)) = url.split_once('?') else {
        return Wanted { url: url.to_owned(), authorities: None };
    };
    let mut authorities = None;
    let mut kept = Vec::new();
    for parameter in parameters.split('&') {
        match parameter.split_once('=') {
            Some(("sslmode", "verify-ca" | "verify-full")) => kept.push("sslmode=require"),
            Some(("sslrootcert", SYSTEM)) => authorities = None,
            Some(("sslrootcert", file)) => {
                let file = percent_decode_str(file).decode_utf8_lossy();
                authorities = Some(PathBuf::from(file.into_owned()));
            }
            _ => kept.push(parameter),
        }
    }
    let mark = if kept.is_empty() { "" } else { "?" };
    Wanted { url: format!("{place}{mark}{}", kept.join("&")), authorities }
}

/// What connects with TLS.
pub(super) fn connector(authorities: Option<&Path>) -> Result<MakeRustlsConnect, ConnectError> {
    let certificates = match authorities {
        Some(file) => read(file)?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(certificates);
    if added == 0 {
        return Err(ConnectError::NoCertificates);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(ConnectError::Tls)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

fn read(file: &Path) -> Result<Vec<CertificateDer<'static>>, ConnectError> {
    let unreadable = |source| ConnectError::RootCertificate { file: file.to_owned(), source };
    let certificates = CertificateDer::pem_file_iter(file).map_err(unreadable)?;
    certificates.collect::<Result<_, _>>().map_err(unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_keeps_what_the_driver_knows() {
        for (url, kept, file) in [
            ("postgres://db/a2ad", "postgres://db/a2ad", None),
            ("postgres://db/a?sslmode=require", "postgres://db/a?sslmode=require", None),
            ("postgres://db/a?sslmode=verify-full", "postgres://db/a?sslmode=require", None),
            (
                "postgres://db/a?sslrootcert=/etc/my%20ca.pem&sslmode=verify-ca&connect_timeout=3",
                "postgres://db/a?sslmode=require&connect_timeout=3",
                Some("/etc/my ca.pem"),
            ),
            ("postgres://db/a?sslrootcert=system", "postgres://db/a", None),
        ] {
            let expected = Wanted { url: kept.to_owned(), authorities: file.map(PathBuf::from) };
            assert_eq!(wanted(url), expected, "{url}");
        }
    }
}
