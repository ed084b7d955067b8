"""Every kind of conversation with the demo agent, by the official SDK over gRPC.

    python conversations.py BASE_URL
"""

import asyncio
import sys
import time

import httpx
from a2a.client import ClientCallContext
from a2a.client.errors import A2AClientTimeoutError
from a2a.types import a2a_pb2 as pb
from a2a.utils import errors
from sdk import artifact_text, connect, send, state, texts

ABSENT = "01890a5d-ac96-774b-bcce-b302099a8057"


async def fails(kind, call, field=None):
    """Awaits `call`, which must raise `kind`, and name `field` if one is given."""
    try:
        await call
    except errors.A2AError as error:
        assert type(error) is kind, f"{error!r} is not a {kind.__name__}"
        assert str(error), "an error has a text for people"
        if field is not None:
            assert field in str(error.data), f"{error!r} does not name {field}"
        return error
    raise AssertionError(f"no {kind.__name__} was raised")


async def until(client, task, wanted):
    """Reads the task until it is in the state `wanted`."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        seen = await client.get_task(pb.GetTaskRequest(id=task))
        if state(seen) == wanted:
            return seen
        await asyncio.sleep(0.05)
    raise AssertionError(f"{task} did not become {wanted}: {seen}")


async def the_card_is_found_by_discovery(client, base_url):
    async with httpx.AsyncClient() as http:
        answer = await http.get(f"{base_url}/.well-known/agent-card.json")
    assert answer.status_code == 200, answer
    card = answer.json()
    interface = card["supportedInterfaces"][0]
    assert interface["protocolBinding"] == "GRPC", interface
    assert interface["protocolVersion"] == "1.0", interface


async def a_blocking_send_returns_the_finished_task(client, _):
    task = await send(client, "good morning")
    assert state(task) == "COMPLETED", task
    assert artifact_text(task) == "good morning", task
    assert [texts(message) for message in task.history] == [["good morning"]], task
    assert task.context_id and task.history[0].task_id == task.id, task
    again = await client.get_task(pb.GetTaskRequest(id=task.id))
    assert again == task, (again, task)


async def an_immediate_send_returns_before_the_work_is_done(client, _):
    task = await send(client, "slow 2", immediately=True)
    assert state(task) in ("SUBMITTED", "WORKING"), task
    done = await until(client, task.id, "COMPLETED")
    assert texts(done.artifacts[0]) == ["chunk 1 of 2", "chunk 2 of 2"], done


async def a_question_is_answered_in_a_second_turn(client, _):
    asked = await send(client, "ask which colour?")
    assert state(asked) == "INPUT_REQUIRED", asked
    assert texts(asked.status.message) == ["which colour?"], asked
    done = await send(client, "blue", task=asked.id, context=asked.context_id)
    assert done.id == asked.id and state(done) == "COMPLETED", done
    said = [texts(message)[0] for message in done.history]
    assert said == ["ask which colour?", "which colour?", "blue"], said


async def history_length_keeps_the_newest(client, _):
    asked = await send(client, "ask which size?", history=0)
    assert not asked.history, asked
    done = await send(client, "large", task=asked.id, history=2)
    assert [texts(m)[0] for m in done.history] == ["which size?", "large"], done
    for length, count in ((0, 0), (1, 1), (2, 2), (3, 3), (50, 3)):
        seen = await client.get_task(pb.GetTaskRequest(id=done.id, history_length=length))
        assert len(seen.history) == count, (length, seen)
    whole = await client.get_task(pb.GetTaskRequest(id=done.id))
    assert len(whole.history) == 3, whole
    wrong = client.get_task(pb.GetTaskRequest(id=done.id, history_length=-1))
    await fails(errors.InvalidParamsError, wrong, "history_length")


async def a_direct_reply_is_a_message_and_no_task(client, _):
    reply = await send(client, "reply good evening")
    assert isinstance(reply, pb.Message), reply
    assert reply.role == pb.ROLE_AGENT and texts(reply) == ["good evening"], reply
    listed = await client.list_tasks(pb.ListTasksRequest(context_id=reply.context_id))
    assert listed.total_size == 0 and not listed.tasks, listed


async def failures_and_rejections_say_why(client, _):
    failed = await send(client, "fail no paper")
    assert state(failed) == "FAILED", failed
    assert texts(failed.status.message) == ["no paper"], failed
    rejected = await send(client, "reject not mine")
    assert state(rejected) == "REJECTED", rejected
    assert texts(rejected.status.message) == ["not mine"], rejected


async def a_wait_for_authorization_goes_on_by_a_message_or_by_itself(client, _):
    waiting = await send(client, "auth")
    assert state(waiting) == "AUTH_REQUIRED", waiting
    done = await send(client, "authorized now", task=waiting.id)
    assert state(done) == "COMPLETED", done
    waiting = await send(client, "auth 1")
    assert state(waiting) == "AUTH_REQUIRED", waiting
    await until(client, waiting.id, "COMPLETED")


async def a_running_task_is_canceled(client, _):
    task = await send(client, "slow 30", immediately=True)
    canceled = await client.cancel_task(pb.CancelTaskRequest(id=task.id))
    assert state(canceled) == "CANCELED", canceled
    again = client.cancel_task(pb.CancelTaskRequest(id=task.id))
    await fails(errors.TaskNotCancelableError, again)
    question = await send(client, "ask really?")
    canceled = await client.cancel_task(pb.CancelTaskRequest(id=question.id))
    assert state(canceled) == "CANCELED", canceled


async def errors_are_the_sdks_own_kinds(client, _):
    done = await send(client, "hello")
    absent = {
        "get": client.get_task(pb.GetTaskRequest(id=ABSENT)),
        "cancel": client.cancel_task(pb.CancelTaskRequest(id=ABSENT)),
        "send": send(client, "x", task=ABSENT),
        "odd": client.get_task(pb.GetTaskRequest(id="no such id")),
    }
    said = {str(await fails(errors.TaskNotFoundError, call)) for call in absent.values()}
    assert len(said) == 1, said
    await fails(errors.UnsupportedOperationError, send(client, "more", task=done.id))
    wrong_context = send(client, "more", task=done.id, context="another")
    await fails(errors.InvalidParamsError, wrong_context, "context_id")
    for size in (-1, 101):
        listing = client.list_tasks(pb.ListTasksRequest(page_size=size))
        await fails(errors.InvalidParamsError, listing, "page_size")
    for token in ("0", "50", "made up"):
        listing = client.list_tasks(pb.ListTasksRequest(page_token=token))
        await fails(errors.InvalidParamsError, listing, "page_token")
    webhook = client.create_task_push_notification_config(
        pb.TaskPushNotificationConfig(task_id=done.id, url="https://example.com/hook")
    )
    await fails(errors.PushNotificationNotSupportedError, webhook)


async def a_deadline_ends_the_wait_and_not_the_work(client, _):
    message = pb.Message(message_id="deadline", role=pb.ROLE_USER, parts=[pb.Part(text="slow 2")])
    message.context_id = "deadline"
    request = pb.SendMessageRequest(message=message)
    late = client.send_message(request, context=ClientCallContext(timeout=0.5))
    await fails(A2AClientTimeoutError, anext(aiter(late)))
    listed = await client.list_tasks(pb.ListTasksRequest(context_id="deadline"))
    deadline = time.monotonic() + 10
    while listed.total_size == 0 and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
        listed = await client.list_tasks(pb.ListTasksRequest(context_id="deadline"))
    await until(client, listed.tasks[0].id, "COMPLETED")


CASES = [
    the_card_is_found_by_discovery,
    a_blocking_send_returns_the_finished_task,
    an_immediate_send_returns_before_the_work_is_done,
    a_question_is_answered_in_a_second_turn,
    history_length_keeps_the_newest,
    a_direct_reply_is_a_message_and_no_task,
    failures_and_rejections_say_why,
    a_wait_for_authorization_goes_on_by_a_message_or_by_itself,
    a_running_task_is_canceled,
    errors_are_the_sdks_own_kinds,
    a_deadline_ends_the_wait_and_not_the_work,
]


async def main(base_url):
    client = await connect(base_url)
    for case in CASES:
        try:
            await case(client, base_url)
        except Exception as error:
            raise AssertionError(f"{case.__name__}: {error!r}") from error
        print("ok", case.__name__, flush=True)
    await client.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
