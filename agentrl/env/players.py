"""Names of experts that several environments understand."""

from collections.abc import Sequence

CARELESS = 0.3  # share of random actions if the name `careless` has no number


def random_share(name: str, env: str, experts: Sequence[str], erring: Sequence[str] = ("careless",)) -> float:
    """The share of random actions of an expert: P for `careless:P`, `CARELESS` for `careless`, 1 for `random`, else 0.

    Args:
        name: the name of the expert, as the user wrote it.
        env: the environment's name, for the error message.
        experts: the names that the environment knows.
        erring: those of them that take a random action with a probability, as `careless` does.

    Raises:
        ValueError: the name is not in `experts`, or P is no probability.
    """
    base, colon, probability = name.partition(":")
    if base not in experts or (colon and base not in erring):
        raise ValueError(f"unknown {env} player {name!r}: use one of {', '.join(experts)}")
    try:
        share = float(probability) if colon else {**dict.fromkeys(erring, CARELESS), "random": 1.0}.get(base, 0.0)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ValueError(f"{name!r} is no player: write {base}:{CARELESS}, with a probability from 0 to 1")
    return share
