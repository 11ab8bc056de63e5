"""The committed results as the format has them since "one type each".

    PYTHONPATH=. python results/pending/migrate.py results/study_eight [--glue ../shared/glue]

The experiment's file is configs/<name of the folder>.yaml, which the old plan has to agree with. Recipes 2 and 3 in
float32 are what COMPUTES = 1 stands for; anything else is refused. No digest is invented: what the old records did not
know is None. With the data of GLUE the trivial baselines are added, where the data's digest is that of the runs.
"""

import argparse
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from glue_bench.config import Experiment, Hyperparameters, PretrainingSettings, load_experiment
from glue_bench.data.baselines import baseline_predictions
from glue_bench.data.sources import open_source
from glue_bench.records.store import Labels, Store
from glue_bench.records.values import ArmFacts, Cell, Plan, Pretraining, PretrainingRecord, Record, TaskFacts
from glue_bench.training.inputs import Inputs

ROOT = Path(__file__).parents[2]
OLD = ("records", "predictions", "pretraining", "intrinsic")
OF_ARM = ("variant", "options", "tokenizer", "plugin")
COUNTS = ("steps", "tokens", "seconds", "tokens_per_second", "peak_memory_bytes", "stream", "train_loss",
          "validation_loss", "validation_tokens", "corpus_tokens", "losses", "segment_pairs", "micro_batch_tokens",
          "environment")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--glue", type=Path, default=ROOT.parent / "shared" / "glue")
    asked = parser.parse_args()
    old = Old(asked.folder)
    plan = old.plan(load_experiment(ROOT / "configs" / f"{asked.folder.resolve().name}.yaml"))
    labels = {task: old.labels(task, facts.digest, asked.glue) for task, facts in plan.tasks.items()}
    shutil.rmtree(asked.folder / "labels")
    store = Store(asked.folder)
    store.write_plan(plan, labels)
    for name, pretraining in old.pretrainings.items():
        old.write_pretraining(store, name, pretraining)
    for name, cell in old.cells.items():
        old.write_cell(store, name, cell)
    for kind in OLD:
        shutil.rmtree(asked.folder / kind, ignore_errors=True)
    print(f"{asked.folder}: {len(old.cells)} cells, {len(old.pretrainings)} pretrainings")


