"""Verdicts on anyone's runs, beside plain arithmetic, statsmodels and a bootstrap."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.metrics import f1_score, matthews_corrcoef

import glue_bench
from glue_bench.board.board import open_board
from glue_bench.board.column_runs import read_outcomes
from glue_bench.board.versus import compare_paths
from glue_bench.errors import UserError
from glue_bench.stats.estimates import column_estimate


def write(path, frame):
    frame.to_csv(path, index=False)
    return path


def compare(tmp_path, frame, **options):
    """Compare the systems of a frame, by way of a file."""
    return compare_paths([write(tmp_path / "t.csv", frame)], **options)


def first_contrast(tmp_path, frame, **options):
    """Return the first contrast of the systems of a frame."""
    versus = compare(tmp_path, frame, **options)
    return versus.contrasts.iloc[0]


def answers(generator, *, systems=2, examples=300, seeds=1):
    """Draw answers of systems to examples that are hard or easy for all systems."""
    difficulty = generator.normal(size=examples)
    frames = []
    for system in range(systems):
        for seed in range(1, seeds + 1):
            strength = 0.4 + 0.3 * system + difficulty
            chance = 1 / (1 + np.exp(-strength))
            is_right = generator.random(examples) < chance
            columns = {
                "system": f"s{system}",
                "task": "t",
                "seed": seed,
                "id": np.arange(examples),
                "outcome": is_right.astype(int),
            }
            frames.append(pd.DataFrame(columns))
    return pd.concat(frames, ignore_index=True)


@pytest.fixture
def generator():
    return np.random.default_rng(5)


def differences(frame, first="s1", second="s0"):
    wide = frame.pivot_table(index="id", columns="system", values="outcome")
    return (wide[first] - wide[second]).to_numpy()


def test_one_run_each_is_a_paired_t_test_over_examples(tmp_path, generator):
    frame = answers(generator)
    row = first_contrast(tmp_path, frame, reference="s0")
    values = differences(frame)
    expected = stats.ttest_1samp(values, 0)
    mean = values.mean()
    assert row["difference"] == pytest.approx(100 * mean)
    assert row["freedom"] == 299
    # Two extreme examples are added where they widen the interval; with 300 they change little.
    assert row["p"] == pytest.approx(expected.pvalue, rel=0.1)
    assert row["seeds"] == "examples"


def test_one_run_each_is_near_the_paired_bootstrap(tmp_path, generator):
    frame = answers(generator, examples=800)
    row = first_contrast(tmp_path, frame, reference="s0")
    values = 100 * differences(frame)
    draws = generator.integers(800, size=(4000, 800))
    means = values[draws].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    assert row["low"] == pytest.approx(low, abs=0.35)
    assert row["high"] == pytest.approx(high, abs=0.35)


def test_discordant_pairs_give_the_verdict_of_mcnemars_exact_test(tmp_path):
    """Of 220 examples the first system alone has 12 right, and the second alone has 30 right.

    The unpaired test has p = 0.080 and McNemar's exact test p = 0.008.
    """
    first = np.repeat([1, 0, 1, 0], [12, 30, 69, 109])
    second = np.repeat([0, 1, 1, 0], [12, 30, 69, 109])
    exact = stats.binomtest(12, 42, 0.5).pvalue
    assert round(exact, 3) == 0.008
    frames = []
    for system, outcomes in {"first": first, "second": second}.items():
        columns = {"system": system, "task": "t", "id": np.arange(220), "outcome": outcomes}
        frames.append(pd.DataFrame(columns))
    row = first_contrast(tmp_path, pd.concat(frames), reference="first")
    assert row["p"] == pytest.approx(exact, abs=0.003)
    assert row["verdict"] == "better"


def fit_mean(values):
    """Return statsmodels' fit of the mean, which has standard errors."""
    # It is imported where it is needed: that takes half a second.
    from statsmodels.regression.linear_model import OLS

    return OLS(values, np.ones(len(values))).fit()


