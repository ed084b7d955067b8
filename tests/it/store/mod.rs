//! What every store promises, held against both. The promises are those of `a2ad::store`.

mod accepting;
mod canceling;
mod listing;
mod reporting;
mod retention;
mod scopes;
mod turns;

use std::sync::Arc;
use std::time::Duration;

use a2ad::contract::v1::{self, TaskState};
use a2ad::domain::{
    Clock, ContextId, Error, LeaseToken, ManualClock, Principal, Scope, TaskId, Tenant,
};
use a2ad::store::postgres::{Postgres, StatementMode};
use a2ad::store::sqlite::{Location, Settings, Sqlite};
use a2ad::store::{
    Accept, Accepted, AcceptedTurn, Backlog, Dedupe, Event, LeaseRequest, Owners, Page, PageQuery,
    Report, Reported, Store, Target, TaskRecord, Turn, TurnEnd, TurnRequest, Update, View,
};

use crate::support::{pgbouncer, postgres};

pub(crate) const LEASE: Duration = Duration::from_secs(15);
/// When the clock of a test begins.
pub(crate) const START_US: i64 = 1_800_000_000_123_456;

/// A fresh store, its clock, and a way past it.
pub(crate) struct Bed {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<ManualClock>,
    back: Back,
}

enum Back {
    Sqlite(tempfile::TempDir),
    Postgres(tokio_postgres::Client, Postgres),
}

