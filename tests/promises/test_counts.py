"""Counts: every number of runs that is said is that of the files, and every run can be told from all others.

And what leaves the house says by which protocol it came about: equal names for equal numbers, and the epoch is told.
"""

import json
import re
from itertools import combinations, product

import pandas as pd
import pytest
from helpers.folder import FUNCTIONS, Folder, planned, read

import glue_bench
from glue_bench.board.compare import open_comparison
from glue_bench.data.tasks import TASKS
from glue_bench.pages.files import write_tables

PRETRAININGS, SEEDS, ARMS = [1, 2, 3], [1, 2], ["add", "untied"]
KEYS = {
    "status": ["cell_id"],
    "predictions": ["cell_id", "split", "row"],
    "scores.csv": ["arm", "task", "split", "metric", "learning_rate", "pretraining_seed", "seed"],
    "losses.csv": ["arm", "pretraining_seed", "step"],
    "intrinsic.csv": ["arm", "pretraining_seed", "measure"],
    "budget.csv": ["arm", "pretraining_seed"],
    "rates.csv": ["arm", "learning_rate"],
    **{key: ["arm"] for key in ("leaderboard", "leaderboard.csv")},
    **{key: ["kind", "column", "arm", "reference"] for key in ("statistics", "statistics.csv")},
    "table": ["model", "arm", "column"],
}
"""What tells the rows of each frame apart."""


@pytest.fixture(scope="module")
def uneven(tmp_path_factory):
    """Runs that collapsed, on one split and on two, that failed, are missing, undefined, or of an earlier plan."""
    made = Folder(tmp_path_factory.mktemp("uneven") / "toy")
    for arm in ARMS:
        for rate in (1e-3, 2e-3):
            made.pretrain(arm, 1, rate=rate, search=True)  # of a seed that a pretraining has, too
        for pretraining_seed in PRETRAININGS:
            made.pretrain(arm, pretraining_seed)
            for task, seed in product(("mnli", "rte", "cola"), SEEDS):
                is_first = arm == "add" and (seed, pretraining_seed) == (1, 1)
                more = (
                    {"scores": {"validation": {"matthews_correlation": None}}}
                    if (task, seed) == ("cola", 2)
                    else {}
                )
                more |= {"collapsed": tuple(TASKS[task].columns)} if is_first else {}
                made.run(arm, task, seed, pretraining_seed, **more)
    made.run("add", "rte", 3, recorded=False)
    made.fail("untied", "rte", 3)
    made.run("none", "rte", planned=False)
    made.run("add", "rte", rate=5e-3, planned=False)
    return made.plan()


def test_counts_are_those_of_the_files(uneven, tmp_path):
    """Made anew from the records and the plan, and found on every page."""
    cells = planned(uneven)
    records = [cell["record"] for cell in cells if cell["record"]]
    states = [cell["state"] for cell in cells if cell["arm"] == "untied"]
    scores = [
        value for one in records for split in one["scores"].values() for value in split.values()
    ]
    pretrainings, runs = (
        len({record["cell"]["pretraining_seed"] for record in records}),
        (len(records), len(cells)),
    )
    counts = [
        ("status", r"(\d+) of (\d+) cells done", *runs),
        (
            "status",
            r"untied +(\d+) +(\d+) +(\d+) +(\d+)",
            *map(states.count, ("done", "running", "failed", "missing")),
        ),
        ("leaderboard", r"(\d+) of (\d+) planned;", *runs),
        ("leaderboard", r"(\d+) undefined scores", scores.count(None)),
        ("report", r"(\d+) of (\d+) planned;", *runs),
        ("report", r"(?s)Environment\s.*?\bruns\s+(\d+)", len(records)),
        ("card", r"\| RTE +\| validation .* \| +(\d+) \| +0.001 \|", pretrainings),
        ("export", r'"num_samples": (\d+)', pretrainings),
    ]
    said = {
        reader: re.sub("<[^>]*>", " ", read(reader, uneven, tmp_path / reader))
        for reader in {each[0] for each in counts}
    }
    for reader, pattern, *expected in counts:
        found = {tuple(map(int, found.groups())) for found in re.finditer(pattern, said[reader])}
        assert found == {tuple(expected)}, pattern


