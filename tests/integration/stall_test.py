#!/usr/bin/env python3
"""A ps that stands still in the middle of its answers (SIGSTOP), and goes on when its client has its
memory back."""

import signal

import harness

ROUNDS = 6


class Stall(harness.StarlingTest):
    def test_buffer_is_the_clients_again(self):
        servers, flags = self.start_ps(env={"NETWORK_PS_CORE_NUMBER": "1"}, extra=["--lease", "60"])
        servers[0].wait_line("ready")
        try:
            output = self.run_to_end("stall_client", flags[1], servers[0].pid, ROUNDS)
        finally:
            servers[0].signal(signal.SIGCONT)
        self.assertIn(f"{ROUNDS} rounds", output)
        self.drain(servers)


if __name__ == "__main__":
    harness.main()
