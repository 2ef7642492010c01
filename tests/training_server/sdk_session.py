"""Every verb of the protocol through the SDK, in any of its versions: `python sdk_session.py URL MODEL` prints JSON.

The names are those that the SDK has from 0.16 to 0.38, so this file also runs in a Python with an older SDK.
"""

import json
import sys

import numpy as np
import tinker
from tinker import types

IDS, OTHER = [256, 40, 41, 42, 43, 44], [256, 50, 51]


def client_of(found):
    """A client, which is the result of a future in newer SDKs."""
    return found.result() if hasattr(found, "result") else found


def datum(ids, **columns):
    given = {name: np.array(values, np.float32) for name, values in columns.items()}
    given["target_tokens"] = np.array(ids[1:], np.int64)
    return types.Datum(model_input=types.ModelInput.from_ints(ids[:-1]), loss_fn_inputs=given)


def logprobs(result, number=0):
    return np.array(result.loss_fn_outputs[number]["logprobs"].data)


def apart(a, b):
    return float(np.abs(np.array(a) - np.array(b)).max())


def trained(client, data, steps, lr=1e-2):
    """The losses of some steps."""
    losses = []
    for _ in range(steps):
        work = client.forward_backward(data, "cross_entropy")
        step = client.optim_step(types.AdamParams(learning_rate=lr))
        losses.append(work.result().metrics["loss:sum"])
        step.result()
    return losses


def gradients(client, data, name="cross_entropy", config=None, custom=None):
    """The metrics of one pass, and the norm of its gradient."""
    work = client.forward_backward_custom(data, custom) if custom else client.forward_backward(data, name, config)
    step = client.optim_step(types.AdamParams(learning_rate=0.0))
    return work.result().metrics, (step.result().metrics or {})["grad_norm"]


def sampled(client, prompt, count=3, **params):
    asked = types.SamplingParams(**{"max_tokens": 8, "temperature": 1.0, "seed": 1, **params})
    return client.sample(types.ModelInput.from_ints(prompt), num_samples=count, sampling_params=asked).result()


def session(url, model):
    """What the verbs return, as numbers that a test compares."""
    service = tinker.ServiceClient(base_url=url, api_key="tml-dummy")
    client = client_of(service.create_lora_training_client(base_model=model, rank=4, seed=5, train_unembed=False))
    one, two = datum(IDS, weights=[0, 1, 1, 1, 1]), datum(OTHER, weights=[1, 1])
    forward = client.forward([one, two], "cross_entropy").result()
    found = {"sdk": tinker.__version__, "first": [logprobs(forward, n).tolist() for n in (0, 1)]}
    found["losses"] = trained(client, [one, two], 3)

    sampler = client_of(client.save_weights_and_get_sampling_client())
    answers, again = sampled(sampler, IDS), sampled(sampler, IDS)
    found["tokens"] = [list(one.tokens) for one in answers.sequences]
    found["same again"] = found["tokens"] == [list(one.tokens) for one in again.sequences]
    answer = answers.sequences[0]
    whole = IDS + list(answer.tokens)
    scored = sampler.compute_logprobs(types.ModelInput.from_ints(whole)).result()
    found["prompt log-probs"] = apart(scored[len(IDS) :], answer.logprobs)

    count = len(whole) - 1
    mask, old = np.zeros(count), np.zeros(count)
    mask[len(IDS) - 1 :], old[len(IDS) - 1 :] = 1, answer.logprobs
    policy = datum(whole, logprobs=old, advantages=mask)
    norms = []
    for name, config in (("importance_sampling", None), ("ppo", {"clip_low_threshold": 0.5}), ("cispo", None)):
        work = client.forward([policy], "cross_entropy") if "forward" not in found else None
        if work is not None:
            found["forward"] = apart(logprobs(work.result())[len(IDS) - 1 :], answer.logprobs)
        norms.append(gradients(client, [policy], name, config)[1])
    plain = datum(whole, weights=mask)
    norms.append(gradients(client, [plain])[1])

    def custom(data, found):
        return sum(-(lp * one).sum() for lp, one in zip(found, [lp.new_tensor(mask) for lp in found], strict=True)), {}

    norms.append(gradients(client, [plain], custom=custom)[1])
    found["norms"] = norms
    found["twice"] = gradients(client, [plain, plain])[1] / norms[3]

    path = client.save_state("ck").result().path
    other = client_of(service.create_training_client_from_state_with_optimizer(path))
    found["loaded"] = apart(*(logprobs(c.forward([one], "cross_entropy").result()) for c in (client, other)))
    for c in (client, other):
        trained(c, [one, two], 1)
    found["a step later"] = apart(*(logprobs(c.forward([one], "cross_entropy").result()) for c in (client, other)))
    later = client.save_weights_for_sampler("named").result().path
    named = client_of(service.create_sampling_client(model_path=later))
    found["snapshot moved"] = found["tokens"] != [list(one.tokens) for one in sampled(sampler, IDS).sequences]
    found["named differs"] = list(sampled(named, IDS).sequences[0].logprobs) != list(answer.logprobs)
    base = client_of(service.create_sampling_client(base_model=model))
    found["base"] = apart(base.compute_logprobs(types.ModelInput.from_ints(IDS)).result()[1:], found["first"][0])
    return found


if __name__ == "__main__":
    print(json.dumps(session(*sys.argv[1:3])))
