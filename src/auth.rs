//! Credentials to [`Caller`]: who asks, and for which tenants.
//!
//! Identity comes from headers (on gRPC: metadata) and never from a request's body (AUTHN-03).
//! Every operation of the protocol asks here first. Health, reflection and the public agent card
//! need no credentials: load balancers, tools and discovery come without any.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderName};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use crate::contract::v1::{self, security_scheme::Scheme};
use crate::domain::{Caller, Error, Principal, Tenant, Tenants};

/// The header that holds a key by itself.
pub const API_KEY_HEADER: HeaderName = HeaderName::from_static("x-api-key");

const CHALLENGE: &str = "Bearer realm=\"a2ad\"";
const KEY_NEEDED: &str =
    "an API key is needed: send `authorization: Bearer <key>` or `x-api-key: <key>`";
const KEY_UNKNOWN: &str = "the API key is not known here";

/// How callers prove who they are.
#[derive(Debug, Clone, Default)]
pub enum Auth {
    /// Not at all: every caller is `anonymous` and may name any tenant.
    #[default]
    None,
    /// By a key that the settings know the SHA-256 of.
    ApiKeys(ApiKeys),
}

impl Auth {
    /// Who makes a request with these headers.
    ///
    /// # Errors
    /// [`Error::Unauthenticated`], in words that say what to send.
    pub fn caller(&self, headers: &HeaderMap) -> Result<Caller, Error> {
        match self {
            Self::None => Ok(Caller::anonymous()),
            Self::ApiKeys(keys) => keys.caller(presented(headers)?),
        }
    }

    /// How callers prove who they are, for the card: any one of these is enough (CARD-10).
    #[must_use]
    pub fn schemes(&self) -> BTreeMap<String, v1::SecurityScheme> {
        let Self::ApiKeys(_) = self else { return BTreeMap::new() };
        let bearer = Scheme::HttpAuthSecurityScheme(v1::HttpAuthSecurityScheme {
            description: "An API key as a bearer token.".to_owned(),
            scheme: "Bearer".to_owned(),
            ..Default::default()
        });
        let header = Scheme::ApiKeySecurityScheme(v1::ApiKeySecurityScheme {
            description: "An API key by itself.".to_owned(),
            location: "header".to_owned(),
            name: API_KEY_HEADER.as_str().to_owned(),
        });
        [("bearer", bearer), ("apiKey", header)]
            .map(|(name, scheme)| (name.to_owned(), v1::SecurityScheme { scheme: Some(scheme) }))
            .into()
    }

    /// The challenge that goes with a refusal, as in `WWW-Authenticate` (AUTHN-04).
    #[must_use]
    pub fn challenge(&self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::ApiKeys(_) => Some(CHALLENGE),
        }
    }
}

/// The keys of the mode `api-key`.
#[derive(Clone, Default)]
pub struct ApiKeys(Vec<ApiKey>);

/// One key, by its hash: the key itself is known to its holder alone.
#[derive(Clone)]
pub struct ApiKey {
    name: String,
    sha256: [u8; 32],
    caller: Caller,
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiKey").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

impl ApiKey {
    /// The key whose SHA-256 is `sha256`. Its tasks belong to the principal `key:<name>`, in
    /// these tenants; an empty list is the default tenant alone.
    ///
    /// # Errors
    /// What is wrong with the name or a tenant, in words.
    pub fn new(name: &str, sha256: [u8; 32], tenants: &[String]) -> Result<Self, String> {
        if name.is_empty() {
            return Err("the name of a key must not be empty".to_owned());
        }
        let principal = Principal::parse("name", &format!("key:{name}"))
            .map_err(|violation| format!("the name of a key {}", violation.problem))?;
        let mut allowed = BTreeSet::new();
        for tenant in tenants {
            let parsed = Tenant::parse("tenants", tenant)
                .map_err(|violation| format!("a tenant of key {name} {}", violation.problem))?;
            if is_reserved_tenant(tenant) {
                return Err(format!(
                    "key {name}: the tenant {tenant} would hide a path of the protocol; rename it"
                ));
            }
            allowed.insert(parsed);
        }
        if allowed.is_empty() {
            allowed.insert(Tenant::default_tenant());
        }
        let caller = Caller::new(principal, Tenants::Listed(allowed));
        Ok(Self { name: name.to_owned(), sha256, caller })
    }

    /// The hash by which a key is known here.
    #[must_use]
    pub fn hash(key: &str) -> [u8; 32] {
        Sha256::digest(key.as_bytes()).into()
    }
}

/// First path segments of the HTTP+JSON binding, which no tenant may be called (TEN-08).
const RESERVED_TENANTS: [&str; 5] =
    ["tasks", "message:send", "message:stream", "extendedAgentCard", ".well-known"];

/// Whether a tenant of this name would hide a path of the HTTP+JSON binding (TEN-08).
#[must_use]
pub fn is_reserved_tenant(tenant: &str) -> bool {
    RESERVED_TENANTS.contains(&tenant)
}

impl ApiKeys {
    /// All keys that count.
    ///
    /// # Errors
    /// In words: no key, or a name or hash that occurs twice.
    pub fn new(keys: Vec<ApiKey>) -> Result<Self, String> {
        if keys.is_empty() {
            return Err("no API keys are set: add [[api_keys]] to the settings file".to_owned());
        }
        let mut names = BTreeSet::new();
        let mut hashes = BTreeSet::new();
        for key in &keys {
            if !names.insert(&key.name) {
                return Err(format!("two API keys have the name {}", key.name));
            }
            if !hashes.insert(key.sha256) {
                return Err(format!("the API key {} has the hash of another one", key.name));
            }
        }
        Ok(Self(keys))
    }

