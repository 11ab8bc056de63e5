"""Verbs that publish: a submission to the GLUE site, a model card, a bundle, and its check."""

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Exit, Option

from glue_bench import api
from glue_bench.cli.common import (
    STATUS,
    Folder,
    check_output,
    echo_some,
    fail_with_findings,
    print_rows,
)
from glue_bench.errors import UserError, shortened
from glue_bench.terminal import echo

Arm = Annotated[str | None, Option(metavar="NAME", help="The arm; needed where there are several.")]


def submit(
    folder: Annotated[
        Path | None,
        Argument(metavar="DIR/EXPERIMENT", help="The folder of an experiment's results."),
    ] = None,
    arm: Arm = None,
    output: Annotated[
        Path | None,
        Option("-o", "--output", metavar="FILE.zip", help="The zip; FILE.json says its runs."),
    ] = None,
    fill: Annotated[
        bool, Option("--fill", help="Where predictions are missing, write the majority class.")
    ] = False,
    check: Annotated[
        Path | None, Option(metavar="FILE.zip", help="Instead, look for mistakes in any zip.")
    ] = None,
) -> None:
    """Write the zip of an arm's test predictions that the GLUE site takes, or check one."""
    if check is not None:
        if folder or arm or output or fill:
            raise UserError("--check takes a zip alone, without an experiment or any other option")
        faults = api.submission_faults(check)
        echo_some(faults)
        if faults:
            raise Exit(STATUS["failed"])
        files, predictions = api.submission_size()
        echo(f"{check}: good; {files} files, {predictions} predictions")
        return

    if folder is None or output is None:
        raise UserError("give DIR/EXPERIMENT and -o FILE.zip, or --check FILE.zip")
    check_output(output, ".zip")
    manifest = api.submit(folder, output, arm=arm, fill=fill)

    rows = []
    for name, origin in manifest["files"].items():
        run = origin.get("cell_id", f"none: {origin.get('filled')} on every row (--fill)")
        value = origin.get("validation")
        rows.append((name, origin["rows"], run, "-" if value is None else f"{value:.2f}"))
    print_rows(("file", "rows", "run", "validation"), rows)

    runs_file = output.with_suffix(".json")
    echo(f"\nwritten to {output} (SHA-256 {manifest['sha256']}), its runs to {runs_file}")
    _print_filled(manifest["files"])
    if manifest["made_up"]:
        echo("made-up data: this zip is no submission")
    if manifest["partial_tasks"]:
        tasks = api.task_titles(manifest["partial_tasks"])
        echo(
            f"the models saw other rows than all official ones: {tasks} ({manifest['data_source']})"
        )

    faults = api.submission_faults(output)
    fail_with_findings(f"the site will not take {output}", faults)


def _print_filled(origins: dict[str, dict[str, Any]]) -> None:
    """Name the files of a submission that were filled, and those whose runs are planned."""
    filled = [name for name, origin in origins.items() if "filled" in origin]
    if filled:
        echo(f"filled with the majority class, not predicted: {', '.join(filled)}")
    planned = [name for name in filled if origins[name]["planned"]]
    if planned:
        advice = "glue-bench run goes on with what is missing"
        echo(f"of these the experiment has {', '.join(planned)}; {advice}", fg="yellow")


def card(
    folder: Folder,
    arm: Arm = None,
    output: Annotated[
        Path | None, Option("-o", "--output", metavar="DIR", help="Write card and models there.")
    ] = None,
    push: Annotated[
        str | None, Option(metavar="REPO", help="Send both to this hub repository; private if new.")
    ] = None,
) -> None:
    """Write a model card with an arm's results, for the hub, and send it with the models."""
    model_card = api.card(folder, arm)
    if model_card.without:
        tasks = ", ".join(model_card.without)
        echo(
            f"no model is kept of {tasks} (finetuning.keep: best keeps them)", fg="yellow", err=True
        )
    if output is not None:
        api.save_card(model_card, output)
        echo(f"files written to {output}: {len(model_card.files)}")
    if push is not None:
        address = api.send_card(model_card, push)
        echo(f"pushed: {address}")
    if output is None and push is None:
        echo(model_card.text, nl=False)


def export(
    folders: Annotated[
        list[Path], Argument(metavar="DIR/EXPERIMENT", help="Results, or a folder of several.")
    ],
    output: Annotated[
        Path,
        Option("-o", "--output", metavar="FILE.zip|DIR", help="What to write; for eee a folder."),
    ],
    format: Annotated[
        str, Option("--format", help="zip: a bundle; eee: logs of Every Eval Ever.")
    ] = "zip",
    organization: Annotated[
        str | None, Option(metavar="NAME", help="With --format eee: who states these scores.")
    ] = None,
) -> None:
    """Bundle records, predictions, tables, plan and environments of experiments into one file.

    With `--format eee`, write the scores, their uncertainties and the predictions as logs of Every
    Eval Ever.
    """
    if format == "zip":
        check_output(output, ".zip")
    written = api.export(folders, output, format=format, organization=organization)
    if isinstance(written, dict):
        echo_some([output / name for name in (*written["files"], *written["samples"])])
        reasons = [f"{name}: {reason}" for name, reason in written["left_out"].items()]
        echo_some(reasons, "left out: ", err=True)
        return
    kilobytes = output.stat().st_size / 1e3
    size = f"{kilobytes:.0f} KB" if kilobytes < 1e3 else f"{kilobytes / 1e3:.1f} MB"
    facts = f"{len(written.files)} files, {size}, SHA-256 {api.digest(output)}"
    echo(f"{', '.join(written.experiments)}: written to {output} ({facts})")
    faults: list[str] = []
    for verified in api.verify(output):
        faults.extend(verified.faults)
    fail_with_findings(f"glue-bench verify {output} will find", faults)


def verify(
    path: Annotated[
        Path, Argument(metavar="FILE|DIR", help="A bundle, or the folder of an experiment.")
    ],
) -> None:
    """Check that digests and ids are right, and that records give the scores and the tables."""
    faults: list[str] = []
    for verified in api.verify(path):
        echo(f"{verified.name}\n")
        rows = []
        for check in verified.checks:
            state = "FAULT" if check.faults else "good"
            rows.append((check.name, state, shortened(check.result, 500)))
        print_rows(("check", "result", "what was found"), rows)
        echo()
        faults.extend(verified.faults)
    echo_some(faults, "fault: ")
    if faults:
        echo(f"{path}: faults: {len(faults)}")
        raise Exit(STATUS["failed"])
    echo(f"{path}: good")
