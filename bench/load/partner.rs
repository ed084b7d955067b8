//! What the partners of a measurement have in common: a tonic server with three calls.

use std::net::SocketAddr;
use std::pin::Pin;

use a2ad::async_trait;
use a2ad::contract::v1;
use a2ad::contract::v1::a2a_service_server::{A2aService, A2aServiceServer};
use a2ad::contract::wkt::Empty;
use tokio::sync::oneshot;
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

/// The three calls that are measured.
#[async_trait]
pub(crate) trait Answers: Send + Sync + 'static {
    async fn list(&self, request: v1::ListTasksRequest) -> v1::ListTasksResponse;
    async fn get(&self, request: v1::GetTaskRequest) -> v1::Task;
    async fn send(&self, request: v1::SendMessageRequest) -> v1::SendMessageResponse;
}

struct Partner<A>(A);
type Stream1<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

fn other<T>() -> Result<Response<T>, Status> {
    Err(Status::unimplemented("this is measured nowhere"))
}

#[async_trait]
impl<A: Answers> A2aService for Partner<A> {
    type SendStreamingMessageStream = Stream1<v1::StreamResponse>;
    type SubscribeToTaskStream = Stream1<v1::StreamResponse>;

    async fn list_tasks(
        &self,
        request: Request<v1::ListTasksRequest>,
    ) -> Result<Response<v1::ListTasksResponse>, Status> {
        Ok(Response::new(self.0.list(request.into_inner()).await))
    }

    async fn get_task(
        &self,
        request: Request<v1::GetTaskRequest>,
    ) -> Result<Response<v1::Task>, Status> {
        Ok(Response::new(self.0.get(request.into_inner()).await))
    }

    async fn send_message(
        &self,
        request: Request<v1::SendMessageRequest>,
    ) -> Result<Response<v1::SendMessageResponse>, Status> {
        Ok(Response::new(self.0.send(request.into_inner()).await))
    }

    async fn send_streaming_message(
        &self,
        _: Request<v1::SendMessageRequest>,
    ) -> Result<Response<Self::SendStreamingMessageStream>, Status> {
        other()
    }

    async fn cancel_task(
        &self,
        _: Request<v1::CancelTaskRequest>,
    ) -> Result<Response<v1::Task>, Status> {
        other()
    }

    async fn subscribe_to_task(
        &self,
        _: Request<v1::SubscribeToTaskRequest>,
    ) -> Result<Response<Self::SubscribeToTaskStream>, Status> {
        other()
    }

    async fn create_task_push_notification_config(
        &self,
        _: Request<v1::TaskPushNotificationConfig>,
    ) -> Result<Response<v1::TaskPushNotificationConfig>, Status> {
        other()
    }

    async fn get_task_push_notification_config(
        &self,
        _: Request<v1::GetTaskPushNotificationConfigRequest>,
    ) -> Result<Response<v1::TaskPushNotificationConfig>, Status> {
        other()
    }

    async fn list_task_push_notification_configs(
        &self,
        _: Request<v1::ListTaskPushNotificationConfigsRequest>,
    ) -> Result<Response<v1::ListTaskPushNotificationConfigsResponse>, Status> {
        other()
    }

    async fn get_extended_agent_card(
        &self,
        _: Request<v1::GetExtendedAgentCardRequest>,
    ) -> Result<Response<v1::AgentCard>, Status> {
        other()
    }

    async fn delete_task_push_notification_config(
        &self,
        _: Request<v1::DeleteTaskPushNotificationConfigRequest>,
    ) -> Result<Response<Empty>, Status> {
        other()
    }
}

/// Serves until the process that started this one is gone: then standard input ends.
pub(crate) async fn serve(address: SocketAddr, answers: impl Answers) {
    let (gone, parent) = oneshot::channel();
    std::thread::spawn(move || {
        drop(std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
        let _gone = gone.send(());
    });
    let service = A2aServiceServer::new(Partner(answers));
    let server = tonic::transport::Server::builder().tcp_nodelay(true).add_service(service);
    tokio::select! {
        served = server.serve(address) => served.unwrap(),
        _ = parent => {}
    }
}
