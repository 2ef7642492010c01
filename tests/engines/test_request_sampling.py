"""A request may have a sampling distribution and end ids of its own, in place of those of its engine."""

import asyncio

import numpy as np
import pytest

from agentrl.engines import Sampling
from agentrl.engines.hf import engine as hf_engine
from agentrl.types import Observation, Request
from tests.engines.engines import END, engine_of, make

PROMPT = np.array([5, 9, 3, 7])
SETTINGS = [
    Sampling(temperature=0.3, max_tokens=9),
    Sampling(top_k=3, max_tokens=9),
    Sampling(temperature=2.0, top_p=0.4, max_tokens=9),
    Sampling(stop=("4",), max_tokens=9),
    Sampling(temperature=0.0, max_tokens=4),
]


def request(number, max_tokens=9, temperature=None):
    return Request(
        session=number,
        token_ids=PROMPT,
        messages=(),
        observation=Observation(text=""),
        max_tokens=max_tokens,
        noise_key=(1, number),
        temperature=temperature,
    )


def answers(engine, **options):
    """The answers to one request per setting, drawn together; `options` name one value per setting."""

    async def together():
        given = [dict(zip(options, values, strict=True)) for values in zip(*options.values(), strict=True)]
        return await asyncio.gather(*(engine.generate(request(n), **one) for n, one in enumerate(given)))

    return asyncio.run(together())


def equal(a, b):
    np.testing.assert_array_equal(a.token_ids, b.token_ids)
    np.testing.assert_allclose(a.logprobs, b.logprobs, atol=1e-4)
    assert a.finish == b.finish
    for one, other in zip(a.allowed or (), b.allowed or (), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("entropies", [False, True])
def test_every_request_gets_what_an_engine_with_its_distribution_gives(entropies):
    model = make()
    mixed = answers(engine_of(model, entropies=entropies), sampling=SETTINGS)
    for number, (sampling, found) in enumerate(zip(SETTINGS, mixed, strict=True)):
        engine = engine_of(model, sampling=sampling.model_dump(), entropies=entropies)
        wanted = asyncio.run(engine.generate(request(number)))
        equal(found, wanted)
        if entropies:
            np.testing.assert_allclose(found.entropy, wanted.entropy, atol=1e-4)


def test_the_temperature_of_a_request_goes_before_its_distribution():
    engine = engine_of(make())
    own = Sampling(temperature=3.0, max_tokens=9)
    found = asyncio.run(engine.generate(request(0, temperature=0.5), sampling=own))
    equal(found, asyncio.run(engine_of(make(), sampling={"temperature": 0.5, "max_tokens": 9}).generate(request(0))))


def test_end_ids_of_a_request():
    engine = engine_of(make(), sampling={"temperature": 0.0})
    plain = asyncio.run(engine.generate(request(0), end_ids=()))
    tokens = plain.token_ids.tolist()
    assert plain.finish == "length" and len(tokens) == 6
    found = answers(engine, end_ids=[{tokens[2]}, (), None])
    first = tokens.index(tokens[2]) + 1
    assert found[0].finish == "stop" and found[0].token_ids.tolist() == tokens[:first]
    equal(found[1], plain)
    assert END not in found[2].token_ids[:-1]


def test_an_engine_whose_requests_have_no_settings_draws_as_before(monkeypatch):
    """The bytes of its answers do not depend on what other requests could ask for."""
    drawn = []
    engine = engine_of(make())
    draw = hf_engine.draw_each
    monkeypatch.setattr(hf_engine, "draw_each", lambda *given: drawn.append(given) or draw(*given))
    asyncio.run(engine.generate(request(0)))
    assert drawn and all(one[1] is engine.sampling and one[4] == [None] for one in drawn)
