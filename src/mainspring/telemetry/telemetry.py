"""The telemetry of one worker process, put together: what its runs tell, and where that goes."""

from __future__ import annotations

import asyncio

from opentelemetry import trace as otel

from mainspring.schemas.config import TelemetrySpec
from mainspring.telemetry.arming import Arming
from mainspring.telemetry.interceptor import RunInterceptor
from mainspring.telemetry.observer import RunObserver
from mainspring.telemetry.pipeline import Pipeline
from mainspring.telemetry.providers import Providers, ref_of
from mainspring.workflows.trace import SpanRef

__all__ = ["Telemetry"]

FLUSH_SECONDS = 5.0


class Telemetry:
    """Telemetry for the workers of one plugin.

    Args:
        spec: `telemetry:` of the configuration.
        providers: Where it goes; the process's global providers without them.
    """

    def __init__(self, spec: TelemetrySpec, providers: Providers | None = None) -> None:
        self._providers = providers or Providers()
        self._ambient: SpanRef | None = None
        self._started = False
        self.pipeline = Pipeline(self._providers)
        self.interceptor = RunInterceptor(
            RunObserver(self.pipeline.tell, content=spec.content),
            Arming(self._providers, content=spec.content),
            lambda: self._ambient,
        )

    def start(self) -> None:
        """A worker starts here: what is current now is its own, and no run's. May be called again."""
        self._ambient = ref_of(otel.get_current_span())
        self._started = True
        self.pipeline.start()

    async def stop(self) -> None:
        """The last worker has stopped: make and send what is left, for a bounded time."""
        if not self._started:  # there was a replayer only
            return
        self._started = False
        await asyncio.to_thread(self.pipeline.flush, FLUSH_SECONDS)
