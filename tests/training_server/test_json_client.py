"""The verbs of the protocol, with bodies as SDK 0.16.1 sends them and without the SDK."""

import threading
from contextlib import contextmanager

import numpy as np
import pytest

from agentrl.training_server import ServiceLimits
from agentrl.training_server.promises import Promise
from agentrl.training_server.verbs import PlainResult
from tests.toys.training_service import training_service
from tests.training_server.bodies import IDS, ONE, TWO, datum, passes, sample
from tests.training_server.plain_client import PlainClient


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


CLOCK = Clock()
LIMITS = ServiceLimits(
    context=48, models=3, sessions=6, snapshots=2, samplers=5, session_s=100.0, spare_s=30.0, patience_s=60.0
)


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with training_service(tmp_path_factory.mktemp("service"), limits=LIMITS, clock=CLOCK, wall_clock=CLOCK) as found:
        yield found


@pytest.fixture
def client(running):
    """A session that ends with the test, so that its models are freed."""
    made = PlainClient(running.url)
    made.begin()
    yield made
    made.send("POST", f"sessions/{made.session}/finish", {})


def adam(model, seq, lr=0.01, **more):
    return {"adam_params": {"learning_rate": lr, **more}, "model_id": model, "seq_id": seq}


def forward(client, model, seq, data=(ONE,)):
    body = passes(data, model=model, seq=seq)
    body["forward_input"] = body.pop("forward_backward_input")
    return client.do("forward", body)


def logprobs(result, number=0):
    return np.array(result["loss_fn_outputs"][number]["logprobs"]["data"])


def snapshot(client, model, seq, number=0):
    body = {"model_id": model, "sampling_session_seq_id": number, "seq_id": seq, "ttl_seconds": None}
    return client.do("save_weights_for_sampler", body)["sampling_session_id"]


def test_what_the_server_says_of_itself(client, running):
    assert client.send("GET", "healthz").body == {"status": "ok"}
    (found,) = client.send("GET", "get_server_capabilities").body["supported_models"]
    assert (found["model_name"], found["max_context_length"]) == (running.model, 48)
    assert client.post("telemetry", {"events": []}) == {"status": "accepted"}
    assert client.post("client/config", {})["parallel_fwdbwd_chunks"] is False
    assert client.post("session_heartbeat", {"session_id": client.session}) == {"type": "session_heartbeat"}


def test_training_moves_the_weights_and_gradients_add_up(client, running):
    model = client.model(running.model)
    assert model == f"{client.session}:train:0", "newer SDKs make this id themselves"
    info = client.post("get_info", {"model_id": model})
    assert info["lora_rank"] == 4 and info["model_data"]["tokenizer_id"] == running.model
    before = logprobs(forward(client, model, 1))
    one = client.do("forward_backward", passes([ONE], model=model, seq=2))
    norm = client.do("optim_step", adam(model, 3, lr=0.0))["metrics"]["grad_norm"]
    np.testing.assert_array_equal(logprobs(one), before)
    assert one["metrics"]["loss:sum"] == pytest.approx(-before[1:].sum(), rel=1e-5)
    for seq in (4, 5):
        client.do("forward_backward", passes([ONE], model=model, seq=seq))
    twice = client.do("optim_step", adam(model, 6, lr=0.01))["metrics"]["grad_norm"]
    assert twice == pytest.approx(2 * norm, rel=1e-5)
    assert logprobs(forward(client, model, 7))[1:].sum() > before[1:].sum() + 0.1
    assert client.do("unload_model", {"model_id": model})["type"] == "unload_model"
    assert client.send("POST", "forward_backward", passes(model=model, seq=8)).status == 404


def test_a_repeated_request_adds_its_gradient_once(client, running):
    model = client.model(running.model)
    norms = []
    for seq, repeats in ((1, 1), (3, 3)):
        promises = [client.post("forward_backward", passes(model=model, seq=seq)) for _ in range(repeats)]
        assert len({one["request_id"] for one in promises}) == 1
        norms.append(client.do("optim_step", adam(model, seq + 1, lr=0.0))["metrics"]["grad_norm"])
    assert norms[0] == norms[1]


