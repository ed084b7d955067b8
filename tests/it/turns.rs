//! How work reaches an agent and what becomes of it: errors, lost leases, cancels, drains.

use std::sync::Arc;
use std::time::Duration;

use a2ad::agent::demo::Demo;
use a2ad::agent::{AgentError, Refused};
use a2ad::contract::v1::{self, TaskState};
use a2ad::contract::wkt::{Kind, Struct, Value};
use a2ad::domain::Error;
use a2ad::service::Settings;
use a2ad::store::Store;

use crate::bench::{A_WHILE, Bench, anybody, chunk, said, soon, state, still, task, texts, until};
use crate::rig::flaky::Flaky;
use crate::support::rounds;

fn failure(text: &str) -> Result<(), AgentError> {
    Err(AgentError::new(text))
}

/// Waits until a task has ended.
async fn ended(bench: &Bench, id: &str) -> v1::Task {
    until(|| async {
        let task = bench.get(&anybody(), id).await.unwrap();
        state(&task).is_terminal().then_some(task)
    })
    .await
}

// --- agents that fail ---------------------------------------------------------------------------

#[tokio::test]
async fn an_agent_may_fail_twice_and_learns_what_it_had_stored() {
    let bench = Bench::new(still()).await;
    let sent = bench.sends(&anybody(), bench.message("x"));
    let first = bench.puppet().await;
    first.chunk(chunk("a", "1"), false, false).await.unwrap();
    first.returns(failure("no luck")).await;
    let second = bench.puppet().await;
    assert_eq!((second.turn.turn, second.turn.attempt), (1, 2));
    assert_eq!(texts(&second.turn.artifacts[0]), ["1"]);
    second.panics().await;
    let third = bench.puppet().await;
    assert_eq!(third.turn.attempt, 3);
    third.chunk(chunk("a", "2"), true, true).await.unwrap();
    third.status(TaskState::Completed, "").await.unwrap();
    assert_eq!(texts(&sent.task().await.artifacts[0]), ["1", "2"]);
}

#[tokio::test]
async fn an_agent_that_fails_three_times_fails_its_task_and_says_why() {
    let bench = Bench::new(still()).await;
    let sent = bench.sends(&anybody(), bench.message("x"));
    for _ in 0..3 {
        bench.puppet().await.returns(failure("the printer is on fire")).await;
    }
    let task = sent.task().await;
    assert_eq!(state(&task), TaskState::Failed);
    assert!(said(&task).contains("the printer is on fire"), "{}", said(&task));
    assert!(bench.idle().await);
}

#[tokio::test]
async fn a_second_attempt_makes_a_hidden_task_known() {
    let bench = Bench::new(still()).await;
    let mut sent = bench.sends(&anybody(), bench.message("x"));
    bench.puppet().await.returns(failure("no luck")).await;
    let second = bench.puppet().await;
    let known = bench.get(&anybody(), &second.turn.task.to_string()).await.unwrap();
    assert_eq!(state(&known), TaskState::Submitted);
    assert!(sent.waits().await);
}

#[tokio::test]
async fn what_an_agent_reported_before_it_failed_is_kept() {
    let bench = Bench::new(still()).await;
    let (task, first) = bench.task("x").await;
    // Not waited for: queued when the attempt ends.
    first.status(TaskState::Working, "on it").await.unwrap();
    first.returns(failure("no luck")).await;
    let second = bench.puppet().await;
    assert_eq!(second.turn.state, TaskState::Working);
    assert_eq!(said(&bench.get(&anybody(), &task.id).await.unwrap()), "on it");
}

#[tokio::test]
async fn a_turn_without_an_outcome_fails_the_task() {
    let bench = Bench::new(still()).await;
    for says_working in [false, true] {
        let sent = bench.sends(&anybody(), bench.message("x"));
        let puppet = bench.puppet().await;
        if says_working {
            puppet.status(TaskState::Working, "").await.unwrap();
        }
        puppet.returns(Ok(())).await;
        let task = sent.task().await;
        assert_eq!(state(&task), TaskState::Failed);
        assert!(!said(&task).is_empty());
    }
}

