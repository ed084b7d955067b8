//! Reading a page of a listing.

use rusqlite::{Connection, ToSql};
use uuid::Uuid;

use crate::domain::Error;
use crate::domain::page::Cursor;
use crate::store::codec::Head;
use crate::store::listing::{Shape, truncate};
use crate::store::sqlite::scoped::scoped;
use crate::store::sqlite::{ScopeKey, read};
use crate::store::types::{Page, PageQuery};

pub(super) fn page(
    connection: &Connection,
    key: ScopeKey,
    query: &PageQuery,
) -> Result<Page, Error> {
    let shape = Shape::of(query);
    let state = query.state.map(|state| state as i32);
    let context = query.context.as_ref().map(|context| context.as_str().to_owned());
    let cursor = query.after.map(|cursor| (cursor.status_at_us, cursor.task.uuid()));
    let limit = i64::from(query.limit) + 1;
    let mut filters: Vec<&dyn ToSql> = vec![&key.tenant, &key.owner];
    if let Some(context) = &context {
        filters.push(context);
    }
    if let Some(state) = &state {
        filters.push(state);
    }
    if let Some(since) = &query.since_us {
        filters.push(since);
    }
    let total = match query.total {
        true if shape.counted() => {
            // The folded counts know neither contexts nor times, so there is just the state.
            let sql = shape.counts_sql('?');
            Some(
                connection
                    .prepare_cached(&scoped(connection, &sql))?
                    .query_row(&*filters, |row| row.get(0))?,
            )
        }
        true => {
            let sql = shape.count_sql('?');
            Some(
                connection
                    .prepare_cached(&scoped(connection, &sql))?
                    .query_row(&*filters, |row| row.get(0))?,
            )
        }
        false => None,
    };
    if let Some((status_at, id)) = &cursor {
        filters.push(status_at);
        filters.push(id);
    }
    filters.push(&limit);
    let mut find = connection.prepare_cached(&scoped(connection, &shape.page_sql('?')))?;
    let mut rows = find.query(&*filters)?;
    let mut heads = Vec::new();
    while let Some(row) = rows.next()? {
        heads.push(Head {
            id: row.get(0)?,
            context_id: row.get(1)?,
            state: row.get(2)?,
            status_at: row.get(3)?,
            status_message: row.get(4)?,
            metadata: row.get(5)?,
        });
    }
    let mut more = truncate(&mut heads, query.limit);
    let mut page = Page { total, ..Page::default() };
    let mut last = None;
    let mut bytes = 0;
    let count = heads.len();
    for (at, head) in heads.into_iter().enumerate() {
        last = Some(place(head.id, head.status_at));
        let mut task = head.task()?;
        bytes += read::fill(connection, key, &mut task, query.history, query.artifacts)?;
        page.tasks.push(task);
        if bytes >= query.bytes_max && at + 1 < count {
            more = true;
            break;
        }
    }
    page.next = last.filter(|_| more);
    Ok(page)
}

fn place(id: Uuid, status_at: i64) -> Cursor {
    Cursor { status_at_us: status_at, task: id.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::migrate::{self, Dialect};

    /// What SQLite says it would do, a line for each step.
    fn plan(connection: &Connection, sql: &str) -> Vec<String> {
        let mut explain = connection.prepare(&format!("explain query plan {sql}")).unwrap();
        let n = explain.parameter_count();
        let nothing = vec![0_i64; n];
        let steps = explain.query_map(rusqlite::params_from_iter(nothing), |row| row.get(3));
        steps.unwrap().collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn no_listing_sorts_and_each_takes_the_index_of_its_filters() {
        let connection = Connection::open_in_memory().unwrap();
        for migration in migrate::all(Dialect::Sqlite) {
            connection.execute_batch(migration.sql).unwrap();
        }
        for bits in 0..16 {
            let shape = Shape {
                context: bits & 1 > 0,
                state: bits & 2 > 0,
                since: bits & 4 > 0,
                cursor: bits & 8 > 0,
            };
            let index = match (shape.context, shape.state) {
                (false, false) => "tasks_by_owner",
                (false, true) => "tasks_by_state",
                (true, false) => "tasks_by_context",
                (true, true) => "tasks_by_context_and_state",
            };
            let steps = plan(&connection, &shape.page_sql('?'));
            assert_eq!(steps.len(), 1, "{shape:?}: {steps:?}");
            let uses = format!("SEARCH tasks USING INDEX {index} (");
            assert!(steps[0].starts_with(&uses), "{shape:?}: {steps:?}");
            for sql in [shape.count_sql('?'), shape.counts_sql('?')] {
                let is_counts = sql.contains("task_counts");
                if is_counts && !shape.counted() {
                    continue;
                }
                let steps = plan(&connection, &sql);
                assert!(!steps.iter().any(|step| step.contains("TEMP B-TREE")), "{steps:?}");
                assert!(!steps.iter().any(|step| step.starts_with("SCAN task")), "{steps:?}");
            }
        }
    }
}
