"""Running a piece of a test as another user."""

import os
import pickle
import traceback
from collections.abc import Callable

NOBODY = 65534


def as_user(uid: int, function: Callable[[], str]) -> str:
    """What a function returns in a child process that gave itself up to another user.

    Raises:
        AssertionError: it raised; the traceback is the message.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        told: tuple[bool, str] = (False, "nothing")
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            os.environ["HOME"] = "/nonexistent"
            told = (True, function())
        except BaseException:  # noqa: BLE001  whatever it is belongs to the parent's report
            told = (False, traceback.format_exc())
        finally:
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(pickle.dumps(told))
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    well, text = pickle.loads(data) if data else (False, "the child died")
    assert well, text
    return str(text)