#[tokio::test]
async fn a_handle_refuses_what_breaks_the_protocol() {
    let bench = Bench::new(still()).await;
    let (task, puppet) = bench.task("x").await;
    for state in [TaskState::Submitted, TaskState::Unspecified] {
        assert_eq!(puppet.status(state, "").await, Err(Refused::State(state)));
    }
    let no_id = puppet.chunk(chunk("", "1"), false, false).await;
    assert!(matches!(no_id, Err(Refused::Invalid(_))));
    let no_parts = v1::Artifact { artifact_id: "a".to_owned(), ..Default::default() };
    assert!(matches!(puppet.chunk(no_parts, false, false).await, Err(Refused::Invalid(_))));
    let limits = Settings::default().limits;
    let large = puppet.chunk(chunk("a", &"x".repeat(limits.chunk_bytes)), false, false).await;
    let Err(Refused::Invalid(violations)) = large else { panic!("{large:?}") };
    assert!(violations[0].problem.contains("url"), "{violations:?}");
    let large = puppet.status(TaskState::Working, &"x".repeat(limits.status_bytes)).await;
    let Err(Refused::Invalid(violations)) = large else { panic!("{large:?}") };
    assert!(violations[0].problem.contains("artifact"), "{violations:?}");

    puppet.chunk(chunk("a", "1"), false, true).await.unwrap();
    let late = puppet.chunk(chunk("a", "2"), true, false).await;
    assert_eq!(late, Err(Refused::Closed("a".to_owned())));
    puppet.chunk(chunk("a", "again"), false, false).await.unwrap();
    puppet.chunk(chunk("a", "and on"), true, true).await.unwrap();

    puppet.status(TaskState::Completed, "done").await.unwrap();
    assert_eq!(puppet.status(TaskState::Failed, "no").await, Err(Refused::Ended));
    assert_eq!(puppet.chunk(chunk("b", "1"), false, true).await, Err(Refused::Ended));
    assert_eq!(puppet.reply("hello").await, Err(Refused::Ended));
    puppet.returns(failure("after the end nobody cares")).await;
    let task = bench.get(&anybody(), &task.id).await.unwrap();
    assert_eq!((state(&task), said(&task).as_str()), (TaskState::Completed, "done"));
    assert_eq!(texts(&task.artifacts[0]), ["again", "and on"]);
    assert!(bench.idle().await);
}

// --- the store --------------------------------------------------------------------------------

#[tokio::test]
async fn a_report_whose_answer_was_lost_is_stored_once() {
    let store = Flaky::open().await;
    let bench = Bench::over(Arc::clone(&store) as Arc<dyn Store>, None, still());
    let (task, puppet) = bench.task("x").await;
    store.lose_answers(true);
    let reporting = async { puppet.chunk(chunk("a", "1"), false, false).await.unwrap() };
    let repeated = until(|| async { (store.calls()[1] >= 2).then_some(()) });
    let found_again = async {
        repeated.await;
        store.lose_answers(false);
    };
    tokio::join!(reporting, found_again);
    puppet.chunk(chunk("a", "2"), true, true).await.unwrap();
    puppet.status(TaskState::Completed, "").await.unwrap();
    let task = bench.get(&anybody(), &task.id).await.unwrap();
    assert_eq!(texts(&task.artifacts[0]), ["1", "2"]);
}

#[tokio::test]
async fn a_store_that_is_away_for_a_moment_costs_no_attempt() {
    let store = Flaky::open().await;
    let bench = Bench::over(Arc::clone(&store) as Arc<dyn Store>, None, still());
    let (task, puppet) = bench.task("x").await;
    store.set_down(true);
    let tried = store.calls()[1];
    let reporting = async { puppet.status(TaskState::Completed, "").await.unwrap() };
    let back = async {
        until(|| async { (store.calls()[1] > tried).then_some(()) }).await;
        store.set_down(false);
    };
    tokio::join!(reporting, back);
    assert_eq!(state(&bench.get(&anybody(), &task.id).await.unwrap()), TaskState::Completed);
    assert_eq!(puppet.turn.attempt, 1);
    assert!(bench.idle().await);
}

