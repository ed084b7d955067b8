//! CancelTask.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use prost::Message as _;
use tokio::time::Instant;

use crate::contract::v1;
use crate::contract::wkt::Struct;
use crate::domain::payload::Checker;
use crate::domain::{Error, Scope, TaskId};
use crate::service::room::{self, Asked};
use crate::service::{Call, Inner};
use crate::store::CancelRequested;

/// Cancels under way in this process, so that those of one task share their result (AMB-06).
#[derive(Debug, Default)]
pub(super) struct Cancels {
    under_way: Mutex<HashMap<(Scope, TaskId), Weak<Shared>>>,
}

/// What the cancels of one task have in common while at least one of them goes on.
#[derive(Debug, Default)]
struct Shared {
    /// One of them found the task alive: its end is the result of all.
    took_effect: AtomicBool,
}

impl Cancels {
    fn join(&self, scope: &Scope, task: TaskId) -> Arc<Shared> {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (scope.clone(), task);
        if let Some(shared) = under_way.get(&key).and_then(Weak::upgrade) {
            return shared;
        }
        // As for hints: what is over goes when the map has doubled.
        if under_way.len() == under_way.capacity() {
            under_way.retain(|_, shared| shared.strong_count() > 0);
        }
        let shared = Arc::new(Shared::default());
        under_way.insert(key, Arc::downgrade(&shared));
        shared
    }
}

impl Inner {
    pub(super) async fn cancel_task(
        self: &Arc<Self>,
        call: &Call,
        request: v1::CancelTaskRequest,
    ) -> Result<v1::Task, Error> {
        let limits = &self.settings.limits;
        let mut checker = Checker::new(limits.nesting);
        checker.metadata("metadata", request.metadata.as_ref());
        let bytes = request.metadata.as_ref().map_or(0, Struct::encoded_len);
        checker.size("metadata", bytes, limits.status_bytes, "send large content in a message");
        if request.id.is_empty() {
            checker.refuse("id", "must be set");
        }
        checker.finish().map_err(Error::Invalid)?;
        let scope = Self::scope_of_task(call, &request.tenant)?;
        let task = TaskId::parse(&request.id).ok_or(Error::TaskNotFound)?;
        if self.drain.is_cancelled() {
            return Err(Error::ShuttingDown);
        }
        let shared = self.cancels.join(&scope, task);
        let until = Instant::now() + self.settings.grace;
        match self.request_cancel(&scope, task, request.metadata).await? {
            CancelRequested::NotFound => return Err(Error::TaskNotFound),
            CancelRequested::Ended(v1::TaskState::Canceled) if self.settings.cancel_again => {}
            CancelRequested::Ended(state) if !shared.took_effect.load(Ordering::Acquire) => {
                return Err(Error::TaskNotCancelable { state });
            }
            CancelRequested::Ended(_) => {}
            CancelRequested::Canceled | CancelRequested::Requested => {
                shared.took_effect.store(true, Ordering::Release);
            }
        }
        let ended = match self.ended(&scope, task, Some(until)).await? {
            Some(record) => Some(record),
            None => {
                self.store.finish_cancel(&scope, task).await?;
                self.ended(&scope, task, None).await?
            }
        };
        let record = ended.ok_or_else(|| Error::internal("a cancel has no end"))?;
        let asked = Asked::of_task(&scope, &record.task.id);
        let answer = self.fitting(record.task)?;
        let again = || async {
            let history = self.settings.history_default;
            let record = self.whole(&scope, task, history).await?.ok_or(Error::TaskNotFound)?;
            self.fitting(record.task)
        };
        room::kept(call.room.as_ref(), asked, answer, again).await
    }

    /// Stores the wish, also if the caller leaves meanwhile.
    async fn request_cancel(
        &self,
        scope: &Scope,
        task: TaskId,
        metadata: Option<Struct>,
    ) -> Result<CancelRequested, Error> {
        let (store, scope) = (Arc::clone(&self.store), scope.clone());
        self.to_its_end(async move { store.request_cancel(&scope, task, metadata.as_ref()).await })
            .await
    }
}