def test_clusters_have_the_standard_error_of_statsmodels(tmp_path, generator):
    frame = answers(generator, examples=400)
    frame["text"] = frame["id"] // 7
    row = first_contrast(tmp_path, frame, reference="s0", cluster="text")
    values = 100 * differences(frame)
    clusters = np.arange(400) // 7
    fit = fit_mean(values)
    robust = fit.get_robustcov_results("cluster", groups=clusters, use_correction=True)
    (error,) = robust.bse
    # statsmodels corrects by C / (C - 1) (N - 1) / (N - 1), and so do we.
    assert row["error"] == pytest.approx(error, rel=0.02)
    assert row["freedom"] == clusters.max()


def test_clusters_of_one_example_change_nothing(tmp_path, generator):
    frame = answers(generator)
    frame["text"] = frame["id"]
    plain = compare(tmp_path, frame, reference="s0")
    clustered = compare(tmp_path, frame, reference="s0", cluster="text")
    pd.testing.assert_frame_equal(plain.contrasts, clustered.contrasts)


def test_an_example_in_two_clusters_is_refused(tmp_path, generator):
    frame = answers(generator)
    frame["text"] = frame["system"]
    with pytest.raises(UserError, match="example '0' is in two clusters"):
        compare(tmp_path, frame, cluster="text")


def test_scores_alone_are_the_pooled_t_test_over_seeds(tmp_path, generator):
    of_a = generator.normal(0.70, 0.01, 5)
    of_b = generator.normal(0.72, 0.01, 5)
    frames = []
    for system, scores in {"a": of_a, "b": of_b}.items():
        columns = {"system": system, "task": "t", "seed": range(5), "score": scores}
        frames.append(pd.DataFrame(columns))
    row = first_contrast(tmp_path, pd.concat(frames), reference="a")
    pooled = stats.ttest_ind(of_b, of_a)
    difference = of_b.mean() - of_a.mean()
    assert row["difference"] == pytest.approx(difference)
    # The larger of an arm's own and the pooled variance counts, so p is never below the pooled one.
    assert row["p"] >= pooled.pvalue * 0.999
    assert row["p"] == pytest.approx(pooled.pvalue, rel=1.0)


def test_seeds_and_examples_of_a_table_give_the_contrasts_of_our_experiment(tmp_path):
    """A folder of an experiment, and its predictions as a tidy table, have the same contrasts."""
    folder = "results/study_eight"
    predictions = glue_bench.predictions(folder, task="rte")
    board = glue_bench.statistics(folder).query("column == 'rte' and kind == 'reference'")
    scores = predictions[predictions["split"] == "validation"]
    names = {"arm": "system", "row": "id", "predicted": "prediction", "pretraining_seed": "block"}
    frame = scores.rename(columns=names)
    frame = frame[["system", "task", "block", "seed", "id", "prediction", "label"]]
    path = write(tmp_path / "t.csv", frame)
    reference = board["reference"].iloc[0]
    rows = compare_paths([path], reference=reference, metric="accuracy").contrasts
    joined = rows.merge(board, on="arm", suffixes=("", "_of_ours"))
    assert len(joined) == len(rows)
    for name in ("difference", "error", "freedom"):
        np.testing.assert_allclose(joined[name], joined[f"{name}_of_ours"], rtol=1e-9)


def pairs(generator, *, numeric):
    labels = generator.integers(0, 2, 200) if not numeric else generator.normal(size=200)
    rows = []
    for system, noise in (("a", 0.3), ("b", 0.2)):
        if numeric:
            prediction = labels + 3 * noise * generator.normal(size=200)
        else:
            prediction = np.where(generator.random(200) < noise, 1 - labels, labels)
        table = {"system": system, "task": "t", "id": np.arange(200), "prediction": prediction}
        rows.append(pd.DataFrame(table).assign(label=labels))
    return pd.concat(rows, ignore_index=True)


