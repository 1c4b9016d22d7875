from __future__ import annotations

import time
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.workflows.words import FUNCTION_WORDS, parts, stem, telling, tokens

ANY = st.text(max_size=80)
WORDS = st.text("abcdeginorstyz", min_size=1, max_size=14)


# -- parts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("getURLs", "get urls"),
        ("HTTPServer parseJSON", "http server parse json"),
        ("web_search", "web search"),
        ("mcp:git-hub/create.issue", "mcp git hub create issue"),
        ("utf8 v2Beta", "utf 8 v 2 beta"),
        ("IDs of PDFs, please!", "ids of pdfs please"),
        ("naïve Straße ŒUVRE", "naive strasse œuvre"),
        ("ﬁle Ｗｅｂ", "file web"),
        ("I\u0307stanbul İstanbul", "istanbul istanbul"),
        ("ПолучитьДанные ёлка", "получить данные елка"),
        ("كِتَاب كتـــاب", "كتاب كتاب"),
        ("שָׁלוֹם", "שלום"),
        ("हिन्दी", "हिन्दी"),
        ("ok ❤️ 👩‍👩‍👧 ok", "ok ok"),
        ("x\ud800y\x00z", "x y z"),
    ],
)
def test_parts_split_and_fold(text: str, expected: str) -> None:
    """Case, accents, points and width do not matter; camelCase, digits and separators end a part."""
    assert parts(text) == expected.split()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("検索", "検索"),
        ("東", "東"),
        ("東京都", "東京 京都"),
        ("カタカナ", "カタ タカ カナ"),
        ("ｶﾞｽ", "ガス"),
        ("搜索web页面", "搜索 web 页面"),
        ("ค้นหา", "ค้ ้น นห หา"),
        ("ຊອກ", "ຊອ ອກ"),
        ("ស្វែង", "ស្ ្វ វែ ែង"),
        ("ရှာ", "ရှ ှာ"),
        ("검색어 찾기", "검색 색어 찾기"),
    ],
)
def test_parts_of_scripts_without_spaces_are_pairs(text: str, expected: str) -> None:
    """Such a run is cut into overlapping pairs of characters; a run of one is itself."""
    assert parts(text) == expected.split()


@given(ANY)
def test_parts_ignore_how_the_text_is_normalised(text: str) -> None:
    """Composed, decomposed and compatible spellings of a text have the same parts."""
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        assert parts(unicodedata.normalize(form, text)) == parts(text)


@given(st.lists(ANY, max_size=4))
def test_parts_of_texts_are_those_of_each(texts: list[str]) -> None:
    """What stands beside a text, a space apart, does not change its parts."""
    assert parts(" ".join(texts)) == [part for text in texts for part in parts(text)]


@pytest.mark.parametrize(
    "text", ["A" * 200_000, "aB" * 100_000, "東" * 200_000, "é" * 200_000, "_" * 200_000]
)
def test_parts_are_linear_in_hostile_text(text: str) -> None:
    """200,000 characters of one kind take well below a second."""
    began = time.process_time()
    tokens(text)
    assert time.process_time() - began < 1.0


# -- stem ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "alike",
    [
        "schedule schedules scheduled scheduling",
        "query queries queried querying",
        "file files filed filing",
        "page pages paged paging",
        "box boxes boxed boxing",
        "search searches searched searching",
        "cache caches cached caching",
        "address addresses addressed",
        "database databases",
        "movie movies",
        "status statuses",
        "map maps mapped mapping",
        "install installs installed installing",
        "cancel cancels cancelled canceled cancelling",
        "embed embeds embedded embedding",
        "use uses used using",
        "issue issues issued issuing",
        "try tries tried trying",
        "create creates created creating creation creations creator",
        "translate translated translation translations translator",
        "calculate calculating calculation calculator calculators",
        "delete deleted deletion",
        "execute executing execution",
        "url urls",
        "api apis",
        "الكتاب كتاب والكتاب بالكتاب للكتاب",
    ],
)
def test_stem_is_shared_by_inflections(alike: str) -> None:
    """Singular and plural, tenses, and the act and the actor of a verb in -ate have one stem."""
    assert len({stem(word) for word in alike.split()}) == 1


@pytest.mark.parametrize(
    "apart",
    [
        "read spreadsheet thread bread",
        "news new",
        "not note",
        "sing string thing king",
        "process proceed",
        "add ad",
        "station stat",
        "need needle",
        "port export import report",
        "form inform information",
        "user use",
        "الله الكتاب",
    ],
)
def test_stem_keeps_different_words_apart(apart: str) -> None:
    """It takes endings off and looks at nothing else: what only looks alike stays apart."""
    assert len({stem(word) for word in apart.split()}) == len(apart.split())


@given(WORDS | ANY)
def test_stem_is_its_own_stem(word: str) -> None:
    """Stemming twice is stemming once, and never leaves nothing."""
    assert stem(stem(word)) == stem(word)
    assert bool(stem(word)) == bool(word)


@given(ANY)
def test_tokens_are_the_stems_of_the_parts(text: str) -> None:
    """One token a part, in order, none empty."""
    assert tokens(text) == [stem(part) for part in parts(text)]
    assert all(tokens(text))


# -- telling ---------------------------------------------------------------------------------------


def test_telling_leaves_out_function_words_but_not_all() -> None:
    """Articles, prepositions and pronouns go, in whatever number; alone they stay."""
    assert telling(parts("What is the weather in the city of Rome?")) == ["weather", "city", "rome"]
    assert telling(parts("to be or not to be")) == parts("to be or not to be")
    assert telling([]) == []
    assert not FUNCTION_WORDS & {"get", "set", "find", "list", "use", "time", "new"}


def test_tokens_are_the_same_in_every_process(printed_by_seed: Callable[[str], set[str]]) -> None:
    """The hash seed changes nothing."""
    code = (
        "from mainspring.workflows.words import tokens\n"
        "print(ascii(tokens('getURLs naïve 東京都 scheduled queries of the الكتاب ค้นหา')))"
    )
    assert len(printed_by_seed(code)) == 1
