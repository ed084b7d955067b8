"""Every failure that a caller can bring about is the SDK's own kind of error."""

from a2a.types import a2a_pb2 as pb
from a2a.utils import errors
from faults import another_version, details, extended_card
from sdk import answer, fresh_context, get, send, sending

ABSENT = "01890a5d-ac96-774b-bcce-b302099a8057"


async def fails(kind, call):
    """Awaits `call`, which must raise `kind`."""
    try:
        found = await call
    except errors.A2AError as error:
        assert type(error) is kind, f"{error!r} is not a {kind.__name__}"
        assert str(error), "an error has a text for people"
        return error
    raise AssertionError(f"no {kind.__name__} was raised: {found}")


async def names(given, call, *fields):
    """Awaits `call`, which must raise an error that names the fields."""
    error = await fails(errors.InvalidParamsError, call)
    for field in fields:
        assert field in details(given.binding, error), f"{error!r} does not name {field}"


async def of_stream(stream):
    """The failure of a stream, which comes before any item."""
    return [item async for item in stream]


async def error_task_not_found(given):
    client = given.client
    calls = [
        get(client, ABSENT),
        get(client, "made-up"),
        client.cancel_task(pb.CancelTaskRequest(id=ABSENT)),
        send(client, "x", task=ABSENT),
    ]
    said = {str(await fails(errors.TaskNotFoundError, call)) for call in calls}
    assert len(said) == 1, said


async def error_task_not_found_streaming(given):
    request = pb.SubscribeToTaskRequest(id=ABSENT)
    await fails(errors.TaskNotFoundError, of_stream(given.streaming.subscribe(request)))
    sent = given.streaming.send_message(sending("x", task=ABSENT))
    await fails(errors.TaskNotFoundError, of_stream(sent))


async def error_task_not_cancelable(given):
    done = await send(given.client, "hello")
    call = given.client.cancel_task(pb.CancelTaskRequest(id=done.id))
    await fails(errors.TaskNotCancelableError, call)


async def error_unsupported_operation(given):
    done = await send(given.client, "hello")
    await fails(errors.UnsupportedOperationError, send(given.client, "more", task=done.id))


async def error_unsupported_operation_streaming(given):
    done = await send(given.client, "hello")
    ended = given.streaming.subscribe(pb.SubscribeToTaskRequest(id=done.id))
    await fails(errors.UnsupportedOperationError, of_stream(ended))
    more = given.streaming.send_message(sending("more", task=done.id))
    await fails(errors.UnsupportedOperationError, of_stream(more))


async def error_invalid_params(given):
    client = given.client
    asked = await send(client, "ask what?")
    negative = client.get_task(pb.GetTaskRequest(id=asked.id, history_length=-1))
    await names(given, negative, "history_length")
    await names(given, send(client, "x", history=-1), "configuration.history_length")
    empty = sending("x")
    empty.message.ClearField("parts")
    await names(given, answer(client, empty), "message.parts")
    elsewhere = send(client, "more", task=asked.id, context=fresh_context())
    await names(given, elsewhere, "message.context_id")
    for size in (-1, 101):
        await names(given, client.list_tasks(pb.ListTasksRequest(page_size=size)), "page_size")
    for token in ("0", "50", "made up"):
        await names(given, client.list_tasks(pb.ListTasksRequest(page_token=token)), "page_token")
    # All that is wrong is told together.
    both = client.list_tasks(pb.ListTasksRequest(page_size=101, history_length=-1))
    await names(given, both, "page_size", "history_length")


async def error_content_type(given):
    picture = sending("")
    picture.message.ClearField("parts")
    picture.message.parts.add(raw=b"\x00\x01", media_type="image/png")
    await fails(errors.ContentTypeNotSupportedError, answer(given.client, picture))


async def error_push_not_supported(given):
    config = pb.TaskPushNotificationConfig(task_id=ABSENT, url="https://example.com/hook")
    call = given.client.create_task_push_notification_config(config)
    await fails(errors.PushNotificationNotSupportedError, call)
    request = sending("x")
    request.configuration.task_push_notification_config.CopyFrom(config)
    await fails(errors.PushNotificationNotSupportedError, answer(given.client, request))


async def error_extended_card(given):
    await fails(errors.UnsupportedOperationError, extended_card(given))


async def error_version(given):
    for version in ("0.3", "9.9"):
        with another_version(given, version) as context:
            call = answer(given.client, sending("x"), context)
            await fails(errors.VersionNotSupportedError, call)
