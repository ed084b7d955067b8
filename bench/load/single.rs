//! What is read once instead of in rounds: WAL, the way of a turn to another server, memory.

use std::time::{Duration, Instant};

use a2ad::contract::v1::TaskState;
use a2ad::domain::TaskId;
use a2ad::store::postgres::statements;
use a2ad::store::{Report, Target, Update};

use crate::calls::{Caller, request};
use crate::driver::{ELSEWHERE, Session};
use crate::lab::{self, Lab, Place};
use crate::round::median;
use crate::sends::Echo;

/// Bytes of WAL, without the images of whole pages that follow a checkpoint.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wal {
    /// Of a status that changes, with its event.
    pub(crate) status: f64,
    /// Of a message that is taken, and of the one report that ends an echo.
    pub(crate) accept: f64,
    pub(crate) report: f64,
}

/// How many of each.
const WRITES: usize = 300;

/// Reads the WAL of writes, one after the other.
pub(crate) async fn wal(lab: &Lab, place: &Place<'_>) -> Wal {
    let admin = lab::connect(&lab.maintenance()).await;
    set(&admin, "off").await;
    let session = Session::open(&place.url).await;
    let echoes: Vec<Echo> = (0..WRITES).map(shown).collect();
    let begin = position(&admin).await;
    for echo in &echoes {
        session.query(&statements::accept(ELSEWHERE, &echo.accept)).await;
    }
    let accepted = position(&admin).await;
    for echo in &echoes {
        let updates =
            vec![Update::Status { state: TaskState::Working, message: None, metadata: None }];
        let report = Report { updates, end: None, ..echo.report.clone() };
        land(&session, echo.task, &report).await;
    }
    let working = position(&admin).await;
    for echo in &echoes {
        let report = Report { sequence: 2, ..echo.report.clone() };
        land(&session, echo.task, &report).await;
    }
    let ended = position(&admin).await;
    set(&admin, "on").await;
    let each = |from: f64, to: f64| (to - from) / WRITES as f64;
    Wal {
        accept: each(begin, accepted),
        status: each(accepted, working),
        report: each(working, ended),
    }
}

/// An echo whose task is listed from the start, so that its count moves with its status.
fn shown(n: usize) -> Echo {
    let mut echo = Echo::new(n);
    if let Target::New { shown, .. } = &mut echo.accept.target {
        *shown = true;
    }
    echo
}

async fn land(session: &Session, task: TaskId, report: &Report) {
    let statement = statements::report(ELSEWHERE, task, report).unwrap();
    let rows = session.query(&statement).await;
    assert!(rows[0].get::<_, bool>("landed"));
}

async fn set(admin: &tokio_postgres::Client, images: &str) {
    admin.batch_execute(&format!("alter system set full_page_writes = {images}")).await.unwrap();
    admin.batch_execute("select pg_reload_conf()").await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let row = admin.query_one("select current_setting('full_page_writes')", &[]).await.unwrap();
        if row.get::<_, &str>(0) == images {
            break;
        }
        assert!(Instant::now() < deadline, "PostgreSQL does not reload its settings");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Also where the checkpointer decides about the images.
    admin.batch_execute("checkpoint").await.unwrap();
}

async fn position(admin: &tokio_postgres::Client) -> f64 {
    let sql = "select (pg_current_wal_insert_lsn() - '0/0')::float8";
    admin.query_one(sql, &[]).await.unwrap().get(0)
}

/// How long a turn takes to another server, in milliseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Handover {
    /// From the statement that takes the message to the claim by the other server, by the
    /// database's clock: the median.
    pub(crate) claimed: f64,
    /// The whole life over both servers, as the caller of the first one sees it: the median.
    pub(crate) answered: f64,
}

/// How many turns.
const TURNS: usize = 200;
/// How long servers hold a turn, from which the time of the claim is known.
const LEASE_US: i64 = 15_000_000;

/// A server whose only runner is busy takes messages; an idle one does the work.
pub(crate) async fn handover(lab: &Lab, turns: usize) -> Handover {
    let place = lab.place(10).await;
    let busy = place.server(&["--max-turns", "1"]);
    let caller = Caller::new("busy", &busy).await;
    let mut client = caller.client();
    let mut slow = request(0, true, "");
    slow.message.as_mut().unwrap().parts = vec![a2ad::agent::text_part("slow 600")];
    client.send_message(slow).await.unwrap();
    let running = "select 1 from turns where state = 2";
    let database = lab::connect(&place.url).await;
    let deadline = Instant::now() + Duration::from_secs(10);
    while database.query_opt(running, &[]).await.unwrap().is_none() {
        assert!(Instant::now() < deadline, "the slow turn does not begin");
    }
    let _idle = place.server(&[]);
    let mut answered = Vec::new();
    for n in 0..turns.min(TURNS) {
        // Apart from each other, for an idle runner is what this is about.
        tokio::time::sleep(Duration::from_millis(5)).await;
        let begun = Instant::now();
        client.send_message(request(n, false, "t0")).await.unwrap();
        answered.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    let rows = database
        .query(
            "select (u.lease_until - $1 - t.created_at)::float8 / 1000
             from turns u join tasks t on t.tenant = u.tenant and t.id = u.task_id
             join tenants n on n.id = u.tenant
             where n.name = 't0' and u.state = 3",
            &[&LEASE_US],
        )
        .await
        .unwrap();
    assert_eq!(rows.len(), turns.min(TURNS), "each turn has ended");
    let claimed = rows.iter().map(|row| row.get(0)).collect();
    Handover { claimed: median(claimed), answered: median(answered) }
}
