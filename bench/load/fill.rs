//! Fills a database as months of work would have: one owner with a fifth of all tasks, the rest
//! spread over a thousand; each task with its messages, an artifact, its events and its turn.

use a2ad::agent::text_part;
use a2ad::contract::v1;
use a2ad::contract::v1::stream_response::Payload;
use prost::Message as _;
use tokio_postgres::Client;

/// The owner that is measured: a task in five is hers. As the API key of this name makes it.
pub(crate) const OWNER: &str = "key:bench";

const TASKS: &str = "
insert into tasks (tenant, id, owner, context_id, state, status_at, status_message, status_seq,
  generation, next_seq, shown, head_turn, next_turn, created_at, updated_at, terminal_at)
select 1, ('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid,
  case when n % 5 = 0 then 1 else 2 + n % 999 end, 'context-' || n / 40,
  case n % 250 when 1 then 2 when 2 then 4 when 5 then 4 when 3 then 6 else 3 end,
  1750000000000000 + n * 1000000, $2, 1, 3, 2, true, 2, 2,
  1750000000000000 + n * 1000000, 1750000000000000 + n * 1000000 + 2,
  case when n % 250 in (1, 3) then null else 1750000000000000 + n * 1000000 end
from generate_series(1::bigint, $1) n";

const MESSAGES: &str = "
insert into messages (tenant, task_id, seq, body) select 1, id, 0, $1 from tasks order by id";

const ARTIFACTS: &str = "
insert into artifacts (tenant, task_id, artifact_id, ordinal, since, head)
select 1, id, 'answer', 2, 2, $1 from tasks order by id";

const CHUNKS: &str = "
insert into artifact_chunks (tenant, task_id, artifact_id, seq, parts)
select 1, id, 'answer', 2, $1 from tasks order by id";

const EVENTS: &str = "
insert into task_events (tenant, task_id, generation, turn, state, at, body)
select 1, id, g, 1, case g when 1 then 1 when 3 then state end, status_at,
  case g when 1 then $1::bytea when 2 then $2 else $3 end
from tasks, generate_series(1, 3) g order by id, g";

const TURNS: &str = "
insert into turns (tenant, task_id, turn, state, message_seq, request, last_report, due_at, errors,
  interruptions)
select 1, id, 1, 3, 0, '', 1, status_at, 0, 0 from tasks order by id";

const REST: &str = "
insert into task_counts (tenant, owner, state, n)
select tenant, owner, state, count(*) from tasks group by tenant, owner, state";

/// A message of about `length` characters.
fn message(role: v1::Role, length: usize) -> v1::Message {
    let text = "All twelve invoices of the quarter are checked against the ledger. ";
    let text: String = text.chars().cycle().take(length).collect();
    v1::Message {
        message_id: "0190d7a1-5b1e-7c3a-9f00-5d0a3c1f0000".to_owned(),
        role: role.into(),
        parts: vec![text_part(text)],
        ..Default::default()
    }
}

fn status_event(state: v1::TaskState, message: Option<v1::Message>) -> Vec<u8> {
    let status = v1::TaskStatus { state: state.into(), message, timestamp: None };
    let update = v1::TaskStatusUpdateEvent { status: Some(status), ..Default::default() };
    v1::StreamResponse { payload: Some(Payload::StatusUpdate(update)) }.encode_to_vec()
}

/// What a task's user asked and what its agent said, encoded.
pub(crate) fn bodies() -> (Vec<u8>, Vec<u8>) {
    let (asked, said) = (message(v1::Role::User, 200), message(v1::Role::Agent, 200));
    (asked.encode_to_vec(), said.encode_to_vec())
}

/// Fills the database of a migrated schema with this many tasks.
pub(crate) async fn fill(client: &Client, tasks: i64) {
    let names = format!(
        "insert into tenants (name) values (''); \
         insert into owners (name) values ('{OWNER}'); \
         insert into owners (name) select 'key:owner-' || n from generate_series(2, 1000) n"
    );
    client.batch_execute(&names).await.unwrap();
    let said = message(v1::Role::Agent, 200);
    let head = v1::Artifact {
        artifact_id: "answer".to_owned(),
        name: "answer".to_owned(),
        ..Default::default()
    };
    let parts = v1::Artifact { parts: vec![text_part("x".repeat(400))], ..Default::default() };
    let artifact = v1::Artifact { parts: parts.parts.clone(), ..head.clone() };
    let artifact = v1::TaskArtifactUpdateEvent { artifact: Some(artifact), ..Default::default() };
    let artifact = v1::StreamResponse { payload: Some(Payload::ArtifactUpdate(artifact)) };
    let asked = message(v1::Role::User, 200).encode_to_vec();
    let submitted = status_event(v1::TaskState::Submitted, None);
    let completed = status_event(v1::TaskState::Completed, Some(said.clone()));
    client.execute(TASKS, &[&tasks, &said.encode_to_vec()]).await.unwrap();
    client.execute(MESSAGES, &[&asked]).await.unwrap();
    client.execute(ARTIFACTS, &[&head.encode_to_vec()]).await.unwrap();
    client.execute(CHUNKS, &[&parts.encode_to_vec()]).await.unwrap();
    client.execute(EVENTS, &[&submitted, &artifact.encode_to_vec(), &completed]).await.unwrap();
    client.execute(TURNS, &[]).await.unwrap();
    client.execute(REST, &[]).await.unwrap();
    client.batch_execute("vacuum analyze").await.unwrap();
}
