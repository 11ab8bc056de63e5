"""Runs on a part of the rows: which part."""

from glue_bench.data.demo import generate
from glue_bench.data.task_data import TaskData, limited


def test_fewer_rows_are_among_more_in_their_order_and_tests_stay_whole():
    data = TaskData("rte", "tsv", generate("rte"))
    some, more = limited(data, 5), limited(data, 9)
    for name in ("train", "validation"):
        chosen = [list(each.splits[name].itertuples(index=False)) for each in (some, more, data)]
        assert [len(rows) for rows in chosen[:2]] == [5, 9]
        places = [chosen[2].index(row) for row in chosen[0]]
        assert places == sorted(places)
        assert set(chosen[0]) <= set(chosen[1]) <= set(chosen[2])
    assert some.splits["test"] is data.splits["test"]
    assert (some.source, some.partial) == ("tsv, limited to 5 rows", True)
    assert some.digest != more.digest
    assert limited(data, 10_000) is data


def test_a_limit_of_train_takes_the_same_rows_and_leaves_validation_whole():
    data = TaskData("rte", "tsv", generate("rte"))
    part = limited(data, 5, train_alone=True)
    assert part.splits["train"].equals(limited(data, 5).splits["train"])
    assert part.splits["validation"] is data.splits["validation"]
    assert (part.source, part.partial) == ("tsv, limited to 5 rows of train", True)
    assert part.digest not in (data.digest, limited(data, 5).digest)
    assert limited(data, 10_000, train_alone=True) is data
