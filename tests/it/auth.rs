//! Who is let in, and what strangers are told.

use a2ad::contract::v1;
use tonic::{Code, Request};

use crate::rig::{ANN, BOB, TestServer, send, task_of, two_callers};

fn list() -> v1::ListTasksRequest {
    v1::ListTasksRequest::default()
}

#[tokio::test]
async fn a_stranger_is_told_how_to_prove_himself_and_nothing_else() {
    let server = TestServer::with(|server| server.auth(two_callers())).await;
    let mut nobody = server.client().await;
    let mut wrong = server.client_of("s3cret").await;
    let status = nobody.list_tasks(list()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
    assert!(status.message().contains("authorization: Bearer"));
    let challenge = status.metadata().get("www-authenticate").unwrap();
    let both = "Bearer realm=\"a2ad\", ApiKey realm=\"a2ad\", header=\"x-api-key\"";
    assert_eq!(challenge, both);

    let status = wrong.list_tasks(list()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
    assert!(!status.message().contains("s3cret"), "{}", status.message());

    // Credentials come first: a stranger does not even learn that his version is wrong.
    let mut request = Request::new(list());
    request.metadata_mut().insert("a2a-version", "9.9".parse().unwrap());
    assert_eq!(nobody.list_tasks(request).await.unwrap_err().code(), Code::Unauthenticated);
}

#[tokio::test]
async fn a_key_works_as_bearer_token_and_by_itself() {
    let server = TestServer::with(|server| server.auth(two_callers())).await;
    let mut ann = server.client_of(ANN).await;
    let task = task_of(ann.send_message(send("hello")).await.unwrap());
    let mut other_way = server.client().await;
    let mut request = Request::new(list());
    request.metadata_mut().insert("x-api-key", ANN.parse().unwrap());
    let page = other_way.list_tasks(request).await.unwrap().into_inner();
    assert_eq!(page.tasks.iter().map(|task| &task.id).collect::<Vec<_>>(), [&task.id]);
}

#[tokio::test]
async fn callers_and_tenants_never_meet() {
    let server = TestServer::with(|server| server.auth(two_callers())).await;
    let in_tenant = |tenant: &str| v1::ListTasksRequest { tenant: tenant.to_owned(), ..list() };
    let mut made = Vec::new();
    for (key, tenant) in [(ANN, ""), (ANN, "blue"), (BOB, ""), (BOB, "blue")] {
        let mut client = server.client_of(key).await;
        let request = v1::SendMessageRequest { tenant: tenant.to_owned(), ..send("hello") };
        made.push((key, tenant, task_of(client.send_message(request).await.unwrap()).id));
    }
    for (key, tenant, id) in &made {
        let mut client = server.client_of(key).await;
        let page = client.list_tasks(in_tenant(tenant)).await.unwrap().into_inner();
        assert_eq!(page.tasks.iter().map(|task| &task.id).collect::<Vec<_>>(), [id]);
        assert_eq!(page.total_size, 1);
    }
    let mut ann = server.client_of(ANN).await;
    let forbidden = ann.list_tasks(in_tenant("red")).await.unwrap_err();
    assert_eq!(forbidden.code(), Code::PermissionDenied);
}

#[tokio::test]
async fn without_authentication_everybody_is_one_principal_in_any_tenant() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    for tenant in ["", "blue", "red"] {
        let request = v1::SendMessageRequest { tenant: tenant.to_owned(), ..send("hello") };
        task_of(client.send_message(request).await.unwrap());
    }
    // Credentials that nobody asked for change nothing.
    let mut with_key = server.client_of("anything").await;
    assert_eq!(with_key.list_tasks(list()).await.unwrap().into_inner().total_size, 1);
}
