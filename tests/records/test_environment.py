"""What a record says about where it was made: the commit of glue-bench, or none; the processor and its family."""

import os
import subprocess

import pytest

from glue_bench.records import environment as module


def git(folder, *arguments) -> str:
    command = ["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_the_commit_is_not_that_of_a_project_in_which_the_package_is_only_installed(tmp_path, monkeypatch):
    package = tmp_path / ".venv" / "glue_bench"
    (package / "records").mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.setattr(module, "__file__", str(package / "records" / "environment.py"))
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "commit", "--quiet", "--allow-empty", "--message", "their own")
    assert module.versions.__wrapped__().git_commit is None
    git(tmp_path, "add", ".venv/glue_bench/__init__.py")  # as in a checkout of it
    assert module.versions.__wrapped__().git_commit == git(tmp_path, "rev-parse", "HEAD").strip() + "+changes"


def test_what_git_says_in_another_encoding_harms_nothing(tmp_path, monkeypatch):
    speaks = tmp_path / "git"
    speaks.write_bytes(b"#!/bin/sh\necho 'Verzeichnis f\xfcr nichts' >&2\nexit 128\n")
    speaks.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert module.versions.__wrapped__().git_commit is None


FIRST = "processor\t: 0\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\nflags\t\t: fpu model name\n"


@pytest.mark.parametrize(
    ("cpuinfo", "name"),
    [
        (FIRST, "AMD EPYC (family 26, model 2)"),
        (f"{FIRST}\n{FIRST.replace('26', '25')}", "AMD EPYC (family 26, model 2)"),
        ("model name\t: ARMv8 Processor rev 1\n", "ARMv8 Processor rev 1"),
        ("processor\t: 0\nCPU part\t: 0xd0c\n\n", ""),
        ("", ""),
    ],
    ids=["one", "two", "no family", "no name", "empty"],
)
def test_a_processor_is_named_with_its_family(cpuinfo, name):
    assert module.name_processor(cpuinfo) == name
