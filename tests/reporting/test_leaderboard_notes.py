"""The notes under a leaderboard: single sentences that depend on what has run, and where."""

import pandas as pd
import pytest

from glue_bench.records.record import PretrainingRecord
from glue_bench.reporting.alike import searched_note
from glue_bench.reporting.export import find
from glue_bench.reporting.leaderboard_page import leaderboard_page
from glue_bench.reporting.statistics_page import statistics_page


def notes(path) -> str:
    return " ".join(leaderboard_page(find(path)).notes)


def finish_on(bench, places: dict[str, tuple[str, str]]) -> None:
    """Two seeds of each arm, and on which processors these ran."""
    for arm, processors in places.items():
        for seed, processor in enumerate(processors, start=1):
            bench.record(bench.expect("rte", seed, arm=arm), environment={"processor": processor, "device": "cpu"})


def test_arms_on_unlike_processors_are_named_on_both_pages(bench):
    finish_on(bench, {"add": ("One", "One"), "none": ("One", "One"), "untied": ("One", "Two")})
    path = bench.plan()
    said = "Pretrained: the arms ran on unlike processors (`add`, `none` on One; `untied` on One and Two)"
    assert said in notes(path)
    assert said in " ".join(statistics_page(find(path).comparison).notes)


def test_arms_whose_seeds_ran_the_other_way_round_are_named(bench):
    finish_on(bench, {"add": ("One", "Two"), "none": ("Two", "One")})
    assert "unlike processors (`add`, `none` on One and Two)" in notes(bench.plan())


def test_processors_that_all_arms_share_are_no_difference(bench):
    finish_on(bench, {"add": ("One", "Two"), "none": ("One", "Two")})
    text = notes(bench.plan())
    assert "the arms ran" not in text
    assert (
        "Pretrained: runs of different seeds or tasks ran on unlike processors, those of one seed and task on" in text
    )


def test_one_processor_is_not_told(bench):
    finish_on(bench, {"add": ("One", "One"), "none": ("One", "One")})
    assert "processors" not in notes(bench.plan())


def test_a_name_without_family_is_no_other_processor(bench):
    """Records of earlier versions have the shortened name that virtual machines give."""
    finish_on(bench, {"add": ("One", "One"), "none": ("One (family 26, model 2)", "One (family 26, model 2)")})
    assert "processors" not in notes(bench.plan())


def test_two_families_are_two_processors(bench):
    finish_on(bench, {"add": ("One", "One (family 25, model 17)"), "none": ("One", "One (family 26, model 2)")})
    assert "unlike processors" in notes(bench.plan())


def test_what_runs_were_fine_tuned_by_and_what_says_more_is_told(bench):
    for task, epochs in (("rte", 5), ("mrpc", 3), ("cola", 10)):
        settings = {"epochs": epochs, "batch_size": 32, "max_length": 128}
        bench.record(bench.expect(task), hyperparameters=settings)
    path = bench.plan()
    assert "Fine-tuning: 3, 5 or 10 epochs in batches of 32, texts of up to 128 tokens." in notes(path)
    assert "README.md" not in notes(path)
    (path / "README.md").write_text("# Mine")
    assert "`README.md` in the experiment's folder says more about these runs." in notes(path)


def test_a_gpu_is_what_computed_beside_it(bench):
    for arm, processor in (("add", "One"), ("none", "Two")):
        bench.record(bench.expect("rte", arm=arm), environment={"processor": processor, "device": "a GPU"})
    assert "processors" not in notes(bench.plan())


def test_where_weights_were_pretrained_counts_too(bench):
    for arm, processor in (("add", "One"), ("none", "Two")):
        bench.record(bench.expect("rte", arm=arm) | {"pretraining_seed": 1}, environment={"processor": "One"})
        bench.cells[-1]["pretraining_seed"] = 1
        identity = {"variant": arm, "options": {}, "tokenizer": "t", "start": "s", "corpus": "c", "packing": 2}
        facts = {"pretraining_id": f"{arm}-1", "arm": arm, "origin": "pretrained", "losses": []}
        facts |= {"schema_version": 1, "steps": 1, "tokens": 1, "seconds": 1.0, "stream": "s"}
        facts |= {"identity": identity | {"settings": {}}, "environment": {"processor": processor}}
        bench.store.write_pretraining(PretrainingRecord.model_validate(facts))
    planned = [{"pretraining_id": f"{arm}-1", "arm": arm, "seed": 1} for arm in bench.arms]
    assert "(`add` on One; `none` on Two, then One)" in notes(bench.plan(pretrainings=planned))


@pytest.mark.parametrize(
    ("seeds", "said"),
    [
        ([(None, 1), (None, 2)], "the mean over 2 runs with different seeds,"),
        ([(1, 1), (2, 1)], "the mean over 2 runs, one fine-tuning of each of 2 pretrainings,"),
        ([(1, 1), (1, 2), (2, 1), (2, 2)], "the mean over 4 runs, 2 fine-tunings of each of 2 pretrainings,"),
    ],
)
def test_how_many_runs_a_score_is_made_of(bench, seeds, said):
    for pretraining_seed, seed in seeds:
        cell = bench.expect("rte", seed)
        cell |= {"cell_id": f"rte-{pretraining_seed}-{seed}", "pretraining_seed": pretraining_seed}
        bench.record(cell)
    assert said in notes(bench.plan())


