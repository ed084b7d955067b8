//! What a2ad reasons about: identifiers, who asks, how a task lives, where a page goes on.
//!
//! Everything here is pure: no clock is read, no row is fetched. Text that comes from outside is
//! checked once, when it becomes one of these types, and trusted from then on.

pub mod clock;
pub mod error;
pub mod ids;
pub mod page;
pub mod payload;
pub mod task;

use std::collections::BTreeSet;

pub use clock::{Clock, ManualClock, SystemClock};
pub use error::{Error, Violation};
pub use ids::{ContextId, LeaseToken, MessageId, Principal, TaskId, Tenant};

/// Which tenants a caller may name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tenants {
    /// Every tenant: callers without authentication, who all are one principal.
    Any,
    /// Just these.
    Listed(BTreeSet<Tenant>),
}

/// The scope of callers who may touch the tasks of every owner in their tenants.
pub const TENANT_SCOPE: &str = "tasks:tenant";

/// Who makes a request, as `auth` found it out. Never built from a request body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    principal: Principal,
    tenants: Tenants,
    scopes: BTreeSet<String>,
}

impl Caller {
    /// A caller of whom `auth` is sure.
    #[must_use]
    pub fn new(principal: Principal, tenants: Tenants) -> Self {
        Self { principal, tenants, scopes: BTreeSet::new() }
    }

    /// This caller with these scopes instead of its own.
    #[must_use]
    pub fn with_scopes(self, scopes: BTreeSet<String>) -> Self {
        Self { scopes, ..self }
    }

    /// Whether the caller was granted the scope of this name.
    #[must_use]
    pub fn has_scope(&self, scope: &str) -> bool {
        self.scopes.contains(scope)
    }

    /// The caller of a server without authentication: one principal, any tenant.
    #[must_use]
    pub fn anonymous() -> Self {
        Self::new(Principal::anonymous(), Tenants::Any)
    }

    /// The principal that owns what this caller creates.
    #[must_use]
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// The kind of caller, for numbers: never who it is.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        let principal = self.principal.as_str();
        if self.is_anonymous() {
            "anonymous"
        } else if principal.starts_with("key:") {
            "key"
        } else if principal.starts_with("cert:") {
            "certificate"
        } else {
            "token"
        }
    }

    /// Whether this caller shares its principal with strangers.
    #[must_use]
    pub fn is_anonymous(&self) -> bool {
        self.principal == Principal::anonymous()
    }

    /// The rows this caller may touch in `tenant`; `None` for a tenant that is not among the
    /// caller's, whether or not it exists.
    #[must_use]
    pub fn scope(&self, tenant: Tenant) -> Option<Scope> {
        let allowed = match &self.tenants {
            Tenants::Any => true,
            Tenants::Listed(tenants) => tenants.contains(&tenant),
        };
        allowed.then(|| Scope::new(tenant, self.principal.clone()))
    }
}

/// The rows that an operation may touch: those of one owner in one tenant.
///
/// Every store method takes one first, so a query that forgets it cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scope {
    tenant: Tenant,
    owner: Principal,
}

impl Scope {
    /// The rows of `owner` in `tenant`.
    #[must_use]
    pub fn new(tenant: Tenant, owner: Principal) -> Self {
        Self { tenant, owner }
    }

    /// The tenant, part of every key.
    #[must_use]
    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// Whose rows these are.
    #[must_use]
    pub fn owner(&self) -> &Principal {
        &self.owner
    }
}
