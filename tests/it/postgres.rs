//! What only PostgreSQL promises: migrations that many try at once, hints between servers, writes
//! that outlive their callers, and statements that end in time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use a2ad::domain::Error;
use a2ad::store::migrate::{self, Dialect};
use a2ad::store::postgres::{ConnectError, Postgres, Settings, StatementMode};
use a2ad::store::{PageQuery, Store as _, View};
use futures_util::future::join_all;

use crate::store::{ann, everything, more, new};
use crate::support::eventually;
use crate::support::pgbouncer;
use crate::support::postgres::{admin, empty_url, fresh_url, open};

fn whole() -> View {
    View { history: 100, artifacts: true, hidden: true }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_six_servers_that_start_at_once_one_migrates_and_none_fails() {
    let url = empty_url().await;
    let starts = (0..6).map(|_| async {
        let mut settings = Settings::new(&url);
        settings.pool_size = 1;
        Postgres::connect(settings).await
    });
    let stores: Vec<_> = join_all(starts).await.into_iter().map(Result::unwrap).collect();
    let rows = admin(&url).await.query("select version from schema_migrations", &[]).await.unwrap();
    let newest = migrate::newest(Dialect::Postgres);
    assert_eq!(rows.len(), newest as usize);
    for store in &stores {
        store.ping().await.unwrap();
    }
    let again = Postgres::migrate(&Settings::new(&url)).await.unwrap();
    assert_eq!(again, (newest, newest), "a second time there is nothing to do");
}

#[tokio::test]
async fn a_schema_that_is_too_old_or_too_new_is_refused_in_words() {
    let url = empty_url().await;
    let mut settings = Settings::new(&url);
    settings.migrate = false;
    let refused = Postgres::connect(settings.clone()).await.unwrap_err().to_string();
    assert!(refused.contains("run `a2ad migrate`"), "{refused}");
    Postgres::migrate(&settings).await.unwrap();
    Postgres::connect(settings.clone()).await.unwrap();
    let sql = "insert into schema_migrations (version, name) values (99, 'later')";
    admin(&url).await.batch_execute(sql).await.unwrap();
    settings.migrate = true;
    let refused = Postgres::connect(settings).await.unwrap_err().to_string();
    assert!(refused.contains("run a newer a2ad"), "{refused}");
}

#[tokio::test]
async fn the_printed_migrations_make_a_schema_that_a_server_takes_as_it_is() {
    use a2ad::store::migrate::{Dialect, text};
    let url = empty_url().await;
    admin(&url).await.batch_execute(&text(Dialect::Postgres)).await.unwrap();
    let mut settings = Settings::new(&url);
    settings.migrate = false;
    Postgres::connect(settings).await.unwrap().ping().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_on_one_server_wakes_those_who_wait_on_another() {
    let url = fresh_url().await;
    let (a, b) = (open(&url, None).await, open(&url, None).await);
    let begun = new("c", true);
    let task = begun.target.task();
    // The first hints may come before B listens; each change is one more.
    let hint = b.hints().watch_task(task);
    a.accept(&ann(), &begun).await.unwrap();
    let began = Instant::now();
    let mut n = 0;
    loop {
        let woken = hint.armed();
        n += 1;
        a.accept(&ann(), &more(task, &format!("m{n}"))).await.unwrap();
        if tokio::time::timeout(Duration::from_millis(500), woken).await.is_ok() {
            break;
        }
        assert!(began.elapsed() < crate::support::PATIENCE, "no hint in {n} changes");
    }
    // And again, after the connections that listen were cut.
    let cut = "select pg_terminate_backend(pid) from pg_stat_activity
               where datname = current_database() and pid <> pg_backend_pid()
                 and (query ilike '%pg_notify%' or query ilike '%listen%')";
    admin(&url).await.simple_query(cut).await.unwrap();
    let woken = hint.armed();
    tokio::time::timeout(crate::support::PATIENCE, async {
        // Wakes everybody when there is a new connection.
        woken.await;
    })
    .await
    .unwrap();
    eventually("hints come again", || async {
        let woken = hint.armed();
        a.accept(&ann(), &more(task, &a2ad::domain::MessageId::generate().to_string()))
            .await
            .unwrap();
        tokio::time::timeout(Duration::from_millis(200), woken).await.ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_goes_on_when_its_caller_is_gone() {
    let url = fresh_url().await;
    let store = open(&url, None).await;
    let begun = new("c", true);
    let task = begun.target.task();
    store.accept(&ann(), &begun).await.unwrap();
    let mut holder = admin(&url).await;
    let lock = holder.transaction().await.unwrap();
    lock.batch_execute("select 1 from tasks for update").await.unwrap();
    let (waiting, scope, message) = (store.clone(), ann(), more(task, "m-2"));
    let write = tokio::spawn(async move { waiting.accept(&scope, &message).await });
    let watcher = admin(&url).await;
    eventually("the write waits for the row", || async {
        let sql = "select 1 from pg_stat_activity
                   where datname = current_database() and wait_event_type = 'Lock'";
        watcher.query_opt(sql, &[]).await.unwrap()
    })
    .await;
    write.abort();
    assert!(write.await.unwrap_err().is_cancelled());
    lock.commit().await.unwrap();
    eventually("the message is there all the same", || async {
        let record = store.task(&ann(), task, whole()).await.unwrap().unwrap();
        (record.task.history.len() == 2).then_some(())
    })
    .await;
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_over_its_time_is_canceled_in_the_database_and_the_pool_goes_on() {
    let url = fresh_url().await;
    let mut settings = Settings::new(&url);
    settings.pool_size = 1;
    settings.statement_timeout = Duration::from_millis(200);
    let store = Arc::new(Postgres::connect(settings).await.unwrap());
    let begun = new("c", true);
    let task = begun.target.task();
    store.accept(&ann(), &begun).await.unwrap();
    let mut holder = admin(&url).await;
    let lock = holder.transaction().await.unwrap();
    lock.batch_execute("select 1 from tasks for update").await.unwrap();
    let late = store.accept(&ann(), &more(task, "m-2")).await.unwrap_err();
    assert!(matches!(late, Error::Unavailable(_)), "{late:?}");
    let words = late.to_string();
    assert!(!words.contains("statement"), "no word of the database: {words}");
    let waiting = "select count(*) from pg_stat_activity
                   where datname = current_database() and wait_event_type = 'Lock'";
    let row = admin(&url).await.query_one(waiting, &[]).await.unwrap();
    assert_eq!(row.get::<_, i64>(0), 0, "nothing waits in the database");
    // The one connection of the pool serves at once.
    assert!(store.task(&ann(), task, whole()).await.unwrap().is_some());
    lock.commit().await.unwrap();
    store.accept(&ann(), &more(task, "m-2")).await.unwrap();
    let record = store.task(&ann(), task, whole()).await.unwrap().unwrap();
    assert_eq!(record.task.history.len(), 2, "the late one was not stored");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_statement_modes_give_the_same_answers() {
    let url = fresh_url().await;
    let with = |mode| {
        let mut settings = Settings::new(&url);
        settings.statement_mode = mode;
        Postgres::connect(settings)
    };
    let typed = with(StatementMode::Typed).await.unwrap();
    let cached = with(StatementMode::Cached).await.unwrap();
    for store in [&typed, &cached, &typed, &cached] {
        let begun = new("c", true);
        let task = begun.target.task();
        store.accept(&ann(), &begun).await.unwrap();
        store.accept(&ann(), &more(task, "m-2")).await.unwrap();
        store.request_cancel(&ann(), task, None).await.unwrap();
        let a = typed.task(&ann(), task, whole()).await.unwrap();
        let b = cached.task(&ann(), task, whole()).await.unwrap();
        assert_eq!(a, b);
        let query = everything();
        let a = typed.tasks_page(&ann(), &query).await.unwrap();
        let b = cached.tasks_page(&ann(), &query).await.unwrap();
        assert_eq!(a, b);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_not_there_is_refused_at_once_and_a_dead_server_after_a_while() {
    let url = fresh_url().await;
    let refused = Postgres::connect(Settings::new(format!("{url}_not"))).await.unwrap_err();
    assert!(matches!(refused, ConnectError::Refused(_)), "{refused:?}");
    let mut settings = Settings::new("postgres://postgres:hidden@127.0.0.1:1/x");
    settings.start_timeout = Duration::from_millis(300);
    let dead = Postgres::connect(settings).await.unwrap_err();
    assert!(matches!(dead, ConnectError::Unreachable { .. }), "{dead:?}");
    assert!(!format!("{dead:?}").contains("hidden"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_were_cut_are_replaced() {
    let url = fresh_url().await;
    let mut settings = Settings::new(&url);
    settings.pool_size = 2;
    let store = Postgres::connect(settings).await.unwrap();
    store.accept(&ann(), &new("c", true)).await.unwrap();
    let cut = "select pg_terminate_backend(pid) from pg_stat_activity
               where datname = current_database() and pid <> pg_backend_pid()";
    admin(&url).await.simple_query(cut).await.unwrap();
    eventually("the store answers", || async { store.ping().await.ok() }).await;
    store.accept(&ann(), &new("c", true)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_who_leaves_a_page_leaves_no_transaction_open() {
    let url = fresh_url().await;
    let mut settings = Settings::new(&url);
    settings.pool_size = 1;
    let store = Postgres::connect(settings).await.unwrap();
    store.accept(&ann(), &new("c", true)).await.unwrap();
    let mut holder = admin(&url).await;
    let lock = holder.transaction().await.unwrap();
    lock.batch_execute("lock table messages").await.unwrap();
    let (reading, query) = (store.clone(), PageQuery { history: 1, ..everything() });
    let read = tokio::spawn(async move { reading.tasks_page(&ann(), &query).await });
    let watcher = admin(&url).await;
    eventually("the page waits for its history", || async {
        let sql = "select 1 from pg_stat_activity
                   where datname = current_database() and wait_event_type = 'Lock'";
        watcher.query_opt(sql, &[]).await.unwrap()
    })
    .await;
    read.abort();
    lock.commit().await.unwrap();
    // The one connection of the pool is free again, and reads what is committed now.
    let later = new("c", true);
    store.accept(&ann(), &later).await.unwrap();
    assert!(store.task(&ann(), later.target.task(), whole()).await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_is_a_fixed_number_of_statements() {
    let store = open(&fresh_url().await, None).await;
    let mut sent = Vec::new();
    for tasks in [1, 20] {
        for _ in 0..tasks {
            store.accept(&ann(), &new("c", true)).await.unwrap();
        }
        for (history, artifacts) in [(0, false), (5, false), (5, true)] {
            let query = PageQuery { history, artifacts, limit: 100, ..everything() };
            let before = store.statements_sent();
            store.tasks_page(&ann(), &query).await.unwrap();
            sent.push(store.statements_sent() - before);
        }
    }
    assert_eq!(sent, [1, 2, 2, 1, 2, 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_are_prepared_on_direct_connections_alone() {
    let url = fresh_url().await;
    let connect = |url: String, mode| {
        let mut settings = Settings::new(url);
        settings.statement_mode = mode;
        Postgres::connect(settings)
    };
    let found = |store: &Postgres| store.statement_mode();
    let (auto, typed) = (StatementMode::Auto, StatementMode::Typed);
    assert_eq!(found(&connect(url.clone(), auto).await.unwrap()), StatementMode::Cached);
    // Parameters that the URL itself gives to the session stay.
    let with_options = format!("{url}?options=-c%20geqo%3Doff");
    assert_eq!(found(&connect(with_options, auto).await.unwrap()), StatementMode::Cached);
    assert_eq!(found(&connect(url.clone(), typed).await.unwrap()), typed);
    for ignores in [false, true] {
        let through = pgbouncer::through_one_that(ignores, &url).await;
        let mut settings = Settings::new(through);
        settings.direct_url = Some(url.clone().into());
        let store = Postgres::connect(settings).await.unwrap();
        assert_eq!(found(&store), typed, "it ignores start parameters: {ignores}");
        store.ping().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_is_claimed_from_its_mark_on_and_what_lies_behind_comes_when_it_is_gone() {
    let url = fresh_url().await;
    // The mark counts by the database's own clock alone.
    let store = open(&url, None).await;
    let mut tasks = Vec::new();
    for _ in 0..5 {
        let begun = new("c", true);
        store.accept(&ann(), &begun).await.unwrap();
        tasks.push(begun.target.task());
    }
    let claim = async |limit| {
        let before = store.statements_sent();
        let turns = store.claim_turns_of_all(limit, crate::store::LEASE).await.unwrap();
        let tasks: Vec<_> = turns.iter().map(|turn| turn.task).collect();
        (tasks, store.statements_sent() - before)
    };
    assert_eq!(claim(2).await, (tasks[..2].to_vec(), 1), "as many as asked for: a backlog");
    // Where dead entries of the index would be, far behind the mark.
    let behind = "update turns set due_at = due_at - 3600000000 where task_id = $1";
    assert_eq!(admin(&url).await.execute(behind, &[&tasks[4].uuid()]).await.unwrap(), 1);
    assert_eq!(claim(2).await, (tasks[2..4].to_vec(), 1), "the search begins at the mark");
    assert_eq!(claim(2).await, (tasks[4..].to_vec(), 2), "and then from the very beginning");
    assert_eq!(claim(2).await, (Vec::new(), 1), "without a backlog there is no mark");
}
