"""Forward and backward passes over the datums of one request, packed without padding (`agentrl.model.pack`).

Datums that begin alike share the computation of their common beginning, if the model runs on a packed trie: a group of
answers to one prompt reads the prompt once. Only inputs are compared, because a client may ask for other targets than
the ids that follow.

Letters: D datums of a micro-batch, S tokens of the token table, I inputs of all datums, T packed tokens, K targets.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor

from agentrl.graph import Tokens
from agentrl.model import Batch, Network, Sharing, columns_like, on_device, pack
from agentrl.training_server.losses import token_loss
from agentrl.training_server.verbs import COLUMNS, PassResult, PassWork, SentDatum

MIN_SHARED = 16  # least number of equal leading inputs that are computed once


def run_passes(network: Network, work: PassWork, max_tokens: int, factors: np.ndarray) -> PassResult:
    """Compute the log-probs of all targets and, if the work says so, add the gradient of the loss.

    Args:
        network: the network with the adapters of the model that is trained.
        work: the request.
        max_tokens: see `micro_batches`.
        factors: the factor of each datum's loss in the gradient; 1 in the protocol.

    Returns:
        The log-probs, and the metric `loss:sum`: the sum of the losses of all targets, without `factors`.
    """
    found: list[np.ndarray] = [np.zeros(0, np.float32)] * len(work.data)
    names = [name for name in COLUMNS if all(name in datum.columns for datum in work.data)]
    total = 0.0
    with network.learning() if work.backward else network.reading():
        for numbers in micro_batches(work.data, max_tokens, network.sharing):
            data = [work.data[number] for number in numbers]
            batch = packed(data, network.sharing)
            logprob = target_logprobs(network, batch)  # [K]
            given = [np.concatenate([datum.columns[name].ravel() for datum in data]) for name in names]  # [K] each
            share, *columns = columns_like([factors[numbers][batch.row], *given], logprob)  # [K] each
            loss = token_loss(work.loss, logprob, dict(zip(names, columns, strict=True)), work.bounds)  # [K]
            if work.backward:
                (share * loss).sum().backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach().double().sum())
            values = logprob.detach().float().cpu().numpy()
            ends = np.cumsum([datum.targets.size for datum in data])[:-1]
            for number, datum, piece in zip(numbers, data, np.split(values, ends), strict=True):
                found[number] = piece if datum.flat else piece.reshape(datum.targets.shape)
    return PassResult(found, {"loss:sum": total})


def target_logprobs(network: Network, batch: Batch) -> Tensor:
    """[K] the log-probs of a batch's targets.

    Equal targets of one packed token, such as those of a prompt that datums share, are computed once.
    """
    pairs = batch.at * (int(batch.target.max()) + 1) + batch.target  # [K] a number for each pair of token and target
    _, first, place = np.unique(pairs, return_index=True, return_inverse=True)  # [U], [K] with U different pairs
    distinct = replace(
        batch, at=batch.at[first], target=batch.target[first], allowed_offsets=batch.allowed_offsets[: len(first) + 1]
    )
    (back,) = on_device([place], network.device)
    return network.stats(network.hidden(distinct), distinct).logprob[back]


def micro_batches(data: Sequence[SentDatum], max_tokens: int, sharing: Sharing) -> Iterator[np.ndarray]:
    """The numbers [D] of the datums of each micro-batch; datums that begin alike are neighbours.

    A micro-batch has at most `max_tokens` different targets, which are as many as the packed tokens if there is one
    target per token; or it is a single datum.
    """
    keys = [datum.inputs.astype(">i8").tobytes() for datum in data]  # ids are not negative: bytes sort as numbers
    group: list[int] = []
    size = 0
    for number in sorted(range(len(data)), key=keys.__getitem__):
        targets = data[number].targets
        fresh = new_targets(data[group[-1]], data[number]) if group and sharing == "tree" else targets.size
        if group and size + fresh > max_tokens:
            yield np.array(group)
            group, size, fresh = [], 0, targets.size
        group.append(number)
        size += fresh
    yield np.array(group)


def new_targets(one: SentDatum, other: SentDatum) -> int:
    """The number of targets that `other` adds to a batch in which `one` is."""
    common = shared(one, other)
    if one.targets.shape[1] != other.targets.shape[1]:
        return other.targets.size
    return other.targets[common:].size + int((one.targets[:common] != other.targets[:common]).sum())


def shared(one: SentDatum, other: SentDatum) -> int:
    """The number of equal leading inputs of two datums; 0 if there are fewer than MIN_SHARED."""
    length = min(len(one.inputs), len(other.inputs))
    differs = one.inputs[:length] != other.inputs[:length]  # [length]
    equal = int(differs.argmax()) if differs.any() else length
    return equal if equal >= MIN_SHARED else 0


def packed(data: Sequence[SentDatum], sharing: Sharing) -> Batch:
    """One batch of all targets [K] of datums, in the order of the datums; `Batch.row` is the datum of each target.

    Neighbours among the datums share equal beginnings. The batch cannot be cut: its targets are not in pre-order.
    """
    sizes = np.array([len(datum.inputs) for datum in data])  # [D]
    # Each row ends with one more token, which no input reads, so that every input predicts a token.
    offsets = np.append(0, np.cumsum(sizes + 1))  # [D+1]
    own = np.ones(int(offsets[-1]), bool)  # [S] tokens that are not shared
    for number in range(1, len(data)):
        common = shared(data[number - 1], data[number])
        for row in (number - 1, number):
            own[offsets[row] : offsets[row] + common] = False
    last = offsets[1:] - 1  # [D]
    predicted = np.zeros(len(own), bool)  # [S]
    predicted[last] = True
    table = Tokens(
        offsets=offsets,
        ids=np.concatenate([np.append(datum.inputs, 0) for datum in data]),
        sampled=own,
        logprobs=np.zeros(len(own)),
        allowed_offsets=np.zeros(len(own) + 1, np.int64),
        allowed_ids=np.zeros(0, np.int64),
        context=np.full(len(data), -1),
        context_tokens=np.zeros(len(data), np.int64),
    )
    batch = pack(
        table, np.arange(len(data)), np.zeros(len(own)), sharing=sharing, min_shared=MIN_SHARED, targets=predicted
    )
    width = np.array([datum.targets.shape[1] for datum in data])  # [D]
    at = np.repeat(_places(batch, sizes), np.repeat(width, sizes))  # [K]
    return replace(
        batch,
        target=np.concatenate([datum.targets.ravel() for datum in data]),
        at=at,
        source=np.arange(len(at)),
        row=np.repeat(np.arange(len(data)), sizes * width),
        weight=np.zeros(len(at)),
        allowed_offsets=np.zeros(len(at) + 1, np.int64),
    )


def _places(batch: Batch, sizes: np.ndarray) -> np.ndarray:
    """[I] the packed index of every input, from that of each datum's last input."""
    ends = np.cumsum(sizes)  # [D]
    found = np.zeros(int(ends[-1]), np.int64)  # [I]
    here = np.zeros(len(sizes), np.int64)  # [D] the packed index of the input that is placed next, from last to first
    here[batch.row] = batch.at
    for back in range(int(sizes.max())):
        rows = np.flatnonzero(sizes > back)
        found[ends[rows] - 1 - back] = here[rows]
        here[rows] = batch.layout.predictor[here[rows]]
    return found
