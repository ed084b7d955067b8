"""Sending, streaming, asking again, canceling."""

import asyncio
import uuid

from a2a.client import ClientCallContext
from a2a.client.errors import A2AClientTimeoutError
from a2a.types import a2a_pb2 as pb
from a2a.utils import errors
from failures import fails
from google.protobuf.json_format import ParseDict
from sdk import answer, artifact_text, fresh_context, get, listed, said, send, sending
from sdk import state, texts, told, until


async def card(given):
    card = given.client._card
    assert card.name and card.description and card.version and card.skills, card
    found = [i for i in card.supported_interfaces if i.protocol_binding == given.binding]
    assert [i.protocol_version for i in found] == ["1.0"], card


async def send_blocking(given):
    task = await send(given.client, "good morning")
    assert state(task) == "COMPLETED", task
    assert artifact_text(task) == "good morning", task
    assert said(task) == ["good morning"], task
    assert task.context_id and task.history[0].task_id == task.id, task
    assert task.status.timestamp.nanos % 1_000_000 == 0, task
    again = await get(given.client, task.id)
    assert again == task, (again, task)


async def send_at_once(given):
    task = await send(given.client, "slow 1", immediately=True)
    assert state(task) in ("SUBMITTED", "WORKING"), task
    done = await until(given.client, task.id, "COMPLETED")
    assert texts(done.artifacts[0]) == ["chunk 1 of 1"], done


async def send_streaming(given):
    seen = await told(given.streaming.send_message(sending("slow 2")))
    assert seen.states == ["SUBMITTED", "WORKING", "COMPLETED"], seen.states
    assert texts(seen.task.artifacts[0]) == ["chunk 1 of 2", "chunk 2 of 2"], seen.task
    await seen.equals(given.client)


async def subscribe(given):
    running = await send(given.client, "slow 2", immediately=True)
    seen = await told(given.streaming.subscribe(pb.SubscribeToTaskRequest(id=running.id)))
    assert seen.states[-1] == "COMPLETED", seen.states
    await seen.equals(given.client)

    # A task that waits for its user is still to be watched.
    asked = await send(given.client, "ask which colour?")
    answered = []

    def answer_once(_):
        if not answered:
            sent = send(given.client, "blue", task=asked.id)
            answered.append(asyncio.create_task(sent))
        return False

    request = pb.SubscribeToTaskRequest(id=asked.id)
    watched = await told(given.streaming.subscribe(request), answer_once)
    assert watched.states == ["INPUT_REQUIRED", "WORKING", "COMPLETED"], watched.states
    await answered[0]
    await watched.equals(given.client)


async def resubscribe(given):
    stream = given.streaming.send_message(sending("slow 3"))
    cut = await told(stream, lambda item: item.HasField("artifact_update"))
    await stream.aclose()
    assert texts(cut.task.artifacts[0]) == ["chunk 1 of 3"], cut.task
    request = pb.SubscribeToTaskRequest(id=cut.task.id)
    seen = await told(given.streaming.subscribe(request))
    chunks = ["chunk 1 of 3", "chunk 2 of 3", "chunk 3 of 3"]
    assert texts(seen.task.artifacts[0]) == chunks, seen.task
    await seen.equals(given.client)


async def ask_and_answer(given):
    asked = await send(given.client, "ask which colour?")
    assert state(asked) == "INPUT_REQUIRED", asked
    assert texts(asked.status.message) == ["which colour?"], asked
    done = await send(given.client, "blue", task=asked.id, context=asked.context_id)
    assert done.id == asked.id and state(done) == "COMPLETED", done
    assert said(done) == ["ask which colour?", "which colour?", "blue"], done


async def ask_and_answer_streaming(given):
    asked = await told(given.streaming.send_message(sending("ask which size?")))
    assert asked.states[-1] == "INPUT_REQUIRED", asked.states
    request = sending("large", task=asked.task.id)
    done = await told(given.streaming.send_message(request))
    assert done.task.id == asked.task.id, done.task
    assert done.states == ["INPUT_REQUIRED", "WORKING", "COMPLETED"], done.states
    await done.equals(given.client)


