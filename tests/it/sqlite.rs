//! What only SQLite promises: one process on one file, whatever names lead to it; leases that end
//! with their process; a WAL that stays small under load.

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use a2ad::domain::{Clock, Error, ManualClock};
use a2ad::store::migrate::{self, Dialect, text};
use a2ad::store::sqlite::{Location, OpenError, Settings, Sqlite};
use a2ad::store::{LeaseRequest, Report, Reported, Store as _, TurnEnd, View};
use futures_util::future::join_all;
use rusqlite::Connection;

use crate::store::{LEASE, START_US, accepted, ann, more, new, no_lease, status};
use crate::support::{PATIENCE, eventually};

fn at(path: &Path) -> Settings {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at_us(START_US));
    Settings::new(Location::File(path.to_owned()), clock)
}

async fn open(path: &Path) -> Sqlite {
    Sqlite::open(at(path)).await.unwrap()
}

/// Ends it as a server does.
async fn end(store: Sqlite) {
    store.close().await;
}

fn version(path: &Path) -> i64 {
    let connection = Connection::open(path).unwrap();
    connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_opened_once_whatever_names_lead_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.db");
    let first = open(&path).await;
    std::fs::create_dir(folder.path().join("sub")).unwrap();
    std::os::unix::fs::symlink(&path, folder.path().join("link.db")).unwrap();
    std::os::unix::fs::symlink(folder.path(), folder.path().join("sub/back")).unwrap();
    for name in ["x.db", "link.db", "sub/../x.db", "sub/back/x.db", "sub/back/link.db"] {
        let refused = Sqlite::open(at(&folder.path().join(name))).await.unwrap_err();
        assert!(matches!(refused, OpenError::InUse(_)), "{name}: {refused:?}");
        let words = refused.to_string();
        assert!(words.contains("in use by another process"), "{words}");
        assert!(words.contains("PostgreSQL"), "says what to do: {words}");
    }
    first.ping().await.unwrap();
    end(first).await;
    end(open(&folder.path().join("link.db")).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_a_store_is_closed_its_file_is_free_and_it_writes_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.db");
    let store = open(&path).await;
    let last = new("c", true);
    let scope = ann();
    let (written, ()) =
        futures_util::future::join(store.accept(&scope, &last), store.close()).await;
    accepted(written.unwrap());
    let late = store.accept(&ann(), &new("c", true)).await.unwrap_err();
    assert!(matches!(late, Error::Unavailable(_)), "{late:?}");
    let late = store.ping().await.unwrap_err();
    assert!(matches!(late, Error::Unavailable(_)), "health must know: {late:?}");
    store.close().await;
    drop(store);
    let again = open(&path).await;
    assert!(again.task(&ann(), last.target.task(), View::default()).await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_the_start_all_leases_are_free_and_the_interruption_counts_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.db");
    let store = open(&path).await;
    let idle = accepted(store.accept(&ann(), &new("idle", true)).await.unwrap());
    store.request_cancel(&ann(), idle.task, None).await.unwrap();
    let mut accept = new("c", false);
    let lease = LeaseRequest { token: no_lease(), lease: LEASE };
    accept.lease = Some(lease);
    let begun = accepted(store.accept(&ann(), &accept).await.unwrap());
    assert!(begun.leased);
    let report =
        |sequence, updates, end| Report { lease: lease.token, turn: 1, sequence, updates, end };
    let working = vec![status(a2ad::contract::v1::TaskState::Working, "")];
    store.report(&ann(), begun.task, &report(1, working.clone(), None)).await.unwrap();
    accepted(store.accept(&ann(), &more(begun.task, "m-2")).await.unwrap());
    end(store).await;

    let newest = migrate::newest(Dialect::Sqlite);
    let again = Sqlite::migrate(at(&path)).await.unwrap();
    assert_eq!(again, (newest, newest), "migrating is no start");
    let store = open(&path).await;
    let turns = store.claim_turns_of_all(9, LEASE).await.unwrap();
    let [turn] = turns.as_slice() else { panic!("the one that was interrupted: {turns:?}") };
    assert_eq!((turn.task, turn.turn, turn.last_report), (begun.task, 1, 1));
    assert_eq!((turn.errors, turn.interruptions), (0, 1));
    let late = report(2, working.clone(), Some(TurnEnd::Finished));
    assert_eq!(store.report(&ann(), begun.task, &late).await.unwrap(), Reported::Stale);
    let mine = Report { lease: turn.lease, ..report(2, working, None) };
    let landed = store.report(&ann(), begun.task, &mine).await.unwrap();
    assert!(matches!(landed, Reported::Landed { generation: 3, .. }), "{landed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_that_is_too_old_or_too_new_is_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.db");
    let unchanged = Settings { migrate: false, ..at(&path) };
    let refused = Sqlite::open(unchanged.clone()).await.unwrap_err().to_string();
    assert!(refused.contains("run `a2ad migrate`"), "{refused}");
    let newest = migrate::newest(Dialect::Sqlite);
    assert_eq!(Sqlite::migrate(at(&path)).await.unwrap(), (0, newest));
    end(Sqlite::open(unchanged).await.unwrap()).await;
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let refused = Sqlite::open(at(&path)).await.unwrap_err().to_string();
    assert!(refused.contains("run a newer a2ad"), "{refused}");
    assert_eq!(version(&path), 99);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_printed_migrations_make_a_schema_that_a_server_takes_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.db");
    Connection::open(&path).unwrap().execute_batch(&text(Dialect::Sqlite)).unwrap();
    let store = Sqlite::open(Settings { migrate: false, ..at(&path) }).await.unwrap();
    accepted(store.accept(&ann(), &new("c", true)).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_of_another_program_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("photos.db");
    Connection::open(&path).unwrap().execute_batch("create table photos (name text)").unwrap();
    let before = std::fs::read(&path).unwrap();
    let refused = Sqlite::open(at(&path)).await.unwrap_err();
    assert!(matches!(refused, OpenError::Foreign(_)), "{refused:?}");
    let refused = Sqlite::migrate(at(&path)).await.unwrap_err().to_string();
    assert!(refused.contains("photos.db is an SQLite database of another program"), "{refused}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_in_memory_leaves_no_file_behind() {
    let names = || -> Vec<_> {
        let all = std::fs::read_dir(std::env::temp_dir()).unwrap();
        all.filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| name.starts_with("a2ad-") && name.contains(".db"))
            .collect()
    };
    let before = names();
    let settings = Settings { location: Location::Memory, ..at(Path::new("")) };
    let store = Sqlite::open(settings).await.unwrap();
    accepted(store.accept(&ann(), &new("c", true)).await.unwrap());
    // Others may just be opening theirs.
    eventually("no name is left", || async {
        names().iter().all(|name| before.contains(name)).then_some(())
    })
    .await;
    accepted(store.accept(&ann(), &new("c", true)).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_goes_on_and_wakes_others_when_its_caller_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.db");
    let store = open(&path).await;
    let accept = new("c", true);
    let hint = store.hints().watch_task(accept.target.task());
    let (woken, due) = (hint.armed(), store.hints().turn_due());
    let holder = Connection::open(&path).unwrap();
    holder.execute_batch("begin immediate").unwrap();
    {
        let scope = ann();
        let mut write = pin!(store.accept(&scope, &accept));
        let first = write.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(first.is_pending(), "the file is held");
    }
    holder.execute_batch("rollback").unwrap();
    tokio::time::timeout(PATIENCE, woken).await.expect("whoever waits for the task is woken");
    tokio::time::timeout(PATIENCE, due).await.expect("and who waits for a turn");
    let view = View { hidden: true, ..View::default() };
    assert!(store.task(&ann(), accept.target.task(), view).await.unwrap().is_some());
}

/// Sends messages from many sides until there are `n`. Returns the largest WAL that was seen.
async fn load(store: &Sqlite, wal: &Path, n: u64) -> u64 {
    let (sent, largest) = (AtomicU64::new(0), AtomicU64::new(0));
    let sender = || async {
        while sent.fetch_add(1, Ordering::Relaxed) < n {
            accepted(store.accept(&ann(), &new("c", true)).await.unwrap());
            let size = std::fs::metadata(wal).map_or(0, |file| file.len());
            largest.fetch_max(size, Ordering::Relaxed);
        }
    };
    join_all((0..64).map(|_| sender())).await;
    largest.into_inner()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_wal_stays_small_under_load_and_is_cut_after_a_long_read() {
    const MAX: u32 = 1 << 20;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.db");
    let wal = folder.path().join("x.db-wal");
    let store = Sqlite::open(Settings { wal_bytes_max: MAX, ..at(&path) }).await.unwrap();
    // Together these write many times the bound; what one round of the checkpoints lets pass is a
    // few of them on a slow machine.
    let mut peaks = Vec::new();
    for _ in 0..4 {
        peaks.push(load(&store, &wal, 2_500).await);
    }
    let bound = 12 * u64::from(MAX);
    assert!(peaks.iter().all(|peak| *peak < bound), "it grows and grows: {peaks:?}");

    let reader = Connection::open(&path).unwrap();
    reader.execute_batch("begin; select count(*) from tasks").unwrap();
    load(&store, &wal, 2_500).await;
    let held = std::fs::metadata(&wal).unwrap().len();
    assert!(held > u64::from(MAX), "the read needs it: {held}");
    reader.execute_batch("commit").unwrap();
    eventually("the WAL is cut", || async {
        accepted(store.accept(&ann(), &new("c", true)).await.unwrap());
        let size = std::fs::metadata(&wal).unwrap().len();
        (size <= u64::from(MAX) + (64 << 10)).then_some(())
    })
    .await;
    tokio::time::timeout(Duration::from_secs(5), store.ping()).await.unwrap().unwrap();
}