#[tokio::test]
async fn an_instant_task_costs_two_writes_and_one_read() {
    let store = Flaky::open().await;
    let settings = Settings { poll: Duration::from_secs(3600), ..still() };
    let bench = Bench::over(Arc::clone(&store) as Arc<dyn Store>, Some(Arc::new(Demo)), settings);
    let task = bench.sends(&anybody(), bench.message("hello")).task().await;
    assert_eq!(texts(&task.artifacts[0]), ["hello"]);
    assert_eq!(store.calls(), [1, 1, 1], "accepted, reported, read");
}

// --- leases -------------------------------------------------------------------------------------

#[tokio::test]
async fn a_lost_lease_stops_the_agent_and_another_attempt_goes_on() {
    // Long pauses between renewals, so that the store's time runs ahead of this runner.
    let settings = Settings { renew: Duration::from_secs(3600), ..still() };
    let bench = Bench::new(settings).await;
    let (task, first) = bench.task("x").await;
    first.chunk(chunk("a", "1"), false, false).await.unwrap();
    bench.clock.advance(Settings::default().lease * 2);
    let second = bench.puppet().await;
    assert_eq!((second.turn.turn, second.turn.attempt), (1, 2));
    assert_eq!(texts(&second.turn.artifacts[0]), ["1"]);
    let late = first.chunk(chunk("a", "late"), true, false).await;
    assert_eq!(late, Err(Refused::LeaseLost));
    first.stopped().await;
    second.chunk(chunk("a", "2"), true, true).await.unwrap();
    second.status(TaskState::Completed, "").await.unwrap();
    let task = bench.get(&anybody(), &task.id).await.unwrap();
    assert_eq!(texts(&task.artifacts[0]), ["1", "2"]);
}

