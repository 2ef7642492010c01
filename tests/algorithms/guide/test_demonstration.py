"""Demonstrations in the group: kind DEMO, its rule in statistics and credit, and what an update makes of it."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from agentrl.config import resolve
from agentrl.credit import CreditMethod, assign, with_imitation
from agentrl.env import Limits, make_pool, tasks_of
from agentrl.graph import DEMO, PLAYED, graph_from_bytes, graph_to_bytes
from agentrl.loss import Loss
from agentrl.rollout import build_graph, demonstration_of, fresh_part, play, with_demonstrations
from agentrl.trainer import Learner, OptimConfig, Regularizers, UpdateConfig, annotate, update
from agentrl.trainer.regularizer import RegularizerFile
from tests.rollout.playing import entry, player, right
from tests.toys.runs import tiny_model


def guide(**options):
    found = resolve("guide", {"name": "demonstration", **options})
    return found.hooks.make(found.config, 0)


def world(goal: int = 4, turns: int = 3):
    """A corridor that nobody finishes in `turns`, the records of two copies per task, and an expert with the time."""
    on = entry(goal=goal, count=2)
    by = player(on, make_pool(on, "inline"), limits=Limits(turns=turns, fault_share=1))
    expert = player(on, make_pool(on, "inline"), policy=right(), limits=Limits(turns=goal))
    return on, asyncio.run(play(by, tasks_of(on), copies=2)), expert


def joined(chosen, turns: int = 3):
    """A batch with the guide's demonstrations, and the keys that the expert was asked for."""
    on, records, expert = world(turns=turns)
    asked = []

    async def demonstrate(tasks):
        asked.extend(task.key for task in tasks)
        return await play(expert, tasks)

    chosen.observe(records)
    tasks = {task.key: task for task in tasks_of(on)}
    graph, metrics = asyncio.run(with_demonstrations(chosen, build_graph(records), tasks, demonstrate))
    return graph, metrics, asked


def test_a_failed_group_gets_the_experts_chain():
    chosen = guide(source="expert")
    graph, metrics, asked = joined(chosen)
    assert sorted(asked) == ["walk/0", "walk/1"] and metrics == {"demonstrated_share": 1.0}
    shown = graph.kind == DEMO
    assert shown.sum() == 8 and graph.group[shown].tolist() == [0] * 4 + [1] * 4  # four steps to the goal each
    assert graph.succeeded[shown].all() and not graph.succeeded[~shown].any()
    assert graph.column("in_statistics").all() and not graph.column("in_gradient")[shown].any()
    assert graph.column("in_gradient")[~shown].all()
    _, _, again = joined(chosen)
    assert not again  # an expert plays a task once
    assert len(fresh_part(graph)) == (~shown).sum()
    back = graph_from_bytes(graph_to_bytes(graph))  # a file holds the kind
    assert (back.kind == graph.kind).all()


def test_the_advantage_of_a_demonstration_by_hand():
    # scores of group 0: 0, 0 and 1 of the demonstration. RLOO: 1 - 0 = 1 for it, 0 - (0 + 1) / 2 = -0.5 for the copies.
    # Outside of the statistics: 0 - 0 for the copies, and 1 less the mean of the other two, 1 - 0 = 1, for it.
    rloo = resolve(CreditMethod, {"name": "rloo"})
    for statistics, copies in ((True, -0.5), (False, 0.0)):
        graph, _, _ = joined(guide(source="expert", statistics=statistics))
        credit = assign(rloo, graph)
        shown = graph.kind == DEMO
        np.testing.assert_allclose(credit.advantage[~shown], copies)
        if statistics:
            np.testing.assert_allclose(credit.advantage[shown], 1.0)
        assert not credit.positive[shown].any() and not credit.weight[shown].any()  # an expert has no ratio
        assert with_imitation(credit, graph).weight[shown].all()


@pytest.mark.parametrize("method", ["grpo", "rloo", "gigpo"])
@pytest.mark.parametrize("turns", [3, 4])
def test_outside_of_the_statistics_the_others_keep_their_credit(method, turns):
    found = resolve(CreditMethod, {"name": method})
    graph, _, _ = joined(guide(source="expert", statistics=False, when="always"), turns)
    alone = fresh_part(graph)
    played = graph.kind == PLAYED
    np.testing.assert_array_equal(assign(found, graph).advantage[played], assign(found, alone).advantage)


