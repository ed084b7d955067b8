"""What this SDK itself does wrong, as told in the README beside.

A scenario that has to work around such a fault says so here; one that is mended fails, so that its
workaround goes.
"""

from contextlib import contextmanager

from a2a.client import ClientCallContext
from a2a.types import a2a_pb2 as pb

MET = set()


def fault(name, still):
    """Tells that the fault `name` was met; `still` is whether the SDK has it."""
    assert still, f"the SDK no longer has the fault {name}: take its workaround out"
    if name not in MET:
        print("fault", name, flush=True)
    MET.add(name)


def details(binding, error):
    """The text in which a wrong field can be found."""
    if binding == "GRPC":
        return str(error.data)
    # Of all details the SDK keeps only the metadata of ErrorInfo, so the message has to do.
    name = "python-jsonrpc-field-violations" if binding == "JSONRPC" else "python-rest-field-violations"
    fault(name, "fieldViolations" not in str(error.data))
    return str(error)


async def extended_card(given):
    """Asks the server for its extended card, although its card promises none.

    The client answers with the card that it has instead of an error.
    """
    request = pb.GetExtendedAgentCardRequest()
    silent = await given.client.get_extended_agent_card(request)
    fault("python-extended-card", silent == given.client._card)
    promising = pb.AgentCard()
    promising.CopyFrom(given.client._card)
    promising.capabilities.extended_agent_card = True
    transport = given.client._transport
    known, transport.agent_card = transport.agent_card, promising
    try:
        return await given.client.get_extended_agent_card(request)
    finally:
        transport.agent_card = known


@contextmanager
def another_version(given, version):
    """The context of a call that says another version of the protocol."""
    said = {"A2A-Version": version}
    if given.binding != "GRPC":
        yield ClientCallContext(service_parameters=said)
        return
    # The SDK sends its own version first and the caller's second.
    transport = given.client._transport
    context = ClientCallContext(service_parameters=said)
    ours = transport._get_grpc_metadata
    values = [value for _, value in ours(context)]
    fault("python-grpc-version", values == ["1.0", version])
    transport._get_grpc_metadata = lambda _: [("a2a-version", version)]
    try:
        yield context
    finally:
        transport._get_grpc_metadata = ours
