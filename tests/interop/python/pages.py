"""Walks through all tasks of a context by the official SDK over gRPC, while another client adds tasks.

    python pages.py BASE_URL NUMBER_OF_TASKS

Between two pages of one walk it prints `delete TASK_ID`, the task at the boundary, and goes on when
it reads a line: whoever started it deletes that task's row meanwhile.
"""

import asyncio
import sys
import uuid

from a2a.types import a2a_pb2 as pb
from sdk import connect, send, state

PAGE_SIZES = (1, 7, 50, 100)


async def create(client, context, count):
    """Creates `count` finished tasks, some at a time, and returns their ids."""
    ids = set()
    left = iter(range(count))

    async def some():
        for number in left:
            task = await send(client, f"task {number}", context=context)
            assert state(task) == "COMPLETED" and task.context_id == context, task
            ids.add(task.id)

    await asyncio.gather(*(some() for _ in range(8)))
    assert len(ids) == count
    return ids


async def keep_creating(base_url, stop):
    """Another client, which creates tasks in a context of its own until it is told to stop."""
    client = await connect(base_url)
    count = 0
    while not stop.is_set():
        await send(client, "meanwhile", context="another context")
        count += 1
    await client.close()
    return count


def place(task):
    """What a listing is ordered by."""
    return (task.status.timestamp.ToNanoseconds(), uuid.UUID(task.id).bytes)


async def walk(client, size, total=None, between=None, **filters):
    """All tasks of a listing in pages of `size`; checks what every page must have."""
    tasks, token, n_pages = [], "", 0
    while True:
        request = pb.ListTasksRequest(page_size=size, page_token=token, **filters)
        page = await client.list_tasks(request)
        n_pages += 1
        total = page.total_size if total is None else total
        assert page.total_size == total, f"page {n_pages}: total {page.total_size}, not {total}"
        assert page.page_size == size, page.page_size
        assert 0 < len(page.tasks) <= size, f"page {n_pages} has {len(page.tasks)} tasks"
        assert not any(task.artifacts or task.history for task in page.tasks)
        tasks.extend(page.tasks)
        token = page.next_page_token
        if not token:
            break
        assert len(page.tasks) == size, f"page {n_pages} is short and not the last"
        if between is not None and n_pages == 1:
            await between(page.tasks[-1].id)
    places = [place(task) for task in tasks]
    assert places == sorted(places, reverse=True), f"size {size}: not in order"
    ids = [task.id for task in tasks]
    assert len(set(ids)) == len(ids), f"size {size}: a task came twice"
    return ids


async def ask_to_delete(task):
    print("delete", task, flush=True)
    assert await asyncio.to_thread(sys.stdin.readline), "nobody answered"


async def main(base_url, count):
    client = await connect(base_url)
    ids = await create(client, "paged", count)
    stop = asyncio.Event()
    other = asyncio.create_task(keep_creating(base_url, stop))

    walks = []
    for size in PAGE_SIZES:
        walks.append(await walk(client, size, total=count, context_id="paged"))
        assert set(walks[-1]) == ids, f"size {size}: a task is missing or strange"
        print("ok", size, flush=True)
    assert all(seen == walks[0] for seen in walks), "the order depends on the page size"

    # Everything the caller has, while it grows at the front.
    seen = await walk(client, 50)
    assert ids <= set(seen), "a task is missing in the listing of all"
    seen = await walk(client, 50, status=pb.TASK_STATE_COMPLETED)
    assert ids <= set(seen), "a task is missing in the listing of one state"
    print("ok all", flush=True)

    seen = await walk(client, 7, total=count, between=ask_to_delete, context_id="paged")
    assert seen == walks[0], "the walk changed when the task at the boundary went"
    seen = await walk(client, 100, total=count - 1, context_id="paged")
    assert seen == walks[0][:6] + walks[0][7:], "one task is gone and nothing else"

    stop.set()
    assert await other > 0, "the other client created nothing"
    await client.close()
    print("ok deleted", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
