//! One thread that writes, and commits many writes at once.
//!
//! Writes queue up while a commit waits for the disk; the next transaction takes all of them. Each
//! runs in a savepoint of its own, so one that fails takes no other with it, and none is answered
//! before the commit that holds it has returned.

use std::fmt;
use std::thread;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use crate::domain::Error;

/// The most writes of one commit.
const GROUP_MAX: usize = 256;

/// A write: runs inside the transaction, then hears how the transaction ended.
trait Job: Send {
    fn run(&mut self, connection: &Connection) -> bool;
    fn finish(self: Box<Self>, committed: bool);
}

struct Write<T, F> {
    work: Option<F>,
    outcome: Option<Result<T, Error>>,
    answer: oneshot::Sender<Result<T, Error>>,
}

impl<T, F> Job for Write<T, F>
where
    T: Send,
    F: FnOnce(&Connection) -> Result<T, Error> + Send,
{
    fn run(&mut self, connection: &Connection) -> bool {
        let outcome = match self.work.take() {
            Some(work) => work(connection),
            None => Err(Error::internal("a write ran twice")),
        };
        let keep = outcome.is_ok();
        self.outcome = Some(outcome);
        keep
    }

    fn finish(self: Box<Self>, committed: bool) {
        let outcome = match self.outcome {
            Some(Ok(value)) if committed => Ok(value),
            Some(Err(error)) => Err(error),
            Some(Ok(_)) | None => Err(Error::unavailable("the commit failed")),
        };
        // Nobody listens if the caller left; the write stands all the same.
        drop(self.answer.send(outcome));
    }
}

/// The way to the writing thread. It ends when the last of these is gone.
#[derive(Clone)]
pub(super) struct Writer {
    jobs: mpsc::Sender<Box<dyn Job>>,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}

impl Writer {
    /// Starts the thread on `connection`.
    pub(super) fn start(connection: Connection) -> std::io::Result<Self> {
        let (jobs, queue) = mpsc::channel(1024);
        thread::Builder::new()
            .name("sqlite-writer".to_owned())
            .spawn(move || run(&connection, queue))?;
        Ok(Self { jobs })
    }

    /// Queues a write and waits until it is on the disk. It goes on if the caller leaves.
    pub(super) async fn write<T, F>(&self, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    {
        let (answer, outcome) = oneshot::channel();
        let job = Box::new(Write { work: Some(work), outcome: None, answer });
        let gone = "the writing thread has ended";
        if self.jobs.send(job).await.is_err() {
            return Err(Error::unavailable(gone));
        }
        outcome.await.unwrap_or_else(|_| Err(Error::unavailable(gone)))
    }
}

fn run(connection: &Connection, mut queue: mpsc::Receiver<Box<dyn Job>>) {
    while let Some(first) = queue.blocking_recv() {
        let mut group = vec![first];
        while group.len() < GROUP_MAX
            && let Ok(next) = queue.try_recv()
        {
            group.push(next);
        }
        let committed = commit(connection, &mut group);
        if let Err(error) = &committed {
            tracing::error!(error = %error, "a commit failed");
        }
        for job in group {
            job.finish(committed.is_ok());
        }
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
