//! The kinds of value that settings have.

use std::fmt;
use std::time::Duration;

/// Text that is never printed.
///
/// It is made from any text, so that no message about a bad value can repeat it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps `text` to itself.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for the one place that uses it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// Where a store is. A password in it is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl(String);

/// Which store a [`StoreUrl`] names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreKind<'a> {
    /// One file, at this path.
    SqliteFile(&'a str),
    /// A temporary file that nobody else sees.
    SqliteMemory,
    /// A PostgreSQL server.
    Postgres,
}

impl StoreUrl {
    /// Keeps `url` as it is; [`kind`](Self::kind) says whether it is one.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self(url.into())
    }

    /// The URL, password included, for whoever connects.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Which store it names, or `None` if it is no URL of a store.
    #[must_use]
    pub fn kind(&self) -> Option<StoreKind<'_>> {
        if let Some(path) = self.0.strip_prefix("sqlite:") {
            return match path {
                "" => None,
                ":memory:" => Some(StoreKind::SqliteMemory),
                path => Some(StoreKind::SqliteFile(path)),
            };
        }
        let postgres =
            ["postgres://", "postgresql://"].iter().any(|scheme| self.0.starts_with(scheme));
        postgres.then_some(StoreKind::Postgres)
    }
}

impl From<&str> for StoreUrl {
    fn from(url: &str) -> Self {
        Self::new(url)
    }
}

impl fmt::Display for StoreUrl {
    /// The URL without its password and without its parameters, which may hold one too.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind() != Some(StoreKind::Postgres) {
            // Text that is no URL may be a password in the wrong place.
            return f.write_str(if self.kind().is_some() { &self.0 } else { "(no store URL)" });
        }
        let (scheme, rest) = self.0.split_once("://").unwrap_or(("postgres", ""));
        let rest = rest.split(['?', '#']).next().unwrap_or_default();
        let (user, place) = rest.rsplit_once('@').map_or((None, rest), |(u, p)| (Some(u), p));
        write!(f, "{scheme}://")?;
        if let Some(user) = user {
            match user.split_once(':') {
                Some((name, _)) => write!(f, "{name}:(hidden)@")?,
                None => write!(f, "{user}@")?,
            }
        }
        f.write_str(place)
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

const UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Reads a duration such as `500ms`, `15s`, `10m`, `24h` or `7d`.
///
/// # Errors
/// What would be right, in words.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "write a number and a unit, as in 500ms, 15s, 10m, 24h or 7d".to_owned();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits).ok_or_else(wrong)?;
    let unit_ms = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?.1;
    let number: u64 = number.parse().ok().ok_or_else(wrong)?;
    number.checked_mul(unit_ms).map(Duration::from_millis).ok_or_else(|| "is too long".to_owned())
}

/// Writes a duration the way [`duration`] reads it, in the largest unit that fits.
#[must_use]
pub fn duration_text(duration: Duration) -> String {
    let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let fits = |unit_ms: u64| ms >= unit_ms && ms.is_multiple_of(unit_ms);
    match UNITS.iter().rev().find(|(_, unit_ms)| fits(*unit_ms)) {
        Some((name, unit_ms)) => format!("{}{name}", ms / unit_ms),
        None => format!("{}s", ms / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_number_and_a_unit() {
        for (text, ms) in
            [("500ms", 500), ("15s", 15_000), ("10m", 600_000), ("24h", 86_400_000), ("0s", 0)]
        {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for bad in ["", "15", "s", "1.5s", "-1s", "1 s", "15S", "é", "99999999999999999999s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
        assert!(duration("999999999999999999d").is_err());
        for text in ["500ms", "15s", "10m", "1d", "0s", "90s", "25h"] {
            assert_eq!(duration_text(duration(text).unwrap()), text);
        }
    }

    #[test]
    fn a_store_url_prints_without_its_password() {
        for (url, shown) in [
            ("sqlite:a2ad.db", "sqlite:a2ad.db"),
            ("postgres://ann:s3cret@db:5432/a2ad", "postgres://ann:(hidden)@db:5432/a2ad"),
            ("postgres://ann:a@b@db/a2ad?password=s3cret", "postgres://ann:(hidden)@db/a2ad"),
            ("postgresql://db/a2ad", "postgresql://db/a2ad"),
            ("s3cret", "(no store URL)"),
        ] {
            assert_eq!(StoreUrl::new(url).to_string(), shown);
            assert_eq!(format!("{:?}", StoreUrl::new(url)), shown);
        }
    }

    #[test]
    fn a_store_url_names_its_kind() {
        assert_eq!(StoreUrl::new("sqlite:x.db").kind(), Some(StoreKind::SqliteFile("x.db")));
        assert_eq!(StoreUrl::new("sqlite::memory:").kind(), Some(StoreKind::SqliteMemory));
        assert_eq!(StoreUrl::new("postgres://x").kind(), Some(StoreKind::Postgres));
        for bad in ["", "sqlite:", "mysql://x", "x.db"] {
            assert_eq!(StoreUrl::new(bad).kind(), None, "{bad}");
        }
    }

    #[test]
    fn a_secret_is_never_printed() {
        let secret = Secret::new("s3cret");
        assert_eq!(format!("{secret} {secret:?}"), "(hidden) (hidden)");
    }
}
