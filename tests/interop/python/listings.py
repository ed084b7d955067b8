"""Histories, filters and pages."""

from a2a.types import a2a_pb2 as pb
from google.protobuf.timestamp_pb2 import Timestamp
from sdk import fresh_context, said, send


async def history_length(given):
    context = fresh_context()
    asked = await send(given.client, "ask which size?", context=context, history=0)
    assert not asked.history, asked
    done = await send(given.client, "large", task=asked.id, history=2)
    assert said(done) == ["which size?", "large"], done
    for length, count in ((None, 3), (0, 0), (1, 1), (2, 2), (3, 3), (50, 3)):
        request = pb.GetTaskRequest(id=done.id, history_length=length)
        seen = await given.client.get_task(request)
        assert len(seen.history) == count, (length, seen)
        request = pb.ListTasksRequest(context_id=context, history_length=length)
        page = await given.client.list_tasks(request)
        # A listing has none unless it is asked for some.
        count = 0 if length is None else count
        assert len(page.tasks[0].history) == count, (length, page)


async def list_filters(given):
    context = fresh_context()
    first = await send(given.client, "one", context=context)
    asked = await send(given.client, "ask two?", context=context)
    last = await send(given.client, "three", context=context)

    async def found(**filters):
        request = pb.ListTasksRequest(context_id=context, **filters)
        page = await given.client.list_tasks(request)
        assert page.total_size == len(page.tasks) and page.next_page_token == "", page
        return list(page.tasks)

    async def ids(**filters):
        return [task.id for task in await found(**filters)]

    assert await ids() == [last.id, asked.id, first.id]
    assert await ids(status=pb.TASK_STATE_INPUT_REQUIRED) == [asked.id]
    assert await ids(status=pb.TASK_STATE_COMPLETED) == [last.id, first.id]
    assert await ids(status=pb.TASK_STATE_FAILED) == []
    # At that time or after it.
    time = asked.status.timestamp
    late = [t.id for t in (last, asked, first) if t.status.timestamp.ToNanoseconds() >= time.ToNanoseconds()]
    assert await ids(status_timestamp_after=time) == late
    assert await ids(status_timestamp_after=time, status=pb.TASK_STATE_INPUT_REQUIRED) == [asked.id]
    never = Timestamp(seconds=32_503_680_000)
    assert await ids(status_timestamp_after=never) == []

    lean = (await found(status=pb.TASK_STATE_COMPLETED))[0]
    assert not lean.artifacts and not lean.history, lean
    whole = await found(
        status=pb.TASK_STATE_COMPLETED, include_artifacts=True, history_length=10
    )
    assert whole[0] == last, (whole[0], last)


async def list_walk(given):
    context = fresh_context()
    wanted = {(await send(given.client, "a task", context=context)).id for _ in range(13)}
    walks = []
    for size in (1, 5, 13, 100, None):
        ids, token = [], ""
        while True:
            request = pb.ListTasksRequest(context_id=context, page_size=size, page_token=token)
            page = await given.client.list_tasks(request)
            assert page.total_size == len(wanted) and page.page_size == (size or 50), page
            assert page.tasks, "a page of a walk is empty"
            ids += [task.id for task in page.tasks]
            token = page.next_page_token
            if not token:
                break
        walks.append(ids)
    assert all(walk == walks[0] for walk in walks), walks
    assert len(walks[0]) == len(wanted) and set(walks[0]) == wanted, walks[0]
