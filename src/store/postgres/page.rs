//! Reading a page of a listing.

use std::collections::HashMap;

use deadpool_postgres::Object;
use futures_util::future::try_join3;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::contract::v1;
use crate::domain::page::Cursor;
use crate::domain::{Error, Scope, TaskId};
use crate::store::change::join_artifact;
use crate::store::codec::{self, Head};
use crate::store::listing::{Shape, truncate};
use crate::store::postgres::db::{Db, Param, ScopeKey};
use crate::store::postgres::rows::small;
use crate::store::types::{Page, PageQuery};

/// The page and its total are one statement, and so one snapshot. A generic plan that took the
/// average owner for this one would rather sort; these settings forbid it for the transaction.
const LEAN: &str =
    "begin read only; set local enable_sort = off; set local enable_bitmapscan = off";
/// History and artifacts come by further statements, which must see the same commit.
const RICH: &str = "begin isolation level repeatable read read only; \
     set local enable_sort = off; set local enable_bitmapscan = off";

pub(super) async fn page(db: &Db, scope: &Scope, query: &PageQuery) -> Result<Page, Error> {
    let client = db.client().await?;
    let Some(key) = db.find(&client, scope).await? else {
        return Ok(Page { total: query.total.then_some(0), ..Page::default() });
    };
    let is_rich = query.history > 0 || query.artifacts;
    let read = if is_rich {
        rich(db, &client, key, query).await
    } else {
        lean(db, &client, key, query).await
    };
    if read.is_err() {
        db.rollback(client).await;
    }
    read
}

/// One round trip.
async fn lean(db: &Db, client: &Object, key: ScopeKey, query: &PageQuery) -> Result<Page, Error> {
    let asked = Asked::new(key, query);
    let (sql, params) = asked.statement();
    db.prime(client, &sql, &params).await?;
    let ((), rows, ()) = try_join3(
        db.batch(client, LEAN),
        db.rows(client, &sql, &params),
        db.batch(client, "commit"),
    )
    .await?;
    let (heads, more, total) = heads(&rows, query);
    let next = heads.last().map(place).filter(|_| more);
    let tasks = heads.into_iter().map(Head::task).collect::<Result<_, _>>()?;
    Ok(Page { tasks, next, total })
}

async fn rich(db: &Db, client: &Object, key: ScopeKey, query: &PageQuery) -> Result<Page, Error> {
    let asked = Asked::new(key, query);
    let (sql, params) = asked.statement();
    db.batch(client, RICH).await?;
    let rows = db.rows(client, &sql, &params).await?;
    let (mut heads, mut more, total) = heads(&rows, query);
    let ids: Vec<Uuid> = heads.iter().map(|head| head.id).collect();
    let kept = fitting(db, client, key, query, &ids).await?;
    more |= kept < heads.len();
    heads.truncate(kept);
    let next = heads.last().map(place).filter(|_| more);
    let ids = ids.get(..kept).unwrap_or(&ids);
    let mut histories = histories(db, client, key, query.history, ids).await?;
    let mut artifacts = artifacts(db, client, key, query.artifacts, ids).await?;
    db.batch(client, "commit").await?;
    let mut tasks = Vec::with_capacity(kept);
    for head in heads {
        let id = head.id;
        let mut task = head.task()?;
        for body in histories.remove(&id).unwrap_or_default().iter().rev() {
            task.history.push(codec::message(body, &task.id, &task.context_id)?);
        }
        task.artifacts = artifacts.remove(&id).unwrap_or_default();
        tasks.push(task);
    }
    Ok(Page { tasks, next, total })
}

/// The parameters of a page's statement, kept alive beside it.
struct Asked<'a> {
    key: ScopeKey,
    query: &'a PageQuery,
    context: Option<&'a str>,
    state: Option<i16>,
    cursor: Option<(i64, Uuid)>,
    limit: i64,
}

impl<'a> Asked<'a> {
    fn new(key: ScopeKey, query: &'a PageQuery) -> Self {
        Self {
            key,
            query,
            context: query.context.as_ref().map(|context| context.as_str()),
            state: query.state.map(small),
            cursor: query.after.map(|cursor| (cursor.status_at_us, cursor.task.uuid())),
            limit: i64::from(query.limit) + 1,
        }
    }

