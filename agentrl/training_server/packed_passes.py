"""Forward and backward passes over the datums of one request, packed without padding (`agentrl.model.pack`).

Letters: D datums, S tokens of the token table, T packed tokens, E targets of all datums, K targets of a micro-batch.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from agentrl.graph import Tokens
from agentrl.model import Batch, Network, Sharing, columns_like, microbatches, pack
from agentrl.training_server.losses import token_loss
from agentrl.training_server.verbs import COLUMNS, PassResult, PassWork, SentDatum


def run_passes(network: Network, work: PassWork, max_tokens: int, factors: np.ndarray) -> PassResult:
    """Compute the log-probs of all targets and, if the work says so, add the gradient of the loss.

    Args:
        network: the network with the adapters of the model that is trained.
        work: the request.
        max_tokens: largest number of packed tokens per micro-batch, unless a single datum has more.
        factors: [D] the factor of each datum's loss in the gradient; 1 in the protocol.

    Returns:
        The log-probs, and the metric `loss:sum`: the sum of the losses of all targets, without `factors`.
    """
    data = work.data
    batch = packed(data, network.sharing)
    columns = {
        name: np.concatenate([datum.columns[name].ravel() for datum in data])  # [E]
        for name in COLUMNS
        if all(name in datum.columns for datum in data)
    }
    longest = max(len(datum.inputs) for datum in data)
    logprob, total = np.zeros(len(batch.target), np.float32), 0.0  # [E]
    with network.learning() if work.backward else network.reading():
        for part in microbatches(batch, max(max_tokens, longest)):
            hidden = network.hidden(part)  # [T, d]
            found = network.stats(hidden, part).logprob  # [K]
            share, *values = columns_like(
                [factors[part.row], *(one[part.source] for one in columns.values())], found
            )  # [K] each
            loss = token_loss(work.loss, found, dict(zip(columns, values, strict=True)), work.bounds)  # [K]
            if work.backward:
                (share * loss).sum().backward()  # type: ignore[no-untyped-call]
            logprob[part.source] = found.detach().float().cpu().numpy()
            total += float(loss.detach().double().sum())
    ends = np.cumsum([datum.targets.size for datum in data])
    pieces = zip(np.split(logprob, ends[:-1]), data, strict=True)
    shaped = [piece if datum.flat else piece.reshape(datum.targets.shape) for piece, datum in pieces]
    return PassResult(shaped, {"loss:sum": total})


def packed(data: Sequence[SentDatum], sharing: Sharing) -> Batch:
    """The batch of all targets. `Batch.row` is the datum of each target, and `Batch.source` its place among all [E].

    The targets come from the datums and never from the inputs, because a client may ask for other ids than those that
    follow. Datums share no tokens.
    """
    rows = np.arange(len(data))  # [D]
    sizes = np.array([len(datum.inputs) for datum in data])  # [D]
    offsets = np.append(0, np.cumsum(sizes + 1))  # [D+1] one more token per row, so that every input predicts a token
    total = int(offsets[-1])
    table = Tokens(
        offsets=offsets,
        ids=np.concatenate([np.append(datum.inputs, 0) for datum in data]),
        sampled=np.ones(total, bool),
        logprobs=np.zeros(total),
        allowed_offsets=np.zeros(total + 1, np.int64),
        allowed_ids=np.zeros(0, np.int64),
        context=np.full(len(data), -1),
        context_tokens=np.zeros(len(data), np.int64),
    )
    predicted = np.ones(total, bool)  # [S]
    predicted[offsets[:-1]] = False
    batch = pack(table, rows, np.zeros(total), sharing=sharing, targets=predicted)
    width = np.repeat([datum.targets.shape[1] for datum in data], sizes)  # [inputs] targets of each input
    first = np.cumsum(width) - width  # [inputs] the first of these targets among all
    place = batch.source - batch.row - 1  # the input, among those of all datums, that predicts each token
    copies = np.repeat(np.arange(len(place)), width[place])  # [E]
    inner = np.arange(len(copies)) - np.repeat(np.cumsum(width[place]) - width[place], width[place])  # [E]
    source = first[place][copies] + inner  # [E]
    return replace(
        batch,
        target=np.concatenate([datum.targets.ravel() for datum in data])[source],
        at=batch.at[copies],
        source=source,
        row=batch.row[copies],
        weight=np.zeros(len(copies)),
        allowed_offsets=np.zeros(len(copies) + 1, np.int64),
    )
