"""Each arm at its own best rate: the search is recorded and counted, and its winner is what the arm is trained with."""

import json

import pytest
from stored import documents

from glue_bench.audit.verify import verify
from glue_bench.config import parse_experiment
from glue_bench.errors import UserError
from glue_bench.records.store import Store
from glue_bench.sweep import attempts as module
from glue_bench.tables.budget import budget_frame, measured_costs, rates_frame
from glue_bench.tables.results import read_results
from glue_bench.training.loop import NonFiniteLossError

pytestmark = pytest.mark.usefixtures("small_demo")
SEARCH = {"learning_rates": [1e-5, 3e-3], "rate_search": {"steps": 4, "seed": 0}}


def search(**changes) -> dict:
    """The settings of pretraining with a search."""
    return SEARCH | changes


@pytest.fixture
def trained(monkeypatch):
    """What was pretrained: (variant, seed, rate, steps), in order; `diverging` rates raise."""
    pretrain, started, diverging = module.pretrain, [], set()

    def watched(run, inputs, *rest, rate=None, **further):
        settings = run.settings if rate is None else run.settings.at(rate)
        started.append((run.arm.variant, settings.seed, settings.learning_rate, settings.steps))
        if settings.learning_rate in diverging:
            inputs.pretraining_folder(run).prepare()
            spent = {"steps": 1, "tokens": 200, "seconds": 0.5, "losses": []}
            raise NonFiniteLossError("masked-LM loss is nan at step 1", spent)
        return pretrain(run, inputs, *rest, rate=rate, **further)

    monkeypatch.setattr(module, "pretrain", watched)
    return started, diverging


def test_each_arm_is_pretrained_at_the_rate_of_its_lowest_validation_loss(sweep, trained):
    started, _ = trained
    summary = sweep(search(seeds=[1, 2]))
    assert (summary.finished, summary.failed) == (4, {})
    store = Store(summary.folder)
    records = {record["pretraining_id"]: record for record in documents(store, "pretraining")}
    searches = {name: record for name, record in records.items() if record["steps"] == 4}
    assert (len(searches), len(records)) == (4, 8)
    for record in records.values():
        settings = record["identity"]["settings"]
        if record["pretraining_id"] in searches:
            assert settings["seed"] == 0
            assert "learning_rates" not in settings
        else:
            mine = {records[name]["validation_loss"]: records[name] for name in record["searches"]}
            best = mine[min(mine)]
            assert {each["arm"] for each in mine.values()} == {record["arm"]}
            assert record["learning_rate"] == best["identity"]["settings"]["learning_rate"]
            assert (settings["learning_rates"], settings["rate_search"]) == ([1e-5, 3e-3], {"steps": 4, "seed": 0})
            assert (record["arm"], settings["seed"], record["learning_rate"], 10) in started
    assert [steps for *_, steps in started] == [4] * 4 + [10] * 4
    assert not list(summary.folder.glob("checkpoints/*/step-4"))

    rates = rates_frame(read_results(store.folder))
    assert rates[["arm", "learning_rate"]].values.tolist() == [
        ["add", 1e-5], ["add", 3e-3], ["untied", 1e-5], ["untied", 3e-3],
    ]  # fmt: skip
    for _, mine in rates.groupby("arm"):
        assert mine["chosen"].tolist() == (mine["validation_loss"] == mine["validation_loss"].min()).tolist()
    budgets = budget_frame(read_results(store.folder))
    for row in budgets.to_dict("records"):
        assert row["search_tokens"] == rates[rates["arm"] == row["arm"]]["tokens"].sum() > 0
        assert row["learning_rate"] in (1e-5, 3e-3)
    whole = [record["seconds"] for name, record in records.items() if name not in searches]
    assert measured_costs(read_results(store.folder))[0] == pytest.approx(sum(whole) / len(whole))
    assert "## Search for the learning rate" in (summary.folder / "budget.md").read_text()
    assert "the best of 2 learning rates (1e-05, 0.003): " in (summary.folder / "leaderboard.md").read_text()
    assert "pretraining add: learning rate 0.003, by the validation loss of its search (1e-05: " in sweep.said
    (verified,) = verify(summary.folder)
    assert not verified.faults

    del started[:]
    again = sweep(search(seeds=[1, 2, 3]))
    assert (again.finished, again.skipped) == (2, 4)
    assert [(seed, steps) for _, seed, _, steps in started] == [(3, 10)] * 2  # the search is not made again


def test_a_rate_that_diverges_is_the_worst_and_all_of_them_are_a_failure(sweep, trained):
    started, diverging = trained
    diverging.add(3e-3)
    summary = sweep(search(), arms=["add"])
    assert (summary.finished, summary.failed) == (1, {})
    assert [rate for _, _, rate, _ in started] == [1e-5, 3e-3, 1e-5]
    assert "0.003: diverged)" in sweep.said
    rates = rates_frame(read_results(summary.folder))
    assert rates["validation_loss"].isna().tolist() == [False, True]
    assert rates["chosen"].tolist() == [True, False]

    assert rates["tokens"].tolist()[1] == 200  # what it cost until then

    diverging.add(1e-5)
    failed = sweep(search(rate_search={"steps": 3}), arms=["add"], name="none")
    (error,) = failed.failed.values()
    assert error == "every learning rate of the search diverged (1e-05: diverged, 0.003: diverged); add lower ones"


def test_a_search_that_fails_otherwise_chooses_nothing(sweep, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("out of luck")
        yield

    monkeypatch.setattr(module, "pretrain", broken)
    summary = sweep(search(), arms=["add"])
    assert set(summary.failed.values()) == {"RuntimeError in pretraining: out of luck"}
    assert not documents(Store(summary.folder), "pretraining")


def test_one_rate_has_the_id_that_it_always_had(values):
    from glue_bench.training.inputs import Inputs

    settings = []
    for given in ({"learning_rate": 1e-3, "seed": 1}, {"learning_rates": [1e-3], "seeds": [1]}):
        experiment = parse_experiment(values(given))
        run = experiment.pretraining_of(next(experiment.cells()))
        settings.append(Inputs(experiment).pretraining_identity(run).settings)
    assert settings[0] == settings[1]
    assert json.loads(json.dumps(settings[0])) == {
        "start": "scratch", "steps": 10, "batch_tokens": 256, "length": 32, "mask_probability": 0.15,
        "learning_rate": 1e-3, "warmup_ratio": 0.01, "weight_decay": 0.01, "adam_epsilon": 1e-6, "clip_norm": 1.0,
        "seed": 1, "validation_share": 0.05,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rate_search": None}, "pretraining: several learning_rates [1e-05, 0.003] need rate_search: {steps: N}"),
        ({"learning_rates": [1e-3]}, "pretraining: rate_search has nothing to choose from; give several"),
        ({"rate_search": {"steps": 11}}, "rate_search.steps 11 is longer than the training of 10 steps"),
        ({"rate_search": {"steps": 4, "seed": 1}}, "rate_search.seed 1 is among the seeds [1]"),
        ({"rate_search": {"stepps": 4}}, "unknown key 'stepps' in pretraining.rate_search; did you mean 'steps'?"),
        ({"learning_rate": 1e-3}, "pretraining: give learning_rate or learning_rates, not both"),
        ({"learning_rates": [1e-3, 1e-3]}, "given twice: 0.001"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_a_mistake_in_the_search_is_named(values, changes, said):
    with pytest.raises(UserError) as caught:
        parse_experiment(values(search(**changes)))
    assert said in str(caught.value)
