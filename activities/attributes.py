"""Which search attributes of ours the server has: upserting another one would wedge a workflow task.

Source: shared design, temporal-facts.md 6; interfaces.md "On the wire".
"""

from __future__ import annotations

from datetime import timedelta

from temporalio import activity
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.client import Client

__all__ = ["ATTRIBUTES", "probed", "registered"]

_KEYWORD = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
_INT = IndexedValueType.INDEXED_VALUE_TYPE_INT

ATTRIBUTES: dict[str, int] = {
    "MainspringAgent": _KEYWORD,
    "MainspringStatus": _KEYWORD,
    "MainspringOutcome": _KEYWORD,
    "MainspringAwaiting": _KEYWORD,
    "MainspringTurns": _INT,
    "MainspringTokens": _INT,
}
"""Names and types. They are API: dashboards and queries hold on to them."""

TIMEOUT = timedelta(seconds=5)


async def registered() -> tuple[str, ...]:
    """Those of ours that the server has with the right type; none where that cannot be found out.

    A server that does not let us list them is asked with a query for each: it refuses unknown names.
    """
    try:
        client = activity.client()
    except RuntimeError:
        return ()
    try:
        answer = await client.operator_service.list_search_attributes(
            ListSearchAttributesRequest(namespace=client.namespace), timeout=TIMEOUT
        )
    except Exception:  # not permitted, not implemented, not reachable: the next question tells
        return await probed(client)
    return tuple(name for name, kind in ATTRIBUTES.items() if answer.custom_attributes.get(name) == kind)


async def probed(client: Client) -> tuple[str, ...]:
    """Those of ours that a query may name with a value of their type."""
    found: list[str] = []
    for name, kind in ATTRIBUTES.items():
        value = "'x'" if kind == _KEYWORD else "1"
        try:
            await client.count_workflows(f"{name} = {value}", rpc_timeout=TIMEOUT)
        except Exception:
            if not found:
                return ()
            continue
        found.append(name)
    return tuple(found)
