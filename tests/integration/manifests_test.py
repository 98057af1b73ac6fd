#!/usr/bin/env python3
"""The files for containers: manifests against the types of Kubernetes's API (Debian's python3-kubernetes), and the
seccomp profile against that of Debian's containers-common."""

import glob
import json
import os
import re
import unittest

import harness

SHARE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../share")
ENGINE = "/usr/share/containers/seccomp.json"
PLAIN = {"str": str, "int": int, "bool": bool, "float": (int, float)}


def models():
    try:
        import kubernetes.client
        import yaml
    except ImportError as error:
        raise unittest.SkipTest(f"{error}: apt-get install python3-kubernetes") from None
    return kubernetes.client, yaml


class Kubernetes(unittest.TestCase):
    def check(self, client, value, kind, path):
        """A value of a manifest against a type of the API, and what it contains."""
        if kind == "object":
            return
        if kind in PLAIN:
            self.assertIsInstance(value, PLAIN[kind], path)
        elif inner := re.fullmatch(r"list\[(.*)\]", kind):
            self.assertIsInstance(value, list, path)
            for index, item in enumerate(value):
                self.check(client, item, inner[1], f"{path}[{index}]")
        elif inner := re.fullmatch(r"dict\(str, (.*)\)", kind):
            self.assertIsInstance(value, dict, path)
            for key, item in value.items():
                self.check(client, item, inner[1], f"{path}.{key}")
        else:
            self.assertIsInstance(value, dict, path)
            model = getattr(client, kind)
            names = {written: name for name, written in model.attribute_map.items()}
            for key, item in value.items():
                self.assertIn(key, names, f"{path}: {kind} has no {key}")
                self.check(client, item, model.openapi_types[names[key]], f"{path}.{key}")
            model(**{names[key]: item for key, item in value.items()})  # ValueError: a required one is missing

    def documents(self):
        """(file, document, Python's name of its type)"""
        client, yaml = models()
        for path in sorted(glob.glob(os.path.join(SHARE, "kubernetes", "*.yaml"))):
            with open(path, encoding="utf-8") as file:
                for document in yaml.safe_load_all(file):
                    version = document["apiVersion"].rsplit("/", 1)[-1]
                    yield os.path.basename(path), document, version[0].upper() + version[1:] + document["kind"], client

    def test_types(self):
        kinds = []
        for name, document, kind, client in self.documents():
            kinds.append(document["kind"])
            self.check(client, document, kind, f"{name}: {kind}")
        self.assertEqual(kinds, ["Service", "StatefulSet", "Deployment", "Service", "StatefulSet", "Job"])

    def test_mistakes_are_found(self):
        client, _ = models()
        job = {"spec": {"template": {"spec": {"containers": [{"name": "worker", "image": "i"}]}}}}
        self.check(client, job, "V1Job", "job")
        for path, value in ((("completion",), 4), (("completions",), "4"), (("template",), None)):
            wrong = {"spec": dict(job["spec"], **{path[0]: value})}
            with self.assertRaises((AssertionError, ValueError), msg=path):
                self.check(client, wrong, "V1Job", "job")

    def test_all_describe_one_job(self):
        """Where several containers have a variable, it has one value; addresses are those of pods and ports."""
        values, names, replicas = {}, set(), {}
        for _, document, _, _ in self.documents():
            if document["kind"] == "StatefulSet":
                spec, name = document["spec"], document["metadata"]["name"]
                replicas[name] = spec["replicas"]
                names |= {f"{name}-{index}.{spec['serviceName']}:{port['containerPort']}" for index in range(spec["replicas"])
                          for container in spec["template"]["spec"]["containers"] for port in container["ports"]}
            for _, _, env in containers(document):
                for variable, value in env.items():
                    values.setdefault(variable, set()).add(value)
        self.assertEqual([variable for variable, found in values.items() if len(found) > 1], [])
        value = {variable: found.pop() for variable, found in values.items()}
        self.assertEqual(len(value["STARLING_PS_HOSTS"].split(",")), replicas["starling-ps"])
        self.assertEqual(value["STARLING_GATEWAY"], value["STARLING_LISTEN"])
        for variable in ("STARLING_PS_HOSTS", "STARLING_GATEWAY", "STARLING_OBJECTS_CATALOGUE"):
            self.assertLessEqual(set(value[variable].split(",")), names)


def containers(document):
    """(program, its words without variables, {variable: value}) of each container of a manifest."""
    for container in document["spec"].get("template", {"spec": {"containers": []}})["spec"]["containers"]:
        command, args = container["command"], container["args"] if "args" in container else []
        words = args[0].removeprefix("exec ").split() if command[0] == "/bin/sh" else command + args
        env = {item["name"]: item["value"] for item in container.get("env", []) if item["name"].startswith("STARLING_")}
        yield os.path.basename(words[0]), words[1:], env


class Variables(harness.StarlingTest):
    def test_programs_read_them(self):
        """--show-config names the variables of a manifest as sources."""
        _, yaml = models()
        secret = self.file("secret", "0123456789abcdef")
        os.chmod(secret, 0o600)
        programs = []
        for path in sorted(glob.glob(os.path.join(SHARE, "kubernetes", "*.yaml"))):
            with open(path, encoding="utf-8") as file:
                documents = list(yaml.safe_load_all(file))
            for program, words, env in (found for document in documents for found in containers(document)):
                programs.append(program)
                words = ["0" if "{POD_NAME##" in word or "$JOB_" in word else word for word in words]
                env = {name: secret if name.endswith("_FILE") else value for name, value in env.items()}
                output = self.run_to_end(program, *words, "--show-config", env=env)
                for variable in env:
                    self.assertIn(f"; environment {variable}\n", output + "\n")
        self.assertEqual(programs, ["starling-serve", "starling-objects", "starling-serve", "starling-ps", "starling-worker"])


class Seccomp(unittest.TestCase):
    def test_only_three_calls_more_than_the_engine(self):
        with open(os.path.join(SHARE, "container", "seccomp.json"), encoding="utf-8") as file:
            ours = json.load(file)
        self.assertEqual(ours["syscalls"].pop(), {"names": ["io_uring_enter", "io_uring_register", "io_uring_setup"],
                                                  "action": "SCMP_ACT_ALLOW"})
        if not os.path.exists(ENGINE):
            self.skipTest(f"{ENGINE} is not installed: apt-get install golang-github-containers-common")
        with open(ENGINE, encoding="utf-8") as file:
            theirs = json.load(file)
        theirs["syscalls"] = [{key: value for key, value in entry.items() if value not in ([], {}, "", None)}
                              for entry in theirs["syscalls"]]
        if len(theirs["syscalls"]) != len(ours["syscalls"]):
            self.skipTest(f"{ENGINE} is of another version than Debian 12's")
        self.assertEqual(ours, theirs)


if __name__ == "__main__":
    harness.main()