@pytest.mark.parametrize("seq", [None, 0])
def test_requests_without_a_number_are_all_done(client, running, seq):
    """0 is no number: protobuf cannot tell it from a number that is missing."""
    model = client.model(running.model)
    norms = []
    for times in (1, 2):
        for _ in range(times):
            client.do("forward_backward", passes(model=model, seq=seq))
        norms.append(client.do("optim_step", adam(model, seq, lr=0.0))["metrics"]["grad_norm"])
    assert norms[1] == pytest.approx(2 * norms[0], rel=1e-5)


def test_requests_of_a_model_run_in_the_order_of_their_numbers(client, running):
    model = client.model(running.model)
    step = client.post("optim_step", adam(model, 2))
    after = passes(model=model, seq=3)
    after["forward_input"] = after.pop("forward_backward_input")
    last = client.post("forward", after)
    first = client.do("forward_backward", passes(model=model, seq=1))
    assert client.result(step)["metrics"]["grad_norm"] > 0, "the step had the gradient"
    assert client.result(last)["metrics"]["loss:sum"] < first["metrics"]["loss:sum"]


def test_a_request_that_cannot_be_read_fails_in_its_turn(client, running):
    """Its number is used up, so that the next request runs."""
    model = client.model(running.model)
    failed = client.do("forward_backward", passes([datum([1], [2])], "ppo", model=model, seq=1))
    assert failed == {"error": "the loss ppo needs logprobs in loss_fn_inputs", "category": "user"}
    assert client.do("optim_step", adam(model, 2, beta1="x"))["category"] == "user"
    assert "metrics" in client.do("forward_backward", passes(model=model, seq=3))


def test_a_lost_request_ends_the_wait_of_the_next_one(client, running):
    model = client.model(running.model)
    waiting = client.post("forward_backward", passes(model=model, seq=2))
    CLOCK.now += LIMITS.patience_s + 1
    client.post("session_heartbeat", {"session_id": client.session})
    failed = client.result(waiting)
    assert (
        failed["category"] == "user" and "a request with a smaller seq_id has not come within 60 s" in failed["error"]
    )
    assert "metrics" in client.do("forward_backward", passes(model=model, seq=3))


def test_a_client_is_told_to_ask_again(client, running):
    service = running.service
    before = service.limits
    model = client.model(running.model)
    held = client.post("forward_backward", passes(model=model, seq=2))
    service.limits = before._replace(answer_s=0.0)
    try:
        reply = client.send("POST", "retrieve_future", held)
    finally:
        service.limits = before
    assert reply.status == 408
    assert reply.body == {"type": "try_again", "request_id": held["request_id"], "queue_state": "active"}


def test_a_sampler_is_a_snapshot(client, running):
    model = client.model(running.model)
    early = snapshot(client, model, 1, 0)
    first = client.do("asample", sample(sampler=early, seq=0))
    before = client.do("forward_backward", passes(model=model, seq=2))
    client.do("optim_step", adam(model, 3, lr=0.1))
    late = snapshot(client, model, 4, 1)
    changed = client.do("asample", sample(sampler=late, seq=0))
    again = client.do("asample", sample(sampler=early, seq=1))
    assert again == first != changed
    after = forward(client, model, 5, [ONE, TWO])
    assert after["metrics"] != before["metrics"], "the model itself kept its update"


def test_seeds_repeat_and_answers_of_one_request_differ(client, running):
    sampler = base_sampler(client, running)
    first, other = (client.do("asample", sample(sampler=sampler, seq=n, seed=n)) for n in (0, 1))
    again = client.do("asample", sample(sampler=sampler, seq=2, seed=0))
    assert first == again != other
    assert len({tuple(one["tokens"]) for one in first["sequences"]}) == 3


def base_sampler(client, running, number=0):
    body = {"session_id": client.session, "sampling_session_seq_id": number, "base_model": running.model}
    return client.post("create_sampling_session", body)["sampling_session_id"]