@pytest.mark.parametrize(
    ("metric", "score"),
    [
        ("accuracy", lambda label, prediction: (label == prediction).mean()),
        ("f1", f1_score),
        ("matthews_correlation", matthews_corrcoef),
        ("pearson", lambda label, prediction: stats.pearsonr(label, prediction)[0]),
    ],
    ids=["accuracy", "f1", "matthews_correlation", "pearson"],
)
def test_corpus_metrics_of_pairs_equal_the_libraries(tmp_path, generator, metric, score):
    frame = pairs(generator, numeric=metric == "pearson")
    versus = compare(tmp_path, frame, reference="a", metric=metric)
    (estimate,) = versus.group.estimates
    for system, rows in frame.groupby("system"):
        expected = 100 * score(rows["label"], rows["prediction"])
        assert estimate.means[system] == pytest.approx(expected), system


def test_f1_varies_over_examples_as_its_bootstrap_does(tmp_path, generator):
    frame = pairs(generator, numeric=False)
    row = first_contrast(tmp_path, frame, reference="a", metric="f1")
    wide = frame.pivot_table(index="id", columns="system", values="prediction")
    labels = frame["label"].to_numpy(int)[:200]
    values = []
    for _ in range(1000):
        draw = generator.integers(200, size=200)
        drawn = wide.iloc[draw]
        of_a = f1_score(labels[draw], drawn["a"])
        of_b = f1_score(labels[draw], drawn["b"])
        values.append(100 * (of_b - of_a))
    assert row["error"] == pytest.approx(np.std(values), rel=0.12)


def test_the_best_system_is_the_reference_and_all_pairs_are_corrected_for(tmp_path, generator):
    versus = compare(tmp_path, answers(generator, systems=4))
    (estimate,) = versus.group.estimates
    means = estimate.means
    assert versus.group.reference == max(means, key=means.get)
    assert versus.contrasts["family"].tolist() == [6, 6, 6]


def test_a_named_reference_is_corrected_by_holm(tmp_path, generator):
    versus = compare(tmp_path, answers(generator, systems=4), reference="s0")
    rows = versus.contrasts.sort_values("p")
    p_values = rows["p"] * [3, 2, 1]
    expected = np.minimum(1, p_values.cummax())
    np.testing.assert_allclose(rows["p_adjusted"], expected)


def test_the_lowest_is_best_for_metrics_that_are_named_so(tmp_path, generator):
    frame = answers(generator, systems=3).assign(metric="loss")
    noise = generator.normal(0, 0.1, len(frame))
    frame["outcome"] = frame["outcome"] + noise
    versus = compare(tmp_path, frame, lower=["loss"])
    (estimate,) = versus.group.estimates
    means = estimate.means
    assert versus.group.reference == min(means, key=means.get)


def test_tasks_of_one_metric_have_an_average(tmp_path, generator):
    parts = [answers(generator).assign(task=f"t{number}") for number in (1, 2)]
    versus = compare(tmp_path, pd.concat(parts), reference="s0")
    rows = versus.contrasts.set_index("task")
    average = rows.loc["average"]
    of_tasks = rows.loc[["t1", "t2"]]
    squared_errors = of_tasks["error"] ** 2
    error = np.sqrt(squared_errors.sum()) / 2
    assert average["difference"] == pytest.approx(of_tasks["difference"].mean())
    assert average["error"] == pytest.approx(error)


def test_a_task_may_be_called_average(tmp_path, generator):
    parts = [answers(generator).assign(task=name) for name in ("average", "loss")]
    versus = compare(tmp_path, pd.concat(parts), reference="s0")
    tasks = versus.contrasts["task"].tolist()
    assert tasks == ["average", "average", "loss"]


def test_examples_that_a_system_lacks_are_refused_with_the_first(tmp_path, generator):
    frame = answers(generator).query("not (system == 's1' and id in (7, 9))")
    with pytest.raises(UserError, match=r"'s1' lacks 2 of 300 examples of 't', the first '7', '9'"):
        compare(tmp_path, frame)


def test_common_examples_are_compared_and_the_others_counted(tmp_path, generator):
    frame = answers(generator)
    path = write(tmp_path / "t.csv", frame.query("not (system == 's1' and id in (7, 9))"))
    versus = compare_paths([path], reference="s0", is_common=True)
    kept = write(tmp_path / "kept.csv", frame.query("id not in (7, 9)"))
    expected = compare_paths([kept], reference="s0")
    assert versus.dropped == 2
    pd.testing.assert_frame_equal(versus.contrasts, expected.contrasts)


