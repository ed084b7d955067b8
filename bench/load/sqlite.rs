//! SQLite: a server on a file, and what the file alone can take.
//!
//! The bare writer is one thread with group commit, as ours is, that runs the rows of an echo's
//! two commits as prepared statements and decides nothing.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use a2ad::async_trait;
use a2ad::store::migrate::{Dialect, text};
use rusqlite::{Connection, params};
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::drive::{Case, Load, Work};
use crate::fill::{self, OWNER};
use crate::lab::{Lab, Served};

const PRAGMAS: &str = "pragma journal_mode = wal; pragma synchronous = full";
/// The case of the bare writer.
pub(crate) const BARE: &str = "bare group commits of an echo";
/// The most writes of one commit.
const GROUP_MAX: usize = 256;

const FILL: &str = "
insert into tasks (tenant, id, owner, context_id, state, status_at, status_message, status_seq,
  generation, next_seq, shown, head_turn, next_turn, created_at, updated_at, terminal_at)
with recursive s (n) as (select 1 union all select n + 1 from s where n < ?1)
select 1, unhex(printf('01900000000070008000%012x', n)),
  case when n % 5 = 0 then 1 else 2 + n % 999 end, 'context-' || n / 40, 3,
  1750000000000000 + n * 1000000, ?2, 1, 3, 2, 1, 2, 2, 1750000000000000, 1750000000000001,
  1750000000000000
from s";

const REST: &str = "
insert into messages (tenant, task_id, seq, body) select 1, id, 0, ?1 from tasks";

/// A server on a file with so many tasks.
pub(crate) fn server(lab: &Lab, tasks: i64) -> Served {
    let file = lab.folder().join("bench.db");
    let connection = create(&file);
    let names = format!(
        "insert into tenants (name) values (''); insert into owners (name) values ('{OWNER}')"
    );
    connection.execute_batch(&names).unwrap();
    let (asked, said) = fill::bodies();
    connection.execute_batch("begin").unwrap();
    connection.execute(FILL, params![tasks, said]).unwrap();
    connection.execute(REST, params![asked]).unwrap();
    connection
        .execute_batch(
            "insert into task_counts (tenant, owner, state, n)
               select tenant, owner, state, count(*) from tasks group by tenant, owner, state;
             commit; analyze; pragma wal_checkpoint(truncate)",
        )
        .unwrap();
    connection.close().unwrap();
    let url = format!("sqlite:{}", file.display());
    lab.server(&["--store", &url])
}

fn create(file: &Path) -> Connection {
    let connection = Connection::open(file).unwrap();
    connection.execute_batch(PRAGMAS).unwrap();
    connection.execute_batch(&text(Dialect::Sqlite)).unwrap();
    connection
}

/// One of the two commits of an echo.
enum Commit {
    Accept(Uuid),
    Report(Uuid),
}

struct Bare(SyncSender<(Commit, oneshot::Sender<()>)>);

#[async_trait]
impl Work for Bare {
    async fn once(&self, _lane: usize, _n: usize) -> Result<(), String> {
        let id = Uuid::now_v7();
        for commit in [Commit::Accept(id), Commit::Report(id)] {
            let (done, wait) = oneshot::channel();
            self.0.send((commit, done)).unwrap();
            wait.await.unwrap();
        }
        Ok(())
    }
}

/// The group commits of echoes on a file of its own.
pub(crate) fn bare(lab: &Lab) -> Case {
    let file = lab.folder().join("bare.db");
    let connection = create(&file);
    connection.execute_batch("pragma wal_autocheckpoint = 0").unwrap();
    connection.set_prepared_statement_cache_capacity(64);
    let (sender, receiver) = sync_channel(1024);
    std::thread::spawn(move || write(&connection, &receiver));
    std::thread::spawn(move || {
        let connection = Connection::open(file).unwrap();
        // Until the folder is gone.
        while connection.query_row("pragma wal_checkpoint(passive)", [], |_| Ok(())).is_ok() {
            std::thread::sleep(Duration::from_millis(200));
        }
    });
    Case {
        name: format!("SQLite: {BARE}"),
        pid: std::process::id(),
        work: Arc::new(Bare(sender)),
        load: Load::Closed,
    }
}

