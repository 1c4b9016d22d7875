from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.schemas.agent import RoutingSpec
from mainspring.schemas.tools import ToolDeclaration
from mainspring.workflows.bm25 import UNIT, build
from mainspring.workflows.router import Offer, Ranked, Universe, everything, query, route, search, universe
from mainspring.workflows.words import parts

SPEC = RoutingSpec()
STICKY = RoutingSpec(sticky=True)
WORDS_OF_THINGS = """
invoice order customer parcel contract meeting salary warehouse vehicle recipe garden library painting
telescope volcano orchestra bicycle passport glacier lantern compass harbour saddle anvil violin mirror candle
feather ribbon marble
"""
THINGS = WORDS_OF_THINGS.split()
VERBS = ["create", "read", "list", "update", "delete"]

SOURCES = ["nika:done", "files/read", "mcp:git/log", "billing/charge", "look"]
TOOLS = st.lists(st.sampled_from(SOURCES).map(lambda name: ToolDeclaration(name=name)))
NAMES = st.lists(
    st.from_regex(r"(mcp:[ab]/|files/|nika:|)(read|send|find)_(mail|file|page)[0-9]?", fullmatch=True),
    min_size=24,
    max_size=60,
    unique=True,
)
WORDS = st.lists(
    st.sampled_from(["read", "mail", "page", "find", "pages", "webpage", "3", "the"]), max_size=6
)


def tool(name: str, description: str = "", **declared: Any) -> ToolDeclaration:
    """A tool that the router may offer."""
    return ToolDeclaration(name=name, description=description, **declared)


def named(names: Sequence[str]) -> Universe:
    """A universe of tools that only have names, in the catalog's order."""
    return universe([tool(name) for name in sorted(names)])


def lookups(*more: ToolDeclaration) -> Universe:
    """Thirty tools, each about one thing, and more."""
    found = [tool(f"{thing}_lookup", f"Look up the {thing}.") for thing in THINGS]
    return universe([*found, *more])


def names_of(offer: Offer, of: Universe) -> tuple[str, ...]:
    """The names offered, also when they are all."""
    return of.names if offer.names == "all" else offer.names


# -- query -----------------------------------------------------------------------------------------


def test_query_joins_its_parts_by_a_space() -> None:
    """Directive, last text and observations, in this order; an empty one leaves no trace."""
    assert query("do it", "I did", ["seen", "heard"]) == "do it I did seen heard"
    assert query("do it", "", []) == "do it"
    assert query("", "", ["", "seen"]) == "seen"
    assert query("", "", []) == ""


def test_query_caps_each_part_by_itself() -> None:
    """2,048 of the directive, 1,024 of the last text, 512 an observation and 1,024 of all of them."""
    long = query("d" * 9_999, "t" * 9_999, ["a" * 9_999, "b" * 9_999, "c" * 9_999])
    assert long == " ".join(["d" * 2_048, "t" * 1_024, "a" * 512, "b" * 511])
    assert query("d", "t", ["a" * 9_999, "b", "c"]) == f"d t {'a' * 512} b c"
    assert query("d" * 9_999, "", ["o"]).endswith("d o")


@given(st.text(max_size=3_000), st.text(max_size=2_000), st.lists(st.text(max_size=800), max_size=5))
def test_query_is_bounded_and_keeps_the_observations(directive: str, last: str, seen: list[str]) -> None:
    """However long each part is, every part that is not empty begins in the query."""
    made = query(directive, last, seen)
    assert len(made) <= 2_048 + 1 + 1_024 + 1 + 1_024
    for part in (directive[:2_048], last[:1_024], next((text[:512] for text in seen if text), "")):
        assert part in made


# -- everything, and the laws of every offer -------------------------------------------------------


def test_everything_is_counted_by_source() -> None:
    """Every tool, counted by its source; the order of sources is always the same."""
    names = ["mcp:git/log", "nika:done", "files/read", "look", "mcp:git/show"]
    offer = everything(universe([tool(name) for name in names]))
    assert offer == Offer("all", 5, 5, {"builtin": 2, "mcp": 2, "other": 1})
    assert list(offer.by_source) == ["builtin", "mcp", "other"]


