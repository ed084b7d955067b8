//! The matrix of streams: what gRPC streams, both JSON bindings stream as well.

use a2ad::client::Client;
use a2ad::contract::v1::stream_response::Payload;
use a2ad::contract::v1::{self, TaskState};
use serde_json::json;
use tonic::{Status, Streaming};

use crate::bindings::answer;
use crate::bindings::asked;
use crate::bindings::caller::Told;
use crate::bindings::events::BOTH;
use crate::bindings::matrix::shape;
use crate::rig::{TestServer, send, to_task};

async fn grpc_rest(mut stream: Streaming<v1::StreamResponse>) -> Vec<v1::StreamResponse> {
    let mut all = Vec::new();
    while let Some(item) = stream.message().await.unwrap() {
        all.push(item);
    }
    all
}

async fn follow(client: &mut Client, id: &str) -> Result<Streaming<v1::StreamResponse>, Status> {
    let request = v1::SubscribeToTaskRequest { id: id.to_owned(), ..Default::default() };
    client.subscribe_to_task(request).await.map(tonic::Response::into_inner)
}

#[tokio::test]
async fn subscribers_of_one_task_read_the_same_over_every_binding() {
    let server = TestServer::start().await;
    let addr = server.addr();
    let mut client = server.client().await;
    let task = asked(addr).await;
    let mut first = Vec::new();
    let mut grpc = follow(&mut client, &task).await.unwrap();
    first.push(grpc.message().await.unwrap().unwrap());
    let mut others = Vec::new();
    for over in BOTH {
        let mut events = over.subscribe(addr, &task, &[]).await;
        first.push(over.response(&events.next().await.unwrap()));
        // And once more: the one before is cut, and misses nothing that the next would not show.
        let mut again = over.subscribe(addr, &task, &[]).await;
        first.push(over.response(&again.next().await.unwrap()));
        drop(events);
        others.push((over, again));
    }
    assert!(first.iter().all(|one| one == &first[0]), "{first:?}");
    answer(addr, &task).await;
    let expected = grpc_rest(grpc).await;
    for (over, mut events) in others {
        let rest: Vec<_> = events.rest().await.iter().map(|event| over.response(event)).collect();
        assert_eq!(rest, expected, "{over:?}");
    }
    let Some(Payload::StatusUpdate(last)) = &expected.last().unwrap().payload else {
        panic!("{expected:?}")
    };
    assert_eq!(last.status.as_ref().unwrap().state(), TaskState::Completed);
    let refused = follow(&mut client, &task).await.unwrap_err();
    for over in BOTH {
        let told = over.subscribe(addr, &task, &[]).await.whole().await;
        let told = over.told(&told["error"]);
        assert_eq!(told, Told::of_status(&refused));
        assert!(Told::have_one_row(&[told, Told::of_status(&refused)]));
    }
}

#[tokio::test]
async fn messages_are_streamed_alike_over_every_binding() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    for text in ["hello", "reply hi", "ask me", "fail no paper", "reject not mine", "slow 1"] {
        let stream = client.send_streaming_message(send(text)).await.unwrap().into_inner();
        let expected: Vec<_> = grpc_rest(stream).await.iter().map(shape).collect();
        assert!(!expected.is_empty());
        for over in BOTH {
            let events = over.send(server.addr(), text).await.rest().await;
            let shapes: Vec<_> = events.iter().map(|event| shape(&over.response(event))).collect();
            assert_eq!(shapes, expected, "{over:?}: {text}");
        }
    }
}

#[tokio::test]
async fn what_cannot_be_streamed_is_told_alike() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let absent = "0198c0de-0000-7000-8000-000000000000";
    let mut image = send("x");
    image.message.as_mut().unwrap().parts[0].media_type = "image/png".to_owned();
    let requests = [v1::SendMessageRequest::default(), to_task(send("x"), absent), image];
    for request in requests {
        let refused = client.send_streaming_message(request.clone()).await.unwrap_err();
        let params = a2ad::contract::json::to_value(&request).unwrap();
        for over in BOTH {
            let events = over.ask(server.addr(), "SendStreamingMessage", params.clone(), &[]).await;
            let told = over.told(&events.whole().await["error"]);
            assert_eq!(told, Told::of_status(&refused), "{over:?}");
            assert!(Told::have_one_row(&[told, Told::of_status(&refused)]));
        }
    }
    let refused = follow(&mut client, absent).await.unwrap_err();
    for over in BOTH {
        let params = json!({ "id": absent });
        let events = over.ask(server.addr(), "SubscribeToTask", params, &[]).await;
        assert_eq!(over.told(&events.whole().await["error"]), Told::of_status(&refused));
    }
}
