"""Every parser and scorer of text from a model, an environment, a tool or a file takes time about linear in the text.

Each one reads hostile texts of 3,000 and 30,000 characters, in the slow tests of 10,000 and 100,000. A text ten times
as long may take 30 times as long (a quadratic parser takes 100 times), times below 20 ms count as 20 ms, and no text
may take a second of CPU time.

Where text is read by code that is not linear by nature, that code looks at a bounded part of it: `code_math` compares
1,000 characters, the calculator reads 1,000, `mutate` 20,000 (4,000 here), WebShop's reward 10,000, the words of its
index have 255. `hermes` reads on after 100 broken calls no more.

Not here, because only the user writes them: recipes, command
lines. Grouping by similarity (`agentrl.graph.similarity`) compares pairs of texts, which is quadratic by definition.
"""

import gc
import importlib
import itertools
import json
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from agentrl.algorithms import _subgoals
from agentrl.algorithms.context import memory as context_memory, plan
from agentrl.env import Bare
from agentrl.envs import deep_research, notes, textworld
from agentrl.envs.alfworld import data, experts, explorer, formats, memory, pddl, prompts as alfworld_prompts
from agentrl.envs.alfworld.compiler import compile_game
from agentrl.envs.alfworld.words import TASK
from agentrl.envs.calculator.problem import NUMBER, Notebook
from agentrl.envs.code_math import answers
from agentrl.envs.code_math.environment import operations
from agentrl.envs.code_math.forms import form_of
from agentrl.envs.code_math.spelling import tokens_of
from agentrl.envs.code_repair import judge, mutate, workspace
from agentrl.envs.code_repo import files as code_repo_files, judging, repository, shell
from agentrl.envs.gymnasium_text import environment as gymnasium_text
from agentrl.envs.search_qa import encyclopaedia, env as search_env, prompts as search_prompts, questions, scores
from agentrl.envs.search_qa.lexicon import lexicon
from agentrl.envs.sokoban import generate as sokoban_levels, prompts as sokoban_prompts
from agentrl.envs.webshop import (
    analysis,
    brief,
    nouns,
    pages,
    porter,
    products,
    prompts as webshop_prompts,
    reward,
    words,
)
from agentrl.tool import action as tool_action, fenced_code, load_format, search_words
from agentrl.tool.schema import _choices
from agentrl.tools.calculator import worked_out
from agentrl.types import Observation
from tests.envs.alfworld.small import kitchen

SIZES, LONG = (3_000, 30_000), (10_000, 100_000)
GROWTH, LEAST_S, MOST_S = 30, 0.02, 1.0

NOWHERE = Observation(text="", actions=("look",))
SEARCH = {"name": "search", "parameters": {"type": "object", "properties": {"query": {"type": "string"}}}}
ADD = {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {}}}}

# Each is repeated to the wanted length, behind a beginning and before an end.
COMMON = ("a", "1", " ", "\n", "_", ".", "-", "[", "(", "{", "<", '"', "'", "\\", "a ", "a. ", "\u2028")
BEGINNINGS_AND_ENDS = (("", ""), ("a", "!"))
TAGS = (
    "<search>",
    "<answer>",
    "<action>",
    "<switch>",
    "<information>",
    "<delegate>",
    "</answer>",
    "<think>",
    "</think>",
)
NOUNS = sorted(encyclopaedia.RELATIONS)[:3]
CHUNKS = context_memory.Config(chunk_tokens=50)
CALLS = ("<tool_call>", "<tool_call>1", '<tool_call>{"', "<tool_call><function=a>", "<tool_call>[", "<parameter=a>")
CALLS_CLOSED = (
    "<tool_call></tool_call>",
    "<tool_call>1 ",
    '{"name":"a"};',
    '{"a":',
    "[1,",
    "```python\n",
    "``` ",
    "```",
)
EXPRESSIONS = ("add(", "add(a=", "((", "f([{", "1+", "-", "not ", "(1,", "x.", "lambda:", "1 if 1 else ", "**", '{"a":')