impl Bed {
    pub(crate) async fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at_us(START_US));
        let location = Location::File(folder.path().join("test.db"));
        let settings = Settings::new(location, Arc::clone(&clock) as Arc<dyn Clock>);
        let store = Arc::new(Sqlite::open(settings).await.unwrap());
        Self { store, clock, back: Back::Sqlite(folder) }
    }

    pub(crate) async fn postgres() -> Self {
        Self::postgres_with(StatementMode::Auto).await
    }

    pub(crate) async fn postgres_with(mode: StatementMode) -> Self {
        let clock = Arc::new(ManualClock::at_us(START_US));
        let url = postgres::fresh_url().await;
        let now = Some(Arc::clone(&clock) as Arc<dyn Clock>);
        let store = postgres::open_with(&url, now, mode).await;
        let back = Back::Postgres(postgres::admin(&url).await, store.clone());
        Self { store: Arc::new(store), clock, back }
    }

    /// PostgreSQL behind PgBouncer in transaction mode, which gives a connection to somebody else
    /// after each transaction.
    pub(crate) async fn pgbouncer() -> Self {
        let clock = Arc::new(ManualClock::at_us(START_US));
        let url = postgres::fresh_url().await;
        let mut settings = a2ad::store::postgres::Settings::new(&pgbouncer::through(&url).await);
        settings.direct_url = Some(url.clone().into());
        settings.clock = Some(Arc::clone(&clock) as Arc<dyn Clock>);
        settings.statement_timeout = crate::support::PATIENCE;
        let store = Postgres::connect(settings).await.unwrap();
        assert_eq!(store.statement_mode(), StatementMode::Typed, "the pooler was not found out");
        let back = Back::Postgres(postgres::admin(&url).await, store.clone());
        Self { store: Arc::new(store), clock, back }
    }

    /// The way to take scopes out of its statements.
    #[cfg(debug_assertions)]
    pub(crate) fn proof(
        &self,
    ) -> Box<dyn std::ops::Deref<Target = a2ad::store::proof::Proof> + '_> {
        match &self.back {
            Back::Sqlite(folder) => {
                Box::new(Sqlite::proof(folder.path().join("test.db").to_str().unwrap()))
            }
            Back::Postgres(_, store) => Box::new(store.proof()),
        }
    }

    /// Runs SQL past the store.
    pub(crate) async fn sql(&self, sql: &str) -> Result<(), String> {
        match &self.back {
            Back::Sqlite(folder) => {
                let connection = rusqlite::Connection::open(folder.path().join("test.db")).unwrap();
                connection.busy_timeout(Duration::from_secs(10)).unwrap();
                connection.execute_batch(sql).map_err(|error| error.to_string())
            }
            Back::Postgres(client, _) => client.batch_execute(sql).await.map_err(|error| {
                error.as_db_error().map_or_else(|| error.to_string(), |e| e.message().to_owned())
            }),
        }
    }

    /// The one number that a query past the store finds.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        match &self.back {
            Back::Sqlite(folder) => {
                let connection = rusqlite::Connection::open(folder.path().join("test.db")).unwrap();
                connection.query_row(sql, (), |row| row.get(0)).unwrap()
            }
            Back::Postgres(client, _) => client.query_one(sql, &[]).await.unwrap().get(0),
        }
    }

    /// When the store last moved a task's row.
    pub(crate) async fn updated_at(&self, task: TaskId) -> i64 {
        let id = self.literal(task);
        self.number(&format!("select updated_at from tasks where id = {id}")).await
    }

    /// A task's id as SQL of the store writes it.
    pub(crate) fn literal(&self, task: TaskId) -> String {
        match self.back {
            Back::Sqlite(_) => format!("x'{}'", task.uuid().simple()),
            Back::Postgres(..) => format!("'{task}'"),
        }
    }

    pub(crate) async fn accept(&self, scope: &Scope, accept: Accept) -> Accepted {
        self.store.accept(scope, &accept).await.unwrap()
    }

    /// A new, shown task in a context.
    pub(crate) async fn begin(&self, scope: &Scope, context: &str) -> AcceptedTurn {
        accepted(self.accept(scope, new(context, true)).await)
    }

    /// The strangers, each of whom has a task by now, which is hidden and whose turn runs. Of a name
    /// that was never used nothing is looked up at all.
    pub(crate) async fn known_strangers(&self) -> Vec<Scope> {
        for stranger in strangers() {
            let lease = Some(LeaseRequest { token: no_lease(), lease: LEASE });
            accepted(self.accept(&stranger, Accept { lease, ..new("theirs", false) }).await);
        }
        strangers()
    }

    /// Claims exactly one turn.
    pub(crate) async fn claim(&self) -> Turn {
        let mut turns = self.store.claim_turns_of_all(1, LEASE).await.unwrap();
        assert_eq!(turns.len(), 1, "one turn is due");
        turns.remove(0)
    }

    pub(crate) async fn report(
        &self,
        turn: &Turn,
        sequence: i64,
        updates: Vec<Update>,
        end: Option<TurnEnd>,
    ) -> Reported {
        let report = Report { lease: turn.lease, turn: turn.turn, sequence, updates, end };
        self.store.report(&turn.scope, turn.task, &report).await.unwrap()
    }

    /// A task that was begun, claimed and moved to `state` by one report.
    pub(crate) async fn task_in(&self, scope: &Scope, context: &str, state: TaskState) -> TaskId {
        let begun = self.begin(scope, context).await;
        let turn = self.claim().await;
        assert_eq!(turn.task, begun.task);
        let end = (state != TaskState::Working).then_some(TurnEnd::Finished);
        let reported = self.report(&turn, 1, vec![status(state, "")], end).await;
        assert!(matches!(reported, Reported::Landed { generation: 2, .. }), "{reported:?}");
        begun.task
    }

    pub(crate) async fn get(&self, scope: &Scope, task: TaskId) -> TaskRecord {
        self.find(scope, task).await.expect("the task is there")
    }

    pub(crate) async fn find(&self, scope: &Scope, task: TaskId) -> Option<TaskRecord> {
        let view = View { history: 1000, artifacts: true, hidden: true };
        self.store.task(scope, task, view).await.unwrap()
    }

    pub(crate) async fn events(&self, scope: &Scope, task: TaskId) -> Vec<Event> {
        self.store.events_after(scope, task, 0, 10_000).await.unwrap().expect("the task is there")
    }

    pub(crate) async fn page(&self, scope: &Scope, query: &PageQuery) -> Page {
        self.store.tasks_page(scope, query).await.unwrap()
    }

    /// All that a listing shows, in pages of `limit`, and its total.
    pub(crate) async fn walk(
        &self,
        scope: &Scope,
        query: &PageQuery,
        limit: u32,
    ) -> (Vec<v1::Task>, i64) {
        let mut query = PageQuery { limit, total: true, after: None, ..query.clone() };
        let mut tasks = Vec::new();
        let mut total = None;
        loop {
            let page = self.page(scope, &query).await;
            assert!(page.tasks.len() <= limit as usize);
            assert_eq!(page.total.is_some(), query.total);
            total = total.or(page.total);
            tasks.extend(page.tasks);
            query.total = false;
            query.after = page.next;
            if query.after.is_none() {
                return (tasks, total.unwrap());
            }
        }
    }
}