def test_an_example_with_two_metrics_is_left_out_once(tmp_path, generator):
    frame = answers(generator).query("not (system == 's1' and id == 7)")
    frame = pd.concat([frame.assign(metric=name) for name in ("em", "f1")])
    assert compare(tmp_path, frame, reference="s0", is_common=True).dropped == 1


def test_a_cluster_without_a_common_example_does_not_count(tmp_path, generator):
    """One system lacks all examples of the first cluster."""
    frame = answers(generator)
    frame["text"] = frame["id"] // 7
    path = write(tmp_path / "t.csv", frame.query("not (system == 's1' and id < 7)"))
    versus = compare_paths([path], reference="s0", cluster="text", is_common=True)
    kept = write(tmp_path / "kept.csv", frame.query("id >= 7"))
    expected = compare_paths([kept], reference="s0", cluster="text")
    assert versus.dropped == 7
    pd.testing.assert_frame_equal(versus.contrasts, expected.contrasts)


def test_labels_that_differ_between_systems_are_refused(tmp_path, generator):
    frame = pairs(generator, numeric=False)
    frame.loc[5, "label"] = 1 - frame.loc[5, "label"]
    with pytest.raises(UserError, match="example '5' of 't' has two different labels"):
        compare(tmp_path, frame, metric="accuracy")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reference": "s9"}, "unknown system 's9'"),
        ({"metric": "acc"}, "unknown metric 'acc'"),
        ({"lower": ["acc"]}, "unknown metric 'acc'"),
        ({"cluster": "text"}, "has no such column"),
    ],
)
def test_a_name_that_is_not_there_is_refused(tmp_path, generator, options, message):
    with pytest.raises(UserError, match=message):
        compare(tmp_path, answers(generator), **options)


def test_pairs_without_a_metric_are_refused(tmp_path, generator):
    frame = pairs(generator, numeric=False)
    with pytest.raises(UserError, match="need --metric, one of accuracy, f1"):
        compare(tmp_path, frame)


@pytest.mark.parametrize(("metric", "kind"), [("f1", "0 or 1"), ("pearson", "a number")])
def test_pairs_that_a_metric_cannot_take_are_refused(tmp_path, generator, metric, kind):
    frame = pairs(generator, numeric=False).astype({"prediction": object})
    frame.loc[3, "prediction"] = "yes"
    with pytest.raises(UserError, match=f"{metric} needs {kind} as prediction, not 'yes'"):
        compare(tmp_path, frame, metric=metric)


def test_a_prediction_of_1_is_a_label_of_1_0(tmp_path):
    columns = ["system", "task", "id", "prediction", "label"]
    rows = [(system, "t", number, "1", "1.0") for system in "ab" for number in range(5)]
    versus = compare(tmp_path, pd.DataFrame(rows, columns=columns), metric="accuracy")
    assert versus.group.estimates[0].means == {"a": 100.0, "b": 100.0}


def test_blocks_are_the_same_in_all_tasks_in_any_order_of_the_rows(tmp_path, generator):
    """The rows of the second task have the blocks in another order."""
    columns = ["system", "task", "block", "score"]
    rows = []
    for system in "ab":
        for task in ("t", "u"):
            for block in range(6):
                rows.append((system, task, block, block + generator.normal()))
    frame = pd.DataFrame(rows, columns=columns)
    of_second = frame["task"] == "u"
    turned = pd.concat([frame[~of_second], frame[of_second].iloc[::-1]])
    expected = compare(tmp_path, frame, reference="a").contrasts
    found = compare(tmp_path, turned, reference="a").contrasts
    pd.testing.assert_frame_equal(found, expected)


