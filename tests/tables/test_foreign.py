"""Anyone's runs in a CSV file: the numbers of the verdicts, what is refused, and what is printed."""

import io
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from pages import ROOT
from scipy.stats import t as student_t
from scipy.stats import ttest_ind, ttest_rel
from simulated import simulate
from typer.testing import CliRunner

import glue_bench
from glue_bench.cli import app
from glue_bench.errors import UserError
from glue_bench.stats.verdicts import NUMBERS, Group, assess, verdicts
from glue_bench.tables.foreign import LARGEST, judge_runs

EXAMPLE = ROOT / "docs" / "value-embeddings.csv"
FOUR = "plain,rte,1,acc,60\nplain,rte,2,acc,61\nnew,rte,1,acc,64\nnew,rte,2,acc,66\n"
HEADER = "system,task,seed,metric,score\n"


@pytest.fixture
def judged(tmp_path):
    """Writes (system, task, seed, metric, score[, block]) rows, and compares the systems with the first one."""

    def judge(rows, lower=()):
        names = ["system", "task", "seed", "metric", "score", "block"][: len(rows[0])]
        pd.DataFrame(rows, columns=names).to_csv(tmp_path / "runs.csv", index=False)
        return judge_runs(tmp_path / "runs.csv", rows[0][0], lower)

    return judge


def runs(system, scores, task="rte", metric="acc", seed=0):
    return [(system, task, number, metric, score) for number, score in enumerate(scores, seed)]


def test_two_systems_by_hand(judged):
    """S^2 is 4 and 14/3, pooled 22/5; the first takes the pooled one, the second its own, with 5 degrees together."""
    (row,) = judged(runs("plain", [80, 82, 84]) + runs("new", [85, 86, 87, 90])).contrasts.to_dict("records")
    error = np.sqrt(4.4 / 3 + 14 / 3 / 4)
    assert (row["difference"], row["freedom"]) == pytest.approx((5, 5))
    assert row["p"] == pytest.approx(2 * student_t.sf(5 / error, 5))
    assert row["low"] == pytest.approx(5 - student_t.isf(0.025, 5) * error)
    assert (row["n_system"], row["n_reference"], row["verdict"], row["seeds"]) == (4, 3, "better", "seed")


def test_blocks_are_a_paired_test_of_their_means(judged):
    first, second = np.array([[79, 81], [82, 84], [84, 86]]), np.array([[80, 84], [85, 87], [87, 85]])
    rows = [
        (system, "rte", seed, "acc", scores[block, seed], f"p{block}")
        for system, scores in (("plain", first), ("new", second))
        for block in range(3)
        for seed in range(2)
    ]
    (row,) = judged(rows).contrasts.to_dict("records")
    test = ttest_rel(second.mean(axis=1), first.mean(axis=1))
    assert (row["difference"], row["p"], row["freedom"]) == pytest.approx((2, test.pvalue, 2))
    assert (row["n_system"], row["seeds"]) == (3, "block")


def test_the_average_is_made_seed_by_seed(judged):
    """Two tasks on which a seed scores alike tell no more than one of them."""
    scores = [80, 82, 83, 87]
    rows = [
        (system, task, seed, task, score + more)
        for system, more in (("plain", 0), ("new", 3))
        for task in ("rte", "mrpc")
        for seed, score in enumerate(scores)
    ]
    frame = judged(rows).contrasts.set_index("task")
    assert frame.index.tolist() == ["average", "rte", "mrpc"]
    assert frame["p"].to_numpy() == pytest.approx(ttest_ind(np.add(scores, 3), scores).pvalue)


