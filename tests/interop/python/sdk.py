"""What the scripts beside this one share: a client of the official SDK over gRPC, found by discovery."""

import grpc
from a2a.client import ClientConfig, create_client
from a2a.helpers.proto_helpers import get_artifact_text, new_text_message
from a2a.types import a2a_pb2 as pb


def channel(url):
    """The SDK hands over the URL of the card's interface; gRPC wants host and port."""
    return grpc.aio.insecure_channel(url.split("//")[-1])


async def connect(base_url):
    """A client for the agent whose card stands under `base_url`."""
    config = ClientConfig(
        streaming=False, supported_protocol_bindings=["GRPC"], grpc_channel_factory=channel
    )
    return await create_client(base_url, config)


async def send(client, text, *, task=None, context=None, immediately=False, history=None):
    """Sends `text` as the user; the answer is a Task or a Message."""
    message = new_text_message(text, task_id=task, context_id=context, role=pb.ROLE_USER)
    configuration = pb.SendMessageConfiguration(return_immediately=immediately)
    if history is not None:
        configuration.history_length = history
    request = pb.SendMessageRequest(message=message, configuration=configuration)
    answers = [answer async for answer in client.send_message(request)]
    assert len(answers) == 1, answers
    return getattr(answers[0], answers[0].WhichOneof("payload"))


def state(task):
    """The name of the task's state, without its prefix."""
    return pb.TaskState.Name(task.status.state).removeprefix("TASK_STATE_")


def texts(parts_of):
    """The texts of a message or artifact, in order."""
    return [part.text for part in parts_of.parts]


def artifact_text(task):
    """The text of the task's one artifact."""
    assert len(task.artifacts) == 1, task
    return get_artifact_text(task.artifacts[0])
