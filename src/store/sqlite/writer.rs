//! One thread that writes, and commits many writes at once.
//!
//! Writes queue up while a commit waits for the disk; the next transaction takes all of them. Each
//! runs in a savepoint of its own, so one that fails takes no other with it, and none is answered
//! before the commit that holds it has returned.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use crate::domain::Error;
use crate::store::sqlite::checkpoint::Anew;

/// The most writes of one commit.
const GROUP_MAX: usize = 256;

/// How long a write waits for whoever else holds the file, such as a tool beside the server.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

const GONE: &str = "the writing thread has ended";

/// A write: runs inside the transaction, then hears how the transaction ended.
trait Job: Send {
    fn run(&mut self, connection: &Connection) -> bool;
    fn finish(self: Box<Self>, committed: bool);
}

struct Write<T, F, G> {
    work: Option<F>,
    then: G,
    outcome: Option<Result<T, Error>>,
    answer: oneshot::Sender<Result<T, Error>>,
}

impl<T, F, G> Job for Write<T, F, G>
where
    T: Send,
    F: FnOnce(&Connection) -> Result<T, Error> + Send,
    G: FnOnce(&T) + Send,
{
    fn run(&mut self, connection: &Connection) -> bool {
        let outcome = match self.work.take() {
            // Its savepoint is rolled back, so the next write sees nothing half done.
            Some(work) => catch_unwind(AssertUnwindSafe(|| work(connection)))
                .unwrap_or_else(|_| Err(Error::internal("a write panicked"))),
            None => Err(Error::internal("a write ran twice")),
        };
        let keep = outcome.is_ok();
        self.outcome = Some(outcome);
        keep
    }

    fn finish(self: Box<Self>, committed: bool) {
        let outcome = match self.outcome {
            Some(Ok(value)) if committed => {
                (self.then)(&value);
                Ok(value)
            }
            Some(Err(error)) => Err(error),
            Some(Ok(_)) | None => Err(Error::unavailable("the commit failed")),
        };
        // Nobody listens if the caller left; the write stands all the same.
        drop(self.answer.send(outcome));
    }
}

enum Message {
    Write(Box<dyn Job>),
    /// Ends the thread, after what was queued before.
    End(oneshot::Sender<()>),
}

/// The way to the writing thread. It ends when it is told to, or when the last of these is gone.
#[derive(Clone)]
pub(super) struct Writer {
    messages: mpsc::Sender<Message>,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}

impl Writer {
    /// Starts the thread on `connection`. It keeps `guard` for as long as it may write.
    pub(super) fn start(
        connection: Connection,
        anew: Arc<Anew>,
        guard: impl Send + 'static,
    ) -> std::io::Result<Self> {
        let (messages, queue) = mpsc::channel(1024);
        thread::Builder::new()
            .name("sqlite-writer".to_owned())
            .spawn(move || run(connection, queue, &anew, guard))?;
        Ok(Self { messages })
    }

    /// Queues a write and waits until it is on the disk. It goes on if the caller leaves.
    pub(super) async fn write<T, F>(&self, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    {
        self.write_then(work, |_| ()).await
    }

    /// The same, and calls `then` once it is on the disk, also if the caller has left.
    pub(super) async fn write_then<T, F, G>(&self, work: F, then: G) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
        G: FnOnce(&T) + Send + 'static,
    {
        let (answer, outcome) = oneshot::channel();
        let job = Box::new(Write { work: Some(work), then, outcome: None, answer });
        if self.messages.send(Message::Write(job)).await.is_err() {
            return Err(Error::unavailable(GONE));
        }
        outcome.await.unwrap_or_else(|_| Err(Error::unavailable(GONE)))
    }

    /// Whether the thread still takes writes.
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.messages.is_closed() { Err(Error::unavailable(GONE)) } else { Ok(()) }
    }

    /// Ends the thread after the writes that were queued, and waits for it.
    pub(super) async fn end(&self) {
        let (answer, ended) = oneshot::channel();
        if self.messages.send(Message::End(answer)).await.is_ok() {
            // It is gone either way.
            drop(ended.await);
        }
    }
}

