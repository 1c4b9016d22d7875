"""Ids that can be asked for."""

from __future__ import annotations

import threading

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.trace import ProxyTracerProvider

from mainspring.telemetry import RunIds
from mainspring.telemetry.ids import asking_for, honours
from mainspring.workflows.trace import SpanRef

REF = SpanRef(7, 9)


class Counting(IdGenerator):
    """A generator of somebody's."""

    def generate_span_id(self) -> int:
        """One."""
        return 1

    def generate_trace_id(self) -> int:
        """Two."""
        return 2


def test_ids_asked_for_are_given() -> None:
    """In the block spans get the ids asked for, and new ones outside of it."""
    ids = RunIds()
    with asking_for(REF):
        assert (ids.generate_trace_id(), ids.generate_span_id()) == (7, 9)
    others = {ids.generate_span_id() for _ in range(100)}
    assert len(others) == 100
    assert all(0 < other < 2**64 for other in others)
    assert 0 < ids.generate_trace_id() < 2**128


def test_other_threads_get_ids_of_their_own() -> None:
    """What one thread asks for no other thread is given."""
    ids, found = RunIds(), []
    with asking_for(REF):
        thread = threading.Thread(target=lambda: found.append(ids.generate_span_id()))
        thread.start()
        thread.join()
    assert found[0] != REF.span_id


def test_wrapped_generator_makes_all_other_ids() -> None:
    """A user's own generator goes on making the ids of all other spans, and says whether they are random."""
    ids = RunIds(Counting())
    assert (ids.generate_span_id(), ids.generate_trace_id(), ids.is_trace_id_random()) == (1, 2, False)
    assert RunIds(RandomIdGenerator()).is_trace_id_random() is RandomIdGenerator().is_trace_id_random()
    assert RunIds().is_trace_id_random()


def test_providers_that_honour_are_told_from_those_that_do_not() -> None:
    """Only a provider with our generator, wrapped or not, is taken to give the ids that are asked for."""
    assert honours(TracerProvider(id_generator=RunIds()))
    assert honours(TracerProvider(id_generator=RunIds(Counting())))
    assert not honours(TracerProvider())
    assert not honours(ProxyTracerProvider())
    assert not honours(None)