def test_log_probs_of_answers_are_those_of_the_trainer(client, running):
    """Of the base model, and of a model whose adapters are still zero."""
    model = client.model(running.model)
    sampler = base_sampler(client, running)
    body = sample(sampler=sampler) | {"prompt_logprobs": True, "num_samples": 1}
    found = client.do("asample", body)
    answer = found["sequences"][0]
    whole = IDS + answer["tokens"]
    trained = logprobs(forward(client, model, 1, [datum(whole[:-1], whole[1:])]))
    np.testing.assert_allclose(answer["logprobs"], trained[len(IDS) - 1 :], atol=2e-6)
    assert found["prompt_logprobs"][0] is None
    np.testing.assert_allclose(found["prompt_logprobs"][1:], trained[: len(IDS) - 1], atol=2e-6)
    last = client.do("asample", body | {"seq_id": 1, "prompt_logprobs_last_n": 2})["prompt_logprobs"]
    assert last == [None] * 4 + found["prompt_logprobs"][-2:]


def test_stops_temperature_and_top_k(client, running):
    sampler = base_sampler(client, running)
    greedy = client.do("asample", sample(sampler=sampler, seq=0, temperature=0.0))["sequences"]
    assert {one["stop_reason"] for one in greedy} == {"length"}
    assert len({tuple(one["tokens"]) for one in greedy}) == 1
    top = client.do("asample", sample(sampler=sampler, seq=1, top_k=1))["sequences"]
    assert [one["tokens"] for one in top] == [one["tokens"] for one in greedy]
    tokens = greedy[0]["tokens"]
    cut = client.do("asample", sample(sampler=sampler, seq=2, temperature=0.0, stop=[tokens[2]]))["sequences"][0]
    assert cut["stop_reason"] == "stop" and cut["tokens"] == tokens[: tokens.index(tokens[2]) + 1]
    text = running.service.worker._base.tokenizer.decode(tokens[1:2])
    if "�" not in text:
        cut = client.do("asample", sample(sampler=sampler, seq=3, temperature=0.0, stop=text))["sequences"][0]
        assert cut["stop_reason"] == "stop" and len(cut["tokens"]) <= 2
    long = client.do("asample", sample(sampler=sampler, seq=4, max_tokens=2000, stop=[]))["sequences"][0]
    assert len(long["tokens"]) == 48 - len(IDS), "neither the end token nor a limit below the context ends it"


def test_an_answer_may_have_no_token(client, running):
    answer = {"stop_reason": "length", "tokens": [], "logprobs": []}
    assert (
        client.do("asample", sample(sampler=base_sampler(client, running), max_tokens=0))["sequences"] == [answer] * 3
    )


def test_requests_with_different_settings_are_drawn_together(client, running):
    """What a request gets does not depend on what is in the batch."""
    sampler = base_sampler(client, running)
    settings = [{"temperature": 0.5}, {"top_k": 2}, {"top_p": 0.3}, {"stop": [7]}, {"max_tokens": 3}]
    alone = [client.do("asample", sample(sampler=sampler, seq=n, **one)) for n, one in enumerate(settings)]
    promises = [client.post("asample", sample(sampler=sampler, seq=9 + n, **one)) for n, one in enumerate(settings)]
    assert [[one["tokens"] for one in client.result(promise)["sequences"]] for promise in promises] == [
        [one["tokens"] for one in found["sequences"]] for found in alone
    ]


def save(client, model, seq, name="ck", **more):
    body = {"model_id": model, "path": name, "seq_id": seq, "ttl_seconds": None, **more}
    return client.do("save_weights", body)


def load(client, model, seq, path, optimizer=True):
    return client.do("load_weights", {"model_id": model, "path": path, "optimizer": optimizer, "seq_id": seq})


def trained(client, running, number=0, **plan):
    model = client.model(running.model, number, **plan)
    client.do("forward_backward", passes(model=model, seq=1))
    client.do("optim_step", adam(model, 2))
    return model


@pytest.mark.parametrize("optimizer", [True, False])
def test_a_model_goes_on_from_a_checkpoint(client, running, optimizer):
    """With the optimiser exactly as the saved model; without it, the next step is another one."""
    model = trained(client, running)
    path = save(client, model, 3)["path"]
    other = client.model(running.model, 1, seed=9)
    client.do("forward_backward", passes(model=other, seq=1))  # its gradient must not survive the load
    assert load(client, other, 2, path, optimizer)["path"] == path
    results = []
    for one, seq in ((model, 4), (other, 3)):
        before = logprobs(forward(client, one, seq))
        client.do("forward_backward", passes([TWO], model=one, seq=seq + 1))
        client.do("optim_step", adam(one, seq + 2))
        results.append((before, logprobs(forward(client, one, seq + 3))))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    assert np.array_equal(results[0][1], results[1][1]) == optimizer