fn write(connection: &Connection, queue: &Receiver<(Commit, oneshot::Sender<()>)>) {
    while let Ok(first) = queue.recv() {
        let rest = queue.try_iter().take(GROUP_MAX - 1);
        let group: Vec<_> = std::iter::once(first).chain(rest).collect();
        connection.execute_batch("begin immediate").unwrap();
        for (commit, _) in &group {
            match commit {
                Commit::Accept(id) => accept(connection, *id),
                Commit::Report(id) => report(connection, *id),
            }
        }
        connection.execute_batch("commit").unwrap();
        for (_, done) in group {
            let _gone = done.send(());
        }
    }
}

fn run(connection: &Connection, sql: &str, values: impl rusqlite::Params) {
    connection.prepare_cached(sql).unwrap().execute(values).unwrap();
}

fn accept(connection: &Connection, id: Uuid) {
    let at = 1_760_000_000_000_000_i64;
    let body = [7_u8; 260];
    run(
        connection,
        "insert into tasks (tenant, id, owner, context_id, state, status_at, generation, next_seq,
           shown, lease, head_turn, next_turn, created_at, updated_at)
         values (1, ?1, 1, ?2, 1, ?3, 1, 1, 0, ?1, 1, 2, ?3, ?3)",
        params![id, id.to_string(), at],
    );
    run(
        connection,
        "insert into task_events (tenant, task_id, generation, turn, state, at, body)
         values (1, ?1, 1, 1, 1, ?2, x'0a021a00')",
        params![id, at],
    );
    run(
        connection,
        "insert into messages (tenant, task_id, seq, body) values (1, ?1, 0, ?2)",
        params![id, body],
    );
    run(
        connection,
        "insert into turns (tenant, task_id, turn, state, message_seq, request, last_report, lease,
           lease_until, due_at, errors, interruptions)
         values (1, ?1, 1, 2, 0, x'', 0, ?1, ?2, ?2, 0, 0)",
        params![id, at],
    );
    run(
        connection,
        "insert or replace into sent_messages (tenant, owner, context_id, sent_task, message_id,
           digest, task_id, turn, generation, expires_at)
         values (1, 1, '', '', ?2, ?3, ?1, 1, 1, ?4)",
        params![id, id.to_string(), [7_u8; 32], at],
    );
}

fn report(connection: &Connection, id: Uuid) {
    let at = 1_760_000_000_001_000_i64;
    let body = [7_u8; 260];
    for generation in 2..=4 {
        run(
            connection,
            "insert into task_events (tenant, task_id, generation, turn, state, at, body)
             values (1, ?1, ?2, 1, 3, ?3, ?4)",
            params![id, generation, at, body],
        );
    }
    run(
        connection,
        "insert into artifacts (tenant, task_id, artifact_id, ordinal, since, head)
         values (1, ?1, 'answer', 3, 3, x'0a06616e73776572')",
        params![id],
    );
    run(
        connection,
        "insert into artifact_chunks (tenant, task_id, artifact_id, seq, parts)
         values (1, ?1, 'answer', 3, ?2)",
        params![id, body],
    );
    run(
        connection,
        "update turns set state = 3, last_report = 1 where tenant = 1 and task_id = ?1 and turn = 1",
        params![id],
    );
    run(
        connection,
        "insert into task_count_deltas (tenant, owner, state, n) values (1, 1, 3, 1)",
        [],
    );
    run(
        connection,
        "update tasks set state = 3, status_at = ?2, generation = 4, shown = 1, lease = null,
           head_turn = 2, updated_at = ?2, terminal_at = ?2
         where tenant = 1 and id = ?1",
        params![id, at],
    );
}
