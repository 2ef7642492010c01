"""The rollout benchmark: its load, its listed answers, and the CPU seconds of a family of processes."""

import subprocess
import sys
import time

import pytest

from benchmarks import rollout, rollout_where, vllm_peer


def test_the_embedded_engine_answers_the_load_as_generate_does_and_takes_listed_answers_only():
    load = rollout.Load(trajectories=2, turns=2, prompt=8, observation=4, answer=4)
    model = rollout.make_model()
    found = rollout.measure(load, 1, model) | rollout.choosing(model, load, 5, 1)
    assert found["tokens"] == 2 * 2 * 4
    assert found["equal_answers"] == found["answers"] == 4
    assert found["choices"] == 5
    sets = rollout.listed(load, 5)
    assert all(len({tuple(answer) for answer in turn}) == 5 for path in sets for turn in path)


def test_where_counts_prefill_and_decoding_apart_and_its_shares_sum_to_one():
    load = rollout.Load(trajectories=2, turns=2, prompt=8, observation=4, answer=4)
    lines = rollout.where(rollout.make_model(), load)
    phases = {line["phase"]: line for line in lines if "share" in line and "part" not in line}
    prefill, decode = phases["prefill"], phases["decode"]
    assert (prefill["passes"], prefill["tokens"]) == (2, 2 * 8 + 2 * (4 + 1))  # the last token of an answer comes later
    assert (decode["passes"], decode["tokens"]) == (2 * 3, 2 * 2 * 3)
    assert sum(line["share"] for line in phases.values()) == pytest.approx(1, abs=0.01)
    for name in rollout_where.PHASES:
        assert sum(x["share"] for x in lines if x.get("phase") == name and "part" in x) == pytest.approx(1, abs=0.01)


def test_the_memory_bound_counts_the_weights_of_every_pass_and_the_keys_and_values_that_it_reads():
    model = rollout.make_model()
    weights = 4 * sum(p.numel() for p in model.parameters())
    token = 2 * 4 * 2 * 64 * 4  # keys and values, layers, heads, numbers, bytes
    passes = rollout_where.Passes(count=3, read=10)
    assert rollout_where.memory(model, passes, speed=1.0) == 3 * weights + 10 * token


def test_cpu_seconds_of_a_child_count_while_it_lives():
    before = vllm_peer.family_seconds()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        until = time.monotonic() + 20
        while vllm_peer.family_seconds() - before < 0.3 and time.monotonic() < until:
            time.sleep(0.05)
        during = vllm_peer.family_seconds() - before
        child.kill()
    assert during >= 0.3


def test_the_random_model_has_a_tokenizer_with_a_word_for_each_of_its_tokens():
    tokenizer = rollout.make_tokenizer()
    assert len(tokenizer) == rollout.make_model().config.vocab_size
    assert tokenizer.decode(tokenizer.encode(" w7 w4000", add_special_tokens=False)) == " w7 w4000"