def test_columns_near_the_majority_class_are_named(bench):
    for arm, accuracy in (("add", 0.49), ("none", 0.51)):
        bench.finish_predicted("rte", arm, accuracy, spread=0.05)
        bench.finish_predicted("mrpc", arm, 0.45)
        bench.finish_predicted("sst2", arm, 0.9)
    text = notes(bench.plan())
    assert "No arm's score is above it on MRPC: nothing can be read off there." in text
    assert "On RTE the best arm is above it by less than the smallest difference" in text


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        (
            {"add": 1e-3, "concat": 5e-4, "none": 5e-4, "untied": 1e-3, "rotary": 1e-3},
            "0.0005 for `concat` and `none`, 0.001 for the others.",
        ),
        ({"add": 5e-4, "none": 5e-4}, "0.0005 for all."),
    ],
)
def test_the_rates_that_were_searched_for_are_told(chosen, said):
    rows = [(arm, rate, rate == best) for arm, best in chosen.items() for rate in (5e-4, 1e-3)]
    waiting = [("later", rate, False) for rate in (5e-4, 1e-3)]
    (text,) = searched_note(pd.DataFrame(rows + waiting, columns=["arm", "learning_rate", "chosen"]))
    assert text.startswith(f"Each arm was pretrained at the best of 2 learning rates (0.0005, 0.001): {said} See ")


def test_without_a_search_no_rates_are_told(bench):
    bench.finish("rte", 1)
    assert "learning rates" not in notes(bench.plan())


NAMED = {"none - add": ["none", "add"], "other - none": ["other", "none"]}


def judged(bench, tasks=("rte", "mrpc"), contrasts=("none - add",)):
    """Findings of two arms of the same origin, and two of another one; the second of each is much worse."""
    for task in tasks:
        for arm, accuracy, origin in (
            *(("add", 0.9, "pretrained"), ("none", 0.6, "pretrained")),
            *(("first", 0.8, "scratch"), ("other", 0.6, "scratch")),
        ):
            bench.finish_predicted(task, arm, accuracy, origin=origin)
    return find(bench.plan(config={"protocol": {"contrasts": [NAMED[name] for name in contrasts]}}))


def test_what_is_judged_on_one_task_is_judged_on_that_column(bench):
    findings = judged(bench, ["rte"])
    assert set(findings.contrasts["column"]) == {"rte"}
    text = " ".join(leaderboard_page(findings).notes)
    assert "Marks of `other`, which no contrast compares with `first`, were not asked for" in text
    page = statistics_page(findings.comparison)
    titles = [section.title for section in page.sections]
    assert titles[:2] == ["Pretrained: differences from add, RTE", "Scratch: differences from first, RTE"]
    assert any("The lines on RTE are what the experiment was made to ask" in section.text for section in page.sections)


def test_marks_that_no_contrast_asks_for_are_of_their_own_reference(bench):
    text = " ".join(leaderboard_page(judged(bench)).notes)
    assert "The sentence on top is of the contrasts named beforehand" in text
    which = "Marks on other columns, and those of `other`, which no contrast compares with `first`, were not asked for"
    assert which in text
    assert "at most about one column in twenty of each block would have a mark" in text


def test_contrasts_of_arms_apart_are_not_what_the_sentence_on_top_tells(bench):
    text = " ".join(leaderboard_page(judged(bench, contrasts=["other - none"])).notes)
    assert "`statistics.md` has the contrasts named beforehand" in text
    assert "those of `none` and `other`, which no contrast compares with the reference of their block," in text


def test_runs_of_unlike_numbers_of_pretrainings_are_not_said_to_be_of_each(bench):
    for arm, seeds in (("add", [(1, 1), (2, 1)]), ("none", [(1, 1), (1, 2)])):
        for pretraining_seed, seed in seeds:
            cell = bench.expect("rte", seed, arm=arm)
            cell |= {"cell_id": f"{arm}-{pretraining_seed}-{seed}", "pretraining_seed": pretraining_seed}
            bench.record(cell)
    assert "the mean over 2 runs with different seeds," in notes(bench.plan())


def test_marks_of_missing_runs_are_told_where_the_table_has_them(bench):
    for arm, seeds in (("add", 2), ("none", 2)):
        bench.finish_predicted("rte", arm, 0.8, seeds=seeds)
    bench.expect("mrpc", 1, arm="add")
    bench.expect("rte", 1, arm="later")
    assert "2 of 6 planned runs are missing. Nothing" in notes(bench.plan())
    bench.expect("rte", 3, arm="add")
    assert "3 of 7 planned runs are missing: * marks a score of fewer seeds than planned. " in notes(bench.plan())
    bench.finish_predicted("mrpc", "none", 0.8, seeds=2)
    assert "fewer seeds than planned, and – stands where a score has none. " in notes(bench.plan())  # noqa: RUF001


def test_contrasts_without_any_mark_are_told(bench):
    for arm in ("add", "none"):
        bench.finish_predicted("rte", arm, 0.7)
    text = notes(bench.plan(config={"protocol": {"contrasts": [["none", "add"]]}}))
    assert "The sentence on top is of the contrasts named beforehand" in text
    assert "were not asked for" not in text