@given(TOOLS)
def test_everything_adds_up(tools: list[ToolDeclaration]) -> None:
    """The sum over sources is what is offered, which is never more than there is."""
    offer = everything(universe(tools))
    assert sum(offer.by_source.values()) == offer.offered <= offer.universe == len(tools)
    assert everything(universe(tools)) == offer


@given(NAMES, WORDS, st.data())
def test_route_obeys_the_laws(names: list[str], words: list[str], data: st.DataObject) -> None:
    """Counts add up; names are in universe order, known and distinct; scores descend and are above 0."""
    of = named(names)
    recent = data.draw(st.lists(st.sampled_from([*names, "gone"]), max_size=3))
    kept = data.draw(st.none() | st.just("all") | st.lists(st.sampled_from([*names, "gone"])))
    spec = RoutingSpec(sticky=data.draw(st.booleans()), top=data.draw(st.integers(1, 15)))
    offer = route(of, spec, " ".join(words), recent, kept=kept, widen=data.draw(st.booleans()))
    given_names = names_of(offer, of)
    assert sum(offer.by_source.values()) == offer.offered == len(given_names) <= offer.universe == len(names)
    assert list(given_names) == [name for name in of.names if name in set(given_names)]
    assert (offer.names == "all") == (offer.offered == offer.universe)
    assert {item.name for item in offer.ranked} | {*offer.pinned, *offer.recent} <= set(given_names)
    assert (set(recent) & set(names)) == set(offer.recent)
    scores = [item.score for item in offer.ranked]
    assert scores == sorted(scores, reverse=True)
    assert all(score > 0 for score in scores)
    assert len(scores) <= spec.top


# -- below the threshold ---------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "why"), [(0, "small"), (23, "small"), (24, "ranked"), (25, "ranked")])
def test_route_ranks_from_24_definitions(size: int, why: str) -> None:
    """Below the threshold everything passes; at it ranking begins."""
    of = universe([tool(f"{verb}_{thing}") for verb in VERBS for thing in THINGS][:size])
    assert route(of, SPEC, "create the invoice").why == why


def test_route_below_the_threshold_is_identical_each_turn() -> None:
    """Neither words nor recent tools, pins or kept offers change a small offer."""
    of = universe([tool(thing) for thing in THINGS[:23]])
    spec = RoutingSpec(sticky=True, pin=("invoice",))
    offers = [
        route(of, spec, words, recent, kept=kept)
        for words in ("", "invoice", "zzz")
        for recent in ((), ("order",))
        for kept in (None, "all", ("order",))
    ]
    assert offers == [everything(of)] * len(offers)


def test_route_obeys_the_threshold_of_the_agent() -> None:
    """`threshold: 0` ranks any universe, a great one none."""
    few, many = universe([tool("invoice"), tool("order")]), lookups()
    assert route(few, RoutingSpec(threshold=0), "order").names == ("order",)
    assert route(many, RoutingSpec(threshold=31), "order") == everything(many)
    assert route(universe([]), RoutingSpec(threshold=0), "order").names == "all"


# -- ranking ---------------------------------------------------------------------------------------


def test_route_offers_the_best_and_leaves_zeros_out() -> None:
    """What shares a word is offered, best first in `ranked`; what shares none is not ranked."""
    offer = route(lookups(), SPEC, "Send the invoice, the invoice to a customer")
    assert offer.names == ("invoice_lookup", "customer_lookup")
    assert [item.name for item in offer.ranked] == ["invoice_lookup", "customer_lookup"]
    assert offer.why == "ranked"


def test_route_offers_twelve_in_universe_order_and_ties_go_to_the_lower_place() -> None:
    """Thirty tools of one score: the first twelve."""
    offer = route(lookups(), SPEC, "look up something")
    assert offer.names == tuple(f"{thing}_lookup" for thing in THINGS[:12])
    same = universe([tool(f"tool_{chr(97 + n)}x", "Send mail.") for n in range(26)])
    tied = route(same, SPEC, "send mail")
    assert tied.names == same.names[:12]
    assert len({item.score for item in tied.ranked}) == 1


