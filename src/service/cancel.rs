//! CancelTask.

use tokio::time::Instant;

use crate::contract::v1;
use crate::domain::payload::Checker;
use crate::domain::{Error, TaskId};
use crate::service::{Call, Inner};
use crate::store::CancelRequested;

impl Inner {
    pub(super) async fn cancel_task(
        &self,
        call: &Call,
        request: v1::CancelTaskRequest,
    ) -> Result<v1::Task, Error> {
        let mut checker = Checker::new(self.settings.limits.nesting);
        checker.metadata("metadata", request.metadata.as_ref());
        if request.id.is_empty() {
            checker.refuse("id", "must be set");
        }
        checker.finish().map_err(Error::Invalid)?;
        let scope = Self::scope_of_task(call, &request.tenant)?;
        let task = TaskId::parse(&request.id).ok_or(Error::TaskNotFound)?;
        let metadata = request.metadata.as_ref();
        match self.store.request_cancel(&scope, task, metadata).await? {
            CancelRequested::NotFound => Err(Error::TaskNotFound),
            CancelRequested::Ended(state) => Err(Error::TaskNotCancelable { state }),
            CancelRequested::Canceled | CancelRequested::Requested => {
                let until = Instant::now() + self.settings.grace;
                let ended = match self.ended(&scope, task, Some(until)).await? {
                    Some(record) => Some(record),
                    None => {
                        self.store.finish_cancel(&scope, task).await?;
                        self.ended(&scope, task, None).await?
                    }
                };
                let record = ended.ok_or_else(|| Error::internal("a cancel has no end"))?;
                self.fitting(record.task)
            }
        }
    }
}
