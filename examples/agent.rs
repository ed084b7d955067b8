//! An agent of one's own, with a2ad around it: tasks, listings, restarts and all.
//!
//! `cargo run --example agent` serves it on 127.0.0.1:50051 and keeps its tasks in `shout.db`;
//! `cargo run --example agent -- --check` sends it one message and ends.

use std::error::Error;

use a2ad::agent::{Agent, AgentError, AgentTurn, TurnHandle, text_part};
use a2ad::client::{Client, text_message};
use a2ad::contract::v1;
use a2ad::server::Server;

/// Says everything louder.
struct Shout;

#[a2ad::async_trait]
impl Agent for Shout {
    fn card(&self) -> v1::AgentCard {
        v1::AgentCard {
            name: "Shout".to_owned(),
            description: "Says everything louder.".to_owned(),
            version: "1.0".to_owned(),
            default_input_modes: vec!["text/plain".to_owned()],
            default_output_modes: vec!["text/plain".to_owned()],
            ..Default::default()
        }
    }

    async fn run(&self, turn: AgentTurn, handle: &mut TurnHandle) -> Result<(), AgentError> {
        handle.working().await?;
        let parts = vec![text_part(turn.text().to_uppercase())];
        let artifact_id = "shout".to_owned();
        handle.artifact(v1::Artifact { artifact_id, parts, ..Default::default() }).await?;
        Ok(handle.complete().await?)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().any(|argument| argument == "--check") {
        return check().await;
    }
    Server::builder(Shout).store("sqlite:shout.db").listen(([127, 0, 0, 1], 50051)).serve().await?;
    Ok(())
}

/// Serves on a free port with a store in memory, asks once, and prints the answer.
#[expect(clippy::print_stdout, reason = "this is what it is for")]
async fn check() -> Result<(), Box<dyn Error>> {
    let server = Server::builder(Shout).start().await?;
    let mut client = Client::connect(&format!("http://{}", server.address())).await?;
    let message = Some(text_message("hello"));
    let request = v1::SendMessageRequest { message, ..Default::default() };
    let answer = client.send_message(request).await?.into_inner();
    println!("{answer:#?}");
    drop(client);
    assert!(server.stop().await, "everything ended in time");
    Ok(())
}
