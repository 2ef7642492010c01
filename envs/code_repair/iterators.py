"""Iterators and coroutines of the other end of a judged program, as objects of this end; see `peer`."""

# mypy: ignore-errors
ALONE, MOST = 16, 256  # number of items that are taken one by one; largest number of items that are taken at once


def generator(peer, ref):
    """The items of an iterator of the other end.

    After ALONE items the end of the tests takes several at once, so the agent's code may be some items ahead.
    """
    count, taken = 1, 0
    while True:
        items, end = peer.remote("next", ref, count)
        for number, item in enumerate(items):
            try:
                sent = yield item
            except GeneratorExit:
                return None
            except BaseException as error:  # noqa: BLE001
                sent = None
                yield peer.remote("throw", ref, error)
            while sent is not None:
                if number + 1 < len(items):
                    raise peer.refuse("a test sends into a generator from which items were taken ahead")
                sent = yield peer.remote("send", ref, sent)
        if end is not None:
            return end[0]
        taken += len(items)
        count = min(2 * count, MOST) if peer.guarded and taken >= ALONE else 1


async def coroutine(peer, ref):
    return peer.remote("await", ref)


async def async_generator(peer, ref):
    while True:
        try:
            item = peer.remote("anext", ref)
        except StopAsyncIteration:
            return
        yield item
