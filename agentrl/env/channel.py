"""Frames of bytes between an event loop and a worker process.

A worker may hang in the middle of a frame, or before it reads one. The event loop therefore writes only as many bytes
as the socket accepts, and reads only the bytes that have arrived. It never waits for the worker, because waiting would
stop every episode of the run.
"""

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Callable

HEAD = struct.Struct("!Q")  # the length of the frame that follows
PART_BYTES = 1 << 20  # largest number of bytes that one read takes
FRAME_BYTES = 1 << 30  # longest frame; if a head gives a larger length, the channel counts as ended


class Channel:
    """The event loop's end of the socket. If one event loop reads a part of a frame, the next loop reads the rest.

    Attributes:
        received: bytes that have arrived so far.
    """

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._end = end
        self._loop: asyncio.AbstractEventLoop | None = None
        self._in = bytearray()
        self._out: deque[memoryview] = deque()
        self.received = 0

    def listen(
        self, loop: asyncio.AbstractEventLoop, on_frame: Callable[[bytes], None], on_end: Callable[[], None]
    ) -> None:
        """Call `on_frame` with each frame that arrives, and `on_end` when no further frame can arrive.

        `on_end` must close the channel; otherwise it is called again.
        """
        self._loop, self._on_frame, self._on_end = loop, on_frame, on_end
        loop.add_reader(self._end.fileno(), self._read)
        if self._out:
            loop.add_writer(self._end.fileno(), self._write)

    def send(self, frame: bytes) -> None:
        """Send a frame, now or when the other end reads; `on_end` is called if the other end is closed."""
        self._out += [memoryview(HEAD.pack(len(frame))), memoryview(frame)]
        self._write()

    def close(self) -> None:
        """Close this end."""
        if self._loop is not None and not self._loop.is_closed() and self._end.fileno() >= 0:
            self._loop.remove_reader(self._end.fileno())
            self._loop.remove_writer(self._end.fileno())
        self._end.close()

    def _write(self) -> None:
        assert self._loop is not None
        while self._out:
            try:
                sent = self._end.send(self._out[0])
            except BlockingIOError:
                self._loop.add_writer(self._end.fileno(), self._write)
                return
            except OSError:
                self._on_end()
                return
            rest = self._out.popleft()[sent:]
            if rest:
                self._out.appendleft(rest)
        self._loop.remove_writer(self._end.fileno())

    def _read(self) -> None:
        try:
            part = self._end.recv(PART_BYTES)
        except BlockingIOError:
            return
        except OSError:
            part = b""
        self._in += part
        self.received += len(part)
        while part and len(self._in) >= HEAD.size:
            (length,) = HEAD.unpack_from(self._in)
            if length > FRAME_BYTES:
                part = b""
            elif len(self._in) < HEAD.size + length:
                return
            else:
                frame = bytes(memoryview(self._in)[HEAD.size : HEAD.size + length])
                del self._in[: HEAD.size + length]
                self._on_frame(frame)
                if self._end.fileno() < 0:  # `on_frame` has closed the channel
                    return
        if not part:
            self._on_end()


def read_frame(end: socket.socket) -> bytes:
    """Wait at the worker's end for the next frame and return its content; EOFError if the other end is closed."""
    (length,) = HEAD.unpack(_exactly(end, HEAD.size))
    return bytes(_exactly(end, length))


def write_frame(end: socket.socket, frame: bytes) -> None:
    """Send a frame from the worker's end; OSError if the other end is closed."""
    end.sendall(HEAD.pack(len(frame)))
    end.sendall(frame)


def _exactly(end: socket.socket, count: int) -> bytearray:
    data = bytearray(count)
    view, at = memoryview(data), 0
    while at < count:
        got = end.recv_into(view[at:])
        if not got:
            raise EOFError
        at += got
    return data
