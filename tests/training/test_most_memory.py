"""How much memory this process may have: the machine's, or less where its control group says so."""

import pytest

from glue_bench.training import memory
from glue_bench.training.memory import most_bytes


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """Say which groups the process is in, and what their files hold."""

    def say(lines: str, **files: str) -> None:
        (tmp_path / "cgroup").write_text(lines)
        for name, said in files.items():
            path = tmp_path / "limits" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(said)
        monkeypatch.setattr(memory, "_GROUPS", tmp_path / "cgroup")
        monkeypatch.setattr(memory, "_LIMITS", tmp_path / "limits")

    return say


def test_without_control_groups_it_is_the_machines(groups, tmp_path, monkeypatch):
    groups("")
    whole = most_bytes()
    assert whole is not None
    assert whole > 2**28
    monkeypatch.setattr(memory, "_GROUPS", tmp_path / "nowhere")
    assert most_bytes() == whole


@pytest.mark.parametrize(
    ("lines", "files"),
    [
        ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": "5000\n"}),
        ("0::/../elsewhere\n", {"memory.max": "5000\n"}),
        ("3:cpu:/x\n4:memory:/x/y\n0::/\n", {"memory/x/y/memory.limit_in_bytes": "5000\n"}),
        ("4:memory:/of/the/host\n", {"memory/memory.limit_in_bytes": "5000\n"}),
        ("0::/a\n", {"memory.max": "7000\n", "a/memory.max": "5000\n"}),
    ],
)
def test_a_control_group_or_one_around_it_gives_less(groups, lines, files):
    groups(lines, **files)
    assert most_bytes() == 5000