fn run(connection: Connection, mut queue: mpsc::Receiver<Message>, anew: &Anew, guard: impl Send) {
    let mut asked = None;
    while asked.is_none()
        && let Some(first) = queue.blocking_recv()
    {
        let mut group = Vec::new();
        let mut next = Some(first);
        while let Some(message) = next.take() {
            match message {
                Message::Write(job) => group.push(job),
                Message::End(answer) => {
                    asked = Some(answer);
                    break;
                }
            }
            if group.len() < GROUP_MAX {
                next = queue.try_recv().ok();
            }
        }
        if !group.is_empty() {
            anew.if_wanted(&connection, BUSY_TIMEOUT);
            write_group(&connection, group);
        }
    }
    drop(queue);
    drop(connection);
    drop(guard);
    if let Some(answer) = asked {
        // Whoever asked may have left.
        let _ = answer.send(());
    }
}

fn write_group(connection: &Connection, mut group: Vec<Box<dyn Job>>) {
    let committed = commit(connection, &mut group);
    if let Err(error) = &committed {
        tracing::error!(error = %error, "a commit failed");
    }
    for job in group {
        job.finish(committed.is_ok());
    }
}

fn commit(connection: &Connection, group: &mut [Box<dyn Job>]) -> rusqlite::Result<()> {
    connection.execute_batch("begin immediate")?;
    let written = write_all(connection, group).and_then(|()| connection.execute_batch("commit"));
    if written.is_err() && !connection.is_autocommit() {
        connection.execute_batch("rollback")?;
    }
    written
}

fn write_all(connection: &Connection, group: &mut [Box<dyn Job>]) -> rusqlite::Result<()> {
    for job in group {
        connection.prepare_cached("savepoint job")?.execute(())?;
        if !job.run(connection) {
            connection.prepare_cached("rollback to job")?.execute(())?;
        }
        connection.prepare_cached("release job")?.execute(())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;

    use super::*;

    fn table() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("create table t (n unique)").unwrap();
        connection
    }

    fn insert(n: i64) -> impl FnOnce(&Connection) -> Result<i64, Error> + Send {
        move |connection| {
            connection.execute("insert into t values (?1)", [n])?;
            match n % 10 {
                3 => Err(Error::internal("no")),
                7 => panic!("this one has a fault"),
                _ => Ok(n),
            }
        }
    }

    #[tokio::test]
    async fn a_write_that_fails_or_panics_takes_no_other_of_its_group_with_it() {
        let writer = Writer::start(table(), Arc::default(), ()).unwrap();
        // All are queued while the first one holds the thread up, so they share a commit.
        let (go, gate) = std::sync::mpsc::sync_channel::<()>(1);
        let first = writer.write(move |_| gate.recv().map_err(Error::internal));
        let rest = join_all((1..=20).map(|n| writer.write(insert(n))));
        let (first, outcomes, ()) = tokio::join!(first, rest, async { go.send(()).unwrap() });
        first.unwrap();
        for (n, outcome) in (1..).zip(outcomes) {
            assert_eq!(outcome.ok(), (n % 10 != 3 && n % 10 != 7).then_some(n));
        }
        let count = writer
            .write(|c| Ok(c.query_row("select count(*) from t", (), |row| row.get::<_, i64>(0))?));
        assert_eq!(count.await.unwrap(), 16);
    }

    #[tokio::test]
    async fn a_commit_that_fails_is_told_to_its_writers_and_the_next_one_goes_on() {
        let connection = table();
        let deferred = "pragma foreign_keys = on;
             create table child (n references t (n) deferrable initially deferred)";
        connection.execute_batch(deferred).unwrap();
        let writer = Writer::start(connection, Arc::default(), ()).unwrap();
        let broken = writer.write(|c| Ok(c.execute("insert into child values (1)", ())?));
        assert!(matches!(broken.await, Err(Error::Unavailable(_))));
        assert_eq!(writer.write(insert(1)).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn at_its_end_what_was_queued_is_written_and_its_guard_is_free() {
        let guard = Arc::new(());
        let writer = Writer::start(table(), Arc::default(), Arc::clone(&guard)).unwrap();
        let (written, ()) = tokio::join!(writer.write(insert(1)), writer.end());
        written.unwrap();
        assert_eq!(Arc::strong_count(&guard), 1);
        assert!(writer.check().is_err());
        assert!(matches!(writer.write(insert(2)).await, Err(Error::Unavailable(_))));
        writer.end().await;
    }
}