def parse_with(prompt: Any) -> Callable[[str], object]:
    return lambda text: prompt.parse(text, NOWHERE)


def refusing(function: Callable[[str], object]) -> Callable[[str], object]:
    """A parser of a file or an option, which may say in one sentence that the text is none."""

    def read(text: str) -> object:
        try:
            return function(text)
        except ValueError as error:
            return str(error)

    return read


def remember(text: str) -> None:
    memory.Memory().read(Observation(text=text, actions=(f"take {text}", "look")))


def problem(*, init: str = "", goal: str = "") -> Callable[[str], object]:
    """A PDDL problem with the text in one of its parts."""
    return refusing(lambda text: pddl.parse_problem(f"(:objects a - b)(:init {init or text})(:goal {goal or text}))"))


def game(text: str) -> object:
    """A game file whose goal nests as deeply as the text is long."""
    given = kitchen()
    start = given["pddl_problem"].index("(:goal")
    return refusing(lambda t: compile_game({**given, "pddl_problem": given["pddl_problem"][:start] + t}, key="g"))(
        f"(:goal {text}(a){')' * len(text)}))"
    )


def format_parser(name: str, *schemas: dict[str, object]) -> Callable[[str], object]:
    return load_format(name, [{"type": "function", "function": schema} for schema in schemas]).parse


