"""Sends a message with the official Python SDK over gRPC, or lists the newest tasks.

    python examples/client.py [TEXT] [URL] [--task ID] [--api-key KEY]
    python examples/client.py --list [URL] [--api-key KEY]
"""

import argparse
import asyncio

import grpc
from a2a.client import ClientConfig, create_client
from a2a.client.client import ClientCallContext
from a2a.helpers.proto_helpers import get_artifact_text, get_message_text, new_text_message
from a2a.types import a2a_pb2 as pb

SERVER = "http://127.0.0.1:50051"


def show(task):
    print("task", task.id, pb.TaskState.Name(task.status.state))
    if task.status.HasField("message"):
        print("  says:", get_message_text(task.status.message))
    for artifact in task.artifacts:
        print(f"  {artifact.name}:", get_artifact_text(artifact))


async def send(client, context, text, task):
    # With the id of a task it goes on with that one; without, it begins a new one.
    message = new_text_message(text, role=pb.ROLE_USER, task_id=task or "")
    request = pb.SendMessageRequest(message=message)
    async for answer in client.send_message(request, context=context):
        if answer.HasField("message"):
            print("message:", get_message_text(answer.message))
        else:
            show(answer.task)


async def list_tasks(client, context):
    page = await client.list_tasks(pb.ListTasksRequest(page_size=5), context=context)
    print(f"the newest {len(page.tasks)} of {page.total_size} tasks:")
    for task in page.tasks:
        print(" ", task.id, pb.TaskState.Name(task.status.state))
    if page.next_page_token:
        print("  the next page begins with page_token", page.next_page_token)


def channel(url, address):
    # A server that is found by https speaks TLS on its gRPC port, too. GRPC_DEFAULT_SSL_ROOTS_FILE_PATH
    # names the authority of a certificate of one's own, SSL_CERT_FILE the same for the card.
    if url.startswith("https:"):
        return grpc.aio.secure_channel(address, grpc.ssl_channel_credentials())
    return grpc.aio.insecure_channel(address)


async def main(arguments):
    # The client finds the gRPC address in the agent card at URL/.well-known/agent-card.json.
    config = ClientConfig(
        streaming=False,
        supported_protocol_bindings=["GRPC"],
        grpc_channel_factory=lambda found: channel(arguments.url, found.split("//")[-1]),
    )
    # What every call carries beside its request.
    key = arguments.api_key
    context = ClientCallContext(service_parameters={"x-api-key": key} if key else None)
    async with await create_client(arguments.url, config) as client:
        if not arguments.list:
            await send(client, context, arguments.text, arguments.task)
        await list_tasks(client, context)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", metavar="TEXT or URL", help=f"hello, and {SERVER}")
    parser.add_argument("--list", action="store_true", help="send nothing, only list")
    parser.add_argument("--task", metavar="ID", help="send to this task")
    parser.add_argument("--api-key", metavar="KEY", help="for a server with --auth api-key")
    arguments = parser.parse_args()
    words = arguments.words
    most = 1 if arguments.list else 2
    if len(words) > most or (arguments.list and arguments.task):
        parser.error("give TEXT and URL, or --list and URL")
    arguments.url = words.pop() if len(words) == most else SERVER
    arguments.text = words.pop() if words else "hello"
    return arguments


asyncio.run(main(parse()))
