"""Where a card and its models go: into a folder, or to a repository of the hub."""

import shutil
from pathlib import Path

from glue_bench.errors import IN_A_FILE, UserError, first_line
from glue_bench.files import ELSEWHERE, results_written_to, whole_folder
from glue_bench.publish.card import CARD_FILE, RESULTS_FILE, Card
from glue_bench.publish.card_usage import PLACEHOLDER
from glue_bench.remote import hub_fault


def write_card(card: Card, folder: Path) -> None:
    """Write a card and its models to a folder, all of them or none.

    Raises UserError if the folder has files, or cannot be written.
    """
    with results_written_to(folder, ELSEWHERE):
        if not folder.exists():
            with whole_folder(folder) as aside:
                _write_files(card, aside)
            return
        if any(folder.iterdir()):
            raise UserError(
                f"'{folder}' is not empty; give a folder that does not exist yet, nothing is "
                "overwritten"
            )
        # An empty folder may be a mounted disk or a link, which no other folder can replace: the
        # files move into it.
        staged = folder / ".card"
        with whole_folder(staged) as aside:
            _write_files(card, aside)
        for entry in sorted(staged.iterdir(), key=lambda entry: entry.name == CARD_FILE):
            entry.rename(folder / entry.name)
        staged.rmdir()


def _write_files(card: Card, folder: Path) -> None:
    """Write the files of a card below a folder."""
    for name, content in card.files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            place.write_bytes(content)
        else:
            shutil.copyfile(content, place)


def push_card(card: Card, repository: str) -> str:
    """Send a card and its models to the hub in one commit, and return the commit's address.

    The repository is made, as a private one, if it does not exist. Raises UserError if there is no
    model to send, or the hub refuses.
    """
    from huggingface_hub import CommitOperationAdd, HfApi

    if card.is_finished:
        raise UserError(
            f"arm '{card.arm}' was fine-tuned elsewhere, so that there is no model to push; write "
            f"the files with -o and add {RESULTS_FILE} to the repository of the model"
        )
    if card.files.keys() <= {CARD_FILE, RESULTS_FILE}:
        raise UserError(
            f"arm '{card.arm}' has kept no model to push; set `finetuning: {{keep: best}}` "
            f"{IN_A_FILE} and run the experiment again, which trains the runs that a card takes "
            "once more"
        )
    fault = hub_fault()
    if fault:
        raise UserError(f"cannot push to '{repository}': {fault}")
    text = card.text.replace(PLACEHOLDER, repository)
    files = {**card.files, CARD_FILE: text.encode()}
    operations = []
    for name, content in files.items():
        operations.append(CommitOperationAdd(path_in_repo=name, path_or_fileobj=content))
    try:
        api = HfApi()
        api.create_repo(repository, private=True, exist_ok=True)
        commit = api.create_commit(
            repository, operations, commit_message="Models and results, by glue-bench"
        )
    except Exception as error:  # httpx, huggingface_hub, OSError and ValueError: no common base
        raise UserError(f"cannot push to '{repository}': {first_line(error)}") from error
    return str(commit.commit_url)
