"""Questions: one waits under its id, is answered once, and is closed by whatever comes first."""

from __future__ import annotations

from mainspring.workflows.questions import CLOSED_KEPT, Answered, Closed, Question, Questions, Unknown


def question(id: str, expires: int = 10) -> Question:
    """A question."""
    return Question(id, f"{id}?", ("yes", "no"), 0, expires)


def asked(*ids: str) -> Questions:
    """Questions that wait."""
    questions = Questions()
    for id in ids:
        questions.ask(question(id))
    return questions


def test_question_waits_until_it_is_answered() -> None:
    """It is found while it waits; with its answer it is closed to any other."""
    questions = asked("a")
    assert questions.find("a") == Answered(question("a"))
    questions.answer("a", "yes", 5)
    assert questions.find("a") == Closed("answered")


def test_unknown_question_names_those_that_wait() -> None:
    """Whoever errs learns the ids."""
    assert asked("a", "b").find("c") == Unknown(("a", "b"))


def test_answer_that_came_in_time_counts_whatever_closes_the_question() -> None:
    """An interruption after the answer does not lose it."""
    questions = asked("a")
    questions.answer("a", "yes", 5)
    assert questions.close("a", "withdrawn") == ("yes", 5)
    assert questions.find("a") == Closed("answered")


def test_closed_question_says_why() -> None:
    """Expired is not withdrawn."""
    questions = asked("a", "b")
    assert [questions.close("a", "expired"), questions.close("b", "withdrawn")] == [None, None]
    assert [questions.find("a"), questions.find("b")] == [Closed("expired"), Closed("withdrawn")]


def test_settled_is_when_none_is_open() -> None:
    """All of a batch must be answered."""
    questions = asked("a", "b")
    questions.answer("b", "no", 5)
    assert (questions.settled, questions.open()) == (False, (question("a"),))
    questions.answer("a", "no", 5)
    assert (questions.settled, questions.open()) == (True, ())


def test_closed_questions_are_kept_to_a_bound() -> None:
    """The oldest are forgotten, and unknown from then on."""
    questions = Questions()
    for number in range(CLOSED_KEPT + 1):
        questions.ask(question(str(number)))
        questions.close(str(number), "expired")
    assert questions.find("0") == Unknown(())
    assert questions.find("1") == Closed("expired")


def test_shown_are_those_without_an_answer() -> None:
    """What a person is shown has the question, its options and its times."""
    questions = asked("a", "b")
    questions.answer("a", "yes", 5)
    assert questions.shown(str) == [
        {"question_id": "b", "question": "b?", "options": ["yes", "no"], "asked": "0", "expires": "10"}
    ]


def test_answer_tells_how_long_was_waited() -> None:
    """In whole milliseconds, rounded up."""
    assert asked("a").answer("a", "yes", 1_000_001) == 2
