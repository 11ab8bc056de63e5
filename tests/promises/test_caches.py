"""Caches: what is kept never takes the place of what lies there now.

Each reader is called, its source is changed in place so that its size and time stay, and the reader
is called again. It must then give what it gives with an empty cache.
"""

import hashlib
import os
import shutil
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import datasets
import pyarrow.parquet
import pytest

from glue_bench.config import load_experiment
from glue_bench.data.sources import open_source
from glue_bench.errors import UserError
from glue_bench.files import cache_folder
from glue_bench.model.checkpoints import read_checkpoint
from glue_bench.remote import fetched
from glue_bench.training import packing, tokenizers, tokens
from glue_bench.training.corpus import open_corpus
from glue_bench.training.inputs import Inputs
from glue_bench.training.packing import pack
from glue_bench.training.tokenizers import load_tokenizer, tokenizer_digest, train_tokenizer
from glue_bench.training.tokens import tokenise

TOKENIZER = train_tokenizer(["the cat chased a dog", "one old fox"], 120)
PAIR = {"sentence1": ["the cat", "a dog"], "sentence2": ["one fox", "the dog"], "label": [0, 1]}
SENTENCES = [
    f"The {word} chased the {animal}."
    for word in ("cat", "dog", "fox")
    for animal in ("hen", "cow", "pig")
] * 4


@pytest.fixture(autouse=True)
def _empty_caches(tmp_path, monkeypatch):
    monkeypatch.setenv("GLUE_BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets-cache")
    datasets.disable_progress_bars()
    fetched.cache_clear()
    yield
    fetched.cache_clear()


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def write_tsv(folder: Path) -> Path:
    (folder / "RTE").mkdir()
    lines = [
        "sentence1\tsentence2\tlabel",
        "the cat\tone fox\tentailment",
        "a dog\tthe dog\tnot_entailment",
    ]
    (folder / "RTE" / "train.tsv").write_text("\n".join(lines))
    return folder / "RTE" / "train.tsv"


def write_parquet(folder: Path) -> Path:
    (folder / "rte").mkdir()
    path = folder / "rte" / "train-00000-of-00001.parquet"
    pyarrow.parquet.write_table(
        pyarrow.table(PAIR), path, compression="none", write_statistics=False
    )
    return path


def write_saved(folder: Path) -> Path:
    dataset = datasets.DatasetDict(train=datasets.Dataset.from_dict(PAIR))
    dataset.save_to_disk(str(folder / "rte"))
    del dataset
    return folder / "rte" / "train" / "data-00000-of-00001.arrow"


def write_text(folder: Path) -> Path:
    (folder / "text.txt").write_text("\n".join(SENTENCES))
    return folder / "text.txt"


def write_model(folder: Path) -> Path:
    from transformers import BertConfig, BertModel

    sizes = {
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 8,
    }
    BertModel(BertConfig(vocab_size=130, max_position_embeddings=16, **sizes)).save_pretrained(
        folder
    )
    return folder / "model.safetensors"


def write_tokenizer(folder: Path) -> Path:
    TOKENIZER.save_pretrained(folder)
    return folder / "tokenizer.json"


def read_tokens(folder: Path) -> str:
    split = tokenise(open_source(str(folder)).load("rte"), TOKENIZER, 16).splits["train"]
    return digest(split.ids.tobytes() + split.labels.tobytes())


def read_packed(folder: Path) -> str:
    text = pack(open_corpus([str(folder)]), TOKENIZER, 16, 0.2)
    return digest(text["train"].ids.tobytes() + text["validation"].ids.tobytes())


def trained(folder: Path) -> Inputs:
    """Return the inputs of an experiment that trains a tokenizer on the text in a folder, and an
    encoder.
    """
    scratch = {
        "vocab_size": 120,
        "max_position_embeddings": 16,
        "hidden_size": 8,
        "num_hidden_layers": 1,
    }
    scratch |= {"num_attention_heads": 2, "intermediate_size": 8}

    pretraining = {
        "corpus": [str(folder)],
        "steps": 1,
        "batch_tokens": 32,
        "length": 16,
        "learning_rates": [1e-3],
    }

    values = {
        "name": "toy",
        "data": "demo",
        "checkpoint": "scratch",
        "arms": ["add"],
        "tasks": ["rte"],
        "seeds": [1],
    }

    return Inputs(
        load_experiment(values | {"scratch": scratch, "pretraining": pretraining}), folder / "none"
    )


def read_trained(folder: Path) -> str:
    inputs = trained(folder)
    return inputs.first_arm.tokenizer_digest


def read_weights(folder: Path) -> str:
    return read_checkpoint(str(folder)).digest


def of_data(folder: Path) -> str:
    return open_source(str(folder)).load("rte").digest


