//! GetTask and ListTasks.

use prost::Message as _;

use crate::contract::v1;
use crate::domain::page::{Cursor, Filters, PageSize, Place, TokenError};
use crate::domain::payload::Checker;
use crate::domain::{Error, Scope, TaskId};
use crate::service::room::{self, Asked};
use crate::service::validate;
use crate::service::{Call, Inner};
use crate::store::{PageQuery, View};

impl Inner {
    pub(super) async fn get_task(
        &self,
        call: &Call,
        request: v1::GetTaskRequest,
    ) -> Result<v1::Task, Error> {
        let mut checker = Checker::new(self.settings.limits.nesting);
        if request.id.is_empty() {
            checker.refuse("id", "must be set");
        }
        let history = validate::history(
            &mut checker,
            "history_length",
            request.history_length,
            self.settings.history_default,
        );
        checker.finish().map_err(Error::Invalid)?;
        let scope = Self::scope_of_task(call, &request.tenant)?;
        let task = TaskId::parse(&request.id).ok_or(Error::TaskNotFound)?;
        let view = View { history, artifacts: true, hidden: false };
        let asked = Asked::new(&scope, &request);
        let load = || async {
            let record = self.store.task(&scope, task, view).await?.ok_or(Error::TaskNotFound)?;
            self.fitting(record.task)
        };
        room::loaded(call.room.as_ref(), asked, load).await
    }

    /// A task that is small enough to be sent: the oldest history is left out first, artifacts
    /// never are.
    pub(super) fn fitting(&self, mut task: v1::Task) -> Result<v1::Task, Error> {
        let max = self.settings.limits.task_bytes;
        let mut bytes = task.encoded_len();
        while bytes > max && !task.history.is_empty() {
            task.history.drain(..task.history.len().div_ceil(2));
            bytes = task.encoded_len();
        }
        if bytes <= max {
            return Ok(task);
        }
        let id = &task.id;
        Err(Error::Unsupported(format!(
            "the task {id} has {bytes} bytes, more than the {max} that an answer may have"
        )))
    }

    pub(super) async fn list_tasks(
        &self,
        call: &Call,
        request: v1::ListTasksRequest,
    ) -> Result<v1::ListTasksResponse, Error> {
        let (filters, size) = validate::list(&request, &self.settings)?;
        let scope = Self::scope(call, &request.tenant)?;
        let now = self.clock.now_us();
        let place = if request.page_token.is_empty() {
            None
        } else {
            let read = self.page_tokens.read(&scope, &filters, &request.page_token, now);
            if let Err(refused) = &read {
                tracing::debug!(reason = ?refused, "a page token was refused");
                let expired = matches!(refused, TokenError::Expired);
                let kind = if expired { "expired" } else { "invalid" };
                let labels = [("caller", call.caller.kind()), ("kind", kind)];
                self.metrics.token_errors.one(labels);
            }
            Some(read?)
        };
        let query = PageQuery {
            context: filters.context.clone(),
            state: filters.state,
            since_us: filters.since_us,
            after: place.map(|place| place.cursor),
            limit: size.get(),
            history: filters.history,
            artifacts: filters.artifacts,
            total: place.is_none(),
            bytes_max: self.settings.limits.page_bytes,
        };
        let asked = Asked::new(&scope, &request);
        let load = || self.page(&scope, &filters, &query, (size, place, now));
        let page = room::loaded(call.room.as_ref(), asked, load).await?;
        self.count(call, &query, &page);
        Ok(page)
    }

    /// Counts a page (P-068). A walk is a whole listing, or catches up with what moved since a time.
    fn count(&self, call: &Call, query: &PageQuery, page: &v1::ListTasksResponse) {
        let kind = if query.since_us.is_some() { "catch_up" } else { "whole" };
        let labels = [("caller", call.caller.kind()), ("kind", kind)];
        if query.after.is_none() {
            self.metrics.walks_begun.one(labels);
        }
        if page.next_page_token.is_empty() {
            self.metrics.walks_finished.one(labels);
        }
        self.metrics.pages.one(labels);
        let rows = u64::try_from(page.tasks.len()).unwrap_or(u64::MAX);
        self.metrics.rows.add(labels, rows);
    }

    async fn page(
        &self,
        scope: &Scope,
        filters: &Filters,
        query: &PageQuery,
        (size, place, now): (PageSize, Option<Place>, i64),
    ) -> Result<v1::ListTasksResponse, Error> {
        let page = self.store.tasks_page(scope, query).await?;
        let total = match (place, page.total) {
            (Some(place), _) => place.total,
            (None, Some(total)) => total,
            (None, None) => return Err(Error::internal("the store counted no total")),
        };
        let (tasks, next) = fit(page.tasks, page.next, self.settings.limits.page_bytes)?;
        let next_page_token = next.map_or_else(String::new, |cursor| {
            self.page_tokens.issue(scope, filters, &Place { cursor, total }, now)
        });
        Ok(v1::ListTasksResponse {
            tasks,
            next_page_token,
            page_size: i32::try_from(size.get()).unwrap_or(i32::MAX),
            total_size: i32::try_from(total).unwrap_or(i32::MAX),
        })
    }
}

/// The bytes around each task in a page.
const FRAME: usize = 8;

/// Cuts a page until it fits: the history first, from the oldest message on and the longest
/// history first, then tasks from the end. One task that is alone too large is an error.
fn fit(
    mut tasks: Vec<v1::Task>,
    mut next: Option<Cursor>,
    max: usize,
) -> Result<(Vec<v1::Task>, Option<Cursor>), Error> {
    let mut sizes: Vec<usize> = tasks.iter().map(|task| task.encoded_len() + FRAME).collect();
    let mut total: usize = sizes.iter().sum();
    while total > max {
        let longest = tasks
            .iter_mut()
            .zip(&mut sizes)
            .filter(|(task, _)| !task.history.is_empty())
            .max_by_key(|(task, _)| task.history.len());
        let Some((task, size)) = longest else { break };
        let half = task.history.len().div_ceil(2);
        task.history.drain(..half);
        let now = task.encoded_len() + FRAME;
        total -= *size - now;
        *size = now;
    }
    while total > max && tasks.len() > 1 {
        total -= sizes.pop().unwrap_or_default();
        tasks.pop();
        next = tasks.last().and_then(place);
    }
    if total > max {
        let id = tasks.first().map_or("", |task| task.id.as_str());
        return Err(Error::Unsupported(format!(
            "the artifacts of task {id} do not fit into a page; list without include_artifacts"
        )));
    }
    Ok((tasks, next))
}

fn place(task: &v1::Task) -> Option<Cursor> {
    let status_at_us = task.status.as_ref()?.timestamp.as_ref()?.to_micros()?;
    Some(Cursor { status_at_us, task: TaskId::parse(&task.id)? })
}
