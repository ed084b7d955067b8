"""What the scripts beside this one share: a client of the official SDK, found by discovery."""

import asyncio
import time
import uuid

import grpc
import httpx
from a2a.client import ClientConfig, create_client
from a2a.helpers.proto_helpers import get_artifact_text, new_text_message
from a2a.types import a2a_pb2 as pb


def channel(url):
    """gRPC wants host and port, whatever the card's interface begins with."""
    return grpc.aio.insecure_channel(url.split("//")[-1])


async def connect(base_url, binding="GRPC", *, streaming=False):
    """A client for the agent whose card stands under `base_url`, which knows one binding alone."""
    http = httpx.AsyncClient(timeout=60, headers={"A2A-Version": "1.0"})
    config = ClientConfig(
        streaming=streaming,
        supported_protocol_bindings=[binding],
        grpc_channel_factory=channel,
        httpx_client=http,
    )
    return await create_client(base_url, config)


def fresh_context():
    """A context that no other scenario has."""
    return f"context-{uuid.uuid4()}"


def sending(text, *, task=None, context=None, immediately=False, history=None, tenant=None):
    """A request that sends `text` as the user."""
    message = new_text_message(text, task_id=task, context_id=context, role=pb.ROLE_USER)
    configuration = pb.SendMessageConfiguration(return_immediately=immediately)
    if history is not None:
        configuration.history_length = history
    return pb.SendMessageRequest(message=message, configuration=configuration, tenant=tenant)


async def answer(client, request, context=None):
    """The one answer to a send: a Task or a Message."""
    answers = [answer async for answer in client.send_message(request, context=context)]
    assert len(answers) == 1, answers
    return getattr(answers[0], answers[0].WhichOneof("payload"))


async def send(client, text, **options):
    """Sends `text` as the user; the answer is a Task or a Message."""
    return await answer(client, sending(text, **options))


async def get(client, task):
    return await client.get_task(pb.GetTaskRequest(id=task))


def state(task):
    """The name of the task's state, without its prefix."""
    return pb.TaskState.Name(task.status.state).removeprefix("TASK_STATE_")


def texts(parts_of):
    """The texts of a message or artifact, in order."""
    return [part.text for part in parts_of.parts]


def said(task):
    """The first text of each message in the task's history."""
    return [texts(message)[0] for message in task.history]


def artifact_text(task):
    """The text of the task's one artifact."""
    assert len(task.artifacts) == 1, task
    return get_artifact_text(task.artifacts[0])


async def eventually(what, look):
    """Looks again and again until there is something."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if found := await look():
            return found
        await asyncio.sleep(0.05)
    raise AssertionError(f"in 30 seconds there was no {what}")


async def until(client, task, wanted):
    """Reads the task until it is in the state `wanted`."""

    async def look():
        seen = await get(client, task)
        return seen if state(seen) == wanted else None

    return await eventually(f"{wanted} task {task}", look)


async def listed(client, context):
    """The one task of a context, as soon as it is listed."""

    async def look():
        page = await client.list_tasks(pb.ListTasksRequest(context_id=context))
        return page.tasks[0] if page.tasks else None

    return await eventually(f"task in {context}", look)


class Told:
    """What a stream tells of a task: its snapshot with every update applied."""

    def __init__(self, first):
        assert first.HasField("task"), f"a stream of a task begins with the task: {first}"
        self.task = first.task
        self.states = [state(self.task)]

    def add(self, item):
        kind = item.WhichOneof("payload")
        update = getattr(item, kind)
        assert (update.task_id, update.context_id) == (self.task.id, self.task.context_id), item
        if kind == "status_update":
            self.task.status.CopyFrom(update.status)
            self.states.append(state(self.task))
            return
        assert kind == "artifact_update", item
        known = [a for a in self.task.artifacts if a.artifact_id == update.artifact.artifact_id]
        assert bool(known) == update.append, f"an artifact came twice, or not whole: {item}"
        if known:
            known[0].parts.extend(update.artifact.parts)
        else:
            self.task.artifacts.append(update.artifact)

    async def equals(self, client):
        """The task told is the task stored."""
        stored = await get(client, self.task.id)
        assert self.task.status == stored.status, (self.task, stored)
        assert list(self.task.artifacts) == list(stored.artifacts), (self.task, stored)


async def told(stream, enough=lambda item: False):
    """All that a stream of a task tells, to its end or until an item is enough."""
    seen = None
    async for item in stream:
        if seen is None:
            seen = Told(item)
        else:
            seen.add(item)
        if enough(item):
            break
    assert seen is not None, "the stream ended without an item"
    return seen
