"""Checks of datums and prompts, whatever the form in which they came."""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from agentrl.http import Refusal
from agentrl.training_server.service_limits import ServiceLimits
from agentrl.training_server.verbs import COLUMNS, LOSSES, TARGETS, ClipBounds, PassWork, SentDatum

CLIPS = ("clip_low_threshold", "clip_high_threshold")
ONLY_TEXT = "this server reads tokens only: send chunks of the type encoded_text"


class Bounds(NamedTuple):
    """What the model allows: ids below `vocabulary`, and the limits of the server."""

    vocabulary: int
    limits: ServiceLimits


def check_ids(ids: np.ndarray, what: str, bounds: Bounds) -> np.ndarray:
    """The ids [L] as int64; Refusal if there is none, if there are too many, or if one is not in the vocabulary."""
    if not len(ids):
        raise Refusal(400, f"{what} has no token: send at least one")
    if len(ids) > bounds.limits.context:
        raise Refusal(400, f"{what} has {len(ids)} tokens, the context of this server is {bounds.limits.context}")
    _check_range(ids, what, bounds.vocabulary)
    return ids.astype(np.int64)


def _check_range(ids: np.ndarray, what: str, vocabulary: int) -> None:
    if ids.dtype.kind not in "iu":
        raise Refusal(400, f"{what} holds numbers that are no token ids: send whole numbers")
    wrong = ids[(ids < 0) | (ids >= vocabulary)]
    if len(wrong):
        raise Refusal(400, f"{what} has the token id {int(wrong.flat[0])}, and the vocabulary has {vocabulary} ids")


def checked_datum(inputs: np.ndarray, tensors: Mapping[str, np.ndarray], loss: str, bounds: Bounds) -> SentDatum:
    """A datum from its inputs [L] and the tensors of `loss_fn_inputs`; Refusal if they do not fit each other."""
    unknown = sorted(set(tensors) - {TARGETS, *COLUMNS})
    if unknown:
        known = ", ".join((TARGETS, *COLUMNS))
        raise Refusal(400, f"loss_fn_inputs has {unknown[0]!r:.100}, which no loss reads here: send {known} alone")
    missing = [name for name in (TARGETS, *LOSSES[loss]) if name not in tensors]
    if missing:
        raise Refusal(400, f"the loss {loss} needs {missing[0]} in loss_fn_inputs")
    ids, targets = check_ids(inputs, "model_input", bounds), tensors[TARGETS]
    if targets.ndim not in (1, 2) or len(targets) != len(ids) or not targets.size:
        raise Refusal(400, f"{TARGETS} has the shape {[*targets.shape]}, model_input has {len(ids)} tokens")
    _check_range(targets, TARGETS, bounds.vocabulary)
    columns = {"weights": np.ones(targets.shape, np.float32)} | {n: x for n, x in tensors.items() if n != TARGETS}
    for name, column in columns.items():
        if column.shape != targets.shape:
            raise Refusal(400, f"{name} has the shape {[*column.shape]}, {TARGETS} has {[*targets.shape]}")
        if not np.isfinite(column).all():
            raise Refusal(400, f"{name} holds a number that is not finite")
    wide = (len(ids), -1)
    return SentDatum(
        inputs=ids,
        targets=targets.reshape(wide).astype(np.int64),
        columns={name: column.reshape(wide).astype(np.float32) for name, column in columns.items()},
        flat=targets.ndim == 1,
    )


def check_loss(name: str) -> None:
    """Refusal if this server has no such loss."""
    if name not in LOSSES:
        raise Refusal(400, f"loss_fn {name!r:.100} is not offered here: use {', '.join(LOSSES)}")


def checked_work(
    sent: Iterable[SentDatum], loss: str, config: Mapping[str, object], backward: bool, bounds: Bounds
) -> PassWork:
    """A training request; Refusal if it is too large, or if its loss does not take an option of `config`.

    `sent` is read no further than to the datum that exceeds a limit: a sparse table of a few bytes may be large.
    """
    limits, data, size = bounds.limits, list[SentDatum](), 0
    for datum in sent:
        data.append(datum)
        size += max(len(datum.inputs), datum.targets.size)
        if len(data) > limits.datums:
            raise Refusal(400, f"the request has more than {limits.datums} datums, the limit: send several requests")
        if size > limits.tokens:
            raise Refusal(400, f"the request has more than {limits.tokens} tokens, the limit: send several requests")
    if not data:
        raise Refusal(400, "the request has no datum: send at least one")
    clips = CLIPS if loss in ("ppo", "cispo") else ()
    wrong = sorted(set(config) - set(clips))
    if wrong:
        raise Refusal(400, f"loss_fn_config has {wrong[0]!r:.100}: the loss {loss} takes {', '.join(clips) or 'none'}")
    low, high = (_ratio(name, config.get(name, default)) for name, default in zip(CLIPS, ClipBounds(), strict=True))
    if low > high:
        raise Refusal(400, f"loss_fn_config: {CLIPS[0]} = {low:g} is above {CLIPS[1]} = {high:g}")
    return PassWork(data=data, loss=loss, bounds=ClipBounds(low, high), backward=backward)


def _ratio(name: str, value: object) -> float:
    """A bound of ratios; Refusal if it is no finite number of at least 0."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e30:
        raise Refusal(400, f"loss_fn_config: {name} = {value!r:.50} is no bound of a ratio, such as 0.8 or 1.2")
    return float(value)


def dense(
    values: np.ndarray, shape: tuple[int, ...], rows: np.ndarray | None, columns: np.ndarray | None, bounds: Bounds
) -> np.ndarray:
    """A tensor [L] or [L, W] from its values, or from the three arrays of a CSR table.

    Refusal if the shape has more than two sizes or more numbers than a request may have tokens, or if the values do not
    fit it.
    """
    if len(shape) > 2:
        raise Refusal(400, f"a tensor has {len(shape)} dimensions: send one, or two for several targets per token")
    wrong = Refusal(400, f"a tensor of {values.size} numbers does not fit the shape {[*shape]}")
    size = math.prod(shape)
    if min(shape, default=0) < 0 or (size > bounds.limits.tokens and size != values.size):
        raise wrong
    if rows is None or columns is None:
        if size != values.size:
            raise wrong
        return values.reshape(shape)
    if len(shape) != 2 or len(rows) != shape[0] + 1 or len(columns) != values.size:
        raise wrong
    counts = np.diff(rows)  # [rows]
    if rows[0] or (counts < 0).any() or rows[-1] != values.size or ((columns < 0) | (columns >= shape[1])).any():
        raise wrong
    found = np.zeros(shape, values.dtype)
    found[np.repeat(np.arange(shape[0]), counts), columns] = values
    return found