def test_a_load_can_make_the_model(client, running):
    """SDK 0.24 and newer send no create_model; the checkpoint has a rank of its own."""
    model = trained(client, running, rank=3)
    path = save(client, model, 3)["path"]
    body = {"session_id": client.session, "model_seq_id": 7, "path": path, "optimizer": True}
    made = client.do("load_weights", body)["model_id"]
    assert made == f"{client.session}:train:7"
    assert client.post("get_info", {"model_id": made})["lora_rank"] == 3
    np.testing.assert_array_equal(logprobs(forward(client, made, 1)), logprobs(forward(client, model, 4)))


def test_a_load_into_a_model_with_other_adapters_replaces_them(client, running):
    """SDK 0.16 makes the model before the load, and does not know which layers the checkpoint has."""
    model = trained(client, running, rank=3)
    path = save(client, model, 3)["path"]
    other = client.model(running.model, 1, rank=5, train_unembed=True)
    load(client, other, 1, path)
    np.testing.assert_array_equal(logprobs(forward(client, other, 2)), logprobs(forward(client, model, 4)))


def test_checkpoints_are_listed_kept_and_deleted(client, running):
    model = trained(client, running)
    path = save(client, model, 3, "first", user_metadata={"step": "1"})["path"]
    assert save(client, model, 4, "first")["error"].startswith(f"{path} exists")
    assert save(client, model, 5, "first", overwrite=True)["path"] == path
    assert "is no name of a checkpoint" in save(client, model, 6, "../x")["error"]
    short = save(client, model, 7, "short", ttl_seconds=50)["path"]
    assert "from 1 to 3162240000" in save(client, model, 8, "long", ttl_seconds=1 << 38)["error"], "no date is so late"
    info = client.post("weights_info", {"tinker_path": path})
    assert (info["lora_rank"], info["train_unembed"], info["base_model"]) == (4, False, running.model)

    def names():
        listed = client.send("GET", f"training_runs/{model}/checkpoints").body["checkpoints"]
        return [one["checkpoint_id"] for one in listed]

    assert names() == ["weights/first", "weights/short"]
    about = client.send("GET", f"training_runs/{model}").body
    assert (about["lora_rank"], about["last_checkpoint"]["checkpoint_id"]) == (4, "weights/short")
    CLOCK.now += 60
    client.post("session_heartbeat", {"session_id": client.session})
    assert names() == ["weights/first"]
    assert "it has expired" in client.send("POST", "weights_info", {"tinker_path": short}).body["error"]
    place = f"training_runs/{model}/checkpoints/weights/first"
    assert client.send("PUT", f"{place}/ttl", {"ttl_seconds": 10}).status == 200
    every = client.send("GET", "checkpoints").body["checkpoints"]
    assert [one["expires_at"] is None for one in every if one["tinker_path"] == path] == [False]
    second = save(client, model, 9, "second")["path"]
    paged = client.send("GET", f"checkpoints?limit=1&offset={len(every)}").body
    assert [one["tinker_path"] for one in paged["checkpoints"]] == [second]
    assert paged["cursor"] == {"offset": len(every), "limit": 1, "total_count": len(every) + 1}
    assert client.send("DELETE", f"training_runs/{model}/checkpoints/weights/second").status == 204
    assert client.send("DELETE", place).status == 204
    assert names() == [] and client.send("DELETE", place).status == 404