def test_the_rows_of_every_frame_can_be_told_apart_and_those_of_runs_by_their_pretraining(uneven):
    """Of every frame that has arms, by its function or its file."""
    write_tables(open_comparison(uneven))
    frames = {path.name: pd.read_csv(path) for path in uneven.glob("*.csv")}
    frames |= {name: call(uneven) for name, call in FUNCTIONS.items()}
    frames = {name: frame for name, frame in frames.items() if "arm" in frame}
    assert frames.keys() == KEYS.keys()
    for name, frame in frames.items():
        assert len(frame) > frame.duplicated(KEYS[name]).sum() == 0, name
        if {"cell_id", "pretraining_seed"} & {*KEYS[name]}:
            assert sorted(frame["pretraining_seed"].unique()) == PRETRAININGS, name
    records = [cell["record"] for cell in planned(uneven) if cell["record"]]
    assert len(frames["scores.csv"]) == sum(
        len(values) for one in records for values in one["scores"].values()
    )


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
        for task, arm, seed, pretraining_seed in product(
            ("mnli", "rte"), ARMS, seeds, PRETRAININGS
        ):
            like = made.run(arm, task, 1, pretraining_seed, planned=False, recorded=False)
            made.run(
                arm, task, seed, pretraining_seed, like=like, right=0.6 + pretraining_seed / 20
            )
        found.append(
            re.findall(SPREAD[name], read(name, made.plan(), tmp_path / f"out{len(seeds)}"))
        )
    assert found[0] == found[1] != []


def test_arms_from_random_weights_share_no_pretrained_ones(tmp_path):
    made = Folder(tmp_path / "toy", pretrained=False)
    for arm, seed in product(ARMS, [1, 2, 3]):
        made.run(arm, "rte", seed, right=0.6 + seed / 20)
    said = read("leaderboard", made.plan(), tmp_path / "out")
    assert "| other fine-tuning seeds, other examples " in said
    assert "pretrainings" not in said


# What leaves the house

USUAL = {"rate": "best-mean", "seeds": "mean", "epoch": "last", "choose_on": "validation"}
OTHER = {"rate": "best-median", "seeds": "median", "epoch": "best", "choose_on": "held_out"}
PROTOCOLS = [USUAL, *(USUAL | {key: value} for key, value in OTHER.items()), OTHER]


def logs(folder, out):
    """The logs of a folder by their names, without the second at which they were made."""
    found = {}
    for name in glue_bench.export(folder, out, format="eee", organization="us")["files"]:
        log = json.loads((out / name).read_bytes())
        del log["retrieved_timestamp"]
        found[log.pop("evaluation_id")] = log
    return found


def test_logs_of_two_protocols_arms_or_records_have_one_name_exactly_where_they_are_equal(tmp_path):
    """And they, and cards, name the epoch where it is the best."""
    made, found = Folder(tmp_path / "toy"), []
    for seed, pretraining_seed in product((1, 2, 3), (1, 2)):
        # The first rate has the better median, the second one the better mean.
        made.run(
            "add",
            "rte",
            seed,
            pretraining_seed,
            rate=1e-3,
            right=0.25 if seed + pretraining_seed == 5 else 0.75,
        )
        made.run("add", "rte", seed, pretraining_seed, rate=2e-3, right=0.7)
        made.run("untied", "rte", seed, pretraining_seed)
    for number, protocol in enumerate([*PROTOCOLS, PROTOCOLS[0]]):
        if number == len(PROTOCOLS):  # the same one of another record
            made.run("untied", "rte", right=0.5)
        folder = made.plan(**protocol)
        exported = logs(folder, tmp_path / f"{number}")
        found += [(number, *log) for log in exported.items()]
        for text in (str(exported), glue_bench.card(folder, "add").text):
            named = re.search(r"best[^.\n]{0,30}epoch|epoch[^.\n]{0,30}best", text)
            assert bool(named) == (protocol["epoch"] == "best"), text
    for (number, name, log), (other, other_name, other_log) in combinations(found, 2):
        assert (name == other_name) == (log == other_log), (number, other)