class Old:
    """A folder of the old format, and its cells and pretrainings as new ones, by their old ids."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told = read(folder / "plan.json")
        self.pretrainings: dict[str, Pretraining] = {}
        self.cells: dict[str, Cell] = {}

    def plan(self, experiment: Any) -> Plan:
        """The plan with ids made anew."""
        arms, configured = self.told["arms"], {arm.name: arm for arm in experiment.arms}
        inputs = Inputs(experiment, self.folder)
        for each in sorted(self.told.get("pretrainings", ()), key=lambda each: not each.get("is_search", False)):
            identity, searches = each["identity"], each.get("searches", ())
            check_recipe(identity["recipe"])
            own = settings_of(each, experiment)
            self.pretrainings[each["pretraining_id"]] = Pretraining(
                arm=each["arm"],
                **{name: identity.get(name) for name in OF_ARM},
                checkpoint=inputs.start_digest(configured[each["arm"]]),
                origin=arms[each["arm"]]["origin"],
                corpus=identity["corpus"],
                packing=identity["packing"],
                settings=own,
                parts=identity["settings"].get("micro_batch_tokens"),
                searches=tuple(sorted(self.pretrainings[search].id for search in searches)),
                is_search=each.get("is_search", False),
            )
        for asked in self.told["cells"]:
            arm, task = arms[asked["arm"]], self.told["tasks"][asked["task"]]
            check_recipe(asked["recipe"])
            pretraining = self.pretrainings.get(asked.get("pretraining"))
            self.cells[asked["cell_id"]] = Cell(
                arm=asked["arm"],
                **{name: arm[name] for name in OF_ARM},
                checkpoint=pretraining.checkpoint if pretraining else arm["start"],
                origin=asked["origin"],
                task=asked["task"],
                data=task["data"],
                settings=Hyperparameters(learning_rate=asked["learning_rate"], **task["hyperparameters"]),
                seed=asked["seed"],
                pretraining=pretraining.id if pretraining else None,
                pretraining_seed=asked.get("pretraining_seed"),
                steps=asked.get("steps"),
            )
        facts = {name: {key: arm[key] for key in ArmFacts.model_fields if key in arm} for name, arm in arms.items()}
        ran = {record["cell"]["task"]: record["data"] for record in map(read, self.paths("records"))}
        return Plan(
            experiment=without_places(experiment, self.told),
            arms=facts,
            tasks={task: TaskFacts(**ran[task]) for task in self.told["tasks"]},
            tokens=self.told["training_tokens"],
            pretrainings=tuple(self.pretrainings[each["pretraining_id"]] for each in self.told.get("pretrainings", ())),
            cells=tuple(self.cells[each["cell_id"]] for each in self.told["cells"]),
        )

    def paths(self, kind: str) -> list[Path]:
        return sorted((self.folder / kind).glob("*.json"))

    def labels(self, task: str, digest: str, glue: Path) -> Labels:
        """The gold labels, and the baselines where the data are here."""
        gold = load_file(self.folder / "labels" / f"{task}-{digest[:12]}.safetensors")
        data = open_source(str(glue)).load(task) if glue.is_dir() else None
        return {"gold": gold, **(baseline_predictions(data) if data and data.digest == digest else {})}

    def write_pretraining(self, store: Store, name: str, pretraining: Pretraining) -> None:
        path = self.folder / "pretraining" / f"{name}.json"
        told = read(path)
        check_float32(told)
        measured = self.folder / "intrinsic" / f"{name}.json"
        measures = read(measured) if measured.is_file() else {}
        record = PretrainingRecord(
            pretraining=pretraining.model_copy(update={"rate": told.get("learning_rate")}),
            **{key: told[key] for key in COUNTS if key in told},
            measures=measures.get("measures", ()),
            measure_tokens=measures.get("tokens"),
        )
        if measures and (measures["step"], measures["arm"]) != (told["steps"], told["arm"]):
            raise SystemExit(f"{measured}: not of this pretraining")
        losses = arrays(path.with_suffix(".safetensors"), told.get("validation_sha256"))
        sums = load_file(measured.with_suffix(".safetensors")) if measures else None
        store.write(record, losses=losses, sums=sums)

    def write_cell(self, store: Store, name: str, cell: Cell) -> None:
        told = read(self.folder / "records" / f"{name}.json")
        check_float32(told)
        check_same(name, told, cell, self.pretrainings)
        facts = ("scores", "history", "collapsed", "parameters", "environment", "graft_is_exact", "variance_kept")
        record = Record(
            cell=cell,
            **{key: told[key] for key in facts if key in told},
            seconds=told["seconds"]["total"],
            training_seconds=told["seconds"]["training"],
            training_tokens=told["tokens"]["training"],
        )
        path = self.folder / "predictions" / f"{name}.safetensors"
        store.write(record, logits=arrays(path, told["predictions_sha256"]))


def read(path: Path) -> dict[str, Any]:
    """A JSON object; one with a digest has to have its own."""
    document = json.loads(path.read_bytes())
    content = {key: value for key, value in document.items() if key != "digest"}
    own = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    if document.get("digest", own) != own:
        raise SystemExit(f"{path}: edited")
    return document


def arrays(path: Path, digest: str | None) -> dict[str, np.ndarray] | None:
    """The arrays of a file, which has to have this digest; None where there is no file."""
    if digest is None and not path.is_file():
        return None
    if hashlib.sha256(path.read_bytes()).hexdigest() != digest:
        raise SystemExit(f"{path}: not the file that its record names")
    return load_file(path)


def settings_of(told: dict[str, Any], experiment: Experiment) -> PretrainingSettings:
    """The settings of an old plan's pretraining, as `make_plan` settles them."""
    identity = told["identity"]
    own = experiment.pretraining.run(experiment.pretraining.seeds[0] if told.get("is_search") else told["seed"])
    if told.get("is_search"):
        (own,) = [one for one in own.searches() if one.learning_rate == identity["settings"]["learning_rate"]]
    plain = {"corpus": [identity["corpus"]], "tokenizer": None, "learning_rates": sorted(own.learning_rates)}
    settled = own.model_copy(update=plain)
    hashed = identity["settings"]
    rates = hashed.get("learning_rates", [hashed.get("learning_rate")])
    if (rates, hashed["seed"], hashed["steps"]) != (plain["learning_rates"], settled.seed, settled.steps):
        raise SystemExit(f"{told['pretraining_id']}: not what the configuration asks for")
    return settled


def without_places(experiment: Experiment, told: dict[str, Any]) -> Experiment:
    """As `make_plan` does it."""
    changes: dict[str, Any] = {"data": told["data_source"], "plugins": []}
    if experiment.pretraining:
        corpus = told["pretrainings"][0]["identity"]["corpus"]
        changes["pretraining"] = experiment.pretraining.model_copy(update={"corpus": [corpus]})
    return experiment.model_copy(update=changes)


def check_recipe(recipe: int) -> None:
    if recipe not in (2, 3):
        raise SystemExit(f"recipe {recipe} computed other bits: such runs have to be made again")


def check_float32(told: dict[str, Any]) -> None:
    if {told["environment"]["precision"], told.get("precision") or "float32"} != {"float32"}:
        raise SystemExit("recipes 2 and 3 differ in bf16: such runs have to be made again")


def check_same(name: str, told: dict[str, Any], cell: Cell, pretrainings: dict[str, Pretraining]) -> None:
    """That the record is of the cell that the plan asks for."""
    start = told["checkpoint"]["digest"]
    if cell.pretraining:
        _, old, _, steps = start.split()
        start = cell.checkpoint
        if (pretrainings[f"{cell.arm}-{old}"].id, int(steps)) != (cell.pretraining, cell.steps):
            raise SystemExit(f"{name}: from another pretraining")
    known = {**told["cell"], **{key: told[key] for key in ("origin", "options", "plugin", "tokenizer")}}
    known |= {"data": told["data"]["digest"], "checkpoint": start}
    mine = {key: getattr(cell, key) if key != "learning_rate" else cell.settings.learning_rate for key in known}
    if mine != known or told["hyperparameters"] != cell.document()["settings"]:
        raise SystemExit(f"{name}: the record is of another cell than the plan's")


if __name__ == "__main__":
    main()
