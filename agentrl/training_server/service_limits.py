"""The limits of a training server."""

from typing import NamedTuple


class ServiceLimits(NamedTuple):
    """The limits of a training server.

    Attributes:
        models: largest number of models that are trained at a time, of all sessions together.
        sessions: largest number of sessions.
        samplers: largest number of samplers per session; the oldest are dropped.
        rank: largest rank of adapters.
        datums: largest number of datums per request.
        tokens: largest number of tokens per request.
        context: largest number of tokens per sequence, prompt and answer together; 0 for what the model allows, up to
            32768.
        samples: largest number of answers per request.
        slots: largest number of answers that are drawn at once.
        batch_tokens: largest number of packed tokens, and of different targets, per forward and backward pass; a longer
            datum is computed alone.
        waiting: largest number of requests that wait.
        waiting_tokens: largest number of their tokens.
        result_bytes: largest size of the results that wait for their clients.
        snapshots: samplers without a path that are kept per model; older ones are dropped.
        session_s: seconds without a request after which a session ends, with its models; the SDK sends a sign of life
            every 10 seconds.
        spare_s: seconds without a request after which a session ends if another client needs its place.
        patience_s: seconds that a training request waits for its predecessor, if this one was lost on the way.
        answer_s: seconds after which a client that waits for a result is told to ask again.
    """

    models: int = 8
    sessions: int = 64
    samplers: int = 1024
    rank: int = 256
    datums: int = 1024
    tokens: int = 1 << 20
    context: int = 0
    samples: int = 128
    slots: int = 64
    batch_tokens: int = 4096
    waiting: int = 8192
    waiting_tokens: int = 1 << 25
    result_bytes: int = 1 << 29
    snapshots: int = 16
    session_s: float = 1800.0
    spare_s: float = 30.0
    patience_s: float = 60.0
    answer_s: float = 20.0
