#!/usr/bin/env python3
"""A TCP proxy that does to connections what networks do: cuts them, half-closes them, delays,
throttles, swallows, ends them in the middle of a frame, refuses new ones; and stops doing so.

In a test, `Proxy` runs in a thread of its own, and its methods are called from any other. As a
process it takes the same commands, by line, on standard input, and answers each with a line:

    tests/integration/proxy.py LISTEN_HOST:PORT TARGET_HOST:PORT [--replace OLD NEW]

A ps tells its clients the data endpoint at which it listens, so a proxy before it is passed by,
unless it stands before the control endpoint too and changes what is told there: `replace` is a pair
of byte strings of equal length, changed in what the target sends. 127.0.0.1 has as many characters
as 127.0.0.2, and both are this machine. See ProxiedPs."""

import argparse
import asyncio
import socket
import struct
import sys
import threading

CHUNK_BYTES = 64 << 10
WAIT_S = 30.0  # for what is asked of the proxy's own thread
HELD_S = 0.2  # the end of a chunk, which may be the beginning of a string to replace
LINGER_RESET = struct.pack("ii", 1, 0)  # closing then sends RST


class _Connection:
    """One connection of a client, and its twin to the target."""

    def __init__(self, client, target):
        self.ends = {"client": client, "target": target}
        self.truncate_towards = None
        self.told_end = set()  # those who were told that no more comes
        self.flows = asyncio.Event()
        self.flows.set()

    def end(self, towards):
        """Sends FIN to one side; what else would go there is dropped."""
        writer = self.ends[towards][1]
        if towards not in self.told_end and not writer.is_closing():
            self.told_end.add(towards)
            writer.write_eof()

    def cut(self, reset):
        for _, writer in self.ends.values():
            if reset:
                link = writer.get_extra_info("socket")
                if link.fileno() >= 0:  # else it has ended by itself
                    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_RESET)
                writer.transport.abort()
            else:
                writer.close()


class _Replacer:
    """Changes a string in a stream whose chunks may end inside of it."""

    def __init__(self, pair):
        self.old, self.new = pair
        self.held = b""

    def feed(self, data):
        data = (self.held + data).replace(self.old, self.new)
        keep = next((n for n in range(len(self.old) - 1, 0, -1) if data.endswith(self.old[:n])), 0)
        self.held = data[len(data) - keep:]
        return data[:len(data) - keep]

    def flush(self):
        data, self.held = self.held, b""
        return data

    async def read(self, reader):
        """The next bytes of the stream, changed; b"" at its end."""
        while True:
            try:
                data = await asyncio.wait_for(reader.read(CHUNK_BYTES), HELD_S if self.held else None)
            except asyncio.TimeoutError:
                return self.flush()
            changed = self.feed(data) if data else self.flush()
            if changed or not data:
                return changed


