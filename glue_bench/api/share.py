"""Give results to others: bundles and their check, submissions to the GLUE site, model cards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from glue_bench.errors import UserError, unknown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from glue_bench.config.load import Names
    from glue_bench.publish.bundle import Manifest
    from glue_bench.publish.card import Card
    from glue_bench.publish.verify import Verified


def export(
    paths: Names,
    output: str | Path,
    *,
    format: str = "zip",
    organization: str | None = None,
) -> Manifest | dict[str, Any]:
    """Bundle experiments into one zip for others, or write their logs for Every Eval Ever.

    Args:
        paths: Folders of experiments, or folders that hold several.
        output: The zip to write; with "eee" a folder.
        format: "zip", or "eee" for the logs that `glue_bench.publish.every_eval.write_logs` writes.
        organization: Who states the scores; with "eee" alone.

    Returns:
        The manifest of the zip; with "eee" the logs and the files of predictions on single examples
        that were written, and what was left out.

    Example:
        >>> glue_bench.export("runs/demo", "demo.zip").experiments  # doctest: +SKIP

    Raises:
        UserError: there is no experiment in a folder, options do not go together, or a file cannot
            be written.
    """
    if format not in ("zip", "eee"):
        raise unknown("format", format, ("zip", "eee"), "export")
    if (format == "eee") != bool(organization):
        raise UserError(
            "an organization, who states these scores (--organization my-lab), goes with the "
            "format eee"
        )
    from glue_bench.board.board import open_board
    from glue_bench.config.load import as_list
    from glue_bench.publish.bundle import write_bundle
    from glue_bench.publish.every_eval import write_logs
    from glue_bench.records.store import experiments_in

    stores = [store for folder in as_list(paths) for store in experiments_in(folder)]
    if organization:
        return write_logs(
            [open_board(store.folder) for store in stores], Path(output).expanduser(), organization
        )
    return write_bundle(stores, Path(output).expanduser())


def verify(path: str | Path) -> list[Verified]:
    """Check a bundle, an experiment's folder, or a folder of experiments.

    Example:
        >>> [verified.faults for verified in glue_bench.verify("demo.zip")]  # doctest: +SKIP

    Raises:
        UserError: there is no such file or folder, or it is none of these.
    """
    from glue_bench.publish.verify import verify_folder

    return verify_folder(Path(path).expanduser())


def submit(
    path: str | Path, output: str | Path, *, arm: str | None = None, fill: bool = False
) -> dict[str, Any]:
    """Write the zip of an arm's stored test predictions that the GLUE site takes.

    A JSON file beside it names the run of each file.

    Args:
        path: The folder of the experiment, DIR/<experiment>.
        output: The zip to write; the runs go to the file of the same name that ends in .json.
        arm: The name of the arm; the only arm needs no name.
        fill: Write the majority class in place of files that have no predictions.

    Returns:
        The content of the JSON file: which run each of the zip's files is from.

    Example:
        >>> glue_bench.submit("runs/bert_base", "add.zip", arm="add")["files"]  # doctest: +SKIP

    Raises:
        UserError: there is no such experiment or arm, predictions are missing, or a file cannot be
            written.
    """
    from glue_bench.board.board import open_board
    from glue_bench.publish.submission import write_submission

    return write_submission(open_board(path), Path(output).expanduser(), arm, fill=fill)


def card(path: str | Path, arm: str | None = None) -> Card:
    """Make the model card of an arm of the experiment in the folder `path`.

    The only arm needs no name.

    Of each task it is about the run that `submit` takes. What it states to the hub (`model-index`)
    is that run's score, then the mean over seeds with its standard error, on `nyu-mll/glue`; of
    made-up or partial data nothing is stated. `.eval_results/glue.yaml` among its files has the
    scores in the hub's present format.

    Example:
        >>> print(glue_bench.card("runs/minilm", "add").text)  # doctest: +SKIP

    Raises:
        UserError: no such experiment or arm, an arm without a finished run, or a damaged model.
    """
    from glue_bench.board.board import open_board
    from glue_bench.publish.card import make_card

    return make_card(open_board(path), arm)


# For the command line


def submission_faults(path: Path) -> list[str]:
    """List the faults of a zip for the GLUE site. Raises UserError for what is no zip."""
    from glue_bench.data.submission import MAX_ZIP_BYTES, lint
    from glue_bench.files import read_file

    return lint(read_file(path, MAX_ZIP_BYTES), str(path))


def submission_size() -> tuple[int, int]:
    """Count the files of a good submission, and the predictions in them."""
    from glue_bench.data.submission import FILES

    return len(FILES), sum(file.rows for file in FILES.values())


def task_titles(tasks: Iterable[str]) -> str:
    """Write tasks as tables do: `CoLA, STS-B`."""
    from glue_bench.data.tasks import titles

    return titles(tuple(tasks))


def digest(path: Path) -> str:
    """Compute the SHA-256 of a file."""
    from glue_bench.files import file_digest

    return file_digest(path)


def save_card(card: Card, folder: Path) -> None:
    """Write a card and its models to a folder.

    Raises UserError if the folder has files, or cannot be written.
    """
    from glue_bench.publish.card_output import write_card

    write_card(card, folder)


def send_card(card: Card, repository: str) -> str:
    """Send a card and its models to the hub in one commit, and return the commit's address.

    Raises UserError if there is no model to send, or the hub refuses.
    """
    from glue_bench.publish.card_output import push_card

    return push_card(card, repository)
