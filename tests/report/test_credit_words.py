"""The arithmetic of credit in words: every printed sum adds up, and words are given only where they are true."""

import re
from decimal import Decimal

import numpy as np
import pytest

from agentrl.config import resolve
from agentrl.credit import CreditMethod, assign
from agentrl.graph import PROBE
from agentrl.report.credit_words import about_under, adding_up, explained_options, sum_in_words, why
from tests.report.pages import graph_of, household

SUM = re.compile(r"(-?[\d.]+) = ([^;]*)")


def words_of(name, **options):
    graph = graph_of(household())
    entry = resolve(CreditMethod, {"name": name, **options})
    credit = assign(entry, graph)
    return graph, credit, why(graph, credit, entry.config.model_dump(), np.arange(len(graph)))


@pytest.mark.parametrize(("total", "terms"), [(-1.575, (-0.875, -0.7)), (0.6965833, (0.125, 0.5715833)), (0.0, (0.0,))])
def test_printed_terms_give_the_printed_total(total, terms):
    whole, sign, texts = adding_up(total, terms)
    assert sign == "=" and sum(map(Decimal, texts)) == Decimal(whole) and "-0.000" not in (whole, *texts)


def test_thirds_never_add_up_and_are_said_to_be_about_right():
    assert adding_up(2 / 3, (1 / 3, 1 / 3)) == ("0.667", "is about", ["0.333", "0.333"])
    assert sum_in_words(1.0, [("a", 0.25)]) == "+1.000, a +0.250"  # a method that weighs its parts


def test_gigpo_says_its_differences_from_means_and_every_sum_is_true():
    graph, credit, words = words_of("gigpo", std="none")
    assert len(words) == len(graph)
    for row, text in enumerate(words):
        for number, rest in SUM.findall(text):
            terms = [Decimal(x) for x in re.findall(r"-?\d+\.\d+", rest)]
            due = terms[0] - terms[1] if " - the mean " in rest else sum(terms)
            assert due == Decimal(number), text
        assert float(re.match(r"-?[\d.]+", text)[0]) == pytest.approx(credit.advantage[row], abs=6e-4)
    assert "of the 4 steps that left this state" in words[0] and "of the 3 episodes of its group" in words[0]
    alone = graph.names["state"].index("closet")
    (at,) = np.flatnonzero(graph.state == alone)
    assert "step_advantage is 0, because no other step left this state" in words[at]


def test_steps_without_credit_have_no_words_and_do_no_harm():
    graph = graph_of(household())
    kind = graph.kind.copy()
    kind[:4] = PROBE
    graph = graph.with_columns(kind=kind)
    entry = resolve(CreditMethod, {"name": "gigpo", "std": "none"})
    credit = assign(entry, graph)
    assert np.isnan(credit.parts["step_group"][:4]).any()
    told = why(graph, credit, entry.config.model_dump(), np.arange(len(graph)))
    assert [text for text, has in zip(told, credit.assigned, strict=True) if not has] == [""] * 4


def test_a_standard_deviation_is_named_and_other_methods_have_no_words():
    _, credit, words = words_of("grpo", std="sample")
    assert words[0].startswith(
        f"advantage {credit.advantage[0]:.3f} is about (its score 1.000 - the mean 0.667 of the 3"
    )
    assert words[0].endswith("/ their standard deviation 0.577")
    assert words_of("rloo")[2] == [] and words_of("grpo", invalid_penalty=0.5)[2] == []


def test_options_have_the_texts_of_explain_and_grpo_is_not_called_normalised_without_a_deviation():
    found = explained_options("gigpo", {"singleton": "zero", "similarity": "off"}, ["step_return", "unknown"])
    assert found.keys() == {"singleton", "similarity", "step_return"} and "equal states only" in found["similarity"]
    assert explained_options("as stored", {}, []) == {}
    about = "The score, normalised inside its group, on every step (GRPO)."
    assert about_under(about, {"std": "sample"}) == about
    assert "normalised" not in about_under(about, {"std": "none"}) and "std=none" in about_under(about, {"std": "none"})
