//! Requests, held to the contract and to the limits before anything is looked up (GEN-09).

use prost::Message as _;

use crate::contract::v1::{self, part::Content};
use crate::domain::page::{Filters, PageSize};
use crate::domain::payload::Checker;
use crate::domain::{ContextId, Error, MessageId, TaskId};
use crate::service::settings::{Limits, Settings};
use crate::store::floor_ms;

/// The most media types that a client may say it takes.
const MODES_MAX: usize = 100;

/// A send, checked.
pub(super) struct Send {
    pub(super) message: v1::Message,
    pub(super) context: Option<ContextId>,
    pub(super) target: Target,
    pub(super) history: u32,
    pub(super) at_once: bool,
    pub(super) output_modes: Vec<String>,
}

/// Which task a message names.
#[derive(Clone, Copy)]
pub(super) enum Target {
    New,
    Task(TaskId),
    /// Text that cannot name a task of ours.
    Nothing,
}

/// The media types that a card takes, in lower case and without parameters.
pub(super) fn input_modes(card: &v1::AgentCard) -> Vec<String> {
    let of_skills = card.skills.iter().flat_map(|skill| &skill.input_modes);
    card.default_input_modes.iter().chain(of_skills).map(|mode| essence(mode)).collect()
}

/// Takes a send apart. All that is wrong with its fields is told together.
pub(super) fn send(
    request: v1::SendMessageRequest,
    modes: &[String],
    settings: &Settings,
) -> Result<Send, Error> {
    let configuration = request.configuration.unwrap_or_default();
    if configuration.task_push_notification_config.is_some() {
        return Err(Error::PushNotSupported);
    }
    let Some(message) = request.message else {
        return Err(Error::invalid("message", "must be set"));
    };
    let limits = &settings.limits;
    let mut checker = Checker::new(limits.nesting);
    checker.keep(MessageId::parse("message.message_id", &message.message_id));
    let context = (!message.context_id.is_empty())
        .then(|| checker.keep(ContextId::parse("message.context_id", &message.context_id)))
        .flatten();
    match v1::Role::try_from(message.role) {
        Ok(v1::Role::User) => {}
        Ok(v1::Role::Agent) if settings.agent_role => {}
        Ok(v1::Role::Unspecified | v1::Role::Agent) | Err(_) => {
            checker.refuse("message.role", "must be ROLE_USER");
        }
    }
    for (n, id) in message.reference_task_ids.iter().enumerate() {
        let field = format!("message.reference_task_ids[{n}]");
        if id.is_empty() {
            checker.refuse(field, "must not be empty");
        } else {
            checker.text(&field, id);
        }
    }
    check_parts(&mut checker, &message.parts, limits);
    checker.metadata("message.metadata", message.metadata.as_ref());
    checker.metadata("metadata", request.metadata.as_ref());
    let bytes = message.encoded_len() + request.metadata.as_ref().map_or(0, |m| m.encoded_len());
    if bytes > limits.message_bytes {
        checker.size("message", bytes, limits.message_bytes, ADVICE);
    } else {
        check_part_sizes(&mut checker, &message.parts, limits);
    }
    for (n, mode) in configuration.accepted_output_modes.iter().enumerate() {
        checker.text(&format!("configuration.accepted_output_modes[{n}]"), mode);
    }
    if configuration.accepted_output_modes.len() > MODES_MAX {
        let problem = format!("must have at most {MODES_MAX} entries");
        checker.refuse("configuration.accepted_output_modes", problem);
    }
    let history = history(
        &mut checker,
        "configuration.history_length",
        configuration.history_length,
        settings.history_default,
    );
    checker.finish().map_err(Error::Invalid)?;
    check_media_types(&message.parts, modes)?;
    let target = match (message.task_id.is_empty(), TaskId::parse(&message.task_id)) {
        (true, _) => Target::New,
        (false, Some(task)) => Target::Task(task),
        (false, None) => Target::Nothing,
    };
    Ok(Send {
        message,
        context,
        target,
        history,
        at_once: configuration.return_immediately,
        output_modes: configuration.accepted_output_modes,
    })
}

const ADVICE: &str = "send large content as url parts";

