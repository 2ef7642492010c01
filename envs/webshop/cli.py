"""The command line: `agentrl play webshop ...` and `agentrl envs webshop search|reward|prepare ...`."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from agentrl.cli import Parser, positive
from agentrl.env import published_report
from agentrl.envs.webshop import EXPERTS, bm25, nouns, published, store
from agentrl.envs.webshop.config import Config
from agentrl.envs.webshop.market import open_catalogue, open_market
from agentrl.envs.webshop.reward import Bought, Unscorable, Wanted, score
from agentrl.envs.webshop.session import Session
from agentrl.files import read_json
from agentrl.rollout import read_actions


def configure(given: Mapping[str, Any], pairs: Iterable[str]) -> Config:
    """A Config of given values and KEY=VALUE pairs; ValueError names a wrong key or value."""
    values = dict(given)
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"{pair!r} is not an option: write key=value, such as price_seed=7")
        if key not in Config.model_fields:
            from agentrl.catalogue import nearest

            raise ValueError(f"unknown option {key!r}{nearest(key, Config.model_fields)}")
        values[key] = tuple(value.split(",")) if key == "levels" else value
    try:
        return Config.model_validate(values)
    except ValueError as error:
        first = error.errors()[0] if hasattr(error, "errors") else {"loc": (), "msg": str(error)}
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"option {where}={values.get(where)!r}: {first['msg']}") from None


def play(argv: Sequence[str]) -> int:
    """`agentrl play webshop`: a session by hand, or from a file of actions."""
    parser = Parser("agentrl play webshop", "Shop in the terminal, or from a file of actions.")
    parser.add_argument("--data", default="", help="folder of the original's files or a prepared store")
    parser.add_argument("--goals", choices=("human", "synthetic"), default="human")
    parser.add_argument("--goal", default="0", help="index after the shuffle, or a session name that draws one")
    parser.add_argument("--observation", choices=("text", "text_rich", "html", "url"))
    parser.add_argument("--actions", type=Path, help="one action per line, or a JSON list in a .json file")
    parser.add_argument("--save", type=Path, help="store the session as a step graph (safetensors)")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("options", nargs="*", metavar="key=value")
    given = parser.parse_intermixed_args(list(argv))
    form = given.observation or ("text" if given.actions else "text_rich")
    values = {"data": given.data, "goals": given.goals, "observation": form, "split": "all"}
    limited = any(pair.startswith(("max_steps=", "preset=")) for pair in given.options)
    config = configure(values if limited else {**values, "max_steps": None}, given.options)
    goal = int(given.goal) if given.goal.lstrip("-").isdigit() else given.goal
    session = Session(open_market(config), goal, config.session_seed, config.observation)
    if given.actions is None:
        from agentrl.envs.webshop.terminal import shop_by_hand

        return shop_by_hand(session, config, given.save)
    actions = read_actions(given.actions)
    return replay(session, actions[: config.max_steps], as_json=given.json, save=given.save, config=config)


def replay(session: Session, actions: Sequence[str], *, as_json: bool, save: Path | None, config: Config) -> int:
    """Print a session, the reset first, then one line per action."""
    show(_line(session, {"action": None, "reward": 0, "terminated": False, "info": {}}), as_json=as_json)
    for action in actions:
        outcome = session.step(action)
        line = {"action": action, "reward": outcome.reward, "terminated": outcome.done, "info": dict(outcome.parts)}
        show(_line(session, line) | ({"error": session.error} if session.error else {}), as_json=as_json)
    if save:
        from agentrl.envs.webshop.demonstration import save_session

        save_session(save, config, session.number, actions)
    return 0


def _line(session: Session, rest: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "action": rest["action"],
        "observation": session.observe(),
        "clickables": list(session.clickables()),
        "has_search_bar": session.has_search_bar,
        **{key: value for key, value in rest.items() if key != "action"},
    }


def show(line: Mapping[str, Any], *, as_json: bool) -> None:
    """One line of a replay, for a program or for a reader."""
    if as_json:
        print(json.dumps(line))  # in ASCII: product texts may hold halves of surrogate pairs, which no encoding takes
        return
    if line["action"] is not None:
        print(f"> {line['action']}")
    print(f"{line['observation']}\n[{' | '.join(line['clickables'])}]")
    if line["terminated"]:
        print(f"bought, score {line['reward']}: {line['info']}")
    if "error" in line:
        print(f"refused: {line['error']}")


def search(argv: Sequence[str]) -> int:
    """`agentrl envs webshop search`: what the search engine finds."""
    parser = Parser("agentrl envs webshop search", "Rank the shop's products for a query.")
    parser.add_argument("--data", default="", help="folder of the original's files or a prepared store")
    parser.add_argument("--query", required=True)
    parser.add_argument("--k", type=positive, default=50, help="how many")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("options", nargs="*", metavar="key=value")
    given = parser.parse_intermixed_args(list(argv))
    config = configure({"data": given.data}, given.options)
    catalogue = open_catalogue(config.data, config.num_products, config.catalogue_seed, config.strict)
    for hit in bm25.search(catalogue.postings, given.query, given.k):
        asin = catalogue.products[hit.document].asin
        title = catalogue.products[hit.document].title
        print(json.dumps({"id": asin, "score": hit.score}) if given.json else f"{asin}  {hit.score:.4f}  {title}")
    return 0


def reward(argv: Sequence[str]) -> int:
    """`agentrl envs webshop reward`: score purchases given as JSON."""
    parser = Parser("agentrl envs webshop reward", "Score purchases, one JSON object each.")
    parser.add_argument("--cases", type=Path, required=True, help="JSON list: product, goal, price, options each")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    given = parser.parse_args(list(argv))
    cases = read_json(given.cases, "cases file")
    if not isinstance(cases, list):
        raise ValueError(f"{given.cases} must hold a JSON list of objects")
    for number, case in enumerate(cases):
        line = score_case(case, number)
        print(json.dumps(line) if given.json else f"{number}: {line}")
    return 0


def score_case(case: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Reward and parts of one case; `error` where the original raises. ValueError names a missing field."""
    try:
        product, goal = case["product"], case["goal"]
        bought = Bought(
            title=product["Title"],
            description=product["Description"],
            bullets=product["BulletPoints"],
            attributes=product["Attributes"],
            query=product["query"],
            product_category=product["product_category"],
        )
        wanted = Wanted(
            attributes=goal["attributes"],
            options=goal["goal_options"],
            price_upper=goal["price_upper"],
            query=goal["query"],
            product_category=goal["product_category"],
        )
        titles = (product.get("name", product["Title"]), goal.get("name", ""))
        found = score(bought, wanted, case["price"], case["options"], lambda: _nouns_of(case, titles))
    except Unscorable as error:
        return {"error": str(error)}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"case {number} lacks a field or has one of the wrong type: {error}") from None
    return {"reward": found.reward, "info": found.parts}


