//! Faults of PostgreSQL as a caller over gRPC meets them: one to try again, without a word of the
//! database, and gone when the database is well.

use futures_util::future::join_all;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use a2ad::contract::v1;
use a2ad::store::Store as _;
use a2ad::store::postgres::{Postgres, Settings};

use crate::rig::{TestServer, send, state, task_of};
use crate::support::eventually;
use crate::support::postgres::{admin, fresh_url};

async fn on(url: &str) -> TestServer {
    let keys = a2ad::domain::page::KeyRing::parse(crate::crash::KEYS).unwrap();
    TestServer::with(|server| server.store(url).page_token_keys(keys)).await
}

/// From now on every new task fails with this SQLSTATE, the first `times` times.
async fn fail_with(db: &tokio_postgres::Client, sqlstate: &str, times: u32) {
    let sql = format!(
        "create sequence if not exists faults; select setval('faults', 1, false);
         create or replace function fault() returns trigger language plpgsql as $$ begin
           if nextval('faults') <= {times} then
             raise 'secret words of db.internal' using errcode = '{sqlstate}';
           end if;
           return new;
         end $$;
         create or replace trigger fault before insert on tasks
         for each row execute function fault()"
    );
    db.batch_execute(&sql).await.unwrap();
}

/// To be tried again, and nothing of the database in it.
fn assert_retryable(what: &str, status: &Status) {
    assert_eq!(status.code(), Code::Unavailable, "{what}: {status:?}");
    assert!(status.get_details_retry_info().is_some(), "{what}: {status:?}");
    let said = format!("{} {}", status.message(), String::from_utf8_lossy(status.details()));
    for word in ["secret", "db.internal", "SELECT", "insert", "postgres", "connection"] {
        assert!(!said.contains(word), "{what}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_refuses_a_write_is_told_as_a_fault_that_passes() {
    let url = fresh_url().await;
    let server = on(&url).await;
    let mut client = server.client().await;
    let db = admin(&url).await;
    for (what, sqlstate) in [
        ("disk full", "53100"),
        ("too many connections", "53300"),
        ("out of memory", "53200"),
        ("a standby that was a primary", "25006"),
        ("a lock not had in time", "55P03"),
        ("canceled", "57014"),
        ("ended by an operator", "57P01"),
        ("still starting", "57P03"),
        ("an I/O error", "58030"),
        ("a transaction over its time", "25P04"),
    ] {
        fail_with(&db, sqlstate, 1000).await;
        let message = send(what);
        let failed = client.send_message(message.clone()).await.unwrap_err();
        assert_retryable(what, &failed);
        fail_with(&db, sqlstate, 0).await;
        let task = task_of(client.send_message(message).await.unwrap());
        assert_eq!(state(&task), v1::TaskState::Completed, "{what}");
    }
    let all = client.list_tasks(v1::ListTasksRequest::default()).await.unwrap().into_inner();
    assert_eq!(all.total_size, 10, "the failed ones left nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_victim_of_a_deadlock_is_tried_once_more_and_only_once() {
    let url = fresh_url().await;
    let server = on(&url).await;
    let mut client = server.client().await;
    let db = admin(&url).await;
    for sqlstate in ["40P01", "40001"] {
        fail_with(&db, sqlstate, 1).await;
        client.send_message(send("once")).await.unwrap();
        fail_with(&db, sqlstate, 2).await;
        let failed = client.send_message(send("twice")).await.unwrap_err();
        assert_retryable(sqlstate, &failed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_nobody_can_serve_in_time_are_shed_and_the_others_served_afterwards() {
    let url = format!("{}?application_name=crowd", fresh_url().await);
    let mut settings = Settings::new(&url);
    settings.pool_size = 1;
    let store = Postgres::connect(settings).await.unwrap();
    let mut holder = admin(&url).await;
    let lock = holder.transaction().await.unwrap();
    lock.batch_execute("lock table tasks").await.unwrap();
    let calls = (0..150).map(|_| {
        let store = store.clone();
        tokio::spawn(async move {
            store.tasks_page(&crate::store::ann(), &crate::store::everything()).await
        })
    });
    let calls: Vec<_> = calls.collect();
    eventually("all but those who may wait are refused", || async {
        (calls.iter().filter(|call| call.is_finished()).count() >= 45).then_some(())
    })
    .await;
    lock.commit().await.unwrap();
    let ended = join_all(calls).await;
    let shed = ended.iter().filter(|ended| ended.as_ref().unwrap().is_err()).count();
    assert!((45..=50).contains(&shed), "{shed} were refused, and none who waited");
    store.ping().await.unwrap();
}
