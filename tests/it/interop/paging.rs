//! Walks over many tasks by the official Python SDK, while others come and one goes.
//!
//! The script talks and checks; this side deletes a row when the script asks for it.

use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use uuid::Uuid;

use crate::interop::script::{python, run};
use crate::support::program::Program;
use crate::support::torture;

fn page(folder: &Path, server: &Program, delete: impl Fn(Uuid)) {
    let n_tasks = if torture() { "1000" } else { "200" };
    let mut command = python("tests/interop/python/pages.py");
    command.args([&server.url(), n_tasks]);
    run(folder, command, |line| {
        let task = line.strip_prefix("delete ")?;
        delete(task.parse().unwrap());
        Some("deleted".to_owned())
    });
}

mod sqlite {
    use super::*;

    fn serve(folder: &TempDir) -> Program {
        Program::serve(folder.path(), &["--store", "sqlite:interop.db"])
    }

    #[test]
    fn the_python_sdk_pages_through_all_tasks() {
        let folder = TempDir::new().unwrap();
        let server = serve(&folder);
        page(folder.path(), &server, |task| {
            let database = rusqlite::Connection::open(folder.path().join("interop.db")).unwrap();
            database.busy_timeout(Duration::from_secs(10)).unwrap();
            let n = database.execute("delete from tasks where id = ?1", [task.as_bytes()]);
            assert_eq!(n, Ok(1));
        });
    }
}

mod postgres {
    use super::*;
    use crate::crash::KEYS;
    use crate::support::postgres::{admin, empty_url};

    fn serve(folder: &TempDir, url: &str) -> Program {
        Program::serve(folder.path(), &["--store", url, "--page-token-keys", KEYS])
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_python_sdk_pages_through_all_tasks() {
        let folder = TempDir::new().unwrap();
        let url = empty_url().await;
        let server = serve(&folder, &url);
        let database = admin(&url).await;
        let runtime = tokio::runtime::Handle::current();
        page(folder.path(), &server, |task| {
            let params: [&(dyn tokio_postgres::types::ToSql + Sync); 1] = [&task];
            let delete = database.execute("delete from tasks where id = $1", &params);
            let n = tokio::task::block_in_place(|| runtime.block_on(delete));
            assert_eq!(n.unwrap(), 1);
        });
    }
}
