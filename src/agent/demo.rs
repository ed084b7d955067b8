//! The demo agent: its message's first word chooses what it shows.

use std::time::Duration;

use async_trait::async_trait;

use crate::agent::{Agent, AgentError, AgentTurn, TurnHandle, text_part};
use crate::contract::v1::{self, TaskState};

/// The artifact that every kind of work makes.
const ARTIFACT: &str = "answer";
/// The longest that `slow` and `auth` work.
const SECONDS_MAX: u64 = 3600;
/// The most that `stream` sends, and the longest between two of its chunks.
const CHUNKS_MAX: u64 = 10_000;
const PAUSE_MS_MAX: u64 = 60_000;

/// Echoes, asks, takes its time, fails, rejects, waits for authorization, or replies directly.
#[derive(Debug, Clone, Copy, Default)]
pub struct Demo;

#[async_trait]
impl Agent for Demo {
    fn card(&self) -> v1::AgentCard {
        let skill = |id: &str, name: &str, description: &str, example: &str| v1::AgentSkill {
            id: id.to_owned(),
            name: name.to_owned(),
            description: description.to_owned(),
            tags: vec!["demo".to_owned()],
            examples: vec![example.to_owned()],
            ..Default::default()
        };
        v1::AgentCard {
            name: "a2ad demo agent".to_owned(),
            description: "Shows what a task can do; the first word of a message chooses."
                .to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            default_input_modes: modes(),
            default_output_modes: modes(),
            skills: vec![
                skill("echo", "Echo", "Returns anything else as an artifact.", "hello"),
                skill("ask", "Ask", "Asks for input and completes on the reply.", "ask which one?"),
                skill("slow", "Slow", "Appends an artifact chunk each second.", "slow 3"),
                skill("stream", "Stream", "Appends many chunks, so far apart.", "stream 20 100"),
                skill("fail", "Fail", "Fails with a reason.", "fail no paper"),
                skill("reject", "Reject", "Rejects with a reason.", "reject not mine"),
                skill("auth", "Auth", "Waits for authorization.", "auth 2"),
                skill("reply", "Reply", "Answers with a message and no task.", "reply hi"),
            ],
            ..Default::default()
        }
    }

    async fn run(&self, turn: AgentTurn, handle: &mut TurnHandle) -> Result<(), AgentError> {
        let text = turn.text();
        if turn.turn > 1 {
            // The answer to a question of ours, or a further message.
            return finish(handle, vec![text_part(format!("you said: {text}"))]).await;
        }
        let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((&text, ""));
        match (word, rest.trim()) {
            ("ask", question) => Ok(handle.ask(or(question, "What would you like?")).await?),
            ("slow", seconds) => match number(seconds) {
                Some(seconds) => stream(handle, &turn, seconds, Duration::from_secs(1)).await,
                None => how_long(handle, word).await,
            },
            ("stream", numbers) => match pieces(numbers) {
                Some((n, pause)) => stream(handle, &turn, n, pause).await,
                None => {
                    let why = format!(
                        "say how many chunks, up to {CHUNKS_MAX}, and how many milliseconds apart, \
                         up to {PAUSE_MS_MAX}: stream 20 100"
                    );
                    Ok(handle.reject(&why).await?)
                }
            },
            ("fail", why) => Ok(handle.fail(or(why, "asked to fail")).await?),
            ("reject", why) => Ok(handle.reject(or(why, "asked to reject")).await?),
            ("auth", "") => {
                let text = "Authorize this out of band, then send any message.";
                Ok(handle.say_status(TaskState::AuthRequired, text).await?)
            }
            ("auth", seconds) => match number(seconds) {
                Some(seconds) => auth(handle, seconds).await,
                None => how_long(handle, word).await,
            },
            ("reply", words) => {
                let parts = vec![text_part(or(words, "hello"))];
                Ok(handle.reply(v1::Message { parts, ..Default::default() }).await?)
            }
            // As it came, data and all.
            _ => finish(handle, turn.message.parts).await,
        }
    }
}

fn modes() -> Vec<String> {
    vec!["text/plain".to_owned(), "application/json".to_owned()]
}

fn or<'a>(text: &'a str, default: &'a str) -> &'a str {
    if text.is_empty() { default } else { text }
}

fn number(text: &str) -> Option<u64> {
    text.parse().ok().filter(|seconds| *seconds <= SECONDS_MAX)
}

/// What the client got wrong is no error of the agent: another attempt would read the same words.
async fn how_long(handle: &mut TurnHandle, word: &str) -> Result<(), AgentError> {
    let why = format!("say how many seconds, from 0 to {SECONDS_MAX}: {word} 3");
    Ok(handle.reject(&why).await?)
}

fn artifact(parts: Vec<v1::Part>) -> v1::Artifact {
    v1::Artifact {
        artifact_id: ARTIFACT.to_owned(),
        name: "answer".to_owned(),
        parts,
        ..Default::default()
    }
}

async fn finish(handle: &mut TurnHandle, parts: Vec<v1::Part>) -> Result<(), AgentError> {
    handle.working().await?;
    handle.artifact(artifact(parts)).await?;
    Ok(handle.complete().await?)
}

/// How many chunks and how far apart: one or two numbers.
fn pieces(text: &str) -> Option<(u64, Duration)> {
    let (n, pause) = text.split_once(char::is_whitespace).unwrap_or((text, "0"));
    let n = n.parse().ok().filter(|n| (1..=CHUNKS_MAX).contains(n))?;
    let pause = pause.trim().parse().ok().filter(|pause| *pause <= PAUSE_MS_MAX)?;
    Some((n, Duration::from_millis(pause)))
}

/// Chunks, one after the other. A later attempt goes on with the chunk after the last one stored.
async fn stream(
    handle: &mut TurnHandle,
    turn: &AgentTurn,
    chunks: u64,
    pause: Duration,
) -> Result<(), AgentError> {
    let known = turn.artifacts.iter().find(|artifact| artifact.artifact_id == ARTIFACT);
    let stored = known.map_or(0, |artifact| artifact.parts.len() as u64);
    handle.working().await?;
    for n in stored + 1..=chunks {
        tokio::select! {
            biased;
            _ = handle.canceled() => {
                return Ok(handle.say_status(TaskState::Canceled, "stopped as you asked").await?);
            }
            () = tokio::time::sleep(pause), if !pause.is_zero() => {}
            () = std::future::ready(()), if pause.is_zero() => {}
        }
        let piece = vec![text_part(format!("chunk {n} of {chunks}"))];
        handle.chunk(artifact(piece), n > 1, n == chunks).await?;
    }
    Ok(handle.complete().await?)
}

async fn auth(handle: &mut TurnHandle, seconds: u64) -> Result<(), AgentError> {
    let text = "Authorize this out of band; the work goes on by itself.";
    handle.say_status(TaskState::AuthRequired, text).await?;
    tokio::select! {
        () = tokio::time::sleep(Duration::from_secs(seconds)) => {}
        _ = handle.canceled() => {
            return Ok(handle.say_status(TaskState::Canceled, "stopped as you asked").await?);
        }
    }
    finish(handle, vec![text_part("authorized")]).await
}