pub(crate) fn scope(tenant: &str, owner: &str) -> Scope {
    Scope::new(
        Tenant::parse("tenant", tenant).unwrap(),
        Principal::parse("principal", owner).unwrap(),
    )
}

pub(crate) fn ann() -> Scope {
    scope("acme", "key:ann")
}

/// Everybody else: another owner, another tenant, and names that were never used.
pub(crate) fn strangers() -> Vec<Scope> {
    vec![
        scope("acme", "key:bob"),
        scope("other", "key:ann"),
        scope("nowhere", "key:ann"),
        scope("acme", "key:nobody"),
        scope("", "anonymous"),
    ]
}

pub(crate) fn message(id: &str, text: &str) -> v1::Message {
    v1::Message {
        message_id: id.to_owned(),
        role: v1::Role::User as i32,
        parts: vec![a2ad::agent::text_part(text)],
        ..Default::default()
    }
}

pub(crate) fn context(name: &str) -> ContextId {
    ContextId::parse("context_id", name).unwrap()
}

/// A message that begins a task.
pub(crate) fn new(in_context: &str, shown: bool) -> Accept {
    Accept {
        message: message("m-1", "begin"),
        dedupe: None,
        target: Target::New { task: TaskId::generate(), context: context(in_context), shown },
        request: TurnRequest::default(),
        lease: None,
    }
}

/// A message to a task.
pub(crate) fn more(task: TaskId, id: &str) -> Accept {
    Accept {
        message: message(id, "more"),
        dedupe: None,
        target: Target::Existing { task, context: None },
        request: TurnRequest::default(),
        lease: None,
    }
}

/// Makes a message one whose repeats are recognised.
pub(crate) fn deduped(mut accept: Accept) -> Accept {
    let digest = accept.message.parts.len() as u8;
    let sent_to = match &accept.target {
        Target::New { .. } => String::new(),
        Target::Existing { task, .. } => task.to_string(),
    };
    accept.dedupe = Some(Dedupe {
        context: String::new(),
        task: sent_to,
        digest: [digest; 32],
        window: Duration::from_secs(3600),
    });
    accept
}

pub(crate) fn accepted(outcome: Accepted) -> AcceptedTurn {
    match outcome {
        Accepted::New(turn) => turn,
        other => panic!("expected a new turn, got {other:?}"),
    }
}

pub(crate) fn status(state: TaskState, text: &str) -> Update {
    let message = (!text.is_empty()).then(|| v1::Message {
        role: v1::Role::Agent as i32,
        ..message(&format!("says {text}"), text)
    });
    Update::Status { state, message, metadata: None }
}

pub(crate) fn chunk(id: &str, text: &str, append: bool) -> Update {
    let artifact = v1::Artifact {
        artifact_id: id.to_owned(),
        name: format!("name of {id}"),
        parts: vec![a2ad::agent::text_part(text)],
        ..Default::default()
    };
    Update::Artifact { artifact, append, last_chunk: false, metadata: None }
}

pub(crate) fn everything() -> PageQuery {
    PageQuery {
        context: None,
        state: None,
        since_us: None,
        after: None,
        limit: 50,
        history: 0,
        artifacts: false,
        total: true,
        bytes_max: usize::MAX,
    }
}

pub(crate) fn state_of(task: &v1::Task) -> TaskState {
    task.status.as_ref().unwrap().state()
}

pub(crate) fn status_at(task: &v1::Task) -> i64 {
    task.status.as_ref().unwrap().timestamp.as_ref().unwrap().to_micros().unwrap()
}

pub(crate) fn no_lease() -> LeaseToken {
    LeaseToken::generate()
}

/// One test for each case on each store.
macro_rules! promises {
    ($($part:ident: $($case:ident),+ $(,)?;)+) => {
        mod on_sqlite {
            $($(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    super::$part::$case(&super::Bed::sqlite().await).await;
                }
            )+)+
        }
        mod on_postgres_behind_pgbouncer {
            $($(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    super::$part::$case(&super::Bed::pgbouncer().await).await;
                }
            )+)+
        }
        mod on_postgres {
            $($(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    super::$part::$case(&super::Bed::postgres().await).await;
                }
            )+)+
        }
    };
}

