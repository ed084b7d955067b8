-- Tasks and all that belongs to them.
--
-- Times are microseconds since 1970 in UTC. Bytes are encoded messages of the contract, without
-- the ids of task and context that every read fills in. Every key of a tenant's rows begins with
-- the tenant. There are no foreign keys: a task's rows are written and deleted together, by one
-- statement.

-- Names, once each: every other table says them by number.
create table tenants (
  id int generated always as identity primary key,
  name text collate "C" not null unique
);

create table owners (
  id int generated always as identity primary key,
  name text collate "C" not null unique
);

-- Whatever a write decides on stands on this row, because after a wait for its lock only the
-- locked row is read again.
create table tasks (
  tenant int not null,
  id uuid not null,
  owner int not null,
  context_id text collate "C" not null,
  state smallint not null,                -- the contract's number
  status_at bigint not null,              -- whole milliseconds; never goes back
  status_message bytea,
  status_seq bigint,                      -- the place in the history kept for status_message
  metadata bytea,
  generation bigint not null,             -- the number of events
  next_seq bigint not null,               -- the next place in the history
  shown boolean not null,
  lease uuid,                             -- of the running turn
  head_turn bigint not null,              -- the lowest unfinished turn, or next_turn
  next_turn bigint not null,
  interrupted_generation bigint,
  interrupted_turn bigint,
  reply bytea,                            -- the direct message of a task that was never shown
  cancel_requested_at bigint,
  cancel_metadata bytea,
  created_at bigint not null,
  updated_at bigint not null,             -- moves at least 1 µs with every change of this row
  terminal_at bigint,
  constraint tasks_pkey primary key (tenant, id),
  constraint tasks_status_at_whole_ms check (status_at % 1000 = 0),
  constraint tasks_status_seq_with_message check ((status_seq is null) = (status_message is null))
) with (fillfactor = 80);

-- One ordered range scan for each combination of filters of a listing.
create index tasks_by_owner on tasks (tenant, owner, status_at desc, id desc) where shown;
create index tasks_by_state on tasks (tenant, owner, state, status_at desc, id desc) where shown;
create index tasks_by_context on tasks (tenant, owner, context_id, status_at desc, id desc)
  where shown;
create index tasks_by_context_and_state
  on tasks (tenant, owner, context_id, state, status_at desc, id desc) where shown;
-- Rows that the loops look for. None of these columns moves with an ordinary update, so that one
-- that leaves the status alone touches no index.
create index tasks_hidden on tasks (created_at) where not shown;
create index tasks_to_cancel on tasks (cancel_requested_at)
  where cancel_requested_at is not null and terminal_at is null;

create function refuse_task_update() returns trigger language plpgsql as $$
begin
  raise exception 'an update of task % must move updated_at forward, must not lower generation or status_at, and must not change how the task ended', old.id
    using errcode = 'integrity_constraint_violation';
end
$$;

create trigger tasks_move_forward before update on tasks for each row
  when (new.updated_at <= old.updated_at
    or new.generation < old.generation
    or new.status_at < old.status_at
    or (old.terminal_at is not null
      and (new.state <> old.state or new.terminal_at is distinct from old.terminal_at)))
  execute function refuse_task_update();

create table messages (
  tenant int not null,
  task_id uuid not null,
  seq bigint not null,
  body bytea not null,
  constraint messages_pkey primary key (tenant, task_id, seq)
);

-- An artifact is `head` followed by the chunks from `since` on, in order: bytes of one encoded
-- message, cut between its parts.
create table artifacts (
  tenant int not null,
  task_id uuid not null,
  artifact_id text collate "C" not null,
  ordinal bigint not null,                -- the generation that made it; stays when it is replaced
  since bigint not null,                  -- the generation that made or last replaced it
  head bytea not null,                    -- all but the parts
  constraint artifacts_pkey primary key (tenant, task_id, artifact_id)
);

create table artifact_chunks (
  tenant int not null,
  task_id uuid not null,
  artifact_id text collate "C" not null,
  seq bigint not null,                    -- the generation that added it
  parts bytea not null,
  constraint artifact_chunks_pkey primary key (tenant, task_id, artifact_id, seq)
);

create table task_events (
  tenant int not null,
  task_id uuid not null,
  generation bigint not null,
  turn bigint not null,                   -- 0 for an event of no turn
  state smallint,                         -- of a status event
  at bigint not null,
  body bytea not null,
  constraint task_events_pkey primary key (tenant, task_id, generation)
);

create table sent_messages (
  tenant int not null,
  owner int not null,
  context_id text collate "C" not null,   -- as it was sent, or ''
  sent_task text collate "C" not null,    -- as it was sent, or ''
  message_id text collate "C" not null,
  digest bytea not null,
  task_id uuid not null,
  turn bigint not null,
  generation bigint not null,
  expires_at bigint not null,
  constraint sent_messages_pkey primary key (tenant, owner, context_id, sent_task, message_id)
);
create index sent_messages_expiry on sent_messages (expires_at);

create table turns (
  tenant int not null,
  task_id uuid not null,
  turn bigint not null,
  state smallint not null,                -- 0 blocked, 1 queued, 2 leased, 3 done, 4 dropped
  message_seq bigint not null,
  request bytea not null,                -- the SendMessageRequest without its message
  trace text,
  last_report bigint not null,
  lease uuid,                             -- stays after the end, to know a repeated report
  lease_until bigint,
  due_at bigint not null,
  errors int not null,
  interruptions int not null,
  constraint turns_pkey primary key (tenant, task_id, turn)
) with (fillfactor = 80);
create index turns_due on turns (due_at) where state = 1;
create index turns_leased on turns (lease_until) where state = 2;

-- How many tasks are shown: the sum of both tables. Writers only append deltas, so that no row is
-- hot; a loop folds them.
create table task_counts (
  tenant int not null,
  owner int not null,
  state smallint not null,
  n bigint not null,
  constraint task_counts_pkey primary key (tenant, owner, state)
);

create table task_count_deltas (
  tenant int not null,
  owner int not null,
  state smallint not null,
  n bigint not null
);
create index task_count_deltas_by_owner on task_count_deltas (tenant, owner, state) include (n);
