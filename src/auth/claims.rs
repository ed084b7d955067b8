//! What a verified token says: for whom it is, how long, and who its bearer is.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::auth::{Reason, Refused, is_reserved_tenant};
use crate::domain::clock::micros;
use crate::domain::{Caller, Principal, Tenant, Tenants};

/// The most scopes and tenants of one caller.
const NAMES_MAX: usize = 256;

/// Where a token says what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimNames {
    /// The tenants of its bearer; `None` if tokens say nothing about that.
    pub tenants: Option<String>,
    /// The scopes of its bearer; without a name, `scope` and, where that is absent, `scp`.
    pub scopes: Option<String>,
}

impl Default for ClaimNames {
    fn default() -> Self {
        Self { tenants: Some("tenants".to_owned()), scopes: None }
    }
}

/// What the claims of one issuer's tokens must say, and what they mean.
#[derive(Debug, Clone)]
pub struct Rules {
    /// What `iss` must be.
    pub issuer: String,
    /// What `aud` must hold one of.
    pub audiences: Vec<String>,
    /// How far two clocks may be apart.
    pub leeway: Duration,
    /// Where the rest stands.
    pub names: ClaimNames,
    /// The tenants of callers whose tokens name none.
    pub tenants: BTreeSet<Tenant>,
}

/// A set of tenants from the settings; an empty list is the default tenant alone.
///
/// # Errors
/// What is wrong with one of them, in words.
pub fn tenants(listed: &[String]) -> Result<BTreeSet<Tenant>, String> {
    let mut allowed = BTreeSet::new();
    for tenant in listed {
        let parsed = Tenant::parse("tenants", tenant)
            .map_err(|violation| format!("the tenant {tenant:?} {}", violation.problem))?;
        if is_reserved_tenant(tenant) {
            return Err(format!(
                "the tenant {tenant} would hide a path of the protocol; rename it"
            ));
        }
        allowed.insert(parsed);
    }
    if allowed.is_empty() {
        allowed.insert(Tenant::default_tenant());
    }
    Ok(allowed)
}

impl Rules {
    /// The caller that these claims, already verified, speak of.
    ///
    /// # Errors
    /// Why they speak of nobody who may call now.
    pub(super) fn caller(
        &self,
        claims: &Map<String, Value>,
        now_us: i64,
    ) -> Result<Caller, Refused> {
        if claims.get("iss").and_then(Value::as_str) != Some(&self.issuer) {
            return Err(Refused::new(Reason::UnknownIssuer, REFUSED));
        }
        self.check_times(claims, now_us)?;
        let audiences = list(claims.get("aud")).ok_or_else(malformed)?;
        if !audiences.iter().any(|one| self.audiences.iter().any(|known| known == one)) {
            return Err(Refused::new(Reason::WrongAudience, "the token is for another audience"));
        }
        let principal = self.principal(claims)?;
        let caller = Caller::new(principal, Tenants::Listed(self.tenants(claims)?));
        Ok(caller.with_scopes(self.scopes(claims)?))
    }

    fn check_times(&self, claims: &Map<String, Value>, now_us: i64) -> Result<(), Refused> {
        let leeway = micros(self.leeway);
        let Some(expires) = time(claims, "exp")? else {
            return Err(Refused::new(Reason::Malformed, "the token has no time to expire"));
        };
        if now_us >= expires.saturating_add(leeway) {
            return Err(Refused::new(Reason::Expired, "the token has expired"));
        }
        for name in ["nbf", "iat"] {
            if time(claims, name)?.is_some_and(|from| from > now_us.saturating_add(leeway)) {
                return Err(Refused::new(Reason::NotYetValid, "the token is not valid yet"));
            }
        }
        Ok(())
    }

    /// `<iss>|<sub>`. No issuer's name holds `|`, so no two callers share it.
    fn principal(&self, claims: &Map<String, Value>) -> Result<Principal, Refused> {
        let wrong = || Refused::new(Reason::NoSubject, "the token names no subject of use here");
        let subject = claims.get("sub").and_then(Value::as_str).filter(|sub| !sub.is_empty());
        let name = format!("{}|{}", self.issuer, subject.ok_or_else(wrong)?);
        Principal::parse("sub", &name).map_err(|_too_long| wrong())
    }

    /// The claim counts where it is there, even if it is empty. What can be no tenant is left out.
    fn tenants(&self, claims: &Map<String, Value>) -> Result<BTreeSet<Tenant>, Refused> {
        let claim = self.names.tenants.as_ref().and_then(|name| claims.get(name));
        if claim.is_none() {
            return Ok(self.tenants.clone());
        }
        let named = list(claim).ok_or_else(malformed)?;
        let usable = named.into_iter().filter(|name| !is_reserved_tenant(name));
        Ok(usable.filter_map(|name| Tenant::parse("tenants", name).ok()).collect())
    }

    fn scopes(&self, claims: &Map<String, Value>) -> Result<BTreeSet<String>, Refused> {
        let claim = match &self.names.scopes {
            Some(name) => claims.get(name),
            None => claims.get("scope").or_else(|| claims.get("scp")),
        };
        let named = list(claim).ok_or_else(malformed)?;
        let words = named.into_iter().flat_map(str::split_ascii_whitespace).map(str::to_owned);
        Ok(words.take(NAMES_MAX).collect())
    }
}

/// What is told about every token that is not verified: its bearer learns no more than that.
pub(super) const REFUSED: &str = "the token was not accepted";

fn malformed() -> Refused {
    Refused::new(Reason::Malformed, "the token holds a claim of another type than is expected")
}

/// The texts of a claim that is a text or a list of them; none if it is absent.
fn list(claim: Option<&Value>) -> Option<Vec<&str>> {
    match claim {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(Value::String(text)) => Some(vec![text]),
        Some(Value::Array(items)) if items.len() <= NAMES_MAX => {
            items.iter().map(Value::as_str).collect()
        }
        Some(Value::Array(_) | Value::Bool(_) | Value::Number(_) | Value::Object(_)) => None,
    }
}

/// A claim in seconds since 1970, as microseconds.
fn time(claims: &Map<String, Value>, name: &str) -> Result<Option<i64>, Refused> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    let seconds = value.as_f64().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.map(|seconds| Some(micros(seconds))).ok_or_else(malformed)
}