def test_route_scores_names_three_times() -> None:
    """Scores are BM25 over three times the name and once the description."""
    of = lookups()
    offer = route(of, SPEC, "invoice customer customer")
    index = build((((f"{thing}_lookup " * 3).strip(), 1), (f"Look up the {thing}.", 1)) for thing in THINGS)
    scores = index.scores({"invoic": 1, "customer": 2}) * UNIT
    expected = {
        f"{thing}_lookup": score for thing, score in zip(THINGS, scores.tolist(), strict=True) if score
    }
    assert {item.name: item.score for item in offer.ranked} == pytest.approx(expected)


@pytest.mark.parametrize("words", ["", "zzz qqq", "Привет", "…", "\ud800\x00"])
def test_route_fails_open(words: str) -> None:
    """I3: words that no tool shares offer the whole universe, and rank nothing: its order is no ranking."""
    offer = route(lookups(tool("nika:done", source="intrinsic")), SPEC, words, ["order_lookup"])
    assert (offer.names, offer.offered, offer.why, offer.ranked) == ("all", 31, "no_overlap", ())
    assert (offer.pinned, offer.recent) == (("nika:done",), ("order_lookup",))


def test_route_puts_pins_and_recents_on_top_of_the_twelve() -> None:
    """Intrinsics, core tools, the agent's pins and what was used lately do not take the place of the best."""
    of = universe(
        [
            *(tool(f"send_{thing}", "Send it.") for thing in THINGS),
            tool("nika:done", source="intrinsic"),
            tool("mcp:git/log"),
            tool("mcp:git/show"),
            tool("clock", core=True),
            tool("other"),
        ]
    )
    offer = route(of, RoutingSpec(pin=("mcp:git/*", "!mcp:git/show")), "send", ["other", "gone"])
    assert offer.names == (*of.names[:12], "nika:done", "mcp:git/log", "clock", "other")
    assert offer.pinned == ("nika:done", "mcp:git/log", "clock")
    assert offer.recent == ("other",)
    assert offer.by_source == {"builtin": 1, "mcp": 1, "other": 14}


def test_route_is_for_the_pins_of_each_agent() -> None:
    """Agents that share a universe keep their own pins."""
    of = lookups()
    pins = [("saddle_*",), ("anvil_*", "violin_*"), (), ("saddle_*",)]
    offers = [route(of, RoutingSpec(pin=pin), "invoice") for pin in pins]
    assert [offer.pinned for offer in offers] == [
        ("saddle_lookup",),
        ("anvil_lookup", "violin_lookup"),
        (),
        ("saddle_lookup",),
    ]


@given(NAMES, WORDS, st.randoms())
def test_route_ignores_the_order_in_which_servers_are_listed(
    names: list[str], words: list[str], random: Any
) -> None:
    """The catalog sorts by name: whatever came first, the offer is the same."""
    shuffled = list(names)
    random.shuffle(shuffled)
    assert route(named(names), SPEC, " ".join(words)) == route(named(shuffled), SPEC, " ".join(words))


def test_route_reaches_tools_of_one_name_on_several_servers() -> None:
    """I9: two servers and a function that are all called `search` are all offered."""
    same = [tool("mcp:docs/search"), tool("mcp:web/search"), tool("search")]
    assert set(route(lookups(*same), SPEC, "search").names) == {item.name for item in same}


@pytest.mark.parametrize(
    ("words", "name", "description"),
    [
        ("We are scheduling it", "calendar", "Schedule something."),
        ("schedule", "calendar", "Scheduling for teams."),
        ("get the urls", "getURLs", ""),
        ("URL", "getURLs", ""),
        ("web", "web_search", ""),
        ("open the webpage", "browse", "Open a web page."),
        ("open the web page", "browse", "Open a webpage."),
        ("请搜索一下文件内容", "finder", "在文件内容中查找"),
        ("データベースを検索してください", "finder", "データベースの検索"),
        ("ช่วยค้นหาเอกสารหน่อย", "finder", "ค้นหาเอกสารในฐานข้อมูล"),
        ("ابحث عن طقس", "finder", "الطقس في المدينة"),
        ("파일을 검색해 주세요", "finder", "파일 검색"),
        ("CAFÉ", "finder", "cafe\u0301 near you"),
    ],
)
def test_route_finds_what_is_written_otherwise(words: str, name: str, description: str) -> None:
    """I2, I3, I4: inflections, joined and split names, compounds, scripts without spaces, accents."""
    offer = route(lookups(tool(name, description)), RoutingSpec(top=3), words)
    assert offer.ranked[0].name == name


