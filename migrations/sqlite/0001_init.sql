-- Tasks and all that belongs to them.
--
-- Times are microseconds since 1970 in UTC. Bytes are encoded messages of the contract, without
-- the ids of task and context that every read fills in. Every key of a tenant's rows begins with
-- the tenant. There are no foreign keys: a task's rows are written and deleted together, by one
-- statement.

-- Names, once each: every other table says them by number.
create table tenants (
  id integer primary key,
  name text not null unique
);

create table owners (
  id integer primary key,
  name text not null unique
);

-- Whatever a write decides on stands on this row, because after a wait for its lock only the
-- locked row is read again.
create table tasks (
  tenant integer not null,
  id blob not null,
  owner integer not null,
  context_id text not null,
  state integer not null,                 -- the contract's number
  status_at integer not null,             -- whole milliseconds; never goes back
  status_message blob,
  status_seq integer,                     -- the place in the history kept for status_message
  metadata blob,
  generation integer not null,            -- the number of events
  next_seq integer not null,              -- the next place in the history
  shown integer not null,
  lease blob,                             -- of the running turn
  head_turn integer not null,             -- the lowest unfinished turn, or next_turn
  next_turn integer not null,
  interrupted_generation integer,
  interrupted_turn integer,
  reply blob,                             -- the direct message of a task that was never shown
  cancel_requested_at integer,
  cancel_metadata blob,
  created_at integer not null,
  updated_at integer not null,            -- moves at least 1 µs with every change of this row
  terminal_at integer,
  constraint tasks_pkey primary key (tenant, id),
  constraint tasks_status_at_whole_ms check (status_at % 1000 = 0),
  constraint tasks_status_seq_with_message check ((status_seq is null) = (status_message is null))
);

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

create trigger tasks_move_forward before update on tasks
  when (new.updated_at <= old.updated_at
    or new.generation < old.generation
    or new.status_at < old.status_at
    or (old.terminal_at is not null
      and (new.state <> old.state or new.terminal_at is not old.terminal_at)))
begin
  select raise(abort, 'an update of a task must move updated_at forward, must not lower generation or status_at, and must not change how the task ended');
end;

create table messages (
  tenant integer not null,
  task_id blob not null,
  seq integer not null,
  body blob not null,
  constraint messages_pkey primary key (tenant, task_id, seq)
);

-- An artifact is `head` followed by the chunks from `since` on, in order: bytes of one encoded
-- message, cut between its parts.
create table artifacts (
  tenant integer not null,
  task_id blob not null,
  artifact_id text not null,
  ordinal integer not null,               -- the generation that made it; stays when it is replaced
  since integer not null,                 -- the generation that made or last replaced it
  head blob not null,                     -- all but the parts
  constraint artifacts_pkey primary key (tenant, task_id, artifact_id)
);

create table artifact_chunks (
  tenant integer not null,
  task_id blob not null,
  artifact_id text not null,
  seq integer not null,                   -- the generation that added it
  parts blob not null,
  constraint artifact_chunks_pkey primary key (tenant, task_id, artifact_id, seq)
);

create table task_events (
  tenant integer not null,
  task_id blob not null,
  generation integer not null,
  turn integer not null,                  -- 0 for an event of no turn
  state integer,                          -- of a status event
  at integer not null,
  body blob not null,
  constraint task_events_pkey primary key (tenant, task_id, generation)
);

create table sent_messages (
  tenant integer not null,
  owner integer not null,
  context_id text not null,               -- as it was sent, or ''
  sent_task text not null,                -- as it was sent, or ''
  message_id text not null,
  digest blob not null,
  task_id blob not null,
  turn integer not null,
  generation integer not null,
  expires_at integer not null,
  constraint sent_messages_pkey primary key (tenant, owner, context_id, sent_task, message_id)
);
create index sent_messages_expiry on sent_messages (expires_at);

create table turns (
  tenant integer not null,
  task_id blob not null,
  turn integer not null,
  state integer not null,                 -- 0 blocked, 1 queued, 2 leased, 3 done, 4 dropped
  message_seq integer not null,
  request blob not null,                  -- the SendMessageRequest without its message
  trace text,
  last_report integer not null,
  lease blob,                             -- stays after the end, to know a repeated report
  lease_until integer,
  due_at integer not null,
  errors integer not null,
  interruptions integer not null,
  constraint turns_pkey primary key (tenant, task_id, turn)
);
create index turns_due on turns (due_at) where state = 1;
create index turns_leased on turns (lease_until) where state = 2;

-- How many tasks are shown: the sum of both tables. Writers only append deltas, so that no row is
-- hot; a loop folds them.
create table task_counts (
  tenant integer not null,
  owner integer not null,
  state integer not null,
  n integer not null,
  constraint task_counts_pkey primary key (tenant, owner, state)
);

create table task_count_deltas (
  tenant integer not null,
  owner integer not null,
  state integer not null,
  n integer not null
);
create index task_count_deltas_by_owner on task_count_deltas (tenant, owner, state);
