"""Counts: every number of runs that is said is that of the files, and every run can be told from
all others.

And what leaves the house says by which protocol it came about: equal names for equal numbers, and
the epoch is told.
"""

import json
import re
from itertools import combinations, product
from typing import Any

import pandas as pd
import pytest
from helpers.folder import FUNCTIONS, Folder, planned, read

import glue_bench
from glue_bench.board.compare import open_comparison
from glue_bench.data.tasks import TASKS
from glue_bench.pages.files import write_tables

PRETRAININGS = [1, 2, 3]
SEEDS = [1, 2]
ARMS = ["add", "untied"]
KEYS = {
    "status": ["cell_id"],
    "predictions": ["cell_id", "split", "row"],
    "scores.csv": ["arm", "task", "split", "metric", "learning_rate", "pretraining_seed", "seed"],
    "losses.csv": ["arm", "pretraining_seed", "step"],
    "reached.csv": ["arm", "pretraining_seed", "loss"],
    "lags.csv": ["arm", "reference", "tokens"],
    "lag_seeds.csv": ["arm", "reference", "pretraining_seed", "tokens"],
    "ratios.csv": ["arm", "reference", "at", "loss", "reference_tokens"],
    "ratio_seeds.csv": ["arm", "reference", "pretraining_seed", "at", "loss", "reference_tokens"],
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
    """Runs that collapsed, on one split and on two, that failed, are missing, undefined, or of
    an earlier plan.
    """
    folder = Folder(tmp_path_factory.mktemp("uneven") / "toy")
    for arm in ARMS:
        for rate in (1e-3, 2e-3):
            # The seed is also that of a pretraining.
            folder.pretrain(arm, seed=1, rate=rate, search=True)
        for pretraining_seed in PRETRAININGS:
            folder.pretrain(arm, seed=pretraining_seed)
            for task, seed in product(("mnli", "rte", "cola"), SEEDS):
                facts: dict[str, Any] = {}
                if (task, seed) == ("cola", 2):
                    facts["scores"] = {"validation": {"matthews_correlation": None}}
                if (arm, seed, pretraining_seed) == ("add", 1, 1):
                    facts["collapsed"] = tuple(TASKS[task].columns)
                folder.run(arm, task, seed=seed, pretraining_seed=pretraining_seed, **facts)

    folder.run("add", "rte", seed=3, recorded=False)
    folder.fail("untied", "rte", seed=3)
    folder.run("none", "rte", planned=False)
    folder.run("add", "rte", rate=5e-3, planned=False)

    return folder.plan()


def test_counts_are_those_of_the_files(uneven, tmp_path):
    """Made anew from the records and the plan, and found on every page."""
    cells = planned(uneven)
    records = [cell["record"] for cell in cells if cell["record"]]
    states = [cell["state"] for cell in cells if cell["arm"] == "untied"]

    scores: list[float | None] = []
    for record in records:
        for values in record["scores"].values():
            scores += values.values()

    pretrainings = len({record["cell"]["pretraining_seed"] for record in records})
    runs = (len(records), len(cells))

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

    texts: dict[str, str] = {}
    for reader in {claim[0] for claim in counts}:
        texts[reader] = re.sub("<[^>]*>", " ", read(reader, uneven, tmp_path / reader))

    for reader, pattern, *expected in counts:
        matches = list(re.finditer(pattern, texts[reader]))
        assert matches, pattern
        for match in matches:
            assert [int(number) for number in match.groups()] == expected, pattern


@pytest.fixture(scope="module")
def frames(uneven) -> dict[str, pd.DataFrame]:
    """Every frame that has arms, by its function or its file."""
    write_tables(open_comparison(uneven))
    frames_by_name = {path.name: pd.read_csv(path) for path in uneven.glob("*.csv")}
    for name, call in FUNCTIONS.items():
        frames_by_name[name] = call(uneven)
    return {name: frame for name, frame in frames_by_name.items() if "arm" in frame}


def test_every_frame_with_arms_is_looked_at(frames):
    assert frames.keys() == KEYS.keys()


@pytest.mark.parametrize("name", KEYS)
def test_the_rows_of_a_frame_can_be_told_apart(frames, name):
    assert len(frames[name]) > 0
    assert frames[name].duplicated(KEYS[name]).sum() == 0


@pytest.mark.parametrize("name", KEYS)
def test_the_rows_of_runs_can_be_told_apart_by_their_pretraining(frames, name):
    if {"cell_id", "pretraining_seed"} & {*KEYS[name]}:
        assert sorted(frames[name]["pretraining_seed"].unique()) == PRETRAININGS


def test_every_score_of_a_record_is_a_row(frames, uneven):
    count = 0
    for cell in planned(uneven):
        if cell["record"]:
            count += sum(len(values) for values in cell["record"]["scores"].values())
    assert len(frames["scores.csv"]) == count


SPREAD = {
    "statistics": r'"n_(?:arm|reference)": .*',
    "diagnostics": r'"(?:mean|std)": .*',
    "card": r"\| RTE .*",
    "export": r'"(?:value|standard_deviation|num_samples)": .*',
}


@pytest.mark.parametrize("name", SPREAD)
def test_a_run_of_the_same_pretraining_is_no_independent_one(name, tmp_path):
    """A second fine-tuning that comes out as the first one tells nothing of how pretrainings
    spread.
    """
    numbers: list[list[str]] = []
    for seeds in ([1], SEEDS):
        folder = Folder(tmp_path / f"{len(seeds)}" / "toy")
        runs = product(("mnli", "rte"), ARMS, seeds, PRETRAININGS)
        for task, arm, seed, pretraining_seed in runs:
            right = 0.6 + pretraining_seed / 20
            like = folder.run(
                arm, task, seed=1, pretraining_seed=pretraining_seed, planned=False, recorded=False
            )
            folder.run(
                arm, task, seed=seed, pretraining_seed=pretraining_seed, like=like, right=right
            )
        text = read(name, folder.plan(), tmp_path / f"out{len(seeds)}")
        numbers.append(re.findall(SPREAD[name], text))
    assert numbers[0]
    assert numbers[0] == numbers[1]


def test_arms_from_random_weights_share_no_pretrained_ones(tmp_path):
    folder = Folder(tmp_path / "toy", pretrained=False)
    for arm, seed in product(ARMS, [1, 2, 3]):
        folder.run(arm, "rte", seed=seed, right=0.6 + seed / 20)
    text = read("leaderboard", folder.plan(), tmp_path / "out")
    assert "| other fine-tuning seeds, other examples " in text
    assert "pretrainings" not in text


# What leaves the house

USUAL = {"rate": "best-mean", "seeds": "mean", "epoch": "last", "choose_on": "validation"}
OTHER = {"rate": "best-median", "seeds": "median", "epoch": "best", "choose_on": "held_out"}
PROTOCOLS = [USUAL, *(USUAL | {key: value} for key, value in OTHER.items()), OTHER]


def logs(folder, out):
    """Return the logs of a folder by their names, without the second at which they were made."""
    logs_by_name = {}
    for name in glue_bench.export(folder, out, format="eee", organization="us")["files"]:
        log = json.loads((out / name).read_bytes())
        del log["retrieved_timestamp"]
        logs_by_name[log.pop("evaluation_id")] = log
    return logs_by_name


def test_logs_of_two_protocols_arms_or_records_have_one_name_exactly_where_they_are_equal(tmp_path):
    """And they, and cards, name the epoch where it is the best."""
    folder = Folder(tmp_path / "toy")
    all_logs: list[tuple[Any, ...]] = []

    for seed, pretraining_seed in product((1, 2, 3), (1, 2)):
        # The first rate has the better median, the second one the better mean.
        folder.run(
            "add",
            "rte",
            seed=seed,
            pretraining_seed=pretraining_seed,
            rate=1e-3,
            right=0.25 if seed + pretraining_seed == 5 else 0.75,
        )
        folder.run("add", "rte", seed=seed, pretraining_seed=pretraining_seed, rate=2e-3, right=0.7)
        folder.run("untied", "rte", seed=seed, pretraining_seed=pretraining_seed)

    for number, protocol in enumerate([*PROTOCOLS, PROTOCOLS[0]]):
        if number == len(PROTOCOLS):  # the same one of another record
            folder.run("untied", "rte", right=0.5)
        results = folder.plan(**protocol)
        exported = logs(results, tmp_path / f"{number}")
        all_logs += [(number, *log) for log in exported.items()]
        for text in (str(exported), glue_bench.card(results, "add").text):
            match = re.search(r"best[^.\n]{0,30}epoch|epoch[^.\n]{0,30}best", text)
            assert bool(match) == (protocol["epoch"] == "best"), text

    for (number, name, log), (other_number, other_name, other_log) in combinations(all_logs, 2):
        assert (name == other_name) == (log == other_log), (number, other_number)
