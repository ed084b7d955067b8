"""Runs every scenario of ../README.md with the official Python SDK.

    python run.py BASE_URL BINDING...
"""

import asyncio
import inspect
import os
import sys
from dataclasses import dataclass

import conversations
import failures
import listings
from a2a.client import Client
from sdk import connect


@dataclass
class Given:
    """A client that waits for answers, and one that streams them, on one binding."""

    binding: str
    client: Client
    streaming: Client


def scenarios():
    """Every coroutine of the three modules that begins there and takes what is given."""
    for module in (conversations, listings, failures):
        for name, found in vars(module).items():
            own = inspect.iscoroutinefunction(found) and found.__module__ == module.__name__
            if own and list(inspect.signature(found).parameters) == ["given"]:
                yield name, found


async def run_all(base_url, binding):
    client = await connect(base_url, binding)
    streaming = await connect(base_url, binding, streaming=True)
    given = Given(binding, client, streaming)
    chosen = os.environ.get("ONLY")
    for name, scenario in scenarios():
        if chosen and name not in chosen.split(","):
            continue
        try:
            await scenario(given)
        except Exception as error:
            raise AssertionError(f"{binding} {name}: {error!r}") from error
        print("ok", binding, name, flush=True)
    await client.close()
    await streaming.close()


async def main(base_url, *bindings):
    await asyncio.gather(*(run_all(base_url, binding) for binding in bindings))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
