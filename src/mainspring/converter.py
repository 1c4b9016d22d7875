"""The converters: pydantic values, and bounds that keep a run from being parked, or ended, by one payload.

A payload that cannot be decoded, or is larger than the server takes, would fail the workflow task again and
again. Here it becomes a typed error that fails what it belongs to.

Source: shared design, temporal-facts.md 3, 4.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

import temporalio.api.common.v1
import temporalio.api.failure.v1
from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    DefaultFailureConverter,
    DefaultPayloadConverter,
    PayloadConverter,
)
from temporalio.exceptions import ApplicationError

from mainspring.schemas.errors import INVALID_PAYLOAD, PAYLOAD_TOO_LARGE

__all__ = ["PAYLOAD_BYTES_MAX", "MainspringFailureConverter", "MainspringPayloadConverter", "data_converter"]

PAYLOAD_BYTES_MAX = 1_900_000
"""Short of the server's 2 MiB, which leaves room for a codec's overhead."""


_SHARED: Final = tuple(PydanticPayloadConverter().converters.values())


class MainspringPayloadConverter(CompositePayloadConverter):
    """Pydantic JSON with bounds.

    The SDK makes a converter anew for every payload of a workflow task. All of ours share one set of encoding
    converters, and with it pydantic's compiled adapters; making them anew is a third of a turn's time.
    """

    def __init__(self) -> None:
        super().__init__(*_SHARED)

    def to_payloads(self, values: Sequence[Any]) -> list[temporalio.api.common.v1.Payload]:
        """Encode.

        Raises: ApplicationError(PayloadTooLarge), not retryable, above 1.9 MB for one value.
        """
        payloads = super().to_payloads(values)
        for payload in payloads:
            size = payload.ByteSize()
            if size > PAYLOAD_BYTES_MAX:
                raise ApplicationError(
                    f"a payload has {size} bytes; at most {PAYLOAD_BYTES_MAX} can be stored",
                    type=PAYLOAD_TOO_LARGE,
                    non_retryable=True,
                )
        return payloads

    def from_payloads(
        self,
        payloads: Sequence[temporalio.api.common.v1.Payload],
        type_hints: list[type] | None = None,
    ) -> list[Any]:
        """Decode.

        Raises: ApplicationError(InvalidPayload), not retryable, for what is not readable or of another type.
        """
        try:
            return super().from_payloads(payloads, type_hints)
        except ApplicationError:
            raise
        except Exception as error:
            reason = " ".join(str(error).split())[:300]
            raise ApplicationError(
                f"a payload cannot be decoded: {type(error).__name__}: {reason}",
                type=INVALID_PAYLOAD,
                non_retryable=True,
            ) from error


class MainspringFailureConverter(DefaultFailureConverter):
    """Failures of anybody's: details that cannot be read are left out, and the failure stays what it is."""

    def from_failure(
        self, failure: temporalio.api.failure.v1.Failure, payload_converter: PayloadConverter
    ) -> BaseException:
        """Decode."""
        try:
            return super().from_failure(failure, payload_converter)
        except Exception:
            bare = temporalio.api.failure.v1.Failure()
            bare.CopyFrom(failure)
            _without_details(bare)
            return super().from_failure(bare, payload_converter)


def _without_details(failure: temporalio.api.failure.v1.Failure) -> None:
    failure.ClearField("encoded_attributes")
    for kind in ("application_failure_info", "canceled_failure_info"):
        if failure.HasField(kind):
            getattr(failure, kind).ClearField("details")
    for kind in ("timeout_failure_info", "reset_workflow_failure_info"):
        if failure.HasField(kind):  # type: ignore[arg-type]
            getattr(failure, kind).ClearField("last_heartbeat_details")
    if failure.HasField("cause"):
        _without_details(failure.cause)


def data_converter(given: DataConverter | None) -> DataConverter:
    """The user's data converter with our payload converter in place of the default one.

    A codec and a failure converter of the user's stay. A payload converter of the user's own stays too: it
    must then carry plain JSON, which is all that our payloads are.
    """
    if given is None:
        given = DataConverter.default
    changed: dict[str, Any] = {}
    if given.payload_converter_class in (DefaultPayloadConverter, PydanticPayloadConverter):
        changed["payload_converter_class"] = MainspringPayloadConverter
    if given.failure_converter_class is DefaultFailureConverter:
        changed["failure_converter_class"] = MainspringFailureConverter
    return dataclasses.replace(given, **changed)
