//! What a caller may ask for: the scopes that operations need, where the settings name some
//! (AUTHZ-01, AUTHZ-06).

use std::collections::BTreeMap;

use crate::auth::Auth;
use crate::domain::{Caller, Error};

/// Operations that take the same right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// GetTask, ListTasks and SubscribeToTask.
    Read,
    /// SendMessage and SendStreamingMessage.
    Send,
    /// CancelTask.
    Cancel,
    /// GetExtendedAgentCard.
    Card,
    /// The four operations on webhooks.
    Push,
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Read, Self::Send, Self::Cancel, Self::Card, Self::Push];

    /// As the settings call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Send => "send",
            Self::Cancel => "cancel",
            Self::Card => "card",
            Self::Push => "push",
        }
    }
}

/// The scope that each class of operations needs; a class that is not there needs none.
pub type Needed = BTreeMap<Class, String>;

impl Auth {
    /// Whether `caller` may ask for operations of `class`. It comes before any look at a task.
    ///
    /// # Errors
    /// [`Error::ScopeMissing`].
    pub fn permit(&self, caller: &Caller, class: Class) -> Result<(), Error> {
        match self.needed.get(&class) {
            Some(scope) if !caller.has_scope(scope) => {
                Err(Error::ScopeMissing { scope: scope.clone() })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The scopes that are asked for.
    #[must_use]
    pub fn needed(&self) -> &Needed {
        &self.needed
    }
}
