"""Parts per token of a credit method: their own field, put back on the graph's tokens, printed as lists per step."""

import json

import numpy as np
import pytest

from agentrl.cli.credit import json_lines
from agentrl.config import Entry
from agentrl.credit import Credit, CreditMethod, Options, assign, require
from agentrl.graph import PROBE
from tests.graph.graphs import Row, build


class Config(Options, frozen=True):
    """No options."""


def method(credit=lambda graph, config: None, needs=()):
    return Entry("mine", CreditMethod(name="mine", module="mine", config=Config, credit=credit, needs=needs), Config())


def three_rows():
    """Episodes of one row with 2, 3 and 2 tokens, of which 1, 2 and 1 are sampled; row 1 is a probe."""
    rows = [Row([1], [2]), Row([3], [4, 5], episode=1), Row([6], [7], episode=2)]
    graph = build(rows)
    return graph.with_columns(kind=np.array([0, PROBE, 0], np.int8))


def test_parts_per_token_go_back_to_the_tokens_of_their_rows():
    # The method sees rows 0 and 2, tokens 0 1 and 5 6; what it gives them stands there again, 0 on the probe's tokens.
    graph = three_rows().with_token_columns(token_value=np.arange(7.0))

    def credit(part, config):
        value = part.token_column("token_value")
        return Credit.of(
            np.array([1.0, 2.0]), parts={"token_like": np.array([5.0, 6.0])}, token_parts={"twice": 2 * value}
        )

    found = assign(method(credit, ("token_value",)), graph)
    assert found.token_parts["twice"].tolist() == [0, 2, 0, 0, 0, 10, 12]
    np.testing.assert_array_equal(found.parts["token_like"], [5, np.nan, 6])
    printed = [json.loads(line) for line in json_lines(graph, found)]
    for line in printed:
        del line["episode"], line["turn"]
    assert printed[0] == {"advantage": 1.0, "token_like": 5.0, "twice": [2.0]} and list(printed[0])[-1] == "twice"
    assert printed[1] == {"advantage": None, "token_like": None, "twice": [0.0, 0.0]}


def test_a_needed_column_may_be_of_steps_or_of_tokens():
    needs = method(needs=("old_logprob",)).hooks
    graph = three_rows()
    with pytest.raises(ValueError, match="mine needs the column 'old_logprob', which these steps do not have"):
        require(needs, graph)
    require(needs, graph.with_token_columns(old_logprob=np.full(7, np.nan)))
    require(needs, graph.with_columns(old_logprob=np.zeros(3)))
    with pytest.raises(ValueError, match="episode 1, turn 0: old_logprob: mine needs this column on every step"):
        require(needs, graph.with_columns(old_logprob=np.array([0, np.nan, 0])))


def test_a_part_of_another_length_says_where_it_belongs():
    with pytest.raises(ValueError, match=r"the part 'token_advantage' .* has 7 entries for 3 steps: .* token_parts"):
        Credit.of(np.zeros(3), parts={"token_advantage": np.zeros(7)})