def test_a_sampler_of_a_checkpoint(client, running):
    model = trained(client, running)
    mine = snapshot(client, model, 3)
    body = {"model_id": model, "path": "named", "seq_id": 4, "ttl_seconds": None}
    path = client.do("save_weights_for_sampler", body)["path"]
    assert path.endswith("/sampler_weights/named")
    made = {"session_id": client.session, "sampling_session_seq_id": 5, "model_path": path}
    sampler = client.post("create_sampling_session", made)["sampling_session_id"]
    assert client.send("GET", f"samplers/{sampler}").body["model_path"] == path
    found = client.do("asample", sample(sampler=sampler))
    assert found == client.do("asample", sample(sampler=mine))
    assert "has no optimiser" in load(client, model, 5, path)["error"]
    CLOCK.now += 1
    client.do("save_weights_for_sampler", body | {"seq_id": 6})
    base = base_sampler(client, running, 6)
    client.do("asample", sample(sampler=base))  # the engine leaves the weights of `sampler`
    assert "was saved again" in client.do("asample", sample(sampler=sampler, seq=1))["error"]


def test_old_samplers_are_dropped_and_said_so(client, running):
    model = client.model(running.model)
    names = [snapshot(client, model, n + 1, n) for n in range(3)]
    refused = client.send("POST", "asample", sample(sampler=names[0]))
    assert refused.status == 404 and "the newest 2 of a model are kept" in refused.body["error"]
    assert "sequences" in client.do("asample", sample(sampler=names[1]))
    for number in range(10, 16):
        base_sampler(client, running, number)
    assert client.send("POST", "asample", sample(sampler=names[1])).status == 404, "5 samplers of a session are kept"


def test_silent_sessions_lose_their_models(client, running):
    silent = PlainClient(running.url)
    model = silent.model(running.model)
    CLOCK.now += 90
    client.post("session_heartbeat", {"session_id": client.session})
    assert silent.send("POST", "get_info", {"model_id": model}).status == 200, "which is a sign of life"
    CLOCK.now += 101
    fresh = PlainClient(running.url)
    forward(fresh, fresh.model(running.model), 1)  # between two requests, the worker looks for silent sessions
    reply = silent.send("POST", "session_heartbeat", {"session_id": silent.session})
    assert reply.status == 410 and "silent for too long" in reply.body["error"]
    assert silent.send("POST", "get_info", {"model_id": model}).status == 404
    fresh.send("POST", f"sessions/{fresh.session}/finish", {})


def test_a_killed_client_does_not_block_the_next_one(client, running):
    """The limit is three models: after 30 s without a sign of life, a session gives its place away."""
    killed = PlainClient(running.url)
    for number in range(3):
        killed.model(running.model, number)
    body = {"session_id": client.session, "model_seq_id": 0, "base_model": running.model, "lora_config": {"rank": 2}}
    assert "this server trains 3 models" in client.do("create_model", body)["error"]
    CLOCK.now += 31
    client.post("session_heartbeat", {"session_id": client.session})
    assert client.do("create_model", body)["type"] == "create_model"
    assert killed.send("POST", "session_heartbeat", {"session_id": killed.session}).status == 410


@contextmanager
def busy(running):
    """The worker is busy with another request as long as the block runs."""
    started, done = threading.Event(), threading.Event()

    def work():
        started.set()
        done.wait(60)
        return PlainResult({})

    running.service.promises.open_lane("busy", ordered=False)
    running.service.promises.submit("busy", None, Promise(work=work))
    started.wait(60)
    try:
        yield
    finally:
        done.set()


def test_a_model_whose_session_ends_before_it_is_made_is_freed(client, running):
    gone = PlainClient(running.url)
    gone.begin()
    body = {"session_id": gone.session, "model_seq_id": 0, "base_model": running.model, "lora_config": {"rank": 2}}
    with busy(running):
        made = gone.post("create_model", body)
        gone.post(f"sessions/{gone.session}/finish", {})
    assert "has ended: begin a new one" in gone.result(made)["error"]
    assert client.send("POST", "get_info", {"model_id": f"{gone.session}:train:0"}).status == 404


def test_a_session_without_models_does_not_give_its_place_to_a_model(client, running):
    sampling, killed = PlainClient(running.url), PlainClient(running.url)
    sampling.begin()
    CLOCK.now += 1
    for number in range(3):
        killed.model(running.model, number)
    CLOCK.now += 31
    client.post("session_heartbeat", {"session_id": client.session})
    client.model(running.model)
    assert killed.send("POST", "session_heartbeat", {"session_id": killed.session}).status == 410
    sampling.post(f"sessions/{sampling.session}/finish", {})


