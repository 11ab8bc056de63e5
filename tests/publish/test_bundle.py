"""Bundles: what is in one, that the same content gives the same bytes, and that damage is seen."""

import json
import shutil
import zipfile
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glue_bench.errors import UserError
from glue_bench.publish.bundle import MANIFEST, Manifest, open_bundle, write_bundle
from glue_bench.records.store import Store

DAMAGED = "; the bundle is damaged; get it anew"
NOT_BUNDLED = [
    "checkpoints/add-0/step-1/x.safetensors",
    "cells/{cell}/model/config.json",
    "cells/.making-a/record.json",
    "cells/a/.record.json",
    "progress/a.json",
    "analysis/analysis.json",
    "notes.txt",
    ".a.md",
    "private-notes.md",
    "predictions.csv",
    "tupe-1.csv",
]
"""Files of an experiment's folder that are private, half-written, or no part of the results."""
TABLES = [
    "leaderboard.md",
    "leaderboard.csv",
    "statistics.md",
    "statistics.csv",
    "budget.md",
    "budget.csv",
    "scores.csv",
    "losses.csv",
    "lag_seeds.csv",
    "ratios.csv",
    "ratio_seeds.csv",
    "intrinsic.csv",
]


@pytest.fixture
def bundle(finished, tmp_path) -> Path:
    path = tmp_path / "small.zip"
    write_bundle([Store(finished)], path)
    return path


def contents(path: Path) -> dict[str, bytes]:
    """Return the files in a zip, by name."""
    files: dict[str, bytes] = {}
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            files[name] = archive.read(name)
    return files


def rewrite(path: Path, files: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in files.items():
            archive.writestr(name, content)


def faults(path: Path) -> tuple[str, ...]:
    """Return the faults of the bundle itself."""
    with open_bundle(path) as opened:
        return opened.faults


def test_the_manifest_has_every_file_with_its_size(finished, tmp_path):
    manifest = write_bundle([Store(finished)], tmp_path / "x.zip")
    files = contents(tmp_path / "x.zip")
    assert Manifest.model_validate_json(files.pop(MANIFEST)) == manifest
    assert manifest.experiments == [finished.name]
    assert manifest.files.keys() == files.keys()
    for name, content in files.items():
        assert manifest.files[name].bytes == len(content), name


def test_a_bundle_holds_what_a_run_leaves_and_nothing_private_or_half_written(finished, tmp_path):
    cell = next((finished / "cells").iterdir()).name
    for name in NOT_BUNDLED:
        path = finished / name.format(cell=cell)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    (finished / "tupe-1.md").write_text("")
    write_bundle([Store(finished)], tmp_path / "x.zip")
    files_in_folders: Counter[str] = Counter()
    plain_files = set()
    for name in contents(tmp_path / "x.zip"):
        _, _, place = name.partition("/")
        if "/" in place:
            files_in_folders[place.partition("/")[0]] += 1
        elif place:
            plain_files.add(place)
    assert files_in_folders == {"cells": 12, "labels": 3, "pretrainings": 6}
    assert plain_files == {"plan.json", "tupe-1.md", *TABLES}


def test_the_same_content_gives_the_same_bytes(finished, bundle, tmp_path):
    copy = tmp_path / "elsewhere" / finished.name
    shutil.copytree(finished, copy, copy_function=shutil.copyfile)
    write_bundle([Store(copy)], tmp_path / "second.zip")
    assert bundle.read_bytes() == (tmp_path / "second.zip").read_bytes()


def test_a_file_that_goes_while_a_bundle_is_written_is_left_out(finished, tmp_path, monkeypatch):
    """As when a sweep finishes what had failed."""
    failure = finished / "failures" / "x.json"
    failure.parent.mkdir(exist_ok=True)
    failure.write_text("{}")
    read_bytes = Path.read_bytes

    def read_after_the_failure_is_gone(path):
        failure.unlink(missing_ok=True)
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", read_after_the_failure_is_gone)
    manifest = write_bundle([Store(finished)], tmp_path / "x.zip")
    assert "failures" not in "".join(manifest.files)
    assert faults(tmp_path / "x.zip") == ()


def test_a_write_that_fails_leaves_the_old_bundle_and_nothing_else(finished, bundle, monkeypatch):
    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    content = bundle.read_bytes()
    paths = sorted(bundle.parent.iterdir())
    monkeypatch.setattr(zipfile.ZipFile, "writestr", fail)
    with pytest.raises(UserError, match="No space left on device"):
        write_bundle([Store(finished)], bundle)
    assert bundle.read_bytes() == content
    assert sorted(bundle.parent.iterdir()) == paths


@pytest.fixture
def second(finished) -> Path:
    """A second experiment beside the first one."""
    return shutil.copytree(finished, finished.with_name("second"))


def test_a_folder_of_experiments_gives_one_bundle(finished, second, glue_bench, tmp_path):
    result = glue_bench("export", second.parent, "-o", tmp_path / "x.zip")
    assert result.status == 0, result
    experiments = sorted([second.name, finished.name])
    written = f"{', '.join(experiments)}: written to {tmp_path / 'x.zip'} ("
    assert result.out.startswith(written)
    folders = {name.split("/")[0] for name in contents(tmp_path / "x.zip")}
    assert folders == {*experiments, MANIFEST}


def test_two_experiments_of_one_name_are_refused(finished, refused, tmp_path):
    copy = shutil.copytree(finished, tmp_path / "elsewhere" / finished.name)
    error = refused("export", finished, copy, "-o", tmp_path / "x.zip")
    assert f"two of the folders have one name ({finished.name}); give each experiment once" in error
    assert not (tmp_path / "x.zip").exists()


def test_an_experiment_that_does_not_verify_is_exported_with_a_warning(
    second, glue_bench, tmp_path
):
    path = second / "leaderboard.csv"
    path.write_text(path.read_text().replace(",1,", ",2,", 1))
    result = glue_bench("export", second, "-o", tmp_path / "x.zip")
    assert result.status == 1
    assert (tmp_path / "x.zip").exists()
    assert "second/leaderboard.csv: line 2 is not what the records give" in result.err


def test_the_size_of_a_small_bundle_is_printed_in_kilobytes(bench, glue_bench, tmp_path):
    bench.finish("rte")
    printed = glue_bench("export", bench.plan(), "-o", tmp_path / "x.zip").out
    kilobytes = (tmp_path / "x.zip").stat().st_size / 1000
    assert f" files, {kilobytes:.0f} KB, SHA-256 " in printed


def flip(content: bytes, share: float, bit: int) -> bytes:
    """Flip a bit of the byte that stands behind this share of the content."""
    place = int(share * len(content))
    return content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :]