def _nouns_of(case: Mapping[str, Any], titles: tuple[str, str]) -> tuple[Sequence[str], Sequence[str]]:
    names = ("product_nouns", "goal_nouns")
    given = [case[name] if name in case else nouns.default()(title) for name, title in zip(names, titles, strict=True)]
    return given[0], given[1]


def prepare(argv: Sequence[str]) -> int:
    """`agentrl envs webshop prepare`: build the memory-mapped store of a folder of raw files."""
    from agentrl.envs.webshop.prepare import main

    return main(argv)


def about(argv: Sequence[str]) -> int:
    """`agentrl envs webshop [data=DIR]`: what shops there are to play here, and how to get the rest."""
    parser = Parser("agentrl envs webshop", "What shops there are, what of the original's data is here, and the rest.")
    parser.add_argument("data", nargs="?", default="", help="data=DIR, a folder of the original's files")
    data = str(parser.parse_args(list(argv)).data).removeprefix("data=")
    print("generated shop (webshop-gen), nothing to download: options num_products, catalogue_seed, levels")
    folder = Path(data).expanduser() if data else None
    if folder is not None and not folder.is_dir():
        raise ValueError(f"no such folder: {folder}; give the folder of the original's files")
    print(f"the original's shop: data=DIR ({folder or 'not named here: agentrl envs webshop data=DIR looks there'})")
    if folder is not None and store.find(folder, None):
        print(f"  prepared: {store.find(folder, None)}")
    for title, files in (("small set", published.SMALL), ("full set", published.FULL)):
        print(f"  {title}:")
        print("".join(f"    {line}\n" for line in published_report(folder, files)), end="")
    print("to get the small set, on a machine with a network (then copy DIR here):")
    print("".join(f"  {line}\n" for line in published.FETCH), end="")
    print("then: agentrl envs webshop prepare --data DIR && agentrl eval webshop data=DIR preset=verl_agent ...")
    print(f"players: {', '.join(EXPERTS)}; commands: {', '.join(VERBS)} (--help says more); see docs/data.md")
    return 0


VERBS: Mapping[str, Callable[[Sequence[str]], int]] = MappingProxyType(
    {"search": search, "reward": reward, "prepare": prepare}
)


def main(argv: Sequence[str]) -> int:
    """`python -m agentrl.envs.webshop VERB ...`; exit code 2 and one sentence for a mistake."""
    verbs = {**VERBS, "play": play}
    try:
        if not argv or argv[0] not in verbs:
            raise ValueError(f"usage: python -m agentrl.envs.webshop {'|'.join(verbs)} ...")
        return verbs[argv[0]](argv[1:])
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
