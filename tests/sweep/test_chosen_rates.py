"""Rates that a search chooses, and pretrainings whose search is run again."""

from helpers import stub
from helpers.stored import pretrained_of

from glue_bench.records.store import Store
from glue_bench.sweep.jobs import work_left
from glue_bench.sweep.reasons import OTHER_RATE, reasons

RATES = (1e-3, 2e-3)
SEARCHES = [stub.pretraining([rate], is_search=True) for rate in RATES]
PRETRAINING = stub.pretraining(RATES, searches=tuple(search.id for search in SEARCHES))
AT_HIGH_RATE = PRETRAINING.model_copy(update={"rate": 2e-3})
CELL = stub.cell(1, pretraining=PRETRAINING.id)
PLAN = stub.plan(*SEARCHES, PRETRAINING, CELL)


def store_search(store: Store, *losses: float | None) -> None:
    for search, loss in zip(SEARCHES, losses, strict=True):
        store.write(pretrained_of(search, validation_loss=loss))


def jobs_left(store: Store) -> list[str]:
    """Return the ids of the jobs that are to be run."""
    return [job.id for job in work_left(PLAN, [CELL], store).jobs]


def test_a_pretraining_runs_again_where_its_search_now_chooses_another_rate(store):
    store_search(store, 3.0, 2.0)
    store.write(pretrained_of(AT_HIGH_RATE))
    assert jobs_left(store) == [CELL.id]
    store_search(store, 2.0, 3.0)
    expected = [PRETRAINING.id, CELL.id]
    assert jobs_left(store) == expected
    work = work_left(PLAN, [CELL], store)
    assert reasons(work, store)[PRETRAINING.id] == OTHER_RATE


def test_a_pretraining_stays_where_its_search_now_diverges_or_has_lost_a_record(store):
    store.write(pretrained_of(AT_HIGH_RATE))
    store_search(store, None, None)
    assert jobs_left(store) == [CELL.id]
    lost = SEARCHES[0].id
    store.write_failure(stub.Failure(id=lost, error="ValueError: no"))
    (store.folder / "pretrainings" / lost / "record.json").unlink()
    assert PRETRAINING.id not in jobs_left(store)
