//! The ceiling: a gRPC server whose answers are ready before anybody asks.

use std::net::SocketAddr;

use a2ad::agent::text_part;
use a2ad::async_trait;
use a2ad::contract::v1;
use a2ad::contract::wkt::Timestamp;

use crate::partner::{self, Answers};
use crate::sends::message;

struct Canned {
    page: v1::ListTasksResponse,
    task: v1::Task,
}

/// A task as the measured owner's are, and as one page of them holds it.
fn task(n: usize) -> v1::Task {
    v1::Task {
        id: format!("01900000-0000-7000-8000-{n:012x}"),
        context_id: format!("context-{n}"),
        status: Some(v1::TaskStatus {
            state: v1::TaskState::Completed.into(),
            message: Some(v1::Message { role: v1::Role::Agent.into(), ..message(n) }),
            timestamp: Some(Timestamp::from_micros(1_750_000_000_000_000)),
        }),
        ..Default::default()
    }
}

pub(crate) async fn serve(address: SocketAddr) {
    let page = v1::ListTasksResponse {
        tasks: (0..50).map(task).collect(),
        next_page_token: "A".repeat(120),
        page_size: 50,
        total_size: 20_000,
    };
    let artifact = v1::Artifact {
        artifact_id: "answer".to_owned(),
        parts: vec![text_part("x".repeat(400))],
        ..Default::default()
    };
    let task = v1::Task { history: vec![message(1)], artifacts: vec![artifact], ..task(1) };
    partner::serve(address, Canned { page, task }).await;
}

#[async_trait]
impl Answers for Canned {
    async fn list(&self, _: v1::ListTasksRequest) -> v1::ListTasksResponse {
        self.page.clone()
    }

    async fn get(&self, _: v1::GetTaskRequest) -> v1::Task {
        self.task.clone()
    }

    async fn send(&self, _: v1::SendMessageRequest) -> v1::SendMessageResponse {
        let task = self.task.clone();
        v1::SendMessageResponse { payload: Some(v1::send_message_response::Payload::Task(task)) }
    }
}