@pytest.mark.parametrize("pretrainings", [1, 3])
def test_the_numbers_are_those_of_an_experiment_without_its_predictions(judged, pretrainings):
    drawn = simulate(
        np.random.default_rng(3), columns=["sst2", "rte"], seeds=3, pretrainings=pretrainings,
        rates={"a": 0.6, "b": 0.7, "c": 0.8},
    )  # fmt: skip
    bare = [replace(one, task="all", predictions=np.empty((0, 0)), labels=np.empty(0)) for one in drawn]
    rows = [
        (one.arms[owner], one.column, seed, "acc", score, block)
        for one in bare
        for owner, seed, score, block in zip(one.owners, one.seeds, one.scores, one.pretraining_seeds, strict=True)
    ]
    expected = verdicts(assess(bare, [Group(origin="", shape="", arms=("a", "b", "c"), reference="a")]))
    found = judged(rows).contrasts
    assert found["task"].tolist() == expected["column"].tolist()
    assert found["why"].tolist() == [""] * 6
    np.testing.assert_allclose(found[NUMBERS], expected[NUMBERS], rtol=1e-9)


def test_the_lowest_is_best_where_that_is_said(judged):
    rows = runs("plain", [3.1, 3.2, 3.15], metric="loss") + runs("new", [2.1, 2.2, 2.15], metric="loss")
    assert judged(rows).contrasts["verdict"].tolist() == ["worse"]
    both = judged(rows, ["loss"])
    assert (both.contrasts["verdict"].tolist(), both.power["best"].tolist()) == (["better"], ["lowest"])


def test_power_is_that_of_the_normal_distribution_for_many_seeds(judged):
    generator = np.random.default_rng(1)
    power = judged(runs("plain", generator.normal(size=100)) + runs("new", generator.normal(size=100))).power
    assert power["seeds_needed"][0] == pytest.approx(100 * ((1.960 + 0.842) / 1.960) ** 2, rel=0.05)


def test_what_has_no_verdict_says_why(judged):
    alone = runs("plain", [1, 2]) + runs("new", [5]) + runs("old", [2, 3])
    assert judged(alone).contrasts["why"].tolist() == ["one seed does not show how much scores vary (new)", ""]
    same = judged(runs("plain", [0.1] * 3) + runs("new", [0.7] * 3))
    assert (same.contrasts["verdict"][0], same.contrasts["why"][0][:27]) == ("", "the scores of all runs are ")
    blocks = [("plain", "rte", 1, "acc", i, i) for i in (1, 2, 4)] + [("new", "rte", 1, "acc", i, i) for i in (1, 3)]
    assert judged(blocks).contrasts["why"].tolist() == ["2 of 3 blocks are missing (new)"]


def test_there_is_no_average_of_several_metrics_of_a_task_or_of_losses_and_accuracies(judged, tmp_path):
    twice = [row for metric in ("acc", "f1") for row in runs("plain", [1, 2], metric=metric)]
    twice += [("new", *row[1:4], row[4] + 1) for row in twice] + runs("plain", [3, 4], "mrpc")
    assert "average" not in judged(twice).contrasts["task"].tolist()
    text = CliRunner().invoke(app, ["statistics", str(tmp_path / "runs.csv"), "--reference", "plain"]).output
    assert "- No average: a task has several metrics" in text
    assert "Intervals cover other seeds, not other examples" in text
    mixed = [row for name in ("plain", "new") for row in runs(name, [1, 2]) + runs(name, [3, 4], "lm", "loss")]
    assert "average" in judged(mixed).contrasts["task"].tolist()
    assert "average" not in judged(mixed, ["loss"]).contrasts["task"].tolist()