#[tokio::test]
async fn a_runner_that_cannot_renew_is_stopped_before_its_lease_is_over() {
    let lease = Duration::from_secs(2);
    let bench = Bench::new(Settings { lease, renew: Duration::from_secs(3600), ..still() }).await;
    let (_, first) = bench.task("x").await;
    let began = std::time::Instant::now();
    first.stopped().await;
    assert!(began.elapsed() < lease, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_lease_that_is_renewed_outlives_its_first_term() {
    let settings = Settings { lease: Duration::from_secs(1), ..still() };
    let bench = Bench::new(settings).await;
    let (task, puppet) = bench.task("x").await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    puppet.status(TaskState::Completed, "").await.unwrap();
    assert_eq!(state(&ended(&bench, &task.id).await), TaskState::Completed);
    assert!(bench.idle().await);
}

#[tokio::test]
async fn a_turn_that_is_lost_too_often_fails_its_task() {
    let settings = Settings { max_interruptions: 2, renew: Duration::from_secs(3600), ..still() };
    let bench = Bench::new(settings).await;
    let (task, _puppet) = bench.task("x").await;
    let mut puppets = Vec::new();
    for _ in 0..2 {
        bench.clock.advance(Settings::default().lease * 4);
        puppets.push(bench.puppet().await);
    }
    until(|| async {
        bench.clock.advance(Settings::default().lease * 4);
        let task = bench.get(&anybody(), &task.id).await.unwrap();
        state(&task).is_terminal().then_some(())
    })
    .await;
    let task = bench.get(&anybody(), &task.id).await.unwrap();
    assert_eq!(state(&task), TaskState::Failed);
    assert!(said(&task).contains("interrupted"));
}

// --- cancels ------------------------------------------------------------------------------------

#[tokio::test]
async fn an_agent_is_told_of_a_cancel_with_its_metadata_and_ends_its_own_way() {
    for (ends, text) in [(TaskState::Canceled, "stopped"), (TaskState::Completed, "just made it")] {
        let bench = Bench::new(still()).await;
        let (task, puppet) = bench.task("x").await;
        let why = Value { kind: Some(Kind::StringValue("too slow".to_owned())) };
        let metadata = Struct { fields: [("why".to_owned(), why)].into() };
        let request = v1::CancelTaskRequest {
            id: task.id.clone(),
            metadata: Some(metadata.clone()),
            ..Default::default()
        };
        let (service, call) = (bench.service.clone(), anybody());
        let canceling = tokio::spawn(async move { service.cancel_task(&call, request).await });
        assert_eq!(puppet.canceled().await, Some(metadata));
        // A second caller shares the first one's result.
        let again = bench.cancels(&anybody(), &task.id);
        puppet.chunk(chunk("a", "what there is"), false, true).await.unwrap();
        puppet.status(ends, text).await.unwrap();
        let task = soon(canceling).await.unwrap().unwrap();
        assert_eq!((state(&task), said(&task).as_str()), (ends, text));
        assert_eq!(texts(&task.artifacts[0]), ["what there is"]);
        assert_eq!(again.answer().await.unwrap(), task);
        let late = bench.cancels(&anybody(), &task.id).answer().await;
        assert!(matches!(late, Err(Error::TaskNotCancelable { state }) if state == ends));
    }
}

#[tokio::test]
async fn an_agent_that_does_not_listen_is_stopped_after_the_grace_period() {
    let bench = Bench::new(Settings { grace: A_WHILE, ..still() }).await;
    let (task, puppet) = bench.task("x").await;
    let task = bench.cancels(&anybody(), &task.id).answer().await.unwrap();
    assert_eq!(state(&task), TaskState::Canceled);
    puppet.stopped().await;
    assert_eq!(ended(&bench, &task.id).await, task);
    assert!(bench.idle().await, "a canceled turn is not tried again");
}

#[tokio::test]
async fn an_agent_that_leaves_after_a_cancel_has_canceled_its_task() {
    let bench = Bench::new(still()).await;
    for result in [Ok(()), failure("interrupted")] {
        let (task, puppet) = bench.task("x").await;
        let canceling = bench.cancels(&anybody(), &task.id);
        puppet.canceled().await;
        puppet.returns(result).await;
        assert_eq!(state(&canceling.answer().await.unwrap()), TaskState::Canceled);
    }
    assert!(bench.idle().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_cancel_and_an_end_that_race_have_one_winner_and_everybody_is_told_who() {
    let settings = Settings { grace: Duration::from_micros(300), ..still() };
    let bench = Bench::new(settings).await;
    let mut won = [0, 0];
    for n in 0..rounds(60, 1000) {
        let (task, puppet) = bench.task("x").await;
        let canceling = bench.cancels(&anybody(), &task.id);
        let completing = async {
            tokio::time::sleep(Duration::from_millis(n % 4)).await;
            puppet.status(TaskState::Completed, "").await
        };
        let (completed, canceled) = tokio::join!(completing, canceling.answer());
        let stored = bench.get(&anybody(), &task.id).await.unwrap();
        let told = match canceled {
            Ok(task) => {
                assert_eq!(task, stored);
                state(&task)
            }
            Err(Error::TaskNotCancelable { state }) => state,
            Err(other) => panic!("{other:?}"),
        };
        assert_eq!(told, state(&stored));
        assert_eq!(completed.is_ok(), told == TaskState::Completed, "{completed:?} {told:?}");
        won[usize::from(completed.is_ok())] += 1;
    }
    println!("canceled {}, completed {}", won[0], won[1]);
}

#[tokio::test]
async fn a_task_that_nobody_works_on_is_canceled_at_once() {
    let bench = Bench::new(Settings { runners: 1, ..still() }).await;
    let (_busy, _puppet) = bench.task("busy").await;
    let queued = task(bench.posts(&anybody(), bench.message("queued")).await.unwrap());
    let canceled = bench.cancels(&anybody(), &queued.id).answer().await.unwrap();
    assert_eq!(state(&canceled), TaskState::Canceled);

    let bench = Bench::new(still()).await;
    let sent = bench.sends(&anybody(), bench.message("x"));
    bench.puppet().await.status(TaskState::InputRequired, "?").await.unwrap();
    let asked = sent.task().await;
    let canceled = bench.cancels(&anybody(), &asked.id).answer().await.unwrap();
    assert_eq!(state(&canceled), TaskState::Canceled);
    assert!(bench.idle().await);
}

#[tokio::test]
async fn a_cancel_on_one_server_reaches_an_agent_on_another() {
    let bench = Bench::new(still()).await;
    let (task, puppet) = bench.task("x").await;
    let other = bench.beside(Settings { runners: 1, ..still() });
    let canceling = other.cancels(&anybody(), &task.id);
    puppet.canceled().await;
    puppet.status(TaskState::Canceled, "").await.unwrap();
    assert_eq!(state(&canceling.answer().await.unwrap()), TaskState::Canceled);
}

#[tokio::test]
async fn what_a_dead_server_began_to_cancel_is_finished_by_another() {
    let settings = Settings { renew: Duration::from_secs(3600), ..still() };
    let bench = Bench::new(settings).await;
    let (task, puppet) = bench.task("x").await;
    let canceling = bench.cancels(&anybody(), &task.id);
    puppet.canceled().await;
    // The next to run the turn finds the wish and lets the agent be.
    bench.clock.advance(Settings::default().lease * 2);
    assert_eq!(state(&canceling.answer().await.unwrap()), TaskState::Canceled);
    assert!(bench.idle().await);
}

// --- drains -------------------------------------------------------------------------------------

#[tokio::test]
async fn a_drain_sends_waiting_callers_away_and_hands_turns_back() {
    let bench = Bench::new(still()).await;
    let waiting = bench.sends(&anybody(), bench.message("x"));
    let puppet = bench.puppet().await;
    puppet.chunk(chunk("a", "1"), false, false).await.unwrap();
    let id = puppet.turn.task.to_string();
    let canceling_of = bench.task("y").await;
    let canceling = bench.cancels(&anybody(), &canceling_of.0.id);
    canceling_of.1.canceled().await;
    bench.service.drain();
    assert!(matches!(waiting.answer().await, Err(Error::ShuttingDown)));
    assert!(matches!(canceling.answer().await, Err(Error::ShuttingDown)));
    let new = bench.posts(&anybody(), bench.message("z")).await;
    assert!(matches!(new, Err(Error::ShuttingDown)), "{new:?}");
    assert!(!puppet.is_stopped(), "turns go on for a while");
    assert!(soon(bench.service.stopped(Duration::from_millis(500))).await);
    puppet.stopped().await;

    // Another server goes on with it: the same attempt, with what was stored.
    let bench = bench.beside(still());
    let puppet = soon(async {
        loop {
            let puppet = bench.puppet().await;
            if puppet.turn.task.to_string() == id {
                return puppet;
            }
        }
    })
    .await;
    assert_eq!(puppet.turn.attempt, 1);
    assert_eq!(texts(&puppet.turn.artifacts[0]), ["1"]);
    puppet.chunk(chunk("a", "2"), true, true).await.unwrap();
    puppet.status(TaskState::Completed, "").await.unwrap();
    assert_eq!(texts(&ended(&bench, &id).await.artifacts[0]), ["1", "2"]);
}

#[tokio::test]
async fn a_service_without_work_stops_at_once() {
    let bench = Bench::new(still()).await;
    let sent = bench.sends(&anybody(), bench.message("x"));
    let puppet = bench.puppet().await;
    puppet.status(TaskState::Completed, "").await.unwrap();
    puppet.returns(Ok(())).await;
    sent.task().await;
    bench.service.drain();
    let began = std::time::Instant::now();
    assert!(soon(bench.service.stopped(Duration::from_secs(15))).await);
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn a_draining_server_claims_nothing_more() {
    let bench = Bench::new(Settings { runners: 1, ..still() }).await;
    let (_, puppet) = bench.task("one").await;
    bench.posts(&anybody(), bench.message("two")).await.unwrap();
    bench.service.drain();
    puppet.status(TaskState::Completed, "").await.unwrap();
    puppet.returns(Ok(())).await;
    assert!(bench.idle().await);
    let other = bench.beside(still());
    assert_eq!(other.puppet().await.turn.text(), "two");
}

#[tokio::test]
async fn a_blocking_send_waits_for_a_turn_that_runs_elsewhere() {
    let bench = Bench::new(Settings { runners: 1, ..still() }).await;
    let (_busy, _puppet) = bench.task("busy").await;
    let sent = bench.sends(&anybody(), bench.message("x"));
    let other = bench.beside(still());
    let puppet = other.puppet().await;
    assert_eq!(puppet.turn.text(), "x");
    puppet.status(TaskState::Completed, "").await.unwrap();
    assert_eq!(state(&sent.task().await), TaskState::Completed);
}
