//! Makes finished tasks on a server and prints their ids, one a line: for load tests and demos.
//!
//! ```text
//! cargo run --example make_tasks -- http://127.0.0.1:50051 1000
//! ```

#![allow(clippy::print_stdout, reason = "ids are what it is run for")]

use std::error::Error;

use a2ad::client::{Client, text_message};
use a2ad::contract::v1::send_message_response::Payload;
use a2ad::contract::v1::{SendMessageConfiguration, SendMessageRequest};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};

/// How many are under way at a time.
const AT_A_TIME: usize = 32;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(url), Some(count)) = (arguments.next(), arguments.next()) else {
        return Err("usage: make_tasks URL COUNT".into());
    };
    let client = Client::connect(&url).await?;
    let made = stream::iter(0..count.parse::<u32>()?).map(|n| make(client.clone(), n));
    let ids: Vec<String> = made.buffer_unordered(AT_A_TIME).try_collect().await?;
    println!("{}", ids.join("\n"));
    Ok(())
}

/// One task, when it is done.
async fn make(mut client: Client, n: u32) -> Result<String, Box<dyn Error>> {
    let request = SendMessageRequest {
        message: Some(text_message(format!("task {n}"))),
        // The answer is only asked for its id.
        configuration: Some(SendMessageConfiguration {
            history_length: Some(0),
            ..Default::default()
        }),
        ..Default::default()
    };
    match client.send_message(request).await?.into_inner().payload {
        Some(Payload::Task(task)) => Ok(task.id),
        Some(Payload::Message(_)) | None => Err("the agent made no task".into()),
    }
}
