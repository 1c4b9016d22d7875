"""Names of error types that go into histories. They are API and never change.

An activity of ours raises `ApplicationError(type=…)` with one of these; by the name the loop knows who acts.
"""

from __future__ import annotations

from typing import Final

INVALID_INPUT: Final = "invalid_input"
CATALOG_UNAVAILABLE: Final = "catalog_unavailable"

MODEL_RATE_LIMITED: Final = "model_rate_limited"
MODEL_UNAVAILABLE: Final = "model_unavailable"
"""Retryable: overloaded, 5xx, connection lost, a stream cut short."""
MODEL_REJECTED: Final = "model_rejected"
"""Not retryable: authentication, not found, another 4xx, quota exhausted."""
MODEL_CONTEXT_EXCEEDED: Final = "model_context_exceeded"
MODEL_REFUSED: Final = "model_refused"
"""Not retryable: a content filter or a policy of the provider."""
MODEL_MISCONFIGURED: Final = "model_misconfigured"
"""Not retryable: a missing secret, an unknown provider, a missing extra."""
SCRIPT_MISMATCH: Final = "script_mismatch"
"""Not retryable: the scripted model's expectation failed, or its replies are used up."""
LEDGER_MISMATCH: Final = "ledger_mismatch"
"""Retryable: the transcript could not be assembled to its digest."""

TOOL_UNREACHABLE: Final = "tool_unreachable"
"""Retryable where the tool's attempts allow: transport or process fault before a result."""
TOOL_FORBIDDEN: Final = "tool_forbidden"
"""Not retryable: a sandbox's hard refusal; the run ends with outcome `security`."""

PAYLOAD_TOO_LARGE: Final = "PayloadTooLarge"
INVALID_PAYLOAD: Final = "InvalidPayload"