    /// The names, in the order of the settings.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|key| key.name.as_str())
    }

    /// Compares with every key, so that the time it takes tells nothing about which one is near.
    fn caller(&self, key: &str) -> Result<Caller, Error> {
        let hash = ApiKey::hash(key);
        let mut found = Choice::from(0);
        let mut place = 0;
        for (i, known) in (0_u64..).zip(&self.0) {
            let same = known.sha256.ct_eq(&hash);
            place = u64::conditional_select(&place, &i, same);
            found |= same;
        }
        let known = usize::try_from(place).ok().and_then(|i| self.0.get(i));
        match known {
            Some(known) if bool::from(found) => Ok(known.caller.clone()),
            _ => Err(Error::Unauthenticated(KEY_UNKNOWN.to_owned())),
        }
    }
}

/// The key of a request. A header that occurs twice proves nothing.
fn presented(headers: &HeaderMap) -> Result<&str, Error> {
    let refuse = |why: &str| Error::Unauthenticated(why.to_owned());
    let only = |name: &HeaderName| {
        let mut values = headers.get_all(name).iter();
        let first = values.next();
        match values.next() {
            Some(_) => Err(refuse(&format!("send the header {name} once"))),
            None => Ok(first.and_then(|value| value.to_str().ok()).map(str::trim)),
        }
    };
    if let Some(authorization) = only(&AUTHORIZATION)? {
        return match authorization.split_once(' ') {
            Some((scheme, key)) if scheme.eq_ignore_ascii_case("bearer") => Ok(key.trim()),
            _ => Err(refuse(KEY_NEEDED)),
        };
    }
    only(&API_KEY_HEADER)?.ok_or_else(|| refuse(KEY_NEEDED))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn auth() -> Auth {
        let key = |name: &str, key: &str, tenants: &[&str]| {
            let tenants: Vec<_> = tenants.iter().map(|&t| t.to_owned()).collect();
            ApiKey::new(name, ApiKey::hash(key), &tenants).unwrap()
        };
        let keys = vec![key("ann", "a-key", &[]), key("bob", "b-key", &["", "blue"])];
        Auth::ApiKeys(ApiKeys::new(keys).unwrap())
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, value.parse().unwrap());
        }
        map
    }

    fn principal(pairs: &[(&'static str, &str)]) -> Option<String> {
        let caller = auth().caller(&headers(pairs)).ok()?;
        Some(caller.principal().as_str().to_owned())
    }

    #[test]
    fn a_key_names_its_principal_in_either_header() {
        assert_eq!(principal(&[("authorization", "Bearer a-key")]).as_deref(), Some("key:ann"));
        assert_eq!(principal(&[("authorization", "bearer  b-key ")]).as_deref(), Some("key:bob"));
        assert_eq!(principal(&[("x-api-key", "b-key")]).as_deref(), Some("key:bob"));
    }

    #[test]
    fn anything_else_is_refused() {
        for bad in [
            &[][..],
            &[("authorization", "Bearer c-key")],
            &[("authorization", "Bearer ")],
            &[("authorization", "Basic a-key")],
            &[("authorization", "a-key")],
            &[("x-api-key", "")],
            &[("authorization", "Basic x"), ("x-api-key", "a-key")],
            &[("x-api-key", "a-key"), ("x-api-key", "b-key")],
        ] {
            assert_eq!(principal(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_key_reaches_its_tenants_and_no_others() {
        let tenant = |text: &str| Tenant::parse("tenant", text).unwrap();
        let ann = auth().caller(&headers(&[("x-api-key", "a-key")])).unwrap();
        let bob = auth().caller(&headers(&[("x-api-key", "b-key")])).unwrap();
        assert!(ann.scope(tenant("")).is_some() && ann.scope(tenant("blue")).is_none());
        assert!(bob.scope(tenant("")).is_some() && bob.scope(tenant("blue")).is_some());
        assert!(bob.scope(tenant("red")).is_none());
    }

    #[test]
    fn settings_that_cannot_work_are_refused() {
        let key = |name, text| ApiKey::new(name, ApiKey::hash(text), &[]).unwrap();
        assert!(ApiKeys::new(vec![]).is_err());
        assert!(ApiKeys::new(vec![key("a", "1"), key("a", "2")]).is_err());
        assert!(ApiKeys::new(vec![key("a", "1"), key("b", "1")]).is_err());
        assert!(ApiKey::new("", [0; 32], &[]).is_err());
        assert!(ApiKey::new("a\n", [0; 32], &[]).is_err());
        assert!(ApiKey::new("a", [0; 32], &["x/y".to_owned()]).is_err());
        assert!(ApiKey::new("a", [0; 32], &["tasks".to_owned()]).is_err());
    }

    #[test]
    fn what_is_printed_holds_names_alone() {
        assert_eq!(format!("{:?}", auth()), r#"ApiKeys(["ann", "bob"])"#);
    }
}
