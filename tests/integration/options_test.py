#!/usr/bin/env python3
"""Every option of the programs, as their own tables list them (--help=table), through flag, variable and key of a file."""
import os
import re
import subprocess

import harness

PROGRAMS = {"starling-ps": "server", "starling-worker": "worker", "starling-launch": "launch"}
SECTIONS = {"ctl": ("starling-ctl",), "objects": ("starling-objects", "serve"), "gateway": ("starling-serve", "gateway"),
            "serve-worker": ("starling-serve", "worker"), "deploy": ("starling-serve", "deploy"),
            "rollback": ("starling-serve", "rollback")}
FIELDS = ("name", "variable", "aliases", "metavar", "default", "accepts", "help")
# For --show-config: the value is not read from there.
VALUES = ("1s", "2", "7", "1", "512M", "warn", "any", "h:1", "newest", "cubic", "mlx5_0", "8,4", "0.5", "-0.25", "x")


class Options(harness.StarlingTest):
    found = {}  # by value_of

    def table(self, *command):
        lines = [line.split("\t") for line in self.run_to_end(*command, "--help=table").split("\n")]
        return [option for option in (dict(zip(FIELDS, line)) for line in lines if len(line) == len(FIELDS))
                if option["name"] not in ("", "config", "show-config")]

    def shown(self, program, *flags, env=None):
        """What --show-config prints: {name: (value, source)}."""
        output = self.run_to_end(program, *flags, "--show-config", env=env)
        return {match.group(1): (match.group(2), match.group(3)) for match in
                re.finditer(r"(?m)^(?:; )?([\w-]+) = (.*?)  ; (default|flag|environment \w+|file .*?)(?:: .*)?$", output)}

    def value_of(self, program, option):
        """A value that the option accepts, other than its default."""
        key = tuple(option.values())  # programs share options
        if key not in self.found:
            self.found[key] = self.find_value(program, option)
        return self.found[key]

    @staticmethod
    def find_value(program, option):
        default = option["default"].removeprefix(" Default: ")
        if option["accepts"].startswith("0, 1, true or false"):
            return "false" if default == "1" else "true"
        choices = [value for field in ("metavar", "accepts") if "|" in option[field]
                   for value in option[field].split("|")]
        for value in (*reversed(choices), *VALUES):
            command = [harness.program(program), f"--{option['name']}={value}", "--show-config"]
            if value != default and not value.endswith("]") and not subprocess.run(
                    command, env=harness.environment(), capture_output=True, check=False).returncode:
                return value
        raise AssertionError(f"{program}: no value for --{option['name']}: {option['accepts']}")

    def check(self, program, options, values, expected, flags=(), env=None):
        shown = self.shown(program, *flags, env=env)
        for i, option in enumerate(options):
            with self.subTest(program=program, option=option["name"]):
                self.assertEqual(shown[option["name"]], (values[i], expected(i, option)))

    def test_every_option_in_every_way(self):
        for program, section in PROGRAMS.items():
            options = self.table(program)
            self.assertGreater(len(options), 40)
            values = [self.value_of(program, option) for option in options]
            flags = [f"--{option['name']}={value}" for option, value in zip(options, values)]
            env = {o["variable"]: value for o, value in zip(options, values) if o["variable"]}
            for option in options:
                derived = "STARLING_" + option["name"].upper().replace("-", "_")
                self.assertIn(option["variable"], ("",) if option["name"] in ("data", "test") else (derived,))
            path = self.file("job.conf", f"[{section}]\n" + "".join(
                f"{option['name']} = {value}\n" for option, value in zip(options, values)))

            def of_file(i, option):
                return f"file {path}:{i + 2}"

            def of_variable(i, option):
                return f"environment {option['variable']}" if option["variable"] else of_file(i, option)

            config = ("--config", path)
            self.check(program, options, values, lambda i, option: "flag", flags)
            self.check(program, options, values, of_file, config)
            self.check(program, options, values, of_file, env={"STARLING_CONFIG": path})
            self.check(program, options, values, of_variable, config, env)
            self.check(program, options, values, lambda i, option: "flag", (*flags, *config), env)

    def test_older_names(self):
        for program in PROGRAMS:
            for option in self.table(program):
                value = self.value_of(program, option) if option["aliases"] else None
                for name in option["aliases"].split():
                    inverts = {"true": "false", "false": "true"} if name[0] == "!" else {}
                    name = name.removeprefix("!")
                    with self.subTest(program=program, name=name):
                        if name.islower():
                            shown = self.shown(program, f"--{name}={value}")
                            self.assertEqual(shown[option["name"]], (value, "flag"))
                        else:
                            shown = self.shown(program, env={name: inverts.get(value, value)})
                            self.assertEqual(shown[option["name"]], (value, f"environment {name}"))

    def test_what_is_shown_can_be_read_again(self):
        flags = ["--ps-hosts", "h:1", "--memory-limit", "64G", "--dpdk-device", "a?addr=1.1.1.1", "--dpdk-device",
                 "b?addr=1.1.1.2", "--pin-cores"]
        output = self.run_to_end("starling-ps", *flags, "--show-config")
        shown = self.shown("starling-ps", "--config", self.file("again", output + "\n"))
        self.assertEqual([shown[name][0] for name in ("ps-hosts", "memory-limit", "pin-cores")], ["h:1", "64G", "true"])
        self.assertIn("dpdk-device = a?addr=1.1.1.1\n    b?addr=1.1.1.2  ; flag", output)
        self.assertIn("; http =   ; default: 127.0.0.1:0; of a server that no source describes, 127.0.0.1:9480", output)

    def test_a_job_by_its_file(self):
        data = self.file("d", "1 1:1 2:1\n0 3:1 4:1\n" * 50)
        path = self.file("job.conf", "[all]\nlease = 20s\n[launch]\nps = 2\nworkers = 3\nps-reactors = 1\n[server]\n"
                         f"memory-limit = 3G\n[worker]\ndata = {data}\n    {data}\nepochs = 2\nquiet = true\n")
        output = self.run_to_end("starling-launch", "--config", path)
        self.assertEqual(len(re.findall(r"(?m)^\[ps/\d\] ps/\d ready: .* of 2\b", output)), 2, output)
        self.assertEqual(len(re.findall(r"(?m)^\[worker/\d\].*worker \d of 3", output)), 3, output)
        output = self.run_to_end("starling-launch", "--config", self.file("bad", "[worker]\nepoch = 1\n"), "--", "--data",
                                 data, status=1)
        self.assertIn("bad:2: unknown key epoch in [worker]; did you mean epochs?", output)

    def test_a_server_without_arguments(self):
        if not (harness.claim_port(3333) and harness.claim_port(9480)):
            self.skipTest("port 3333 or 9480 is in use")
        server = self.start("starling-ps")
        self.assertRegex(server.wait_line("ps/0 ready"), "tcp://127.0.0.1:3333, .*, http 127.0.0.1:9480$")
        second = self.start("starling-ps", "--ps-hosts", "127.0.0.1:1", "--http", "127.0.0.1:9480")
        self.assertNotEqual(second.wait(), 0)
        self.assertRegex(second.output, "--http=127.0.0.1:9480.* a free port")
        self.run_to_end("starling-worker", "--ps-hosts", "127.0.0.1:3333", "--num-workers", "1", "--data",
                        self.file("d", "1 1:1 2:1\n0 3:1 4:1\n"))
        self.drain([server])

    def test_a_launcher_names_the_page(self):
        data = self.file("d", "1 1:1 2:1\n0 3:1 4:1\n")
        for log_dir in (None, os.path.join(self.folder, "logs")):
            output = self.run_to_end("starling-launch", "--ps-reactors", 1, *(("--log-dir", log_dir) if log_dir else ()),
                                     "--", "--data", data)
            page = re.search(r"the page of the job: http://(127.0.0.1:\d+)$", output, re.M).group(1)
            if log_dir:
                with open(os.path.join(log_dir, "ps-0.log"), encoding="utf-8") as file:
                    output = file.read()
            self.assertRegex(output, rf"(?m)^(\[ps/0\] )?ps/0 ready: .*, http {page}$")

    def test_every_option_is_a_key_of_its_section(self):
        """Those of the other sections are in the file of test_every_option_in_every_way."""
        for section, command in SECTIONS.items():
            keys = [option["name"] for option in self.table(*command)]
            self.assertGreater(len(keys), 5)
            for key in keys:
                with self.subTest(section=section, key=key):
                    path = self.file("key", f"[{section}]\n{key} = 1\n")
                    result = subprocess.run([harness.program(command[0]), *command[1:], "--config", path, "--show-config"],
                                            env=harness.environment(), capture_output=True, text=True, check=False)
                    self.assertIn(result.returncode, (0, 2))
                    if key in ("yes", "dry-run"):  # of starling-ctl: of one call, not of a file
                        self.assertIn(path + f":2: {key} is a flag, and no key", result.stderr)
                    else:
                        self.assertNotRegex(result.stderr, "unknown key|no key")

    def test_a_flag_of_another_program_has_its_place(self):
        for command, words in ((("starling-launch", "--memory-limit", "31M"),
                                '--memory-limit is an option of starling-ps: --ps-args "--memory-limit ..."'),
                               (("starling-worker", "--memory-limit=31M"), "--memory-limit is an option of starling-ps\n"),
                               (("starling-worker", "--replicas", "1"),
                                "--replicas is an option of starling-ps and starling-launch\n"),
                               (("starling-worker", "--checkpoint-dir", "x"), "--checkpoint-dir is an option of starling-ps"),
                               (("starling-ctl", "--replicas", "1", "status"), "unknown flag --replicas")):
            self.assertIn(words, self.run_to_end(*command, status=2) + "\n")

    def test_errors_have_their_place(self):
        for program, section in PROGRAMS.items():
            for text, words in (("[x]\n", ":1: unknown section [x]: accepts [all], [server], [worker], [launch]"),
                                (f"[{section}]\nsecret-fil = a\n", ":2: unknown key secret-fil in "),
                                (f"[{section}]\ncluster-store = {'x' * 200}\n", ":2: the line has 216 bytes: accepts up to 198"),
                                (f"[{section}]\ntls-ca=1\ntls-ca=2\n", ":3: tls-ca is already in line 2")):
                path = self.file("bad", text)
                self.assertIn(path + words, self.run_to_end(program, "--config", path, status=2))
            self.assertIn("--config /nonexistent: No such file",
                          self.run_to_end(program, "--config", "/nonexistent", status=2))


if __name__ == "__main__":
    harness.main()
