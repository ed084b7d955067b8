//! What a refused caller is asked for, as in `WWW-Authenticate` (AUTHN-04, RFC 6750).

use crate::auth::{Auth, Mode};
use crate::domain::Error;

const REALM: &str = "realm=\"a2ad\"";

impl Auth {
    /// The challenges that go with `error`: one for each kind of credential that would do. `None`
    /// where nobody is asked, and for errors that no credential would mend.
    #[must_use]
    pub fn challenge(&self, error: &Error) -> Option<String> {
        if self.is_none() {
            return None;
        }
        match error {
            Error::Unauthenticated(_) => Some(self.challenges("")),
            Error::InvalidToken(text) => {
                let text = quoted(text);
                Some(self.challenges(&format!(
                    ", error=\"invalid_token\", error_description=\"{text}\""
                )))
            }
            Error::ScopeMissing { scope } => {
                let scope = quoted(scope);
                Some(self.challenges(&format!(", error=\"insufficient_scope\", scope=\"{scope}\"")))
            }
            Error::TaskNotFound
            | Error::TaskNotCancelable { .. }
            | Error::PushNotSupported
            | Error::Unsupported(_)
            | Error::ContentTypeNotSupported { .. }
            | Error::InvalidAgentResponse(_)
            | Error::ExtendedCardNotConfigured
            | Error::ExtensionRequired(_)
            | Error::VersionNotSupported { .. }
            | Error::Invalid(_)
            | Error::PageTokenInvalid
            | Error::PageTokenExpired
            | Error::Forbidden(_)
            | Error::DeadlineExceeded
            | Error::Overloaded(_)
            | Error::TooMany { .. }
            | Error::Unavailable(_)
            | Error::ShuttingDown
            | Error::Internal(_) => None,
        }
    }

    fn challenges(&self, detail: &str) -> String {
        let mut all: Vec<String> = Vec::new();
        let mut add = |scheme: &str, more: &str| {
            let challenge = format!("{scheme} {REALM}{more}");
            if !all.contains(&challenge) {
                all.push(challenge);
            }
        };
        for mode in self.modes() {
            match mode {
                Mode::Jwt(_) => add("Bearer", detail),
                Mode::ApiKeys(_) => {
                    add("Bearer", detail);
                    add("ApiKey", ", header=\"x-api-key\"");
                }
                Mode::Gateway(gateway) => {
                    if gateway.payload.is_some() {
                        add("Bearer", detail);
                    }
                    if gateway.certificates.is_some() {
                        add("ClientCertificate", "");
                    }
                }
                Mode::Certificates(_) => add("ClientCertificate", ""),
            }
        }
        all.join(", ")
    }
}

/// Text for a quoted string of a header: what must not stand there becomes a blank.
fn quoted(text: &str) -> String {
    let fits = |letter: char| matches!(letter, ' '..='~') && !matches!(letter, '"' | '\\');
    text.chars().map(|letter| if fits(letter) { letter } else { ' ' }).collect()
}
