//! Reading a page of a listing: one statement, and one more where history or artifacts are asked
//! for, in the same snapshot.

use std::sync::LazyLock;

use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::domain::page::Cursor;
use crate::domain::{Error, Scope};
use crate::store::listing::{Shape, truncate};
use crate::store::postgres::Inner;
use crate::store::postgres::names::ScopeKey;
use crate::store::postgres::pool::Call;
use crate::store::postgres::read;
use crate::store::types::{Page, PageQuery};

/// The texts of all combinations, with and without a total, by [`number`].
static TEXTS: LazyLock<Vec<String>> =
    LazyLock::new(|| (0..32).map(|n| sql(shape(n), n & 16 != 0)).collect());

fn number(shape: Shape, total: bool) -> usize {
    let bits = [shape.context, shape.state, shape.since, shape.cursor, total];
    bits.iter().rev().fold(0, |n, bit| n * 2 + usize::from(*bit))
}

fn shape(n: usize) -> Shape {
    Shape { context: n & 1 != 0, state: n & 2 != 0, since: n & 4 != 0, cursor: n & 8 != 0 }
}

/// The total is a subquery without a tie to the rows, so it is computed once, in their snapshot.
/// Its row comes also when the page is empty.
fn sql(shape: Shape, total: bool) -> String {
    let page = shape.page_sql('$');
    if !total {
        return format!("-- tasks_page\n{page}");
    }
    let count = if shape.counted() { shape.counts_sql('$') } else { shape.count_sql('$') };
    format!(
        "-- tasks_page, with its total\n\
         select p.*, n.total from (select ({count})::bigint as total) n \
         left join ({page}) p on true"
    )
}

pub(super) fn statement(key: ScopeKey, query: &PageQuery) -> Call {
    let sql = TEXTS.get(number(Shape::of(query), query.total)).map_or("", String::as_str);
    let mut call = Call::new(sql).with(key.tenant).with(key.owner);
    if let Some(context) = &query.context {
        call = call.with(context.as_str().to_owned());
    }
    if let Some(state) = query.state {
        call = call.with(i16::try_from(state as i32).unwrap_or_default());
    }
    if let Some(since) = query.since_us {
        call = call.with(since);
    }
    if let Some(cursor) = &query.after {
        call = call.with(cursor.status_at_us).with(cursor.task.uuid());
    }
    call.with(i64::from(query.limit) + 1)
}

/// The text and the parameter types of the statement that reads `query`'s page, for tests of its
/// plan.
#[must_use]
pub fn page_statement(query: &PageQuery) -> (&'static str, Vec<Type>) {
    let call = statement(ScopeKey { tenant: 0, owner: 0 }, query);
    (call.sql(), call.types().to_vec())
}

/// Reads the sizes of all first, and the bodies of those alone that fit: `before` is what the
/// tasks above have.
const BODIES: &str = "-- tasks_page: history and artifacts
with p as materialized (
  select x.id, x.n from unnest($2) with ordinality x (id, n)
), z as materialized (
  select p.id, p.n,
    (select coalesce(sum(octet_length(x.body)), 0) from (
      select m.body from messages m where m.tenant = $1 and m.task_id = p.id
      order by m.seq desc limit $3
    ) x)
    + case when $4 then (
      select coalesce(sum(octet_length(a.head) + coalesce((
        select sum(octet_length(c.parts)) from artifact_chunks c
        where c.tenant = a.tenant and c.task_id = a.task_id and c.artifact_id = a.artifact_id
          and c.seq >= a.since
      ), 0)), 0)
      from artifacts a where a.tenant = $1 and a.task_id = p.id
    ) else 0 end as bytes
  from p
), b as materialized (
  select id, n, coalesce(sum(bytes) over (
    order by n rows between unbounded preceding and 1 preceding), 0) as before
  from z
)
select b.id,
  array(
    select m.body from messages m where m.tenant = $1 and m.task_id = b.id
    order by m.seq desc limit $3
  ) as history,
  case when $4 then array(
    select a.head || coalesce((
      select string_agg(c.parts, ''::bytea order by c.seq) from artifact_chunks c
      where c.tenant = a.tenant and c.task_id = a.task_id and c.artifact_id = a.artifact_id
        and c.seq >= a.since
    ), ''::bytea)
    from artifacts a where a.tenant = $1 and a.task_id = b.id order by a.ordinal
  ) end as artifacts
from b where b.n = 1 or b.before < $5
order by b.n";

/// The rows of the page itself: without the one that says that there are more, and without the
/// row of a total that stands alone.
fn listed(rows: &[Row], query: &PageQuery) -> usize {
    let limit = usize::try_from(query.limit).unwrap_or(usize::MAX);
    let empty = rows.first().is_none_or(|row| row.get::<_, Option<Uuid>>("id").is_none());
    if empty { 0 } else { rows.len().min(limit) }
}

fn bodies(key: ScopeKey, query: &PageQuery, rows: &[Row]) -> Option<Call> {
    let ids: Vec<Uuid> = rows.iter().take(listed(rows, query)).map(|row| row.get("id")).collect();
    (!ids.is_empty()).then(|| {
        Call::new(BODIES)
            .with(key.tenant)
            .with(ids)
            .with(i64::from(query.history))
            .with(query.artifacts)
            .with(i64::try_from(query.bytes_max).unwrap_or(i64::MAX))
    })
}

pub(super) async fn page(inner: &Inner, scope: &Scope, query: &PageQuery) -> Result<Page, Error> {
    let Some(key) = inner.names.find(&inner.db, scope).await? else {
        return Ok(Page { total: query.total.then_some(0), ..Page::default() });
    };
    let call = statement(key, query);
    let wants_more = query.history > 0 || query.artifacts;
    let follow = |rows: &[Row]| bodies(key, query, rows);
    let (mut rows, filled) = inner.db.run_page(&call, follow, wants_more).await?;
    let total = match query.total {
        true => rows.first().map(|row| row.get("total")),
        false => None,
    };
    if listed(&rows, query) == 0 {
        return Ok(Page { total, ..Page::default() });
    }
    let mut more = truncate(&mut rows, query.limit);
    if wants_more {
        more |= filled.len() < rows.len();
        rows.truncate(filled.len());
    }
    let mut page = Page { total, ..Page::default() };
    for (at, row) in rows.iter().enumerate() {
        let head = read::head(row);
        page.next = Some(Cursor { status_at_us: head.status_at, task: head.id.into() });
        let mut task = head.task()?;
        if let Some(filled) = filled.get(at) {
            read::fill(&mut task, filled)?;
        }
        page.tasks.push(task);
    }
    page.next = page.next.filter(|_| more);
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_has_its_own_text() {
        let mut seen = std::collections::BTreeSet::new();
        for n in 0..32 {
            assert_eq!(number(shape(n), n & 16 != 0), n);
            assert!(seen.insert(TEXTS.get(n).unwrap()), "{n}");
        }
    }
}
