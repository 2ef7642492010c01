"""The named players of the environment: demonstrators to clone, baselines to compare with.

expert: identifies the customer, asks for what it needs, reads the records, obeys the rules, has changes confirmed. It
    understands the scripted customer of generated tasks and knows only what it was told and has read.
careless:0.3: the imperfect demonstrator: as `expert`, but at each step, with this probability, it takes a random listed
    action instead. If none is listed, it says that it refuses. All its episodes are cloned, failures included.
oracle: knows the right calls and the facts that the customer must be told, in tau-bench's tasks too. In tau-bench's
    tasks, `expert` plays as the oracle does, and so does `careless` in the steps that are not random.
random: takes a random listed action at each step. If none is listed, it says that it refuses.
"""

import re
from collections.abc import Mapping
from typing import Any

from agentrl.env import Env, Move, random_share
from agentrl.envs._worded import Careless
from agentrl.envs.desk.booking_cases import allowed
from agentrl.envs.desk.counter import ASKS, CONFIRM, DONE, REFUSE, RESPOND, TELL, TRANSFER, Counter, say
from agentrl.envs.desk.environment import Desk
from agentrl.envs.desk.retail_records import REASONS
from agentrl.tool import action as tool_action
from agentrl.types import Observation

EXPERTS = ("expert", "careless", "oracle", "random")
HELLO = "Hello. How can I help you?"


def make_expert(env: Env, name: str, seed: int) -> "Player":
    """The player of that name.

    Raises:
        ValueError: no such player, or a number that is no probability.
    """
    share = random_share(name, "desk", EXPERTS)
    assert isinstance(env, Desk)
    return Player(env, seed, share, knows=name == "oracle")