async def direct_reply(given):
    context = fresh_context()
    reply = await send(given.client, "reply good evening", context=context)
    assert isinstance(reply, pb.Message), reply
    assert reply.role == pb.ROLE_AGENT and texts(reply) == ["good evening"], reply
    assert reply.context_id == context, reply
    found = await given.client.list_tasks(pb.ListTasksRequest(context_id=context))
    assert found.total_size == 0 and not found.tasks, found


async def direct_reply_streaming(given):
    items = [item async for item in given.streaming.send_message(sending("reply good night"))]
    assert [item.WhichOneof("payload") for item in items] == ["message"], items
    assert texts(items[0].message) == ["good night"], items


async def fail_and_reject(given):
    for text, wanted in (("fail no paper", "FAILED"), ("reject not mine", "REJECTED")):
        task = await send(given.client, text)
        assert state(task) == wanted, task
        assert texts(task.status.message) == [text.partition(" ")[2]], task


async def authorization(given):
    waiting = await send(given.client, "auth")
    assert state(waiting) == "AUTH_REQUIRED", waiting
    done = await send(given.client, "authorized now", task=waiting.id)
    assert state(done) == "COMPLETED", done
    waiting = await send(given.client, "auth 1")
    assert state(waiting) == "AUTH_REQUIRED", waiting
    await until(given.client, waiting.id, "COMPLETED")


async def parts(given):
    data = {"list": [1, 2.5, -3e9, None, "ü", {"deep": True}], "nothing": None, "empty": {}}
    sent = [
        {"text": "Grüße, 世界 🌍", "metadata": {"lang": "de"}},
        {"data": data},
        {"raw": "AAH+/w==", "filename": "four.bin"},
        {"url": "https://example.com/a?b=c&d=%20", "filename": "a file"},
    ]
    sent += [{"data": value} for value in ([1, "two", None], "a text", 42, False, None)]
    request = sending("")
    request.message.ClearField("parts")
    ParseDict({"parts": sent, "metadata": {"trace": ["a", 1]}}, request.message)
    task = await answer(given.client, request)
    assert state(task) == "COMPLETED", task
    for found in (task.artifacts[0], task.history[0]):
        assert list(found.parts) == list(request.message.parts), found
    assert task.history[0].metadata == request.message.metadata, task


async def cancel(given):
    running = await send(given.client, "slow 30", immediately=True)
    asked = await send(given.client, "ask really?")
    for task in (running, asked):
        canceled = await given.client.cancel_task(pb.CancelTaskRequest(id=task.id))
        assert state(canceled) == "CANCELED", canceled
        assert state(await get(given.client, task.id)) == "CANCELED"


async def leave(given):
    # Its task is listed after a second; then its sender goes away.
    context = fresh_context()
    waiting = asyncio.create_task(send(given.client, "slow 2", context=context))
    task = await listed(given.client, context)
    waiting.cancel()
    await until(given.client, task.id, "COMPLETED")

    # A deadline ends the wait in the same way.
    context = fresh_context()
    late = answer(given.client, sending("slow 2", context=context), ClientCallContext(timeout=0.5))
    await fails(A2AClientTimeoutError, late)
    task = await listed(given.client, context)
    await until(given.client, task.id, "COMPLETED")


async def tenants(given):
    tenant = f"tenant-{uuid.uuid4()}"
    task = await send(given.client, "hello", tenant=tenant)
    mine = await given.client.get_task(pb.GetTaskRequest(id=task.id, tenant=tenant))
    assert mine == task, mine
    found = await given.client.list_tasks(pb.ListTasksRequest(tenant=tenant))
    assert found.total_size == 1, found
    await fails(errors.TaskNotFoundError, get(given.client, task.id))
