//! The numbered migrations of both stores, and which of them a database lacks.

/// Whose SQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// PostgreSQL's.
    Postgres,
    /// SQLite's.
    Sqlite,
}

/// One step, applied in a transaction of its own or together with others, never edited.
#[derive(Debug, Clone, Copy)]
pub struct Migration {
    /// Its number, from 1.
    pub version: u32,
    /// Its file's name.
    pub name: &'static str,
    /// What it runs.
    pub sql: &'static str,
}

const POSTGRES: &[Migration] = &[
    Migration {
        version: 1,
        name: "0001_init.sql",
        sql: include_str!("../../migrations/postgres/0001_init.sql"),
    },
    Migration {
        version: 2,
        name: "0002_retention.sql",
        sql: include_str!("../../migrations/postgres/0002_retention.sql"),
    },
];

const SQLITE: &[Migration] = &[
    Migration {
        version: 1,
        name: "0001_init.sql",
        sql: include_str!("../../migrations/sqlite/0001_init.sql"),
    },
    Migration {
        version: 2,
        name: "0002_retention.sql",
        sql: include_str!("../../migrations/sqlite/0002_retention.sql"),
    },
];

/// Why a database's schema cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// A newer program was here.
    #[error(
        "the database has schema version {found}, this program knows up to {known}: run a newer a2ad"
    )]
    Newer {
        /// The database's version.
        found: u32,
        /// The newest that is known here.
        known: u32,
    },
    /// Migrations are missing and may not be applied here.
    #[error(
        "the database has schema version {found}, this program needs {needed}: run `a2ad migrate`"
    )]
    Older {
        /// The database's version; 0 for an empty one.
        found: u32,
        /// What is needed.
        needed: u32,
    },
}

/// All migrations, in order.
#[must_use]
pub fn all(dialect: Dialect) -> &'static [Migration] {
    match dialect {
        Dialect::Postgres => POSTGRES,
        Dialect::Sqlite => SQLITE,
    }
}

/// The version that this program works with.
#[must_use]
pub fn newest(dialect: Dialect) -> u32 {
    all(dialect).last().map_or(0, |migration| migration.version)
}

/// What a database at version `found` lacks.
///
/// # Errors
/// When it is newer than this program, or lacks something and may not be changed.
pub fn pending(
    dialect: Dialect,
    found: u32,
    allowed: bool,
) -> Result<impl Iterator<Item = &'static Migration>, SchemaError> {
    let known = newest(dialect);
    if found > known {
        return Err(SchemaError::Newer { found, known });
    }
    if found < known && !allowed {
        return Err(SchemaError::Older { found, needed: known });
    }
    Ok(all(dialect).iter().filter(move |migration| migration.version > found))
}

impl Dialect {
    /// What notes in the database that a version is reached, after its migration.
    pub(crate) fn note(self, migration: &Migration) -> String {
        let Migration { version, name, .. } = migration;
        match self {
            Self::Postgres => format!(
                "create table if not exists schema_migrations (
  version integer primary key,
  name text not null,
  applied_at timestamptz not null default clock_timestamp()
);
insert into schema_migrations (version, name) values ({version}, '{name}');
"
            ),
            Self::Sqlite => format!("pragma user_version = {version};\n"),
        }
    }
}

/// The SQL of every migration as one text, with what notes that each was applied, for schemas
/// that are managed elsewhere.
#[must_use]
pub fn text(dialect: Dialect) -> String {
    let parts: Vec<_> = all(dialect)
        .iter()
        .map(|m| {
            let note = dialect.note(m);
            format!("-- migration {} ({})\n\n{}\n{note}", m.version, m.name, m.sql)
        })
        .collect();
    parts.join("\n")
}