class Player(Careless):
    """Serves one request after the other; takes a random listed action with probability `slips`."""

    _env: Desk

    def act(self, observation: Observation) -> Move:
        """The next call or words."""
        counter: Counter = self._env.inner.instance
        if self._slipped():
            return Move(self._rng.choice(observation.actions) if observation.actions else say(REFUSE))
        if self._knows or counter._case.published:
            return Move(self._recite(counter))
        if not counter._by_script and not counter._said:
            return Move(say(HELLO))
        return Move(self._identify(counter) if not counter._identified else self._serve(counter))

    def _recite(self, counter: Counter) -> str:
        """Identify the customer, make the right calls with each change confirmed, tell what must be told, and close."""
        case = counter._case
        made = [(call.name, dict(call.arguments)) for call in self._env.inner.log if call.ok]
        find = _find_by_email(counter)
        if find and not counter._identified:
            return find
        for name, arguments in case.actions:
            if name in (RESPOND, TRANSFER) or (name, dict(arguments)) in made or self._failed(name, arguments):
                continue
            if name in counter.WRITES and not counter._agreed:
                return say(CONFIRM)
            return tool_action.call(name, **arguments)
        told = [content for content, _ in counter._said]
        untold = [one for one in case.outputs if not any(counter._tells(content, one) for content in told)]
        return say(TELL.format(value=untold[0]) if untold else DONE)

    def _failed(self, name: str, arguments: Mapping[str, Any]) -> bool:
        """Was the call made, and did it fail? Some right calls of tau-bench fail."""
        return any((c.name, dict(c.arguments)) == (name, dict(arguments)) and not c.ok for c in self._env.inner.log)

    def _identify(self, counter: Counter) -> str:
        calls = [one for one in counter._calls() if any(f'"{name}"' in one for name in counter.FINDS)]
        tried = {tool_action.call(done.name, **done.arguments) for done in self._env.inner.log}
        untried = [one for one in calls if one not in tried]
        if untried:
            return untried[0]
        asked = {content for content, _ in counter._said}
        return say(ASKS["name" if ASKS["email"] in asked else "email"])

    def _serve(self, counter: Counter) -> str:
        """The next step of the present request."""
        conversation = [("", str(self._env.inner.task.params.get("said", ""))), *counter._said]
        if counter._by_script:
            conversation[0] = ("", f"{counter._case.goal['requests'][0]['say']}")  # the customer's first words
        start = max(i for i, (_, said) in enumerate(conversation) if "I want to " in said)
        wish, heard = conversation[start][1], dict(conversation[start + 1 :])
        serve = self._retail if self._env.config.domain == "retail" else self._booking
        return serve(counter, wish, heard, conversation[-1][1])

    def _retail(self, counter: Counter, wish: str, heard: Mapping[str, str], last: str) -> str:
        order_id = _named(r"#W\d+", heard.get(ASKS["order"], ""))
        if not order_id:
            return say(ASKS["order"])
        if not self._called("get_order_details", order_id=order_id):
            return tool_action.call("get_order_details", order_id=order_id)
        order = counter._data["orders"][order_id]
        paid = order["payment_history"][0]
        if "amount" in wish or "Then tell me" in last:
            return say(TELL.format(value=paid["amount"]))
        if "status" in wish:
            return say(TELL.format(value=order["status"]))
        needed = "delivered" if "return" in wish else "pending"
        change = {"order_id": order_id}
        if order["status"] != needed:
            # This player changed it a moment ago, or the change was never possible.
            return say(DONE if self._just_changed(counter) else REFUSE)
        if "cancel" in wish:
            if ASKS["reason"] not in heard:
                return say(ASKS["reason"])
            reason = next((one for one in REASONS if one in heard[ASKS["reason"]]), "")
            return self._change(counter, bool(reason), "cancel_pending_order", reason=reason, **change)
        if "return" in wish and ASKS["item"] not in heard:
            return say(ASKS["item"])
        if ASKS["payment"] not in heard:
            return say(ASKS["payment"])
        method = _named(r"\w+_\d+", heard[ASKS["payment"]])
        if "return" in wish:
            item = _named(r"[a-z]+-[a-z]+", heard[ASKS["item"]])
            fits = "gift" in method or method == paid["payment_method_id"]
            own = {**change, "item_ids": [item], "payment_method_id": method}
            return self._change(counter, fits, "return_delivered_order_items", **own)
        if not self._called("get_user_details", user_id=counter._identified):
            return tool_action.call("get_user_details", user_id=counter._identified)
        balance = counter._data["users"][counter._identified]["payment_methods"].get(method, {}).get("balance")
        if self._just_changed(counter):
            return say(DONE)
        fits = method != paid["payment_method_id"] and (balance is None or balance >= paid["amount"])
        return self._change(counter, fits, "modify_pending_order_payment", payment_method_id=method, **change)

    def _booking(self, counter: Counter, wish: str, heard: Mapping[str, str], last: str) -> str:
        booking_id = _named(r"\bB\d+", heard.get(ASKS["booking"], ""))
        if not booking_id:
            return say(ASKS["booking"])
        if not self._called("get_booking", booking_id=booking_id):
            return tool_action.call("get_booking", booking_id=booking_id)
        booking = counter._data["bookings"][booking_id]
        if "price" in wish or "Then tell me" in last:
            return say(TELL.format(value=booking["price"]))
        if "days" in wish:
            return say(TELL.format(value=booking["days"]))
        if self._just_changed(counter):
            return say(DONE)
        if not self._called("get_guest", guest_id=counter._identified):
            return tool_action.call("get_guest", guest_id=counter._identified)
        tier = counter._data["guests"][counter._identified]["tier"]
        change = {"booking_id": booking_id}
        if "room" not in wish:
            kind = "cancel" if "cancel" in wish else "breakfast"
            name = "cancel_booking" if kind == "cancel" else "add_breakfast"
            return self._change(counter, allowed(kind, booking, tier, 0), name, **change)
        if ASKS["room"] not in heard:
            return say(ASKS["room"])
        if not self._called("get_hotel", hotel=booking["hotel"]):
            return tool_action.call("get_hotel", hotel=booking["hotel"])
        room = _named(r"single|double|suite", heard[ASKS["room"]])
        free = counter._data["hotels"][booking["hotel"]][room]
        return self._change(counter, allowed("room", booking, tier, free), "change_room", room=room, **change)

    def _change(self, counter: Counter, fits: bool, name: str, **arguments: Any) -> str:
        """Have the change confirmed, then make it; refuse the change if the rules do not allow it (`fits` is False)."""
        if not fits:
            return say(REFUSE)
        return tool_action.call(name, **arguments) if counter._agreed else say(CONFIRM)

    def _called(self, name: str, **arguments: Any) -> bool:
        return any(one.name == name and dict(one.arguments) == arguments and one.ok for one in self._env.inner.log)

    def _just_changed(self, counter: Counter) -> bool:
        """Did the last call change something, and was nothing said since then?"""
        last = tool_action.read(self._env.inner.actions[-1]).items if self._env.inner.actions else ()
        named = getattr(last[0], "name", "") if last else ""
        return named in counter.WRITES and self._env.inner.log[-1].ok


def _find_by_email(counter: Counter) -> str:
    """The call that finds the customer of a generated task; empty for tau-bench's tasks, whose right calls hold it."""
    if counter._case.published:
        return ""
    table = "users" if "users" in counter._data else "guests"
    people = counter._data[table]
    person = next(iter(people))  # the first one drawn is the customer
    return tool_action.call(counter.FINDS[0], email=people[person]["email"])


def _named(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return found[0] if found else ""
