#!/usr/bin/env python3
"""A process without the cluster's secret listens at the coordinator's port while ps/0, which hosts the
coordinator, is down. It answers each attempt of ps/1 to reconnect. No answer may end ps/1."""

import os
import select
import signal
import socket

import harness
import protocol_client as pc

ROUNDS = 2  # the impostor sends each answer this many times
NOBODY = "tcp://127.0.0.1:9"  # a port without a listener


def message(**fields):
    return pc.frame_bytes(pc.Frame(pc.CONTROL, pc.encode("Control", {"id": 1, **fields})))


def error(code, **more):
    return message(error={"code": code, "text": "go away", **more})


# The answers on one connection: each is sent after the member has sent something. The last is of another
# kind of server.
ANSWERS = (
    (error(pc.REFUSED),),
    (error(pc.EXISTS),),
    (error(pc.OTHER_VERSION),),
    (error(pc.AGAIN, coordinator=NOBODY),),
    (message(welcome={"protocol_version": pc.VERSION, "software": "impostor"}),),
    (message(challenge={"nonce": b"n" * 32}), message(proof={"proof": b"p" * 32})),
    (b"HTTP/1.1 200 OK\r\n\r\n" * 4,),
)


def answer_next(listener, parts):
    """Accepts a connection, sends the parts, and waits for its end; False: nothing came in time."""
    if not select.select([listener], [], [], harness.DEADLINE_S)[0]:
        return False
    connection, _ = listener.accept()
    with connection:
        for part in parts:
            if not select.select([connection], [], [], harness.DEADLINE_S)[0]:
                return False
            connection.recv(1 << 16)
            connection.sendall(part)
        connection.shutdown(socket.SHUT_WR)
        return bool(select.select([connection], [], [], harness.DEADLINE_S)[0])


class Impostor(harness.StarlingTest):
    def test_a_ps_outlives_answers_without_a_proof(self):
        secret = self.file("secret", "a secret of enough bytes\n")
        os.chmod(secret, 0o600)
        extra = ["--secret-file", secret, "--lease", 30]
        servers, flags = self.start_ps(2, extra=extra)
        harness.wait_lines(servers, "ready")
        servers[0].signal(signal.SIGKILL)
        servers[0].wait()
        host, port = flags[1].split(",")[0].split(":")  # of ps/0
        harness.wait_unheard(host, int(port))
        with socket.create_server((host, int(port))) as listener:
            for parts in ANSWERS * ROUNDS:
                self.assertTrue(answer_next(listener, parts), servers[1].output)
                self.assertTrue(servers[1].running(), servers[1].output)
        servers[0] = self.start("starling-ps", *flags, "--job-name", "ps", "--task-index", 0, *extra)
        servers[1].wait_line("the coordinator is reachable again")
        self.drain(servers)


if __name__ == "__main__":
    harness.main()