class Proxy:
    """Listens at `listen` (host, port) and passes everything on to `target`, and back."""

    def __init__(self, target, listen=("127.0.0.1", 0), replace=None):
        self.target = target
        self.accepted = 0  # connections since the beginning
        self._listen = listen
        self._replace = replace
        self._connections = set()
        self._tasks = set()
        self._server = None
        self._refuses = False
        self._delay_s = self._bytes_per_s = 0
        self._flows = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._call(self._start())

    # What tests ask for; any thread.

    @property
    def address(self):
        return self._listen

    @property
    def connections(self):
        return len(self._connections)

    def cut(self, reset=True, which=lambda index: True):
        """Ends connections, both sides, by RST or FIN; returns how many."""
        return self._call(self._cut(reset, which))

    def half_close(self, towards="client"):
        """Sends FIN to one side of every connection; the other direction goes on."""
        self._call(self._half_close(towards))

    def truncate(self, towards="target"):
        """Passes on all but the last byte of what comes next, of each connection, and cuts it."""
        self._call(self._truncate(towards))

    def inject(self, data, towards="client"):
        """Sends bytes of its own on every connection."""
        self._call(self._inject(data, towards))

    def delay(self, seconds):
        """Each chunk waits before it goes on."""
        self._delay_s = seconds

    def throttle(self, bytes_per_s):
        self._bytes_per_s = bytes_per_s

    def black_hole(self):
        """Accepts, keeps what it has accepted, and passes nothing on: no byte, no FIN, no RST."""
        self._loop.call_soon_threadsafe(self._flows.clear)

    def hold(self):
        """As black_hole, for the connections that are there, until `release`; returns how many."""
        return self._call(self._set_flows(asyncio.Event.clear))

    def release(self):
        """What was held goes on, to those who still take it."""
        self._call(self._set_flows(asyncio.Event.set))

    def refuse(self):
        """Nobody listens any more: new connections are refused. Those that are there stay."""
        self._call(self._stop_listening())

    def restore(self):
        """New connections and all bytes go through again, those that were swallowed too."""
        self._delay_s = self._bytes_per_s = 0
        self._call(self._restore())

    def close(self):
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()

    # The proxy's own thread.

    def _call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(WAIT_S)

    async def _start(self):
        self._flows = asyncio.Event()
        self._flows.set()
        await self._listen_again()

    async def _listen_again(self):
        self._server = await asyncio.start_server(self._accept, *self._listen, limit=CHUNK_BYTES)
        self._listen = self._server.sockets[0].getsockname()[:2]

    async def _stop_listening(self):
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _restore(self):
        self._flows.set()
        if self._server is None:
            await self._listen_again()

    async def _cut(self, reset, which):
        chosen = [c for i, c in enumerate(list(self._connections)) if which(i)]
        for connection in chosen:
            connection.cut(reset)
        return len(chosen)

    async def _half_close(self, towards):
        for connection in self._connections:
            connection.end(towards)

    async def _set_flows(self, change):
        for connection in self._connections:
            change(connection.flows)
        return len(self._connections)

    async def _inject(self, data, towards):
        for connection in self._connections:
            connection.ends[towards][1].write(data)

    async def _truncate(self, towards):
        for connection in self._connections:
            connection.truncate_towards = towards

    async def _close(self):
        await self._stop_listening()
        await self._cut(True, lambda index: True)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader, writer):
        task = asyncio.current_task()
        self._tasks.add(task)
        self.accepted += 1
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # an end is not there, or goes away: that is what the proxy is for
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _serve(self, reader, writer):
        await self._flows.wait()
        target = await asyncio.open_connection(*self.target, limit=CHUNK_BYTES)
        connection = _Connection((reader, writer), target)
        self._connections.add(connection)
        try:
            await asyncio.gather(self._pump(connection, "client", "target"),
                                 self._pump(connection, "target", "client"))
        finally:
            self._connections.discard(connection)
            connection.cut(reset=False)

    async def _pump(self, connection, source, sink):
        """Carries one direction until it ends; that of the other side then goes on."""
        reader, writer = connection.ends[source][0], connection.ends[sink][1]
        replacer = _Replacer(self._replace) if self._replace and source == "target" else None
        while data := await (replacer.read(reader) if replacer else reader.read(CHUNK_BYTES)):
            await self._flows.wait()
            await connection.flows.wait()
            if self._delay_s:
                await asyncio.sleep(self._delay_s)
            if self._bytes_per_s:
                await asyncio.sleep(len(data) / self._bytes_per_s)
            if connection.truncate_towards == sink and sink not in connection.told_end:
                writer.write(data[:-1])
                await writer.drain()
                connection.cut(reset=False)
                return
            if sink not in connection.told_end:
                writer.write(data)
                await writer.drain()
        await self._flows.wait()
        await connection.flows.wait()
        connection.end(sink)


def _address(text):
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def _obey(proxy, line):
    """Carries out one command: `cut`, `cut fin`, `half_close client`, `delay 0.1`, ..."""
    name, *words = line.split()
    if name == "cut":
        return proxy.cut(reset=words != ["fin"])
    if name in ("delay", "throttle"):
        return getattr(proxy, name)(float(words[0]))
    if name in ("half_close", "truncate", "black_hole", "refuse", "restore"):
        return getattr(proxy, name)(*words)
    raise ValueError(f"no command '{name}'")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("listen", type=_address)
    parser.add_argument("target", type=_address)
    parser.add_argument("--replace", nargs=2, type=str.encode)
    args = parser.parse_args()
    proxy = Proxy(args.target, args.listen, args.replace)
    print("listens at {}:{}".format(*proxy.address), flush=True)
    for line in sys.stdin:
        try:
            print("done", _obey(proxy, line), flush=True)
        except (ValueError, TypeError, IndexError, KeyError) as error:
            print("error:", error, flush=True)
    proxy.close()


if __name__ == "__main__":
    main()
