"""Finding Temporal: the standard client configuration, else the embedded server of the state folder.

Address, namespace, TLS and API key come from `temporalio.envconfig` (TEMPORAL_* variables, `temporal.toml`).
Where they name no address, a server that `mainspring dev` or `mainspring run` has started for the state
folder is used, and then the default address.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client, Plugin
from temporalio.envconfig import ClientConfig, ClientConnectConfig
from temporalio.service import RPCError, RPCStatusCode

from mainspring.embedded import running
from mainspring.errors import ConfigError
from mainspring.run_errors import Unreachable

__all__ = ["DEFAULT_ADDRESS", "Place", "connect", "place"]

DEFAULT_ADDRESS = "localhost:7233"
CONNECT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where Temporal is to be looked for.

    Args:
        options: Arguments of `Client.connect`.
        named: Somebody named this address; it is not the default one.
        ui_url: Web UI, where it is known.
    """

    options: ClientConnectConfig
    named: bool
    ui_url: str | None = None

    @classmethod
    def at(cls, address: str, options: ClientConnectConfig, *, ui_url: str | None = None) -> Place:
        """That address, with the rest of the client configuration."""
        return cls({**options, "target_host": address}, named=True, ui_url=ui_url)

    @property
    def address(self) -> str:
        """`host:port`."""
        return self.options.get("target_host", DEFAULT_ADDRESS)

    @property
    def namespace(self) -> str:
        """The namespace to use."""
        return self.options.get("namespace", "default")


def place(state_dir: Path | None) -> Place:
    """Where to look, in this order: the client configuration, the state folder's server, the default.

    Raises: ConfigError, when the client configuration cannot be read.
    """
    try:
        options = ClientConfig.load_client_connect_config()
    except (RuntimeError, ValueError, TypeError, OSError) as error:
        raise ConfigError(f"Temporal's client configuration (TEMPORAL_*, temporal.toml): {error}") from error
    if "target_host" in options:
        return Place(options, named=True)
    server = running(state_dir) if state_dir is not None else None
    if server is not None:
        return Place.at(server.address, options, ui_url=server.ui_url)
    return Place({**options, "target_host": DEFAULT_ADDRESS}, named=False)


async def connect(
    where: Place, plugins: Sequence[Plugin] = (), *, timeout_seconds: float = CONNECT_SECONDS
) -> Client:
    """Connect, and see that the namespace is there.

    Raises: Unreachable, naming the address and the reason.
    """
    arguments: dict[str, Any] = dict(where.options)  # a partial TypedDict is no keyword arguments to mypy
    try:
        async with asyncio.timeout(timeout_seconds):
            client = await Client.connect(**arguments, plugins=list(plugins))
            await _check_namespace(client)
    except TimeoutError as error:
        raise _nobody(where, f"no answer within {timeout_seconds:.0f} s") from error
    except RuntimeError as error:
        raise _nobody(where, _short(error)) from error
    return client


def _nobody(where: Place, reason: str) -> Unreachable:
    hint = "start one with `mainspring dev`, or set TEMPORAL_ADDRESS"
    return Unreachable(f"no Temporal server at {where.address}: {reason}; {hint}")


async def _check_namespace(client: Client) -> None:
    """Refuse a namespace that is not there; a server that will not say is believed.

    Raises: Unreachable.
    """
    try:
        await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=client.namespace))
    except RPCError as error:
        address = client.service_client.config.target_host
        if error.status is RPCStatusCode.NOT_FOUND:
            raise Unreachable(f"Temporal at {address} has no namespace {client.namespace!r}") from error
        if error.status in (RPCStatusCode.UNAVAILABLE, RPCStatusCode.UNAUTHENTICATED):
            raise Unreachable(f"Temporal at {address}: {error.message}") from error


def _short(error: BaseException) -> str:
    """What a person can use of a transport error's chain of debug output."""
    text = " ".join(str(error).split())
    said = re.search(r'message: "([^"]+)"', text)
    if "tonic::transport" in text:
        text = text.rsplit(": ", 1)[-1].strip('"}) ')
    elif said is not None:
        text = said[1]
    return text[:300]
