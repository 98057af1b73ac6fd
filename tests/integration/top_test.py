#!/usr/bin/python3
"""starling-top: its screen in a pseudo-terminal, its output to a pipe, and what it says of bad input."""

import subprocess
import unittest

from harness import environment, free_ports, main, program


def run(*args, **variables):
    return subprocess.run([program("starling-top"), *args], env=environment(variables), capture_output=True, text=True,
                          check=False, timeout=60)


class Refused(unittest.TestCase):
    def test_nobody_listens(self):
        url = f"http://127.0.0.1:{free_ports(1)[0]}"
        for more in ([], ["--json"], ["--once"]):
            for words in ([url, *more], [*more, url]):
                result = run(*words)
                self.assertEqual(result.returncode, 1)
                self.assertEqual(result.stdout, "")
                self.assertIn(f"starling-top: {url}: ", result.stderr)
                self.assertIn("connect", result.stderr)

    def test_not_an_url(self):
        for url in ("ftp://127.0.0.1", "http://", "http://" + "h" * 1000):
            result = run(url)
            self.assertEqual(result.returncode, 1)
            self.assertIn("not an URL such as http://127.0.0.1:9480", result.stderr)

    def test_bad_interval(self):
        result = run("--interval", "1ms")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--interval=1ms: accepts", result.stderr)

    def test_no_token_file(self):
        result = run("--http-token-file", "/nonexistent/token")
        self.assertEqual(result.returncode, 1)
        self.assertIn("/nonexistent/token", result.stderr)


if __name__ == "__main__":
    main()
