//! How a task lives: which moves a state allows, what a turn may still say, and how history and
//! artifacts grow.
//!
//! | from | to | allowed |
//! |---|---|---|
//! | any live state | WORKING, INPUT_REQUIRED, AUTH_REQUIRED, COMPLETED, FAILED, CANCELED, REJECTED | yes, also the same again |
//! | any state | SUBMITTED, UNSPECIFIED | never |
//! | a terminal state | anything | never |

use crate::contract::v1::{self, TaskState};

/// Whether an agent's report may move a task from `from` to `to`.
#[must_use]
pub fn may_move(from: TaskState, to: TaskState) -> bool {
    !from.is_terminal() && !matches!(to, TaskState::Submitted | TaskState::Unspecified)
}

/// Whether a status ends the turn that reports it. `AUTH_REQUIRED` does not: the work may go on as
/// soon as the credential is there (ITA-03).
#[must_use]
pub fn ends_turn(state: TaskState) -> bool {
    state.is_terminal() || state == TaskState::InputRequired
}

/// The newest `limit` of `messages`, oldest first (HIST-03, HIST-07).
#[must_use]
pub fn newest(mut messages: Vec<v1::Message>, limit: usize) -> Vec<v1::Message> {
    messages.split_off(messages.len().saturating_sub(limit))
}

/// Applies an artifact update as EVT-08 says.
///
/// An append adds its parts to the artifact of the same id and makes it if there is none; anything
/// else creates or replaces. An artifact keeps its place in the list when it is replaced.
pub fn apply_artifact(artifacts: &mut Vec<v1::Artifact>, update: v1::Artifact, append: bool) {
    match artifacts.iter_mut().find(|a| a.artifact_id == update.artifact_id) {
        Some(known) if append => known.parts.extend(update.parts),
        Some(known) => *known = update,
        None => artifacts.push(update),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [TaskState; 9] = [
        TaskState::Unspecified,
        TaskState::Submitted,
        TaskState::Working,
        TaskState::Completed,
        TaskState::Failed,
        TaskState::Canceled,
        TaskState::InputRequired,
        TaskState::Rejected,
        TaskState::AuthRequired,
    ];

    #[test]
    fn a_terminal_task_never_moves_and_nothing_goes_back_to_submitted() {
        for from in ALL {
            for to in ALL {
                let expected = !from.is_terminal()
                    && to != TaskState::Submitted
                    && to != TaskState::Unspecified;
                assert_eq!(may_move(from, to), expected, "{from:?} to {to:?}");
            }
        }
    }

    #[test]
    fn an_append_extends_and_a_replacement_keeps_its_place() {
        let artifact = |id: &str, text: &str| v1::Artifact {
            artifact_id: id.to_owned(),
            parts: vec![v1::Part {
                content: Some(v1::part::Content::Text(text.to_owned())),
                ..Default::default()
            }],
            ..Default::default()
        };
        let mut artifacts = Vec::new();
        apply_artifact(&mut artifacts, artifact("a", "1"), true);
        apply_artifact(&mut artifacts, artifact("b", "2"), false);
        apply_artifact(&mut artifacts, artifact("a", "3"), true);
        assert_eq!(artifacts.iter().map(|a| a.parts.len()).collect::<Vec<_>>(), [2, 1]);
        apply_artifact(&mut artifacts, artifact("a", "4"), false);
        assert_eq!(artifacts, [artifact("a", "4"), artifact("b", "2")]);
    }
}
