//! Certificates of clients: the mode `mtls`, and what a gateway forwards of one.

use std::collections::BTreeSet;
use std::fmt;

use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::auth::{Reason, Refused};
use crate::domain::{Caller, Principal, Tenant, Tenants};

pub(super) const NEEDED: &str = "a client certificate is needed on the TLS connection";

/// The certificate whose key the other end of a connection has proven to hold, signed by an
/// authority that is trusted for clients.
#[derive(Clone, PartialEq, Eq)]
pub struct PeerCertificate {
    fingerprint: [u8; 32],
    name: Option<String>,
}

impl fmt::Debug for PeerCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerCertificate").field("name", &self.name).finish_non_exhaustive()
    }
}

impl PeerCertificate {
    /// Reads a certificate, already verified, in DER.
    #[must_use]
    pub fn read(der: &[u8]) -> Self {
        let parsed = X509Certificate::from_der(der).ok();
        let name = parsed.and_then(|(_, certificate)| name_of(&certificate));
        Self { fingerprint: Sha256::digest(der).into(), name }
    }

    /// Its SHA-256.
    #[must_use]
    pub fn fingerprint(&self) -> &[u8; 32] {
        &self.fingerprint
    }

    /// What it calls its holder: the first URI of its alternative names (so a SPIFFE ID), else the
    /// first DNS name, else the one common name of its subject.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }
}

fn name_of(certificate: &X509Certificate<'_>) -> Option<String> {
    let names = certificate.subject_alternative_name().ok()?;
    let names = names.map_or(&[][..], |extension| extension.value.general_names.as_slice());
    let uri = names.iter().find_map(|name| {
        let GeneralName::URI(uri) = name else { return None };
        Some((*uri).to_owned())
    });
    let dns = || {
        names.iter().find_map(|name| {
            let GeneralName::DNSName(dns) = name else { return None };
            Some((*dns).to_owned())
        })
    };
    let common = || {
        let mut all = certificate.subject().iter_common_name();
        let first = all.next()?.as_str().ok()?.to_owned();
        // Two of them are a puzzle, not a name.
        all.next().is_none().then_some(first)
    };
    uri.or_else(dns).or_else(common)
}

/// What the settings say of the holder of a certificate.
#[derive(Debug, Clone)]
pub struct Holder {
    name: String,
    tenants: BTreeSet<Tenant>,
    scopes: BTreeSet<String>,
}

impl Holder {
    /// The holder of certificates with this name; one that ends in `*` is for all that begin so.
    /// `tenants` is what [`tenants`](crate::auth::tenants) makes.
    #[must_use]
    pub fn new(name: &str, tenants: BTreeSet<Tenant>, scopes: BTreeSet<String>) -> Self {
        Self { name: name.to_owned(), tenants, scopes }
    }

    fn is(&self, name: &str) -> bool {
        match self.name.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => self.name == name,
        }
    }
}

/// Whose certificates are taken: of those that authorities have signed, the ones that are listed,
/// or every one where none is listed.
#[derive(Debug, Clone, Default)]
pub struct Certificates(Vec<Holder>);

impl Certificates {
    /// These holders; the first whose name fits counts. Without any, every holder is taken, in the
    /// default tenant and without scopes.
    #[must_use]
    pub fn new(holders: Vec<Holder>) -> Self {
        Self(holders)
    }

    /// How many holders are listed.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    pub(super) fn of_peer(
        &self,
        certificate: Option<&PeerCertificate>,
    ) -> Result<Option<Caller>, Refused> {
        certificate.map(|certificate| self.caller(certificate.name())).transpose()
    }

    /// The caller whom a certificate calls `name`: `cert:<name>`.
    pub(super) fn caller(&self, name: Option<&str>) -> Result<Caller, Refused> {
        let nameless =
            || Refused::new(Reason::NoSubject, "the certificate names nobody of use here");
        let name = name.filter(|name| !name.is_empty()).ok_or_else(nameless)?;
        let principal =
            Principal::parse("name", &format!("cert:{name}")).map_err(|_violation| nameless())?;
        if self.0.is_empty() {
            let tenants = BTreeSet::from([Tenant::default_tenant()]);
            return Ok(Caller::new(principal, Tenants::Listed(tenants)));
        }
        let Some(holder) = self.0.iter().find(|holder| holder.is(name)) else {
            let text = "the holder of the certificate is not known here";
            return Err(Refused::new(Reason::UnknownHolder, text));
        };
        let caller = Caller::new(principal, Tenants::Listed(holder.tenants.clone()));
        Ok(caller.with_scopes(holder.scopes.clone()))
    }
}
