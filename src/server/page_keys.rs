//! The page-token key of a server without settings: made once and kept beside its SQLite file.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::domain::page::KeyRing;

/// The key file's mode: for the server's user alone.
const MODE: u32 = 0o600;

/// A key that ends with the process.
///
/// # Errors
/// When the system has no random bytes.
pub(crate) fn fresh() -> io::Result<KeyRing> {
    Ok(KeyRing::generate().map_err(io::Error::other)?.0)
}

/// The key of the database at `database`, made now if there is none. Of several processes that
/// make one at a time, all end with the same: a whole file gets the name, or nothing does.
///
/// # Errors
/// When the file cannot be read or written, or holds something else.
pub(crate) fn beside(database: &Path) -> io::Result<KeyRing> {
    let path = with_suffix(database, ".page-key");
    match read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        other => return other,
    }
    let (_, text) = KeyRing::generate().map_err(io::Error::other)?;
    let draft = with_suffix(&path, &format!(".{}", Uuid::new_v4()));
    let linked = write(&draft, &text).and_then(|()| fs::hard_link(&draft, &path));
    fs::remove_file(&draft)?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => read(&path),
    }
}

fn read(path: &Path) -> io::Result<KeyRing> {
    let text = fs::read_to_string(path)?;
    if fs::metadata(path)?.permissions().mode() & 0o077 != 0 {
        tracing::warn!(file.path = %path.display(), "others can read the page-token key; closing it");
        fs::set_permissions(path, Permissions::from_mode(MODE))?;
    }
    KeyRing::parse(text.trim()).map_err(|error| {
        let words = format!("{} is not a page-token key: {error}", path.display());
        io::Error::new(io::ErrorKind::InvalidData, words)
    })
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(MODE).open(path)?;
    writeln!(file, "{text}")?;
    file.sync_all()
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_made_once_for_its_user_alone() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a2ad.db");
        let first = format!("{:?}", beside(&database).unwrap());
        assert_eq!(format!("{:?}", beside(&database).unwrap()), first);
        let path = folder.path().join("a2ad.db.page-key");
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(), MODE);
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert_eq!(format!("{:?}", beside(&database).unwrap()), first);
        assert_eq!(mode(), MODE);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no draft is left");
    }

    #[test]
    fn a_file_that_holds_something_else_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a2ad.db");
        fs::write(folder.path().join("a2ad.db.page-key"), "something else").unwrap();
        let error = beside(&database).unwrap_err().to_string();
        assert!(error.contains("a2ad.db.page-key") && !error.contains("something"), "{error}");
    }

    #[test]
    fn racing_servers_end_with_one_key() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a2ad.db");
        let key = || format!("{:?}", beside(&database).unwrap());
        let keys: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(key)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(keys.iter().all(|other| *other == keys[0]));
    }
}
