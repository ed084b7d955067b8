-- What has ended, oldest first, for each tenant. `terminal_at` moves once, in the update that moves
-- the status and so touches four indexes anyway; a task's last event is written once. Building an
-- index keeps writers of its table waiting, about two seconds for each million rows; readers go on.
create index tasks_ended on tasks (tenant, terminal_at) where terminal_at is not null;
create index task_events_ended on task_events (tenant, at) where state in (3, 4, 5, 7);