def test_an_average_over_tasks_with_other_blocks_has_no_test(tmp_path):
    rows = [(system, "t", block, 0.5 + block) for system in "ab" for block in (1, 2)]
    rows += [(system, "u", block, 0.5 + block) for system in "ab" for block in (3, 4)]
    frame = pd.DataFrame(rows, columns=["system", "task", "block", "score"])
    row = first_contrast(tmp_path, frame, reference="a")
    assert row["why"].startswith("its columns differ in their blocks")


def test_an_average_without_a_test_names_the_task(tmp_path):
    """System b has no run of the second task."""
    rows = [("a", "t", 1, 0.5), ("a", "t", 2, 0.6), ("b", "t", 1, 0.5), ("b", "t", 2, 0.7)]
    rows += [("a", "u", 1, 0.5), ("a", "u", 2, 0.6)]
    frame = pd.DataFrame(rows, columns=["system", "task", "seed", "score"])
    row = first_contrast(tmp_path, frame, reference="a")
    assert row["why"].startswith("u: no finished run")


def test_systems_without_a_common_task_are_refused(tmp_path):
    rows = [("a", "t", 1, 0.5), ("b", "u", 1, 0.5)]
    frame = pd.DataFrame(rows, columns=["system", "task", "seed", "score"])
    with pytest.raises(UserError, match="no system has a score in every task"):
        compare(tmp_path, frame)


def test_options_of_files_are_refused_with_a_folder_of_an_experiment():
    with pytest.raises(UserError, match="--common and --gold are for files"):
        compare_paths(["results/study"], metric="accuracy")


def test_one_system_alone_is_refused(tmp_path, generator):
    frame = answers(generator, systems=1)
    with pytest.raises(UserError, match="there is one system only"):
        compare(tmp_path, frame)


def test_several_metrics_without_a_reference_are_refused(tmp_path, generator):
    parts = [answers(generator).assign(metric=name) for name in ("em", "f1")]
    with pytest.raises(UserError, match="have no average; give --reference"):
        compare(tmp_path, pd.concat(parts))


def test_an_experiment_beside_a_file_is_refused(tmp_path, generator):
    path = write(tmp_path / "t.csv", answers(generator))
    with pytest.raises(UserError, match=r"is an experiment and .* is none; compare experiments"):
        compare_paths(["results/study", path])


def test_arms_of_two_experiments_stand_beside_each_other():
    versus = compare_paths(["results/study", "results/study_eight"])
    assert "study/add" in versus.group.arms
    assert "study_eight/add" in versus.group.arms
    assert versus.covers == "seeds and examples"


def test_examples_of_one_premise_are_a_cluster_in_our_own_tables():
    """Stored predictions of MNLI are compared with statsmodels on the difference of two runs."""
    board = open_board("results/study_long")
    columns = {column.column: column for column in read_outcomes(board)}
    column = columns["mnli_m"]
    pair = [np.flatnonzero(column.runs.arms == arm)[0] for arm in (0, 1)]
    single = replace(column.subset(np.array(pair)), single_runs=True)
    first, second = column.arms[:2]
    estimate = column_estimate(single, (first, second), first)
    variance, freedom = estimate.difference_variance(second, first)
    is_right = single.predictions == single.labels
    points_of_first, points_of_second = 100.0 * is_right
    values = points_of_second - points_of_first
    fit = fit_mean(values)
    robust = fit.get_robustcov_results("cluster", groups=column.clusters, use_correction=True)
    (plain_error,) = fit.bse
    (robust_error,) = robust.bse
    error = np.sqrt(variance)
    assert error == pytest.approx(robust_error, rel=0.01)
    assert error < 0.95 * plain_error
    assert freedom == column.clusters.max()


def test_systems_with_other_metrics_of_a_task_are_refused(tmp_path):
    columns = ["system", "task", "metric", "seed", "score"]
    rows = [("a", "t", "f1", 1, 0.5), ("a", "t", "acc", 1, 0.5), ("b", "t", "acc", 1, 0.5)]
    path = write(tmp_path / "t.csv", pd.DataFrame(rows, columns=columns))
    with pytest.raises(UserError, match="system 'b' has no 'f1' of task 't', but acc"):
        compare_paths([path])