    fn statement(&self) -> (String, Vec<Param<'_>>) {
        let shape = Shape::of(self.query);
        let mut params: Vec<Param<'_>> =
            vec![(&self.key.tenant, Type::INT4), (&self.key.owner, Type::INT4)];
        if let Some(context) = &self.context {
            params.push((context, Type::TEXT));
        }
        if let Some(state) = &self.state {
            params.push((state, Type::INT2));
        }
        if let Some(since) = &self.query.since_us {
            params.push((since, Type::INT8));
        }
        if let Some((status_at, id)) = &self.cursor {
            params.push((status_at, Type::INT8));
            params.push((id, Type::UUID));
        }
        params.push((&self.limit, Type::INT8));
        let page = shape.page_sql('$');
        if !self.query.total {
            return (page, params);
        }
        let total = if shape.counted() { shape.counts_sql('$') } else { shape.count_sql('$') };
        (format!("select p.*, ({total})::bigint from ({page}) p"), params)
    }
}

fn heads(rows: &[Row], query: &PageQuery) -> (Vec<Head>, bool, Option<i64>) {
    // No row on page one means that nothing matches, so the total is 0 as well.
    let total = query.total.then(|| rows.first().map_or(0, |row| row.get(6)));
    let mut heads: Vec<Head> = rows
        .iter()
        .map(|row| Head {
            id: row.get(0),
            context_id: row.get(1),
            state: i64::from(row.get::<_, i16>(2)),
            status_at: row.get(3),
            status_message: row.get(4),
            metadata: row.get(5),
        })
        .collect();
    let more = truncate(&mut heads, query.limit);
    (heads, more, total)
}

fn place(head: &Head) -> Cursor {
    Cursor { status_at_us: head.status_at, task: TaskId::from(head.id) }
}

/// How many tasks may be read before their history and artifacts pass the limit; at least one.
async fn fitting(
    db: &Db,
    client: &Object,
    key: ScopeKey,
    query: &PageQuery,
    ids: &[Uuid],
) -> Result<usize, Error> {
    let sql = "
      select (case when $4 then coalesce((select sum(octet_length(parts)) from artifact_chunks c
            where c.tenant = $1 and c.task_id = t.id), 0) else 0 end
        + coalesce((select sum(octet_length(body)) from (
            select body from messages m where m.tenant = $1 and m.task_id = t.id
            order by seq desc limit $3) newest), 0))::bigint
      from unnest($2::uuid[]) with ordinality t (id, place) order by place";
    let history = i64::from(query.history);
    let params: [Param<'_>; 4] = [
        (&key.tenant, Type::INT4),
        (&ids, Type::UUID_ARRAY),
        (&history, Type::INT8),
        (&query.artifacts, Type::BOOL),
    ];
    let mut bytes = 0;
    let max = i64::try_from(query.bytes_max).unwrap_or(i64::MAX);
    for (at, row) in db.rows(client, sql, &params).await?.iter().enumerate() {
        bytes += row.get::<_, i64>(0);
        if bytes >= max {
            return Ok(at + 1);
        }
    }
    Ok(ids.len())
}

/// The newest messages of each task, newest first.
async fn histories(
    db: &Db,
    client: &Object,
    key: ScopeKey,
    history: u32,
    ids: &[Uuid],
) -> Result<HashMap<Uuid, Vec<Vec<u8>>>, Error> {
    let mut found: HashMap<Uuid, Vec<Vec<u8>>> = HashMap::new();
    if history == 0 {
        return Ok(found);
    }
    let sql = "
      select t.id, newest.body from unnest($2::uuid[]) t (id), lateral (
        select seq, body from messages m where m.tenant = $1 and m.task_id = t.id
        order by seq desc limit $3) newest
      order by t.id, newest.seq desc";
    let limit = i64::from(history);
    let params: [Param<'_>; 3] =
        [(&key.tenant, Type::INT4), (&ids, Type::UUID_ARRAY), (&limit, Type::INT8)];
    for row in db.rows(client, sql, &params).await? {
        found.entry(row.get(0)).or_default().push(row.get(1));
    }
    Ok(found)
}

async fn artifacts(
    db: &Db,
    client: &Object,
    key: ScopeKey,
    wanted: bool,
    ids: &[Uuid],
) -> Result<HashMap<Uuid, Vec<v1::Artifact>>, Error> {
    let mut found: HashMap<Uuid, Vec<v1::Artifact>> = HashMap::new();
    if !wanted {
        return Ok(found);
    }
    let sql = "
      select a.task_id, a.head, coalesce((
          select string_agg(parts, '' order by seq) from artifact_chunks c
          where c.tenant = a.tenant and c.task_id = a.task_id
            and c.artifact_id = a.artifact_id and c.seq >= a.since), '')
      from artifacts a where a.tenant = $1 and a.task_id = any($2)
      order by a.task_id, a.ordinal";
    let params: [Param<'_>; 2] = [(&key.tenant, Type::INT4), (&ids, Type::UUID_ARRAY)];
    for row in db.rows(client, sql, &params).await? {
        let artifact = join_artifact(row.get(1), row.get(2))?;
        found.entry(row.get(0)).or_default().push(artifact);
    }
    Ok(found)
}
