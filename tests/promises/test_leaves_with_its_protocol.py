"""What leaves the house says by which protocol it came about: equal names for equal numbers, and the epoch is told."""

import json
import re
from itertools import combinations, product

import pytest
from folder import Folder

import glue_bench

CHOICES = {
    "rate": ("best-mean", "best-median"),
    "seeds": ("mean", "median"),
    "epoch": ("last", "best"),
    "choose_on": ("validation", "held_out"),
}
BEST_EPOCH = re.compile(r"best[^.\n]{0,30}epoch|epoch[^.\n]{0,30}best")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    made = Folder(tmp_path_factory.mktemp("protocols") / "toy")
    for seed, pretraining_seed in product((1, 2, 3), (1, 2)):
        # The first rate has the better median, the second one the better mean.
        made.run("add", "rte", seed, pretraining_seed, rate=1e-3, right=0.25 if seed + pretraining_seed == 5 else 0.75)
        made.run("add", "rte", seed, pretraining_seed, rate=2e-3, right=0.7)
        made.run("untied", "rte", seed, pretraining_seed)
    return made


@pytest.fixture(scope="module")
def logs(made, tmp_path_factory):
    """By protocol and arm, the log without its name and the second at which it was made, and the name."""
    found = {}
    for choice in product(*CHOICES.values()):
        out, folder = tmp_path_factory.mktemp("logs"), made.plan(**dict(zip(CHOICES, choice, strict=True)))
        for name in glue_bench.export(folder, out, format="eee", organization="us")["files"]:
            log = json.loads((out / name).read_bytes())
            del log["retrieved_timestamp"]
            found[choice, log["model_info"]["id"]] = log.pop("evaluation_id"), log
    return found


@pytest.mark.parametrize("key", [*CHOICES, "any"])
def test_logs_have_one_name_exactly_where_they_are_equal(key, logs):
    """Logs of protocols that differ in one choice alone; logs of any two protocols and arms."""
    for (chosen, arm), (others, other) in combinations(logs, 2):
        differ = [name for name, *two in zip(CHOICES, chosen, others, strict=True) if two[0] != two[1]]
        if key == "any" or (differ == [key] and arm == other):
            (name, log), (other_name, other_log) = logs[chosen, arm], logs[others, other]
            assert (name == other_name) == (log == other_log), (chosen, others)


def test_other_records_have_another_name(made, tmp_path):
    names = []
    for bits in (0, 1, 0):
        made.run("untied", "rte", bits=bits, planned=False)
        told = glue_bench.export(made.plan(), tmp_path, format="eee", organization="us")
        names.append(next(name for name in told["files"] if "toy-untied" in name))
    first, other, again = names
    assert first == again != other


@pytest.mark.parametrize("what", ["log", "card"])
def test_the_epoch_is_named_where_it_is_the_best(what, made, tmp_path):
    said = {}
    for epoch in CHOICES["epoch"]:
        folder = made.plan(epoch=epoch)
        if what == "card":
            said[epoch] = glue_bench.card(folder, "add").text
        else:
            glue_bench.export(folder, tmp_path / epoch, format="eee", organization="us")
            said[epoch] = "".join(path.read_text() for path in (tmp_path / epoch).rglob("*.json"))
    assert not BEST_EPOCH.search(said["last"])
    assert BEST_EPOCH.search(said["best"])
