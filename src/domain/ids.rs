//! Identifiers, each checked when it is made.

use std::fmt;
use std::sync::Arc;

use uuid::Uuid;

use crate::domain::Violation;

/// The longest identifier that a client may choose, in bytes.
pub const ID_BYTES_MAX: usize = 256;

fn check(field: &'static str, text: &str) -> Result<(), Violation> {
    let problem = if text.is_empty() {
        "must not be empty".to_owned()
    } else if text.len() > ID_BYTES_MAX {
        format!("must have at most {ID_BYTES_MAX} bytes, has {}", text.len())
    } else if text.chars().any(char::is_control) {
        "must not hold control characters".to_owned()
    } else {
        return Ok(());
    };
    Err(Violation::new(field, problem))
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks `text`: 1 to 256 bytes without control characters. `field` is the proto
            /// path that the violation names.
            ///
            /// # Errors
            /// The violation, when the text does not fit.
            pub fn parse(field: &'static str, text: &str) -> Result<Self, Violation> {
                check(field, text)?;
                Ok(Self(text.into()))
            }

            /// Takes text back that was checked before it was stored.
            #[must_use]
            pub fn from_stored(text: &str) -> Self {
                Self(text.into())
            }

            /// The text itself.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

text_id!(
    /// A conversation. It belongs to a tenant and an owner: two callers may use one name and
    /// never meet (CTX-11).
    ContextId
);
text_id!(
    /// A message's identifier, made by its sender.
    MessageId
);
text_id!(
    /// The name of whoever owns a task: `anonymous`, `key:<name>` or `<iss>|<sub>`.
    Principal
);

impl Principal {
    /// The one principal of all callers of a server without authentication.
    #[must_use]
    pub fn anonymous() -> Self {
        Self("anonymous".into())
    }
}

impl ContextId {
    /// A fresh context, for a message that names none (CTX-01).
    #[must_use]
    pub fn generate() -> Self {
        Self(Uuid::now_v7().to_string().into())
    }
}

impl MessageId {
    /// A fresh identifier for a message of the server or of an agent.
    #[must_use]
    pub fn generate() -> Self {
        Self(Uuid::now_v7().to_string().into())
    }
}

/// The routing value of a request (TEN-01). Empty is the default tenant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tenant(Arc<str>);

impl Tenant {
    /// The tenant of requests that name none.
    #[must_use]
    pub fn default_tenant() -> Self {
        Self("".into())
    }

    /// Checks `text`: empty, or 1 to 256 bytes without control characters and without `/`.
    ///
    /// # Errors
    /// The violation, when the text does not fit.
    pub fn parse(field: &'static str, text: &str) -> Result<Self, Violation> {
        if !text.is_empty() {
            check(field, text)?;
            if text.contains('/') {
                return Err(Violation::new(field, "must not hold a slash".to_owned()));
            }
        }
        Ok(Self(text.into()))
    }

    /// Takes text back that was checked before it was stored.
    #[must_use]
    pub fn from_stored(text: &str) -> Self {
        Self(text.into())
    }

    /// The text itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A task's identifier: a `UUIDv7` that the server made (TID-01).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId(Uuid);

impl TaskId {
    /// A fresh identifier, growing with time within one process.
    #[must_use]
    pub fn generate() -> Self {
        Self(Uuid::now_v7())
    }

    /// Reads the canonical lower-case form; anything else cannot name a task of ours.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let uuid = Uuid::try_parse(text).ok()?;
        let mut buffer = Uuid::encode_buffer();
        (*uuid.hyphenated().encode_lower(&mut buffer) == *text).then_some(Self(uuid))
    }

    /// The 16 bytes, whose order is the order of listings among equal times.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        self.0
    }
}

impl From<Uuid> for TaskId {
    fn from(uuid: Uuid) -> Self {
        Self(uuid)
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

/// Proves that a runner holds the lease of a turn. A fresh one is made for every lease.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaseToken(Uuid);

impl LeaseToken {
    /// A fresh, random token.
    #[must_use]
    pub fn generate() -> Self {
        Self(Uuid::new_v4())
    }

    /// The 16 bytes, as stored.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        self.0
    }
}

impl From<Uuid> for LeaseToken {
    fn from(uuid: Uuid) -> Self {
        Self(uuid)
    }
}

impl fmt::Debug for LeaseToken {
    /// The token is a capability, so only its beginning is shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, ..] = *self.0.as_bytes();
        write!(f, "LeaseToken({a:02x}{b:02x}..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_canonical_form_names_a_task() {
        let id = TaskId::generate();
        assert_eq!(TaskId::parse(&id.to_string()), Some(id));
        assert_eq!(TaskId::parse(&id.to_string().to_uppercase()), None);
        assert_eq!(TaskId::parse(&id.uuid().simple().to_string()), None);
        assert_eq!(TaskId::parse(""), None);
    }

    #[test]
    fn identifiers_are_bounded_and_free_of_control_characters() {
        for bad in ["", "a\0b", "a\nb", &"x".repeat(ID_BYTES_MAX + 1)] {
            let violation = ContextId::parse("message.context_id", bad).unwrap_err();
            assert_eq!(violation.field, "message.context_id");
        }
        assert!(ContextId::parse("message.context_id", &"x".repeat(ID_BYTES_MAX)).is_ok());
        assert!(Tenant::parse("tenant", "a/b").is_err());
        assert!(Tenant::parse("tenant", "").is_ok());
    }
}