promises! {
    accepting:
        a_message_makes_a_task_with_one_event_one_message_and_one_turn,
        a_later_message_waits_for_the_turn_before_it,
        a_message_reaches_only_the_tasks_of_its_scope,
        a_message_to_a_task_that_ended_or_of_another_context_is_refused,
        a_repeat_finds_what_the_first_one_made,
        the_same_id_with_other_content_is_told_apart,
        a_repeat_after_the_window_is_a_new_message,
        an_id_counts_for_its_sender_and_for_where_it_was_sent,
        of_many_equal_messages_at_once_one_makes_a_task,
        a_payload_keeps_every_character_also_nul,
        a_scope_that_never_sent_anything_is_empty,
        a_refused_message_leaves_nothing_behind,
        a_lease_is_given_with_the_message_if_no_turn_is_unfinished;
    turns:
        a_claim_gives_a_turn_with_all_that_it_needs,
        sixteen_claimers_share_the_turns_without_a_double,
        the_turn_that_is_due_longest_is_claimed_first,
        a_turn_of_a_task_runs_after_the_one_before,
        a_lease_that_ran_out_goes_to_another_runner,
        the_pause_grows_with_each_interruption,
        a_renewed_lease_lasts_and_a_lost_one_does_not,
        an_error_counts_and_a_turn_handed_back_does_not,
        a_second_attempt_shows_a_hidden_task,
        the_work_that_waits_is_counted_and_timed;
    reporting:
        outcomes_that_come_together_are_events_in_order,
        a_report_of_a_stale_lease_changes_nothing,
        the_same_report_again_changes_nothing_and_says_so,
        a_terminal_task_never_changes,
        a_status_message_joins_the_history_in_its_place_when_it_is_replaced,
        artifacts_grow_are_replaced_and_keep_their_order,
        the_status_time_never_goes_back,
        every_change_moves_the_row_also_while_the_clock_goes_back,
        an_update_past_the_store_must_move_the_row_forward,
        a_direct_reply_stays_hidden_and_one_to_a_shown_task_completes_it,
        a_report_that_breaks_the_rules_is_refused_whole,
        events_after_a_generation_are_exactly_the_rest;
    canceling:
        a_task_without_a_running_turn_is_canceled_at_once,
        a_running_turn_is_told_and_its_lease_ends_with_the_task,
        of_a_cancel_and_a_completion_at_once_one_wins,
        a_forgotten_cancel_is_finished_after_the_grace,
        a_cancel_is_an_event_of_the_turn_that_it_ends,
        strangers_change_and_see_nothing;
    listing:
        a_listing_is_newest_first_with_ties_by_id,
        walks_of_every_page_size_are_the_same,
        filters_select_and_totals_are_exact,
        a_listing_shows_the_tasks_of_its_scope_alone,
        a_hidden_task_is_nowhere_until_it_is_shown,
        a_walk_goes_on_when_the_task_at_the_boundary_is_gone,
        history_and_artifacts_come_only_when_asked_for_and_within_bounds,
        totals_stay_exact_while_counts_are_folded,
        live_tasks_are_counted_by_owner_and_by_tenant,
        what_was_never_shown_expires,
        what_is_worked_on_or_was_a_moment_ago_does_not_expire;
    retention:
        a_task_goes_with_all_its_rows_when_its_time_is_over,
        what_has_not_ended_is_never_purged,
        every_end_is_an_end,
        batches_are_bounded_and_the_oldest_goes_first,
        each_tenant_keeps_what_it_is_told_to,
        totals_stay_exact_while_tasks_are_purged,
        a_walk_neither_repeats_nor_skips_what_stays,
        a_log_goes_whole_and_its_task_stays,
        a_repeat_finds_that_the_task_it_made_is_gone,
        several_purgers_share_the_work,
        purging_takes_nothing_from_those_who_work,
        an_owner_is_erased_and_nobody_else,
        an_owner_that_comes_back_begins_anew,
        an_owner_of_several_tenants_is_erased_in_one;
}