def test_route_does_not_find_a_word_inside_another() -> None:
    """I3: "read" has nothing in common with a spreadsheet."""
    of = lookups(tool("spreadsheet"), tool("file_reading"))
    assert route(of, SPEC, "read").names == ("file_reading",)


# -- sticky ----------------------------------------------------------------------------------------


def test_sticky_keeps_the_offer_whatever_the_words() -> None:
    """With an offer to keep, only what was used joins it; nothing is ranked."""
    of = lookups()
    first = route(of, STICKY, "invoice")
    second = route(of, STICKY, "order", ["saddle_lookup"], kept=first.names)
    assert second.names == ("invoice_lookup", "saddle_lookup")
    assert (second.why, second.ranked, second.recent) == ("sticky", (), ("saddle_lookup",))


def test_sticky_widens_when_asked() -> None:
    """A fresh ranking joins what is kept; without any overlap nothing joins."""
    of = lookups()
    wider = route(of, STICKY, "order", kept=("invoice_lookup",), widen=True)
    assert wider.names == ("invoice_lookup", "order_lookup")
    assert [item.name for item in wider.ranked] == ["order_lookup"]
    assert route(of, STICKY, "zzz", kept=("invoice_lookup",), widen=True).names == ("invoice_lookup",)


def test_sticky_is_the_agents_choice() -> None:
    """Without it, or with nothing to keep, each offer is new; one that was whole stays whole."""
    of = lookups()
    assert route(of, SPEC, "order", kept=("invoice_lookup",)).names == ("order_lookup",)
    assert route(of, STICKY, "order", kept=()).names == ("order_lookup",)
    assert route(of, STICKY, "order", kept="all").names == "all"
    assert route(of, STICKY, "order", kept=of.names).names == "all"


@given(
    st.lists(st.tuples(WORDS, st.lists(st.sampled_from([f"{thing}_lookup" for thing in THINGS]), max_size=2),
                       st.booleans()), min_size=2, max_size=6)
)  # fmt: skip
def test_sticky_only_grows(turns: list[tuple[list[str], list[str], bool]]) -> None:
    """Over the turns of an exchange no tool that was offered is taken back."""
    of = lookups(tool("read_mail"), tool("find_pages"))
    offer: Offer | None = None
    for words, recent, widen in turns:
        before = set(names_of(offer, of)) if offer else set()
        offer = route(of, STICKY, " ".join(words), recent, kept=offer.names if offer else None, widen=widen)
        assert before <= set(names_of(offer, of))


# -- universe --------------------------------------------------------------------------------------


def test_universe_is_one_for_equal_tools() -> None:
    """Runs with the same tools share one universe and one index; any difference makes another."""
    tools = [tool(thing, f"About the {thing}.") for thing in THINGS]
    others = [
        tools[:-1],
        [*tools[1:], tools[0]],
        [tools[0].model_copy(update={"description": "Else."}), *tools[1:]],
        [tools[0].model_copy(update={"name": "else"}), *tools[1:]],
        [tools[0].model_copy(update={"core": True}), *tools[1:]],
        [tools[0].model_copy(update={"source": "intrinsic"}), *tools[1:]],
        [tool("ab", "c"), tool("d")],
        [tool("a", "bc"), tool("d")],
    ]
    same = universe(tools)
    assert universe([item.model_copy() for item in tools]) is same
    assert same.index is same.index
    assert len({same.digest, *(universe(other).digest for other in others)}) == len(others) + 1


def test_universe_may_be_made_by_several_threads_at_once() -> None:
    """Threads that meet an unknown universe all get the same offer."""
    tools = [tool(f"{verb}_{thing}", f"To {verb} the {thing}.") for verb in VERBS for thing in THINGS]

    def offered(turn: int) -> Offer:
        fresh = [item.model_copy(update={"description": f"{item.description} {turn // 8}"}) for item in tools]
        return route(universe(fresh), SPEC, "create the invoice, list the orders")

    with ThreadPoolExecutor(8) as threads:
        offers = list(threads.map(offered, range(32)))
    assert all(offer == offers[0] for offer in offers)


