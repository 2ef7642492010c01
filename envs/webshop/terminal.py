"""WebShop by hand: the page, numbered choices, a prompt."""

from collections.abc import Callable
from pathlib import Path

from agentrl.envs.webshop.config import Config
from agentrl.envs.webshop.session import Session

HELP = "type a number to click, any other words to search, q to leave"


def choices(session: Session) -> list[str]:
    """The actions that the numbers 1, 2, ... stand for."""
    return [f"click[{name}]" for name in session.clickables() if name != "search"]


def read_action(typed: str, listed: list[str]) -> str:
    """The action of what was typed: a number of the list, an action as written, or words to search for."""
    words = typed.strip()
    if words.isdigit() and 1 <= int(words) <= len(listed):
        return listed[int(words) - 1]
    if words.startswith(("search[", "click[")):
        return words
    return f"search[{words}]"


def shop_by_hand(
    session: Session,
    config: Config,
    save: Path | None,
    ask: Callable[[str], str] = input,
    say: Callable[[str], None] = print,
) -> int:
    """Play until a purchase, the step limit or `q`.

    Args:
        session: what to play.
        config: its configuration.
        save: where to store the session as a step graph, if anywhere.
        ask, say: read a line, and print a line.
    """
    say(HELP)
    actions: list[str] = []
    while config.max_steps is None or len(actions) < config.max_steps:
        listed = choices(session)
        say("\n" + session.observe().rstrip())
        say("\n".join(f"{number:3}  {action[6:-1]}" for number, action in enumerate(listed, 1)))
        try:
            typed = ask("> ")
        except EOFError:
            break
        if typed.strip() in ("q", "quit"):
            break
        if not typed.strip():
            continue
        actions.append(read_action(typed, listed))
        outcome = session.step(actions[-1])
        if session.error:
            say(session.error)
        elif not outcome.accepted:
            say("that had no effect")
        if outcome.done:
            say(f"score {outcome.reward:.3f}  " + "  ".join(f"{name} {part}" for name, part in outcome.parts.items()))
            break
    if save and actions:
        from agentrl.envs.webshop.demonstration import save_session

        save_session(save, config, session.number, actions)
        say(f"saved {save}")
    return 0
