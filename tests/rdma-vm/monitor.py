"""What is asked of QEMU itself: to save a machine into a file, and to let one go on that was resumed."""

import json
import shlex
import time

import cache

POLL_S = 0.01
ANSWER_S_MAX = 60


class Monitor:
    """QEMU's machine protocol: a line of JSON each way."""

    def __init__(self, connection):
        connection.settimeout(ANSWER_S_MAX)
        self.stream = connection.makefile("rw", encoding="utf-8")
        self.negotiated = False

    def _ask(self, command, **arguments):
        if not self.negotiated:
            self.negotiated = True
            self._ask("qmp_capabilities")
        try:
            self.stream.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
            self.stream.flush()
            for line in self.stream:  # events and the greeting come in between
                answer = json.loads(line)
                if "error" in answer:
                    raise cache.Broken(f"QEMU refuses {command}: {answer['error']['desc']}")
                if "return" in answer:
                    return answer["return"]
        except (OSError, ValueError) as error:
            raise cache.Broken(f"QEMU does not answer to {command}: {error}") from None
        raise cache.Broken(f"QEMU ended before it answered to {command}")

    def _wait(self, question, waits, deadline):
        while (status := self._ask(question)["status"]) in waits:
            if time.monotonic() > deadline:
                raise cache.Broken(f"{question}: still {status}")
            time.sleep(POLL_S)
        return status

    def save(self, path, deadline):
        """Stops the machine and writes it into a file."""
        self._ask("stop")
        self._ask("migrate-set-parameters", **{"max-bandwidth": 1 << 40})
        self._ask("migrate", uri=f"exec:cat >{shlex.quote(path)}")
        status = self._wait("query-migrate", ("setup", "active", "device", "pre-switchover"), deadline)
        if status != "completed":
            raise cache.Broken(f"saving the virtual machine ended as {status}")

    def go_on(self, deadline):
        """Lets a machine go on that was saved, once all of it is there."""
        self._wait("query-status", ("inmigrate",), deadline)
        self._ask("cont")