def test_methods_that_do_not_compare_demonstrations_do_not_see_them():
    found = resolve(CreditMethod, {"name": "turn_returns"})
    graph, _, _ = joined(guide(source="expert"))
    credit = assign(found, graph)
    assert not credit.assigned[graph.kind == DEMO].any()
    np.testing.assert_array_equal(credit.advantage[graph.kind == PLAYED], assign(found, fresh_part(graph)).advantage)


def test_the_policys_own_shortest_success_is_kept_and_has_a_ratio():
    on, failed, expert = world()
    chosen = guide(train="ratio")
    solved = asyncio.run(play(expert, tasks_of(on)))
    chosen.observe(solved[:1])
    state = chosen.state_dict()
    other = guide(train="ratio")
    other.load_state_dict(state)
    for one in (chosen, other):
        graph, metrics, asked = joined(one)
        shown = graph.kind == DEMO
        assert metrics == {"demonstrated_share": 0.5} and not asked
        assert graph.group[shown].tolist() == [0] * 4 and graph.column("in_gradient").all()
    assert demonstration_of(failed[0]) is None


def test_an_expert_with_a_ratio_is_refused():
    with pytest.raises(ValueError, match="an expert has none"):
        guide(source="expert", train="ratio")


def test_imitation_by_hand():
    import torch

    from agentrl.loss import LossInputs

    found = resolve(RegularizerFile, {"name": "imitation", "shape": "bounded", "by": "advantage", "coef": 2.0})
    logprob = torch.tensor([0.5, 0.5]).log().requires_grad_()
    none = torch.zeros(2)
    inputs = LossInputs(
        logprob=logprob, old_logprob=none, ref_logprob=None, entropy=None, positive=none, negative=none, weight=none,
        step=none.long(), path=none.long(),
        columns={"demonstrated": torch.tensor([1.0, 0.0]), "advantage": torch.tensor([3.0, 3.0])},
    )  # fmt: skip
    term = found.hooks.make(found.config)(inputs)
    # -2 * 3 * 0.5 / 0.6 = -5 on the demonstration; its gradient in log pi: -6 * pi gamma / (pi + gamma)^2 = -0.8333
    torch.testing.assert_close(term.per_token.detach(), torch.tensor([-5.0, 0.0]))
    term.per_token.sum().backward()
    torch.testing.assert_close(logprob.grad, torch.tensor([-6 * 0.5 * 0.1 / 0.36, 0.0]))


def trained(imitates: bool):
    """Log-probs of the demonstrations' and of the other tokens before and after one update."""
    from agentrl.chat import Chat
    from agentrl.rollout.baselines import ExpertActor
    from agentrl.trainer import logprobs

    loaded = tiny_model(["You are at 0, 1, 2, 3, the goal is 4.", "left", "right"])
    on = world()[0]
    actor = ExpertActor("straight", player(on, make_pool(on, "inline")).prompt, Chat(loaded.tokenizer))
    by = replace(player(on, make_pool(on, "inline"), actor=actor), admissible=True)
    chosen = guide(source="expert")
    chosen.shown(asyncio.run(play(by, tasks_of(on))))
    chains = asyncio.run(play(by, tasks_of(on)))
    for record in chains:  # the expert's chains, cut short, in the place of the policy's
        record.steps = record.steps[:2]
    graph, _ = asyncio.run(with_demonstrations(chosen, build_graph(chains), {}, None))
    learner = Learner(loaded, OptimConfig(lr=1e-2))
    config = UpdateConfig()
    annotated = annotate(graph, learner, config, 1.0).graph
    assert (
        annotated.token_column("importance")[np.repeat(graph.kind == DEMO, np.diff(graph.tokens.offsets))] == 1
    ).all()
    credit = assign(resolve(CreditMethod, {"name": "rloo"}), annotated)
    credit = with_imitation(credit, annotated) if imitates else credit
    entries = [resolve(RegularizerFile, {"name": "imitation"})] if imitates else []
    update(
        learner, annotated, credit, config, resolve(Loss, {"name": "ppo_clip"}), temperature=1.0,
        regularizers=Regularizers(entries),
    )  # fmt: skip
    rows = np.flatnonzero(graph.kind == DEMO)
    after = logprobs(learner.network, annotated, rows, temperature=1.0, max_tokens=4096)
    counted = ~np.isnan(after)
    return annotated.token_column("old_logprob")[counted].sum(), after[counted].sum()


def test_an_update_imitates_demonstrations_and_nothing_else_does():
    before, after = trained(True)
    assert after > before + 0.1
    alone = trained(False)
    assert alone[1] < after - 0.1
