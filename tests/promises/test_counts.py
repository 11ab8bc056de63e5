"""Counts: every number of runs that is said is that of the files, and every run can be told from all others."""

import re
from functools import cache
from itertools import product

import pytest
from folder import Folder, planned
from readers import FUNCTIONS, read, tables

from glue_bench.data.tasks import TASKS

PRETRAININGS, SEEDS, ARMS = [1, 2, 3], [1, 2], ["add", "untied"]
COUNTS = {
    "done": ("status", r"(\d+) of (\d+) cells done"),
    "states": ("status", r"untied +(\d+) +(\d+) +(\d+) +(\d+)"),
    "runs": ("leaderboard", r"(\d+) of (\d+) planned;"),
    "undefined": ("leaderboard", r"(\d+) undefined scores"),
    "finished": ("report", r"(\d+) of (\d+) planned;"),
    "computed": ("report", r"(?s)Environment\s.*?\bruns\s+(\d+)"),
    "seeds": ("card", r"\| RTE +\| validation .* \| +(\d+) \| +0.001 \|"),
    "independent": ("export", r'"num_samples": (\d+)'),
}
KEYS = {
    "status": ["cell_id"],
    "predictions": ["cell_id", "split", "row"],
    "scores.csv": ["arm", "task", "split", "metric", "learning_rate", "pretraining_seed", "seed"],
    "losses.csv": ["arm", "pretraining_seed", "step"],
    "intrinsic.csv": ["arm", "pretraining_seed", "measure"],
    "budget.csv": ["arm", "pretraining_seed"],
    "rates.csv": ["arm", "learning_rate"],
    "leaderboard": ["arm"],
    "leaderboard.csv": ["arm"],
    "statistics": ["kind", "column", "arm", "reference"],
    "statistics.csv": ["kind", "column", "arm", "reference"],
    "table": ["model", "arm", "column"],
}
"""What tells the rows of each frame apart."""
OF_RUNS = {name for name, key in KEYS.items() if {"cell_id", "pretraining_seed"} & {*key}}


@pytest.fixture(scope="module")
def uneven(tmp_path_factory):
    """Runs that collapsed, on one split and on two, that failed, are missing, undefined, or of an earlier plan."""
    made = Folder(tmp_path_factory.mktemp("uneven") / "toy")
    for arm in ARMS:
        for rate in (1e-3, 2e-3):
            made.pretrain(arm, 0, rate=rate, search=True)
        for pretraining_seed in PRETRAININGS:
            made.pretrain(arm, pretraining_seed)
            for task, seed in product(("mnli", "rte", "cola"), SEEDS):
                is_first = arm == "add" and (seed, pretraining_seed) == (1, 1)
                undefined = {"validation": {"matthews_correlation": None}} if task == "cola" and seed == 2 else None
                collapsed = tuple(TASKS[task].columns) if is_first else ()
                made.run(arm, task, seed, pretraining_seed, scored=undefined, collapsed=collapsed)
                made.gold(task)
    made.run("add", "rte", 3, recorded=False)
    made.fail("untied", "rte", 3)
    made.run("none", "rte", planned=False)
    made.run("add", "rte", rate=5e-3, planned=False)
    return made.plan()


@pytest.fixture(scope="module")
def said(uneven, tmp_path_factory):
    """What a reader says of it, as text without tags."""
    return cache(lambda name: re.sub("<[^>]*>", " ", read(name, uneven, tmp_path_factory.mktemp("out") / "out")))


def counted(what, folder):
    """A count, made anew from the records and the plan."""
    cells = planned(folder)
    records = [cell["record"] for cell in cells if cell["record"]]
    states = [cell["state"] for cell in cells if cell["arm"] == "untied"]
    scores = [value for one in records for split in one["scores"].values() for value in split.values()]
    return {
        "done": (len(records), len(cells)),
        "states": (states.count("done"), 0, states.count("failed"), states.count("missing")),
        "runs": (len(records), len(cells)),
        "undefined": (scores.count(None),),
        "finished": (len(records), len(cells)),
        "computed": (len(records),),
        "seeds": (len({record["cell"]["pretraining_seed"] for record in records}),),
        "independent": (len({record["cell"]["pretraining_seed"] for record in records}),),
    }[what]


@pytest.mark.parametrize("what", COUNTS)
def test_a_count_is_that_of_the_files(what, uneven, said):
    reader, pattern = COUNTS[what]
    found = {tuple(map(int, match.groups())) for match in re.finditer(pattern, said(reader))}
    assert found == {counted(what, uneven)}


@pytest.fixture(scope="module")
def frames(uneven):
    """Every frame that has arms, by its function or its file."""
    found = tables(uneven) | {name: call(uneven) for name, call in FUNCTIONS.items() if name != "card"}
    return {name: frame for name, frame in found.items() if "arm" in frame}


def test_the_frames_are_all_that_there_are(frames):
    assert frames.keys() == KEYS.keys()


@pytest.mark.parametrize("name", KEYS)
def test_the_rows_of_a_frame_can_be_told_apart(name, frames):
    assert len(frames[name])
    assert not frames[name].duplicated(KEYS[name]).any()


@pytest.mark.parametrize("name", sorted(OF_RUNS))
def test_a_frame_of_runs_has_the_seed_of_their_pretraining(name, frames):
    assert "pretraining_seed" in frames[name]
    assert sorted(frames[name]["pretraining_seed"].unique()) == PRETRAININGS


def test_every_score_of_every_run_is_in_the_file(frames, uneven):
    records = [cell["record"] for cell in planned(uneven) if cell["record"]]
    assert len(frames["scores.csv"]) == sum(len(values) for one in records for values in one["scores"].values())


SPREAD = {
    "statistics": r'"n_(?:arm|reference)": .*',
    "diagnostics": r'"(?:mean|std)": .*',
    "card": r"\| RTE .*",
    "export": r'"(?:value|standard_deviation|num_samples)": .*',
}


@pytest.mark.parametrize("name", SPREAD)
def test_a_run_of_the_same_pretraining_is_no_independent_one(name, tmp_path):
    """A second fine-tuning that comes out as the first one tells nothing of how pretrainings spread."""
    found = []
    for seeds in ([1], SEEDS):
        made = Folder(tmp_path / f"{len(seeds)}" / "toy")
        for task, arm, seed, pretraining_seed in product(("mnli", "rte"), ARMS, seeds, PRETRAININGS):
            like = made.run(arm, task, 1, pretraining_seed, planned=False, recorded=False)
            cell = made.run(arm, task, seed, pretraining_seed, right=0.6 + pretraining_seed / 20)
            made.complete(cell, like, ["tests"])
            made.gold(task)
        found.append(re.findall(SPREAD[name], read(name, made.plan(), tmp_path / f"out{len(seeds)}")))
    assert found[0]
    assert found[0] == found[1]


def test_arms_from_random_weights_share_no_pretrained_ones(tmp_path):
    made = Folder(tmp_path / "toy", pretrained=False)
    for arm, seed in product(ARMS, [1, 2, 3]):
        made.run(arm, "rte", seed, right=0.6 + seed / 20)
    made.gold("rte")
    said = read("leaderboard", made.plan(), tmp_path / "out")
    assert "| other fine-tuning seeds, other examples " in said
    assert "pretrainings" not in said