def test_several_sessions_and_models_do_not_disturb_each_other(client, running):
    other = PlainClient(running.url)
    mine, theirs = client.model(running.model), other.model(running.model, rank=2, seed=6)
    before = logprobs(forward(other, theirs, 1))
    client.do("forward_backward", passes(model=mine, seq=1))
    other.do("forward_backward", passes([TWO], model=theirs, seq=2))
    client.do("optim_step", adam(mine, 2, lr=0.1))
    np.testing.assert_array_equal(logprobs(forward(other, theirs, 3)), before)
    alone = client.model(running.model, 1, rank=2, seed=6)
    client.do("forward_backward", passes([TWO], model=alone, seq=1))
    norms = [
        c.do("optim_step", adam(m, s))["metrics"]["grad_norm"] for c, m, s in ((client, alone, 2), (other, theirs, 4))
    ]
    assert norms[0] == norms[1]
    other.send("POST", f"sessions/{other.session}/finish", {})


@pytest.mark.parametrize(
    ("method", "route", "body", "status", "sentence"),
    [
        ("GET", "nowhere", None, 404, "no route 'nowhere'"),
        ("POST", "nowhere", {}, 404, "no route 'nowhere'"),
        ("DELETE", "training_runs/x/checkpoints/other/y", None, 400, "is no path of a checkpoint"),
        ("PUT", "training_runs/x", {}, 404, "no route"),
        (
            "POST",
            "create_model",
            {"session_id": "x", "model_seq_id": 0, "base_model": "other"},
            400,
            "no base model 'other'",
        ),
        ("POST", "create_model", {"model_seq_id": 0}, 400, "session_id is missing"),
        ("POST", "get_info", {"model_id": "x"}, 404, "no model 'x' here"),
        ("POST", "optim_step", {"model_id": "x", "seq_id": 1}, 404, "'x' is not known here"),
        ("PUT", "training_runs/a/checkpoints/weights/b/ttl", {"ttl_seconds": 1 << 40}, 400, "from 1 to 3162240000"),
        ("GET", "checkpoints?offset=-1", None, 400, "offset = '-1' is not a whole number of at least 0"),
        ("POST", "retrieve_future", {"request_id": "r999999"}, 410, "no request 'r999999' here"),
        ("POST", "session_heartbeat", {"session_id": "x"}, 410, "no session 'x' here"),
        ("POST", "asample", [1], 400, "no JSON object"),
        ("POST", "weights_info", {"tinker_path": "tinker://a/weights/../../b"}, 400, "is no path of a checkpoint"),
        ("POST", "weights_info", {"tinker_path": "tinker://a/weights/.."}, 400, "is no path of a checkpoint"),
        ("POST", "weights_info", {"tinker_path": "tinker://a/weights/b"}, 404, "no checkpoint 'tinker://a/weights/b'"),
    ],
)
def test_what_cannot_be_answered_is_one_sentence(client, method, route, body, status, sentence):
    reply = client.send(method, route, body)
    assert reply.status == status and sentence in reply.body["error"], reply


def test_a_compressed_body_is_refused(client):
    assert client.send("POST", "telemetry", b"{}", content_encoding="zstd").status == 415


def test_another_rank_than_allowed_is_refused(client, running):
    body = {"session_id": client.session, "model_seq_id": 0, "base_model": running.model, "lora_config": {"rank": 257}}
    assert (
        "rank 257 is not offered here: take one from 1 to 256"
        in client.send("POST", "create_model", body).body["error"]
    )


def test_a_server_stops_without_waiting_for_long_answers(tmp_path):
    with training_service(tmp_path) as running:
        client = PlainClient(running.url)
        client.begin()
        sampler = base_sampler(client, running)
        promises = running.service.promises
        name = client.post("asample", sample(sampler=sampler, max_tokens=1000, stop=[]))["request_id"]
        while not running.service.worker._engine.engine.stats.forwards:
            client.post("session_heartbeat", {"session_id": client.session})
    assert not running.service.worker._thread.is_alive()
    assert promises.wait(name, 0) is None, "it has no result"
