import numpy as np

from cells import Settings

SETTINGS = Settings("demo", "rte", "somewhere", batch_size=4)


def test_the_slice_is_a_sample_of_train_the_same_for_all():
    rows = SETTINGS.rows(1000, 5)
    assert len(set(rows)) == 20
    assert max(rows) > 200
    assert np.array_equal(rows, SETTINGS.rows(1000, 5))


def test_a_slice_longer_than_train_starts_again():
    rows = SETTINGS.rows(6, 3)
    assert sorted(rows[:6]) == list(range(6))
    assert np.array_equal(rows[6:], rows[:6])


def test_the_cell_trains_one_epoch_by_these_settings():
    (arm,) = SETTINGS.experiment.arms
    assert (arm.variant, arm.checkpoint, SETTINGS.experiment.tasks) == ("add", "somewhere", ["rte"])
    assert (SETTINGS.hyperparameters.epochs, SETTINGS.hyperparameters.batch_size) == (1, 4)
