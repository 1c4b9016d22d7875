"""The calls that the loop itself serves: questions, searches of the catalog, workflow drafts.

Source: shared design, loop.md "Intrinsics".
"""

from __future__ import annotations

from collections.abc import Sequence

from temporalio import workflow

from mainspring.workflows.shell.failures import CallOutcome, CallStatus
from mainspring.workflows.shell.outside import RunShell

with workflow.unsafe.imports_passed_through():
    from mainspring.schemas.tools import ToolOutcome
    from mainspring.workflows import events
    from mainspring.workflows.dispatch import Run
    from mainspring.workflows.intrinsics import ASK, COMPOSE, FIND_TOOLS, draft
    from mainspring.workflows.questions import Question, waited_ms
    from mainspring.workflows.searches import search
    from mainspring.workflows.values import clip

__all__ = ["ServedCalls"]

OK: CallStatus = "ok"
UNATTENDED = (
    "Not asked: nobody attends this run (attended: false), so nobody can answer. "
    "Go on with what you have, and say what you assumed."
)
UNANSWERED = "Nobody answered in time. Go on with what you have, and say what you assumed."
FINISHING = "Nobody will answer: the run is being finished. Answer now with what you have."
WITHDRAWN = "Withdrawn: a person wrote instead of answering."
ENDED = "Withdrawn: the exchange ended before it was answered."


class ServedCalls(RunShell):
    """Serves intrinsics. `nika:done` is not among them: it ends the exchange."""

    def serve(self, calls: Sequence[Run], into: dict[str, CallOutcome]) -> None:
        """Answer what can be answered at once; what a person must answer waits as a question from here on."""
        for run in calls:
            began = workflow.time_ns()
            match run.call.tool:
                case name if name == ASK:
                    outcome = self._ask(run, began)
                case name if name == FIND_TOOLS:
                    outcome = self._find(run)
                case name if name == COMPOSE:
                    outcome = self._check_draft(run)
                case name:
                    raise AssertionError(f"nothing serves {name}")
            if outcome is not None:
                status: CallStatus = "error" if outcome.is_error else "ok"
                into[run.call.id] = CallOutcome(outcome, status, began=began)

    # -- nika:ask ----------------------------------------------------------------------------------

    def _ask(self, run: Run, now: int) -> ToolOutcome | None:
        text = str(run.call.arguments["question"])
        options = run.call.arguments.get("options")
        lasts = int(self.limits.question_timeout * 1e9)
        shown = tuple(str(option) for option in options) if isinstance(options, list) else ()
        question = Question(run.call.id, text, shown, now, now + lasts)
        self.emit(events.QuestionAsked(question.id, clip(text, 300), events.instant(question.expires)))
        if self.input is not None and not self.input.attended:
            self.emit(events.QuestionClosed(question.id, "unattended"))
            return ToolOutcome(content=UNATTENDED, is_error=True)
        self.questions.ask(question)
        self.show(self.status, "answer")
        return None

    def close_questions(self, into: dict[str, CallOutcome]) -> None:
        """Wait for none of them any longer; those that have no answer are told why."""
        now = workflow.time_ns()
        for question in tuple(self.questions.pending.values()):
            expired = question.expires <= now
            answer = self.questions.close(question.id, "expired" if expired else "withdrawn")
            told, status = (answer[0], OK) if answer is not None else self._unanswered(expired)
            waited = waited_ms(question, answer[1] if answer is not None else now)
            if answer is None:
                self.emit(events.QuestionClosed(question.id, self.questions.closed[question.id], waited))
            outcome = ToolOutcome(content=told, is_error=status != OK)
            into[question.id] = CallOutcome(outcome, status, waited, began=question.asked)

    def _unanswered(self, expired: bool) -> tuple[str, CallStatus]:
        """What the model is told of a question that waits no longer and has no answer."""
        if expired:
            return UNANSWERED, "error"
        if self.stop == "steer":
            return WITHDRAWN, "interrupted"
        return (FINISHING, "error") if self.finishing and self.stop is None else (ENDED, "interrupted")

    # -- nika:find_tools ---------------------------------------------------------------------------

    def _find(self, run: Run) -> ToolOutcome:
        """Search the catalog; what is found counts as used, so that it is offered."""
        assert self.armed is not None
        bound = self.armed.spec.routing.searches
        made = search(self.universe, self.tools, run.call.arguments, made=self.searches, bound=bound)
        self.searches += not made.refused
        self.used.update(dict.fromkeys(made.tools, self.meter.turns))
        return made.outcome

    # -- nika:compose ------------------------------------------------------------------------------

    def _check_draft(self, run: Run) -> ToolOutcome:
        checked = draft(str(run.call.arguments["workflow"]))
        self.emit(events.ComposeChecked(run.call.id, checked.bytes, stage=checked.stage))
        return checked.outcome