/// The number and the contents of parts. Of too many none is looked at.
fn check_parts(checker: &mut Checker, parts: &[v1::Part], limits: &Limits) {
    if parts.len() > limits.parts {
        let problem = format!("must have at most {} entries, has {}", limits.parts, parts.len());
        checker.refuse("message.parts", problem);
        return;
    }
    checker.parts("message.parts", parts);
}

fn check_part_sizes(checker: &mut Checker, parts: &[v1::Part], limits: &Limits) {
    for (n, bytes) in parts.iter().map(v1::Part::encoded_len).enumerate() {
        if bytes > limits.part_bytes {
            checker.size(&format!("message.parts[{n}]"), bytes, limits.part_bytes, ADVICE);
        }
    }
}

/// How many messages of history to read (HIST-01 to HIST-05).
pub(super) fn history(checker: &mut Checker, field: &str, asked: Option<i32>, default: u32) -> u32 {
    match asked.map(u32::try_from) {
        None => default,
        Some(Ok(asked)) => asked,
        Some(Err(_)) => {
            checker.refuse(field, "must be 0 for none, or a positive number");
            default
        }
    }
}

/// A listing's filters, checked and resolved, and its page size.
pub(super) fn list(
    request: &v1::ListTasksRequest,
    settings: &Settings,
) -> Result<(Filters, PageSize), Error> {
    let mut checker = Checker::new(settings.limits.nesting);
    let size = checker.keep(PageSize::resolve(request.page_size));
    let context = (!request.context_id.is_empty())
        .then(|| checker.keep(ContextId::parse("context_id", &request.context_id)))
        .flatten();
    let state = match v1::TaskState::try_from(request.status) {
        Ok(v1::TaskState::Unspecified) => None,
        Ok(state) => Some(state),
        Err(_) => {
            checker.refuse("status", "must be a TaskState of A2A 1.0");
            None
        }
    };
    let since_us = match request.status_timestamp_after.map(|at| at.to_micros()) {
        None => None,
        Some(Some(us)) => Some(floor_ms(us)),
        Some(None) => {
            let problem = "must be a time from year 1 to 9999 with nanos below 1000000000";
            checker.refuse("status_timestamp_after", problem);
            None
        }
    };
    let history = history(
        &mut checker,
        "history_length",
        request.history_length,
        settings.list_history_default,
    );
    checker.finish().map_err(Error::Invalid)?;
    let artifacts = request.include_artifacts.unwrap_or(false);
    let Some(size) = size else { return Err(Error::internal("a page size was lost")) };
    Ok((Filters { context, state, since_us, history, artifacts }, size))
}

/// Each part has a media type that the agent takes (SEND-10, AMB-43).
fn check_media_types(parts: &[v1::Part], modes: &[String]) -> Result<(), Error> {
    for (n, part) in parts.iter().enumerate() {
        let media_type = match (&part.content, part.media_type.as_str()) {
            (Some(Content::Text(_)), "") => "text/plain".to_owned(),
            (Some(Content::Data(_)), "") => "application/json".to_owned(),
            (_, "") => continue,
            (_, named) => essence(named),
        };
        if !modes.is_empty() && !modes.iter().any(|mode| takes(mode, &media_type)) {
            let field = format!("message.parts[{n}].media_type");
            return Err(Error::ContentTypeNotSupported { field, media_type });
        }
    }
    Ok(())
}

/// A media type without parameters, in lower case.
fn essence(media_type: &str) -> String {
    media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

fn takes(mode: &str, media_type: &str) -> bool {
    let of_kind =
        |kind: &str| media_type.split_once('/').is_some_and(|(of_this, _)| of_this == kind);
    mode == media_type || mode == "*/*" || mode.strip_suffix("/*").is_some_and(of_kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_types_match_without_case_and_parameters_and_by_wildcards() {
        for (mode, media_type, fits) in [
            ("text/plain", "Text/Plain; charset=utf-8", true),
            ("text/*", "text/markdown", true),
            ("*/*", "image/png", true),
            ("text/*", "textual/plain", false),
            ("text/plain", "text/markdown", false),
        ] {
            assert_eq!(takes(&essence(mode), &essence(media_type)), fits, "{mode} {media_type}");
        }
    }
}