def test_offers_are_the_same_in_every_process(printed_by_seed: Callable[[str], set[str]]) -> None:
    """An offer, its scores to the last bit, and a search do not depend on the hash seed."""
    code = (
        "from mainspring.schemas.agent import RoutingSpec\n"
        "from mainspring.schemas.tools import ToolDeclaration\n"
        "from mainspring.workflows.router import query, route, search, universe\n"
        "named = ((f'mcp:s{n % 9}/get_item{n}', f'Get page {n % 13} of 東京 {n % 5}') for n in range(400))\n"
        "tools = [ToolDeclaration(name=name, description=text) for name, text in named]\n"
        "words = query('get the webpages 3 of item 7', 'looking', ['東京都 5', 'page 11'])\n"
        "for spec in (RoutingSpec(), RoutingSpec(sticky=True, pin=('mcp:s1/*',))):\n"
        "    print(ascii(route(universe(tools), spec, words, {'mcp:s3/get_item3', 'mcp:s4/get_item4'})))\n"
        "print(ascii(search(universe(tools), 'item 44 page')), universe(tools).digest.hex())"
    )
    assert len(printed_by_seed(code)) == 1


# -- search ----------------------------------------------------------------------------------------


def three_hundred() -> Universe:
    """Five verbs on thirty things, in two servers."""
    return universe(
        [
            tool(
                f"mcp:{server}/{verb}_{thing}",
                f"{verb.title()} a {thing} and send the result. Run by {server}.",
            )
            for server in ("alpha", "beta")
            for verb in VERBS
            for thing in THINGS
        ]
    )


@pytest.mark.parametrize(
    "words",
    [
        "run shell command python",
        "send gmail email",
        "create python script numpy pandas",
        "send an email to somebody with gmail",
        "please find a tool to run python code",
        "volcano python docker kubernetes",
        "kubernetes",
        "",
        "the of a",
    ],
)
def test_search_for_what_does_not_exist_finds_nothing_or_says_so(words: str) -> None:
    """I1: one word shared of several is no match, common or rare."""
    found = search(three_hundred(), words)
    assert found.weak
    assert found.tools == ()


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("mcp:beta/update_volcano", "mcp:beta/update_volcano"),
        ("update_volcano", "mcp:alpha/update_volcano"),
        ("updating volcanos", "mcp:alpha/update_volcano"),
        ("Please find me a tool that updates volcanos", "mcp:alpha/update_volcano"),
        ("Delete a saddle and send the result. Run by beta.", "mcp:beta/delete_saddle"),
        ("list every violin", "mcp:alpha/list_violin"),
    ],
)
def test_search_finds_names_and_descriptions(words: str, first: str) -> None:
    """A tool's name, its words in another form, or its description find it first, and not weakly."""
    found = search(three_hundred(), words)
    assert found.tools[0].name == first
    assert not found.weak


def test_search_of_half_the_words_is_weak() -> None:
    """Something is found, and it is said that it is hardly what was asked for."""
    found = search(lookups(), "invoice rendering")
    assert found.tools == (Ranked("invoice_lookup", found.tools[0].score),)
    assert found.weak


def test_search_leaves_intrinsics_out_and_keeps_to_its_limit() -> None:
    """What is offered in every turn need not be found; at most `limit` tools are."""
    of = lookups(tool("nika:find_tools", "Look up tools.", source="intrinsic"))
    found = search(of, "look up", limit=4)
    assert [item.name for item in found.tools] == [f"{thing}_lookup" for thing in THINGS[:4]]
    assert len(search(of, "lookup").tools) == 5
    assert [item.name for item in search(of, " nika:find_tools ", limit=1).tools] == ["nika:find_tools"]
    assert search(universe([]), "lookup") == search(of, "")


@pytest.mark.parametrize("words", ["webpage", "web page", "web pages"])
@pytest.mark.parametrize("description", ["Open a webpage.", "Open a web page."])
def test_search_meets_compounds_both_ways(words: str, description: str) -> None:
    """I4: however it is written, the same tool is found, and strongly."""
    found = search(lookups(tool("browse", description), tool("page_setup")), words)
    assert found.tools[0].name == "browse"
    assert not found.weak


@given(st.text(max_size=300))
def test_search_is_total(words: str) -> None:
    """Any text is searched for, and a strong answer has a tool."""
    found = search(lookups(), words)
    assert found.weak or found.tools
    assert len(found.tools) <= 5
    assert parts(words) or not found.tools