def test_names_that_pandas_takes_for_missing_are_names(judged):
    rows = runs("none", [1, 2, 3], "NA") + runs("null", [2, 3, 4], "NA")
    assert judged(rows).contrasts[["task", "system", "reference"]].to_numpy().tolist() == [["NA", "null", "none"]]


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        ("system,task,seed,score\n", "", "lacks the column metric; it has 'system, task, seed, score'"),
        (HEADER, "", "has no run"),
        (HEADER + FOUR + "new,rte,2,acc,67\n", "", "row 6: the run of row 5 again (system 'new', task 'rte', seed"),
        (HEADER + FOUR + "new,rte,3,acc,sixty\n", "", "row 6: the score 'sixty' is no number"),
        (HEADER + FOUR + "new,rte,3,acc,nan\n", "", "row 6: the score 'nan' is no number"),
        (HEADER + FOUR + "new,rte,3,acc\n", "", "row 6: the score '' is no number"),
        (HEADER + FOUR + ",rte,3,acc,6\n", "", "row 6: no system"),
        (HEADER + FOUR + "new,rte\n", "", "row 6: no metric"),
        (HEADER + FOUR + "new,rte,3,acc,6,7\n", "", "is no CSV file: Error tokenizing data"),
        (HEADER + "new,rte,3,acc,6,7\n", "", "is no CSV file: Length of header"),
        (FOUR, "", "lacks the column system, task, seed, metric, score"),
        ("", "", "is no CSV file: No columns to parse from file"),
        ("\0\xff" * 9, "", "is no CSV file: "),
        (" " * (LARGEST + 1), "", "bytes, expected"),
        (HEADER + FOUR[: FOUR.index("new")], "", "one system only ('plain')"),
        (HEADER + FOUR, "--reference plan", "unknown system 'plan' in 'FILE'; did you mean 'plain'?"),
        (HEADER + FOUR, "--lower ac", "unknown metric 'ac' in 'FILE'; did you mean 'acc'?"),
        (HEADER + FOUR, "--equivalent 0", "--equivalent 0: give a difference above 0"),
        (HEADER + FOUR, "--pairs", "--pairs: systems in a table"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line(text, words, message, tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text(text, encoding="latin-1")
    said = CliRunner().invoke(app, ["statistics", str(path), "--reference", "plain", *words.split()])
    assert isinstance(said.exception, UserError)
    assert message.replace("FILE", str(path)) in str(said.exception)


def test_a_table_needs_a_reference_and_an_experiment_has_its_own(tmp_path):
    with pytest.raises(UserError, match=r"give --reference, .* baseline, two-more"):
        glue_bench.statistics(EXAMPLE)
    with pytest.raises(UserError, match="go with a table of runs"):
        glue_bench.statistics(tmp_path, lower=["loss"])
    with pytest.raises(UserError, match="No such file"):
        glue_bench.statistics(tmp_path / "none.csv", reference="x")


def test_the_verb_and_the_function_say_the_same_in_every_format(tmp_path):
    frame = glue_bench.statistics(EXAMPLE, reference="baseline", lower=["loss"], equivalent=0.001)
    words = ["statistics", str(EXAMPLE), "--reference", "baseline", "--lower", "loss", "--equivalent", "0.001"]
    said = {kind: CliRunner().invoke(app, [*words, "--format", kind]).output for kind in ("csv", "json", "markdown")}
    read = pd.read_csv(io.StringIO(said["csv"]), keep_default_na=False)
    pd.testing.assert_frame_equal(read, frame, rtol=1e-3, atol=1e-9, check_dtype=False)
    (row,) = json.loads(said["json"])["rows"]
    assert (row["p"], row["equivalent"]) == (pytest.approx(frame["p"][0], rel=1e-3), True)
    assert "they do not" not in said["markdown"]
    for name in ("page.html", "table.tex"):
        assert CliRunner().invoke(app, [*words, "-o", str(tmp_path / name)]).exit_code == 0
        assert "0.000621" in (tmp_path / name).read_text(encoding="utf-8")


def test_the_example_of_the_documents_has_the_published_means():
    scores = pd.read_csv(EXAMPLE).groupby("system")["score"].agg(["size", "mean", "std"])
    published = {"baseline": [28, 2.9197368214285713, 0.0007835970267072948],
                 "two-more": [37, 2.919115378378378, 0.000915598388163916]}  # fmt: skip
    assert {name: pytest.approx(row, rel=1e-12) for name, row in published.items()} == scores.T.to_dict("list")
