"""One arm's submission to the GLUE site: the zip of what its runs predicted, and which run each file is from."""

import hashlib
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from glue_bench.board.board import Board, aggregate, main_scores
from glue_bench.board.chosen import PREDICT_TEST_ADVICE, RUN_RULE, arm_scores, find_arm, median_runs
from glue_bench.board.results import Results
from glue_bench.data.official import OTHER_LABEL_ORDER
from glue_bench.data.submission import FILES, MAJORITY, fill_file, make_zip, write_file
from glue_bench.data.tasks import TASKS
from glue_bench.errors import UserError
from glue_bench.files import ELSEWHERE, results_written_to, whole_file
from glue_bench.pages.render import json_text
from glue_bench.records.done import OTHER_DIAGNOSTIC, predicts_other_diagnostic

MORE_DATA = "complete the data with the test files that it has not, then run the experiment again"


def write_submission(
    board: Board, output: Path, arm: str | None = None, *, fill: bool = False
) -> dict[str, Any]:
    """Write the zip of an arm's stored test predictions, and beside it as JSON its manifest, which is returned.

    The manifest has the SHA-256 of the zip, and of each of its `files` the run that it comes from, with the validation
    score of that run's last epoch, of which its predictions are. With `fill` the majority class of training (of STS-B
    the mean) stands in place of files that have no predictions. The only arm needs no name. Raises UserError for an
    unknown arm, predictions that are missing or cannot be read, a name that does not end in .zip, and a full disk.
    """
    if output.suffix != ".zip":  # the manifest of `add.json` would replace it
        raise UserError(f"'{output}': the name of a submission ends in .zip")
    arm, results = find_arm(board, arm), board.results
    how = MORE_DATA if results.plan.experiment.finetuning.predicts_test else PREDICT_TEST_ADVICE
    files, origins, missing = _predicted(board, arm)
    _check_label_order(results, {FILES[name].model: name for name in files})
    if not files:
        raise UserError(f"arm '{arm}' of '{results.folder}' has no test predictions at all; {how}")
    if missing and not fill:
        reasons = ", ".join(f"{name} ({why})" for name, why in missing.items())
        raise UserError(
            f"arm '{arm}' has no predictions for {len(missing)} of the eleven files: {reasons}; run what is missing, "
            f"or give --fill for the majority class in their place. Test predictions: {how}"
        )
    files |= {name: fill_file(FILES[name]) for name in missing}
    origins |= {
        name: {"rows": FILES[name].rows, "filled": MAJORITY[FILES[name].task]} for name in missing
    }
    content = make_zip(files)
    manifest: dict[str, Any] = {"zip": output.name, "sha256": hashlib.sha256(content).hexdigest()}
    manifest |= {"experiment": results.experiment, "arm": arm, "data_source": results.data_source}
    manifest |= {"made_up": results.is_made_up, "partial_tasks": list(results.partial_tasks)}
    manifest |= {
        "steps": board.steps,
        "run": RUN_RULE,
        "files": {name: origins[name] for name in FILES},
    }
    # Both files are written before one of them gets its name. The zip gets its name last.
    with (
        results_written_to(output.parent, ELSEWHERE),
        whole_file(output) as zip_file,
        whole_file(output.with_suffix(".json")) as json_file,
    ):
        zip_file.write(content)
        zip_file.flush()
        json_file.write(json_text(manifest).encode())
    return manifest


def _check_label_order(results: Results, tasks: Iterable[str]) -> None:
    """Raise UserError for a task whose data number the labels in another order than GLUE does.

    The zip names the labels by the official order, so that it would have other predictions than the runs made.
    """
    for task in tasks:
        for split, words in results.tasks["differences"][task].items():
            if words.startswith(OTHER_LABEL_ORDER):
                order = ", ".join(f"{i} {label}" for i, label in enumerate(TASKS[task].labels))
                raise UserError(
                    f"{TASKS[task].title}: its {split} split has {words}; the site would read every prediction by "
                    f"the official ids; number the labels {order}, and run the experiment again"
                )


def _predicted(
    board: Board, arm: str
) -> tuple[dict[str, bytes], dict[str, dict[str, Any]], dict[str, str]]:
    """The files that the stored predictions of an arm give, what each is made of, and why the others are missing."""
    runs: dict[Any, dict[Any, Any]] = median_runs(board, arm).to_dict("index")
    results, cells = board.results, board.cells.set_index("cell_id")
    scored = aggregate(main_scores(arm_scores(board, arm)), ["task"])["mean"]
    files, origins, missing = dict[str, bytes](), dict[str, dict[str, Any]](), dict[str, str]()
    for name, file in FILES.items():
        if (run := runs.get(file.model)) is None:
            missing[name] = f"no finished run of {file.model}"
            continue
        cell_id, own = run["cell_id"], file.task == file.model
        if not own and predicts_other_diagnostic(
            results.finished.records[cell_id], results.plan.tasks[file.model]
        ):
            missing[name] = f"'{cell_id}': {OTHER_DIAGNOSTIC}"
            continue
        if (logits := results.logits(cell_id, test=True).get(file.split)) is None:
            what = f"split '{file.split}'" if own else TASKS[file.task].title
            missing[name] = f"'{cell_id}' has predicted no {what}"
            continue
        try:
            files[name] = write_file(file, logits)
        except ValueError as error:
            raise UserError(f"predictions of '{cell_id}', split '{file.split}': {error}") from error
        value = 100 * float(scored[file.model])
        origins[name] = {
            "rows": len(logits),
            "cell_id": cell_id,
            "split": file.split,
            "data": cells["data" if own else "diagnostic"][cell_id],
            "learning_rate": run["learning_rate"],
            "seed": run["seed"],
            # JSON has no NaN; an undefined validation score is null, as in a record.
            "validation": None if math.isnan(value) else round(value, 4),
        }
    return files, origins, missing
