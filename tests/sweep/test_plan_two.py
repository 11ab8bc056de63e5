"""Plans with two of each axis: the starts, order and costs of cells, and what is refused."""

from itertools import product

import pytest
from helpers.tiny_runs import plan

from glue_bench.data.demo import generate
from glue_bench.errors import UserError

pytestmark = pytest.mark.usefixtures("small_demo")
TUNING = {
    "from_mnli": ["rte"],
    "mnli_rate": 2e-3,
    "learning_rates": [1e-3, 3e-3],
    "tasks": {"mnli": {"learning_rates": [1e-3, 2e-3]}},
}
AXES = {"arms": ["add", "none"], "tasks": ["rte", "mnli"], "seeds": [1, 2], "finetuning": TUNING}


@pytest.fixture
def planned(pretrained):
    return plan(
        pretrained({"seeds": [4, 5], "checkpoints": [6], "finetune_checkpoints": True}, **AXES)
    )


def test_each_cell_starts_from_its_own_mnli_run_and_that_from_its_own_pretraining(planned):
    cells = {cell.id: cell for cell in planned.cells}
    pretrainings = {(job.arm, job.seed): job.id for job in planned.pretrainings}
    assert len(pretrainings) == 4
    for cell in cells.values():
        assert cell.pretraining == pretrainings[cell.arm, cell.pretraining_seed], cell.label
        if cell.task == "rte":
            source = cells[cell.mnli]
            assert source.task == "mnli", cell.label
            assert source.settings.learning_rate == 2e-3, cell.label
            for name in ("arm", "seed", "pretraining_seed", "steps"):
                assert getattr(source, name) == getattr(cell, name), cell.label


def test_cells_come_by_checkpoint_the_last_first_then_by_task_rate_pretraining_and_seed(planned):
    places = []
    for cell in planned.cells:
        rate = cell.settings.learning_rate
        run = (cell.steps, cell.task, rate, cell.pretraining_seed, cell.seed, cell.arm)
        places.append(run)
    rates = {"rte": (1e-3, 3e-3), "mnli": (1e-3, 2e-3)}
    expected = []
    for steps, task in product((10, 6), ("rte", "mnli")):
        for rate, pretraining, seed, arm in product(rates[task], (4, 5), (1, 2), ("add", "none")):
            expected.append((steps, task, rate, pretraining, seed, arm))
    assert places == expected


def test_a_search_is_made_once_for_two_pretraining_seeds_and_of_all_rates_and_seeds(pretrained):
    search = {
        "learning_rates": [1e-3, 3e-3],
        "rate_search": {"steps": 4, "seeds": [8, 9]},
        "seeds": [1, 2],
    }
    arms = ["add", {"variant": "none", "pretraining_rate": 2e-3}]
    jobs = plan(pretrained(search, arms=arms)).pretrainings
    runs = [job for job in jobs if job.is_search]
    assert [(run.arm, run.learning_rate, run.seed) for run in runs] == [
        ("add", rate, seed) for rate, seed in product((1e-3, 3e-3), (8, 9))
    ]
    searches = {(job.arm, job.seed): job.searches for job in jobs if not job.is_search}
    names = tuple(sorted(run.id for run in runs))
    expected = {("add", 1): names, ("add", 2): names, ("none", 1): (), ("none", 2): ()}
    assert searches == expected
    assert [job.is_search for job in jobs] == [True] * 4 + [False] * 4


def test_expected_tokens_are_of_both_texts_at_most_the_tasks_own_length_over_its_own_steps(tiny):
    tasks = {"rte": {"max_length": 8, "epochs": 3, "batch_size": 32}}
    tuning = {"epochs": 2, "batch_size": 16, "max_length": 24, "tasks": tasks}
    tokens = plan(tiny(tasks=["cola", "rte", "stsb"], finetuning=tuning)).tokens

    def characters(task: str) -> list[int]:
        frame = generate(task)["train"]
        lengths = frame["text_a"].map(len)
        return (lengths + frame["text_b"].map(len) if "text_b" in frame else lengths).tolist()

    cola = sum(min(number / 4 + 3, 24) for number in characters("cola")) * 2
    rte = sum(min(number / 4 + 3, 8) for number in characters("rte")) * 3
    stsb = sum(min(number / 4 + 3, 24) for number in characters("stsb")) * 2
    expected = {"cola": round(cola), "rte": round(rte), "stsb": round(stsb)}
    assert tokens == expected
    assert min(number / 4 + 3 for number in characters("rte")) > 8
    assert min(number / 4 + 3 for number in characters("stsb")) < 24


def test_at_most_so_many_steps_cost_as_much(tiny):
    def tokens(**tuning) -> int:
        settings = {"epochs": 4, "batch_size": 16} | tuning
        return plan(tiny(tasks=["cola"], arms=["add"], finetuning=settings)).tokens["cola"]

    assert tokens(max_steps=3) == pytest.approx(tokens() / 4, abs=1)


def test_the_length_of_the_second_task_is_checked_against_the_positions_of_the_second_arm(
    tiny, make_bert
):
    texts = tuple(generate("cola")["train"]["text_a"])
    arms = [
        {"variant": "none", "checkpoint": str(make_bert("long", texts=texts, positions=64))},
        {"variant": "add", "checkpoint": str(make_bert("short", texts=texts))},
    ]
    tuning = {"tasks": {"stsb": {"max_length": 40}}}
    with pytest.raises(
        UserError, match=r"arm 'add': max_length 40 of task 'stsb' exceeds the 32 positions"
    ):
        plan(tiny(arms=arms, tasks=["cola", "stsb"], finetuning=tuning))


def test_a_native_model_is_measured_at_the_longest_length_of_all_tasks(tiny, make_bert):
    texts = tuple(generate("cola")["train"]["text_a"])
    arms = [{"variant": "native", "checkpoint": str(make_bert("long", texts=texts, positions=64))}]
    tuning = {"max_length": 16, "tasks": {"stsb": {"max_length": 48}}}
    facts = plan(tiny(arms=arms, tasks=["cola", "stsb"], finetuning=tuning)).arms["native"]
    assert facts.length == 48
