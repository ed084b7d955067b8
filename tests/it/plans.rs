//! What a listing costs the database, on skewed data: the plans of the very statements that the
//! store sends, as PostgreSQL itself writes them down.
//!
//! One owner has 200,000 of 300,000 tasks, and one context of hers 20,000. Plans are generic, as
//! they are for prepared statements after a while: the case in which a planner that thinks of an
//! average owner goes wrong.

use std::collections::BTreeMap;

use a2ad::contract::v1::TaskState;
use a2ad::domain::page::Cursor;
use a2ad::domain::{Scope, TaskId};
use a2ad::store::postgres::{Postgres, Settings, StatementMode};
use a2ad::store::{PageQuery, Store as _};
use serde_json::Value;

use crate::store::{context, everything, scope};
use crate::support::cluster::{Cluster, Durability};
use crate::support::eventually;
use crate::support::postgres::admin;

const FILL: &str = "
insert into tenants (name) values ('t');
insert into owners (name) select 'owner-' || n from generate_series(1, 1000) n;
insert into tasks (tenant, id, owner, context_id, state, status_at, generation, next_seq, shown,
  head_turn, next_turn, created_at, updated_at, terminal_at)
select 1, ('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid,
  case when n <= 200000 then 1 else 2 + n % 999 end,
  case when n <= 200000 and n % 10 = 0 then 'big' else 'c-' || n / 8 end,
  case n % 50 when 0 then 2 when 1 then 4 when 2 then 6 else 3 end,
  1700000000000000 + (n::bigint * 7919 % 300000) * 1000, 2, 1, true, 2, 2, 0, 1, 1
from generate_series(1, 300000) n;
insert into task_counts (tenant, owner, state, n)
select tenant, owner, state, count(*) from tasks group by tenant, owner, state;
vacuum analyze tasks; analyze task_counts; analyze tenants; analyze owners;";

/// Each statement's plan goes into the server's log.
const EXPLAIN: &str = "
alter database plans set session_preload_libraries = 'auto_explain';
alter database plans set auto_explain.log_min_duration = 0;
alter database plans set auto_explain.log_analyze = on;
alter database plans set auto_explain.log_buffers = on;
alter database plans set auto_explain.log_timing = off;
alter database plans set auto_explain.log_format = json;
alter database plans set plan_cache_mode = force_generic_plan;";

struct Lab {
    cluster: Cluster,
    store: Postgres,
    owner: Scope,
}

/// A statement's plan.
#[derive(Debug)]
struct Seen {
    query: String,
    nodes: Vec<(String, String)>,
    buffers: i64,
    rows: i64,
    /// Whether code was compiled for it.
    compiled: bool,
}

impl Lab {
    async fn open(mode: StatementMode) -> Self {
        let cluster = Cluster::start(Durability::None).await;
        admin(&cluster.url()).await.batch_execute("create database plans").await.unwrap();
        let mut settings = Settings::new(cluster.url_of("plans"));
        settings.statement_mode = mode;
        settings.pool_size = 1;
        Postgres::migrate(&settings).await.unwrap();
        let filler = admin(&cluster.url_of("plans")).await;
        for statement in FILL.split_inclusive(';') {
            filler.batch_execute(statement).await.unwrap();
        }
        filler.batch_execute(EXPLAIN).await.unwrap();
        let store = Postgres::connect(settings).await.unwrap();
        Self { cluster, store, owner: scope("t", "owner-1") }
    }

    /// Reads a page and the plans that it took, those of bodies included.
    async fn page(&self, query: &PageQuery) -> (a2ad::store::Page, Vec<Seen>) {
        let mark = format!("mark-{}", a2ad::domain::LeaseToken::generate().uuid());
        let end = format!("end-{mark}");
        let say = admin(&self.cluster.url_of("plans")).await;
        say.batch_execute(&format!("do $$ begin raise log '{mark}'; end $$")).await.unwrap();
        let page = self.store.tasks_page(&self.owner, query).await.unwrap();
        say.batch_execute(&format!("do $$ begin raise log '{end}'; end $$")).await.unwrap();
        let log = eventually("the log is written", || async {
            let log = self.cluster.log();
            let from = log.find(&mark)?;
            let to = log.find(&end)?;
            log.get(from..to).map(str::to_owned)
        })
        .await;
        (page, plans(&log))
    }
}

/// The plans in a log, without those of other sessions' own statements.
fn plans(log: &str) -> Vec<Seen> {
    let mut seen = Vec::new();
    for part in log.split("plan:\n").skip(1) {
        let mut values = serde_json::Deserializer::from_str(part).into_iter::<Value>();
        let json = values.next().unwrap().unwrap();
        let query = json["Query Text"].as_str().unwrap().to_owned();
        let plan = &json["Plan"];
        if !query.contains("tasks_page") {
            continue;
        }
        let mut nodes = Vec::new();
        walk(plan, &mut nodes);
        let compiled = !json["JIT"].is_null();
        let n = |key: &str| plan[key].as_i64().unwrap_or(0);
        let buffers = n("Shared Hit Blocks") + n("Shared Read Blocks");
        seen.push(Seen { query, nodes, buffers, rows: n("Actual Rows"), compiled });
    }
    seen
}

fn walk(plan: &Value, nodes: &mut Vec<(String, String)>) {
    let text = |key: &str| plan[key].as_str().unwrap_or_default().to_owned();
    nodes.push((text("Node Type"), text("Index Name")));
    for inner in plan["Plans"].as_array().into_iter().flatten() {
        walk(inner, nodes);
    }
}

/// The place of the row at a depth of what a query lists.
async fn depth(lab: &Lab, query: &PageQuery, n: i64) -> Option<Cursor> {
    let mut filter = "tenant = 1 and owner = 1".to_owned();
    if let Some(context) = &query.context {
        filter += &format!(" and context_id = '{context}'");
    }
    if let Some(state) = query.state {
        filter += &format!(" and state = {}", state as i32);
    }
    let sql = format!(
        "select status_at, id from tasks where {filter} \
         order by status_at desc, id desc offset {n} limit 1"
    );
    let client = admin(&lab.cluster.url_of("plans")).await;
    let row = client.query_opt(&sql, &[]).await.unwrap()?;
    Some(Cursor { status_at_us: row.get(0), task: TaskId::from(row.get::<_, uuid::Uuid>(1)) })
}

async fn every_page_is_one_ordered_range_scan(mode: StatementMode) {
    let lab = Lab::open(mode).await;
    let mut report = BTreeMap::new();
    for (in_context, state, since, deep) in [
        (None, None, None, 150_000),
        (None, Some(TaskState::Completed), None, 140_000),
        (None, Some(TaskState::Failed), None, 2_000),
        (Some("big"), None, None, 15_000),
        (Some("big"), Some(TaskState::Completed), None, 12_000),
        (None, None, Some(1_700_000_000_000_000), 150_000),
        (None, Some(TaskState::Completed), Some(1_700_000_000_000_000), 140_000),
        (Some("big"), None, Some(1_700_000_000_000_000), 15_000),
        (Some("big"), Some(TaskState::Completed), Some(1_700_000_000_000_000), 12_000),
    ] {
        let query = PageQuery {
            context: in_context.map(context),
            state,
            since_us: since,
            total: false,
            ..everything()
        };
        for at in [0, deep] {
            let after = if at == 0 { None } else { depth(&lab, &query, at).await };
            assert_eq!(after.is_some(), at > 0, "there are rows so deep: {query:?}");
            let query = PageQuery { after, ..query.clone() };
            // The first run plans and warms; the second is what counts.
            lab.page(&query).await;
            let (page, seen) = lab.page(&query).await;
            assert_eq!(page.tasks.len(), 50, "{query:?}");
            let [plan] = seen.as_slice() else { panic!("one statement: {seen:?}") };
            let scans: Vec<_> = plan.nodes.iter().filter(|(_, index)| !index.is_empty()).collect();
            assert_eq!(scans.len(), 1, "one index scan: {plan:?}");
            assert_eq!(scans[0].0, "Index Scan", "{plan:?}");
            for (node, _) in &plan.nodes {
                let fits = matches!(node.as_str(), "Limit" | "Index Scan" | "Subquery Scan");
                assert!(fits, "{query:?}: {plan:?}");
            }
            assert_eq!(plan.rows, 51);
            assert!(plan.buffers <= 80, "{query:?}: {plan:?}");
            let name = format!("{in_context:?} {state:?} since={} at {at}", since.is_some());
            report.insert(name, (scans[0].1.clone(), plan.buffers));
        }
    }
    for (name, (index, buffers)) in report {
        println!("{name}: {index}, {buffers} buffers");
    }
    // A sort that cannot be avoided is priced so high that PostgreSQL would compile code for it.
    let full = PageQuery { history: 10, artifacts: true, ..everything() };
    let (_, seen) = lab.page(&full).await;
    assert_eq!(seen.len(), 2, "the page, then its bodies: {seen:?}");
    assert!(seen.iter().all(|plan| !plan.compiled), "{seen:?}");
    // The total of 200,000 tasks, once folded, is a few buffers more.
    let first = PageQuery { total: false, ..everything() };
    let (_, lean) = lab.page(&first).await;
    let counted = PageQuery { total: true, ..everything() };
    lab.page(&counted).await;
    let (page, with_total) = lab.page(&counted).await;
    assert_eq!(page.total, Some(200_000));
    assert_eq!(with_total.len(), 1, "page and total are one statement");
    let more = with_total[0].buffers - lean[0].buffers;
    assert!(more <= 20, "the total costs {more} buffers: {:?}", with_total[0].query);
    println!("the total of 200,000 tasks costs {more} buffers more than its page");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_a_large_owner_is_one_ordered_range_scan_with_typed_statements() {
    every_page_is_one_ordered_range_scan(StatementMode::Typed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_a_large_owner_is_one_ordered_range_scan_with_cached_statements() {
    every_page_is_one_ordered_range_scan(StatementMode::Cached).await;
}