tasks = importlib.import_module("agentrl.envs.code_repair.tasks")
PARSERS: dict[str, tuple[Callable[[str], object], tuple[str, ...]]] = {
    "code_math boxed": (answers.boxed, ("\\boxed{", "\\boxed{}", "\\boxed{a}{", "}", "\\boxed ", "\\boxed 5,")),
    "code_math final_answer": (
        answers.final_answer,
        ("\\boxed{", "####", "####\n", "answer ", "answer is\n", "answer: ", "answer is 5 ", "<answer>",
        "**answer**\n"),
    ),
    "code_math tokens": (
        refusing(lambda text: len(tokens_of(text[:1000]))),
        ("\\text{ a", "\\text{", "\\frac{", "\\frac", "\\frac1", "{}", "1 km", "^{\\circ", "\\mathrm{", "1,111",
        "^-", "^("),
    ),
    "code_math form": (
        lambda text: form_of(text[:1000]),
        ("1,", "(", "((1,2),", "{1,", "x=", "<", "-", "1/", "\\pm ", " and "),
    ),
    "code_math gold": (answers.gold_answer, ("\\boxed ", "['", '["', "answer", "#### ", "答案", "**answer\n")),
    "code_math same": (lambda text: answers.same(text, text[1:]), ("1,", "{1,", "(1,", "\\text{a")),
    "code_math same, cut": (
        lambda text: answers.same(f"{{{text[:990]}}}", f"{{{text[1:990]}}}"),
        ("1,", "0.1,", "{1,", "a,", "\\text{a a", "1/", "{1.5,{"),
    ),
    "code_math same, words": (lambda text: answers.same(f"\\text{{{text[:900]}{{}}", "1"), ("a b",)),
    "code_math operations": (lambda text: list(operations(text)), EXPRESSIONS),
    "calculator answer": (NUMBER.findall, ("1,", "1.", "-", "1,1.1", "1e", "1-", "1--", "x1", "²", "1²")),
    "calculator lines": (lambda text: Notebook._cut(None, text), ("a?", "?")),  # type: ignore[arg-type]
    "calculator round": (refusing(lambda t: worked_out(f"round(1/3, {len(t)}000)")), ()),
    "calculator tool": (refusing(worked_out), EXPRESSIONS),
    "calculator tool, cut": (refusing(lambda text: worked_out(text[:999])), (*EXPRESSIONS, "9**", "abs(", "2**9*")),
    "webshop action": (pages.parse, ("click[", "[[", "a[b]", "click[a]]", "]")),
    "webshop resolve": (lambda text: brief._PLACE.match(f"click[item {text}"), ()),
    "webshop brief": (brief.plain, ("'", "$$", "$.", "a-")),
    "webshop words": (words.instruction_words, (", and price lower than ", "i need ", "price lower than 1")),
    "webshop queries": (lambda text: words.suggested_queries.__wrapped__(text, 5), ("a'a ", "ab ")),
    "webshop boxed": (parse_with(webshop_prompts.Gem()), ("\\boxed{", "\\boxed{}", "}")),
    "webshop tags": (parse_with(webshop_prompts.VerlAgent()), TAGS),
    "webshop compact": (parse_with(webshop_prompts.Compact()), ()),
    "webshop instruct": (parse_with(webshop_prompts.Instruct()), (">", "- ", '"', "`'", "action:", ".")),
    "alfworld instruct": (parse_with(alfworld_prompts.Instruct()), (">", "- ", '"', "`'", "action:", ".")),
    "search instruct": (parse_with(search_prompts.Instruct()), (">", "search ", '"', ".")),
    "webshop terms": (analysis.terms, ("a_", "1_", "a:", "1,", "a'", "ab ")),
    "webshop nouns": (nouns.built_in_nouns.__wrapped__, ("a'a", "a'", "1a ")),
    "webshop stem": (porter.stem, ("ing", "ational", "y", "bb")),
    "webshop prices": (refusing(products.prices), ("$1,", "1.", "$")),
    "webshop reward": (lambda text: reward.alike(text, f"{text[1:]} q"), ("ab ", "a b ")),
    "alfworld tags": (parse_with(alfworld_prompts.VerlAgent()), TAGS),
    "alfworld terse": (alfworld_prompts.Terse().say, ("the ", "Looking quickly ", "middle of a ", "an")),
    "alfworld memory": (remember, ("On the a 1, you see ", "On the a 1, you see a 1", "The a 1 is open. In it", "a 1")),
    "alfworld facts": (problem(goal="()"), ("(a)", "(= (", "(= ()", "( = ", ";")),
    "alfworld goal": (problem(init="(a b)"), ("(a)", "((a)", "(and ", ":goal")),
    "alfworld deep goal": (game, ("(and ", "(not ", "(exists (?a - b) ", "(forall (?a - b) ")),
    "alfworld grammar": (refusing(lambda t: formats.recognise(t, f'"rhs": "Your task is to: {t}')), ('"rhs": "', ";")),
    "alfworld task": (refusing(explorer.read_task), ("put a ", "put some a in ")),
    "alfworld task line": (lambda t: experts.task_words(Observation(text=f"{TASK}{t}")), (TASK,)),
    "alfworld task type": (lambda t: data._TASK_TYPE.search(t.encode()), ('"task_type"', '"task_type" : "')),
    "search read": (search_prompts.read, TAGS),
    "search compact": (parse_with(search_prompts.Compact()), ()),
    "search normalise": (scores.normalise, ("the ", "a an ")),
    "search last answer": (scores.last_answer, TAGS),
    "search well formed": (scores.well_formed, TAGS),
    "search em_format": (lambda t: scores.em_format(f"{t}<answer>x</answer>", [t[:50], "x"]), TAGS),
    "search f1": (lambda t: scores.f1(t, [t[::-1]]), ("a b ",)),
    "search retrieved": (lambda t: scores.retrieved(t, ["zz", "!!!"]), TAGS),
    "search carried out": (search_prompts.carried_out, TAGS),
    "search understand": (lambda t: questions.understand(f"Who is the {t}"), (" of ", "Aa Bb of ", "Aa ", "the a of ")),
    "search lexicon": (lambda t: lexicon("tiny", 0).search([t], 3), ("Ada ", "the fact of ", "é ")),
    "search facts": (lambda t: [questions.read(n, t) for n in NOUNS], ("Aa Bb ", "A", "Aa ")),
    "search alias": (questions.also_known, ("Aa Bb ", "also known as ")),
    "search names": (lambda t: search_env.names_in.__wrapped__(t, "tiny", 0), ("Aa Bb ", "1234 ")),
    "deep research": (parse_with(deep_research.Tags()), TAGS),
    "deep research compact": (lambda t: deep_research.Compact().answer(t), TAGS),
    "notes": (lambda t: notes._last_key("Ada", t), ("Ada ", "Ada\n")),
    "notes key": (notes.KEY.fullmatch, ()),
    "textworld": (textworld.tidy, ("\n>", "\n> ", "\n -= ", " -= =-", "-= =- 1/", "\n\n\n", "\t")),
    "textworld opening": (lambda t: textworld.tidy(t, opening=True), ("$$\n", "\\|", " \n", "        \\", "______")),
    "textworld command": (textworld.typed, ()),
    "gymnasium colours": (gymnasium_text._uncoloured, ("\x1b[1m", "\x1b[0m", "\x1b[", "\x1b[1;", "\x1b[1mx\x1b[0m")),
    "sokoban tags": (parse_with(sokoban_prompts.VerlAgent(3)), (*TAGS, "up,", "||")),
    "sokoban key": (refusing(sokoban_levels.parse), ("1x1b", "/")),
    "search words": (search_words, ("+", "a+", "é+", ".a", "e\u0301", "\u1780\u17d2", "故", "c++ é")),
    "code_repair verdict": (judge._last_list, ("[", '{"a":', "[1,", '"')),
    "code_repair mutations": (lambda t: mutate.mutations(t[:4_000]), (*EXPRESSIONS, "1;", "a<b;", "x=1\n")),
    "code_repair meaning": (tasks._meaning, EXPRESSIONS),
    "code_repair edit": (lambda t: workspace.unique_edit(t, len(t) // 2, len(t) // 2, "x"), ("x = 1\n", "\n\n")),
    "code_repair path": (refusing(lambda t: workspace.Workspace(workspace.Config()).write_file(t, "")), ("a/", "./")),
    "code_repo similarity": (lambda t: code_repo_files.similarity({"f": t}, {"f": "- a\n+ b\n"}), ("a", "- a\n", "ab")),
    "code_repo patch": (lambda t: code_repo_files.patch({"f": t}, {"f": t[::-1]}), ("a\n", "a\nb\n", "ab")),
    "code_repo trap": (lambda t: judging.with_trap(judging.forms({'t': t[:4_000]})[0] and t[:4_000]), EXPRESSIONS),
    "code_repo definitions": (lambda t: repository.definitions(t[:4_000]), (*EXPRESSIONS, "def f(): 1\n")),
    "code_repo tree": (shell._tree, ("[", '{"a":', "[1,")),
    "code_repo path": (code_repo_files.protected, ("a/", "tests/", "test_")),
    "sub-goals": (lambda t: (_subgoals.switches(t), list(_subgoals.spans(t))), TAGS),
    "plan": (parse_with(plan.Planned(plan.Config(), Bare())), TAGS),
    "memory chunks": (lambda t: context_memory.split.__wrapped__(CHUNKS, None, t), ("a b\n",)),
    "calls hermes": (format_parser("hermes", ADD), (*CALLS, *CALLS_CLOSED)),
    "calls llama_json": (format_parser("llama_json", ADD), (*CALLS_CLOSED, "<|python_tag|>{")),
    "calls xml_parameters": (format_parser("xml_parameters", ADD), (*CALLS, *CALLS_CLOSED, "</function>")),
    "calls action": (format_parser("action", ADD), (*TAGS, *EXPRESSIONS, "<action>add(</action>")),
    "calls fenced": (format_parser("fenced", SEARCH), (*CALLS_CLOSED, "```py\n```\n", "  \n")),
    "calls search_r1": (format_parser("search_r1", SEARCH), TAGS),
    "typed action": (lambda t: tool_action.read(f"add({t}", [{"function": ADD}]), EXPRESSIONS),
    "typed action, closed": (lambda t: tool_action.read(f"add(a={t})", [{"function": ADD}]), EXPRESSIONS),
    "canonical action": (lambda t: tool_action.read(f'{{"answer": "{t}', ()), ('"', "\\", "[")),
    "fenced code": (fenced_code, ("```python\n", "``` ", "```")),
    "choices of an argument": (refusing(lambda t: _choices(t)), ("(choices:", "(choices: ", "(choices: )", ")")),
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def no_garbage_collection() -> Iterator[None]:
    """The collector would count in the times."""
    gc.disable()
    yield
    gc.enable()


class TooLong(Exception):
    """A parser was stopped."""


@contextmanager
def stopped_after(seconds: float) -> Iterator[None]:
    """After so many CPU seconds. Python's regular expressions look at signals, so a test that fails does not hang."""

    def stop(number: int, frame: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def cpu_seconds(parser: Callable[[str], object], text: str) -> float:
    start = time.process_time()
    with stopped_after(20.0):
        parser(text)
    return time.process_time() - start


def hostile(unit: str, beginning: str, end: str, size: int) -> str:
    return f"{beginning}{unit * (size // len(unit))}{end}"


@pytest.mark.parametrize(
    ("sizes", "ends"),
    [(SIZES, BEGINNINGS_AND_ENDS[1:]), pytest.param(LONG, BEGINNINGS_AND_ENDS, marks=pytest.mark.slow)],
    ids=["short", "long"],
)
@pytest.mark.parametrize("name", PARSERS)
def test_a_text_ten_times_as_long_takes_about_ten_times_as_long(name, sizes, ends):
    parser, units = PARSERS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # expressions that Python finds odd
        for unit in (*COMMON, *units):
            for beginning, end in ends:
                taken = [cpu_seconds(parser, hostile(unit, beginning, end, size)) for size in sizes]
                where = f"{name} reads {beginning!r} + {unit!r} * n + {end!r} in {taken} s at {sizes} characters"
                assert taken[-1] <= MOST_S, where
                for shorter, longer in itertools.pairwise(taken):
                    assert longer <= GROWTH * max(shorter, LEAST_S), where


# `DROPPED` took 0.14 s for 20 letters, 8.2 s for 26, and doubled with each letter; WebShop's parser 3.9 s.
def test_the_answers_that_were_found_to_freeze_the_trainer():
    answer = "\\boxed{\\text{" + 40 * "a" + "{}}}"
    assert cpu_seconds(lambda text: answers.same(answers.final_answer(text), "1"), answer) < 1.0
    assert cpu_seconds(pages.parse, "click" + "[" * 10_000) < 1.0


@pytest.mark.parametrize("opening", ["[", '{"a":', "("])
@pytest.mark.parametrize("depth", [90, 200, 5_000, 100_000])
def test_deeply_nested_values_are_answers_or_refusals_and_never_tracebacks(opening, depth):
    closing = {"[": "]", '{"a":': "}", "(": ")"}[opening]
    nested = f"{opening * depth}1{closing * depth}"
    schemas = [{"type": "function", "function": ADD}]
    for name in ("hermes", "llama_json", "xml_parameters", "action"):
        written = {
            "hermes": f'<tool_call>{{"name": "add", "arguments": {{"b": {nested}}}}}</tool_call>',
            "llama_json": f'{{"name": "add", "parameters": {{"b": {nested}}}}}',
            "xml_parameters": f"<tool_call><function=add><parameter=b>{nested}</parameter></function></tool_call>",
            "action": f"<action>add(b={nested})</action>",
        }[name]
        tool_action.write(load_format(name, schemas).parse(written))
    action = json.dumps({"calls": []})[:-2] + f'{{"name": "add", "arguments": {{"b": {nested}}}}}]}}'
    turn = tool_action.read(action, schemas)
    assert turn.answer is not None or turn.items
    tool_action.write(load_format("hermes", schemas).parse(action))
    refusing(worked_out)(nested)
    answers.same(nested, f"{nested}1")