READERS = {
    "rows of TSV": (write_tsv, of_data),
    "rows of Parquet": (write_parquet, of_data),
    "rows of save_to_disk": (write_saved, of_data),
    "tokens of a task": (write_tsv, read_tokens),
    "text": (write_text, lambda folder: open_corpus([str(folder)]).digest),
    "packed text": (write_text, read_packed),
    "a tokenizer that was trained": (write_text, read_trained),
    "a tokenizer": (write_tokenizer, lambda folder: tokenizer_digest(load_tokenizer(str(folder)))),
    "a checkpoint": (write_model, read_weights),
    "rows behind a URL": (write_tsv, lambda folder: of_data(f"file://{folder}")),
    "text behind a URL": (write_text, lambda folder: open_corpus([f"file://{folder}"]).digest),
}


def change(path: Path) -> None:
    """Exchange content for other content of the same size, in the same file, and put its time
    back.
    """
    status = path.stat()
    content = path.read_bytes()
    changed = content.replace(b"fox", b"cow").replace(b"cat", b"dog")
    if path.suffix == ".json":
        changed = content.replace(b'"fox"', b'"foy"')
    if path.suffix == ".safetensors":
        changed = content[:-4] + b"\0\0\0\0"
    assert len(changed) == len(content)
    assert changed != content
    with path.open("r+b") as file:
        file.write(changed)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_mtime_ns == status.st_mtime_ns


@pytest.mark.parametrize("name", READERS)
def test_what_is_kept_never_takes_the_place_of_what_lies_there(name, tmp_path):
    write, read = READERS[name]
    (tmp_path / "source").mkdir()
    path = write(tmp_path / "source")
    before = read(tmp_path / "source")
    assert read(tmp_path / "source") == before
    change(path)
    fetched.cache_clear()  # as in another process
    after = read(tmp_path / "source")
    shutil.rmtree(cache_folder(), ignore_errors=True)
    shutil.rmtree(tmp_path / "datasets-cache", ignore_errors=True)
    fetched.cache_clear()
    assert read(tmp_path / "source") == after
    assert after != before


def pack_after(folder: Path, change) -> str:
    """Read the text's digest, change the text, and pack it."""
    corpus = open_corpus([str(folder)])
    change()
    text = pack(corpus, TOKENIZER, 16, 0.2)
    return digest(text["train"].ids.tobytes() + text["validation"].ids.tobytes())


def train_after(folder: Path, change) -> str:
    """Read the text's digest, change the text, and train a tokenizer on it."""
    inputs = trained(folder)
    assert inputs.text.corpus.digest
    change()
    return inputs.first_arm.tokenizer_digest


READ_TEXT = {"packed text": pack_after, "a tokenizer that was trained": train_after}
CHANGES = {
    "other words": change,
    "fewer documents": lambda path: path.write_text("One."),
    "no UTF-8": lambda path: path.write_bytes(b"\xff\xfe" * 50),
    "no file": Path.unlink,
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", READ_TEXT)
def test_text_that_changes_after_it_was_looked_at_is_refused_and_nothing_of_it_is_kept(
    name, change, tmp_path
):
    (tmp_path / "source").mkdir()
    path = write_text(tmp_path / "source")
    shutil.copy2(path, tmp_path / "copy.txt")
    read = READ_TEXT[name]
    change_file = CHANGES[change]
    with pytest.raises(
        UserError, match=r"has changed while it was in use; run again|cannot read corpus"
    ) as caught:
        read(tmp_path / "source", lambda: change_file(path))
    assert "\n" not in str(caught.value)
    shutil.copy2(tmp_path / "copy.txt", path)
    repeated = read(tmp_path / "source", lambda: None)
    shutil.rmtree(cache_folder())
    assert read(tmp_path / "source", lambda: None) == repeated


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ((packing, "LAYOUT_VERSION"), "packed text"),
        ((tokens, "TOKENS_VERSION"), "tokens of a task"),
        ((tokenizers, "TRAINER_VERSION"), "a tokenizer that was trained"),
    ],
)
def test_another_version_of_what_makes_them_keeps_its_own(version, name, tmp_path, monkeypatch):
    write, read = READERS[name]
    (tmp_path / "source").mkdir()
    write(tmp_path / "source")
    read(tmp_path / "source")
    before = {*cache_folder().glob("*/*")}
    monkeypatch.setattr(*version, 99)
    read(tmp_path / "source")
    assert {*cache_folder().glob("*/*")} > before


class Changing(BaseHTTPRequestHandler):
    """A web server that tells states of its one file apart by their ETag alone."""

    content = b"One sentence."

    def do_HEAD(self):
        self.send_response(200)
        self.send_header("ETag", digest(self.content))
        self.send_header("Content-Length", str(len(self.content)))
        self.end_headers()

    def do_GET(self):
        self.do_HEAD()
        self.wfile.write(self.content)

    def log_message(self, *_):
        pass


def test_a_file_on_the_web_that_has_changed_is_copied_again(monkeypatch):
    server = HTTPServer(("127.0.0.1", 0), Changing)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/text.txt"
        assert [*open_corpus([url])] == ["One sentence."]
        monkeypatch.setattr(Changing, "content", b"Two sentence.")
        fetched.cache_clear()
        assert [*open_corpus([url])] == ["Two sentence."]
    finally:
        server.shutdown()
        server.server_close()
