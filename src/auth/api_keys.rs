//! The mode `api-key`: keys that the settings know the SHA-256 of.

use std::collections::BTreeSet;
use std::fmt;

use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderName};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use crate::auth::token::is_jwt;
use crate::auth::{Reason, Refused, claims, only};
use crate::domain::{Caller, Principal, Tenants};

/// The header that holds a key by itself.
pub const API_KEY_HEADER: HeaderName = HeaderName::from_static("x-api-key");

pub(super) const NEEDED: &str =
    "an API key is needed: send `authorization: Bearer <key>` or `x-api-key: <key>`";
const UNKNOWN: &str = "the API key is not known here";

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
        let allowed =
            claims::tenants(tenants).map_err(|problem| format!("key {name}: {problem}"))?;
        let caller = Caller::new(principal, Tenants::Listed(allowed));
        Ok(Self { name: name.to_owned(), sha256, caller })
    }

    /// The same key with these scopes.
    #[must_use]
    pub fn with_scopes(self, scopes: BTreeSet<String>) -> Self {
        Self { caller: self.caller.with_scopes(scopes), ..self }
    }

    /// The hash by which a key is known here.
    #[must_use]
    pub fn hash(key: &str) -> [u8; 32] {
        Sha256::digest(key.as_bytes()).into()
    }
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

    /// Whose key a request bears, if it bears one. Where tokens are taken as well, a bearer token of
    /// their form is none.
    pub(super) fn caller(
        &self,
        headers: &HeaderMap,
        beside_jwts: bool,
    ) -> Result<Option<Caller>, Refused> {
        let found = presented(headers, beside_jwts)?;
        found.map(|key| self.holder(key)).transpose()
    }

    /// Compares with every key, so that the time it takes tells nothing about which one is near.
    fn holder(&self, key: &str) -> Result<Caller, Refused> {
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
            _ => Err(Refused::new(Reason::UnknownApiKey, UNKNOWN)),
        }
    }
}

/// The key of a request. A header that occurs twice proves nothing.
fn presented(headers: &HeaderMap, beside_jwts: bool) -> Result<Option<&str>, Refused> {
    if let Some(authorization) = only(headers, &AUTHORIZATION)? {
        return match authorization.split_once(' ') {
            Some((scheme, key)) if scheme.eq_ignore_ascii_case("bearer") => {
                let key = key.trim();
                if beside_jwts && is_jwt(key) {
                    only(headers, &API_KEY_HEADER)
                } else {
                    Ok(Some(key))
                }
            }
            _ => Err(Refused::new(Reason::OtherScheme, NEEDED)),
        };
    }
    only(headers, &API_KEY_HEADER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Tenant;

    fn auth() -> ApiKeys {
        let key = |name: &str, key: &str, tenants: &[&str]| {
            let tenants: Vec<_> = tenants.iter().map(|&t| t.to_owned()).collect();
            ApiKey::new(name, ApiKey::hash(key), &tenants).unwrap()
        };
        let keys = vec![key("ann", "a-key", &[]), key("bob", "b-key", &["", "blue"])];
        ApiKeys::new(keys).unwrap()
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, value.parse().unwrap());
        }
        map
    }

    fn principal(pairs: &[(&'static str, &str)]) -> Option<String> {
        let caller = auth().caller(&headers(pairs), false).ok()??;
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
        let ann = auth().caller(&headers(&[("x-api-key", "a-key")]), false).unwrap().unwrap();
        let bob = auth().caller(&headers(&[("x-api-key", "b-key")]), false).unwrap().unwrap();
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
        assert_eq!(format!("{:?}", auth()), r#"["ann", "bob"]"#);
    }
}