SHARES = st.floats(0, 1, exclude_max=True)
BITS = st.integers(0, 7)
SAME_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def test_no_bit_of_a_file_can_be_flipped_unseen(bundle):
    files = contents(bundle)
    damaged = bundle.with_name("damaged.zip")

    @given(st.sampled_from(sorted(files)), SHARES, BITS)
    @SAME_FOLDER
    def check(name, share, bit):
        rewrite(damaged, {**files, name: flip(files[name], share, bit)})
        if name == MANIFEST:
            with pytest.raises(UserError, match=r"manifest.json is no manifest, or was changed"):
                faults(damaged)
        else:
            expected = (f"{name}: not what the manifest has a digest of{DAMAGED}",)
            assert faults(damaged) == expected

    check()


def test_no_bit_of_the_archive_can_be_flipped_unseen(bundle):
    archive = bundle.read_bytes()
    files = contents(bundle)
    damaged = bundle.with_name("damaged.zip")

    @given(SHARES, BITS)
    @SAME_FOLDER
    def check(share, bit):
        damaged.write_bytes(flip(archive, share, bit))
        with suppress(UserError):  # it is no bundle any more
            assert faults(damaged) or contents(damaged) == files

    check()


def test_files_that_are_gone_or_were_added_are_named(bundle):
    files = contents(bundle)
    gone = next(name for name in files if name.endswith("/record.json"))
    del files[gone]
    files["small/x.md"] = b""
    rewrite(bundle, files)
    assert faults(bundle) == (
        "small/x.md: not in the manifest; take it away",
        f"{gone}: missing{DAMAGED}",
    )


def test_files_that_lead_out_of_the_folder_are_not_unpacked(bundle, monkeypatch, tmp_path):
    (tmp_path / "aside").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "aside"))
    files = contents(bundle)
    manifest = Manifest.read(files[MANIFEST])
    model = next(name for name in files if name.endswith("/record.json"))
    bad_names = ["../out.md", "/out.md", "small\\..\\out.md", "small/.hidden.md"]
    sums = dict(manifest.files)
    for name in bad_names:
        sums[name] = manifest.files[model]
        files[name] = files[model]
    files[MANIFEST] = manifest.model_copy(update={"files": sums}).seal().file()
    rewrite(bundle, files)
    with open_bundle(bundle) as opened:
        unpacked = {path.name for path in opened.folder.parent.rglob("*")}
        assert unpacked.isdisjoint({"out.md", ".hidden.md"})
        for name in bad_names:
            fault = f"{name}: a bundle has no file of such a name{DAMAGED}"
            assert fault in opened.faults


def test_a_compressed_bundle_is_refused(bundle, refused):
    files = {MANIFEST: contents(bundle)[MANIFEST], "small/x.md": b"0" * 2**20}
    rewrite(bundle, files, zipfile.ZIP_DEFLATED)
    assert "compressed or encrypted" in refused("verify", bundle)


def test_a_bundle_of_another_format_is_refused(bundle, refused):
    document = json.loads(contents(bundle)[MANIFEST])
    document["format"] = "x"
    rewrite(bundle, {MANIFEST: json.dumps(document).encode()})
    assert "no manifest" in refused("verify", bundle)
