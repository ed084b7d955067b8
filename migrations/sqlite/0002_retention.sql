-- What has ended, oldest first, for each tenant.
create index tasks_ended on tasks (tenant, terminal_at) where terminal_at is not null;
create index task_events_ended on task_events (tenant, at) where state in (3, 4, 5, 7);
