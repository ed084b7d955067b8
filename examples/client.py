"""Sends one message with the official Python SDK over gRPC, then lists the newest tasks.

    python examples/client.py [TEXT] [URL]
"""

import asyncio
import sys

import grpc
from a2a.client import ClientConfig, create_client
from a2a.helpers.proto_helpers import get_artifact_text, get_message_text, new_text_message
from a2a.types import a2a_pb2 as pb


async def main(text="hello", url="http://127.0.0.1:50051"):
    # The client finds the gRPC address in the agent card at URL/.well-known/agent-card.json.
    config = ClientConfig(
        streaming=False,
        supported_protocol_bindings=["GRPC"],
        grpc_channel_factory=lambda found: grpc.aio.insecure_channel(found.split("//")[-1]),
    )
    async with await create_client(url, config) as client:
        message = new_text_message(text, role=pb.ROLE_USER)
        async for answer in client.send_message(pb.SendMessageRequest(message=message)):
            if answer.HasField("message"):
                print("message:", get_message_text(answer.message))
                continue
            task = answer.task
            print("task", task.id, pb.TaskState.Name(task.status.state))
            if task.status.HasField("message"):
                print("  says:", get_message_text(task.status.message))
            for artifact in task.artifacts:
                print(f"  {artifact.name}:", get_artifact_text(artifact))

        page = await client.list_tasks(pb.ListTasksRequest(page_size=5))
        print(f"the newest {len(page.tasks)} of {page.total_size} tasks:")
        for task in page.tasks:
            print(" ", task.id, pb.TaskState.Name(task.status.state))
        if page.next_page_token:
            print("  the next page begins with page_token", page.next_page_token)


asyncio.run(main(*sys.argv[1:]))
