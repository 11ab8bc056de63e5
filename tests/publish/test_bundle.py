"""Bundles: what is in one, that the same content gives the same bytes, and that no damage goes unseen."""

import json
import shutil
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glue_bench.errors import UserError
from glue_bench.publish.bundle import MANIFEST, Manifest, open_bundle, write_bundle
from glue_bench.records.store import Store

BROKEN = "; the bundle is damaged; get it anew"


@pytest.fixture
def bundle(finished, tmp_path) -> Path:
    path = tmp_path / "small.zip"
    write_bundle([Store(finished)], path)
    return path


def contents(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewrite(path: Path, files: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in files.items():
            archive.writestr(name, content)


def faults(path: Path) -> tuple[str, ...]:
    """Those of the bundle itself."""
    with open_bundle(path) as opened:
        return opened.faults


def test_it_holds_what_a_run_leaves_and_nothing_private_or_half_written(finished, tmp_path):
    cell = next((finished / "cells").iterdir()).name
    left = (
        "checkpoints/add-0/step-1/x.safetensors",
        f"cells/{cell}/model/config.json",
        "cells/.making-a/record.json",
    )
    left += (
        "cells/a/.record.json",
        "progress/a.json",
        "analysis/analysis.json",
        "notes.txt",
        ".a.md",
    )
    for name in (*left, "private-notes.md", "predictions.csv", "tupe-1.csv"):
        (finished / name).parent.mkdir(parents=True, exist_ok=True)
        (finished / name).write_text("{}")
    (finished / "tupe-1.md").write_text("")
    manifest = write_bundle([Store(finished)], tmp_path / "x.zip")
    files = contents(tmp_path / "x.zip")
    assert Manifest.model_validate_json(files.pop(MANIFEST)) == manifest
    assert {name: len(files[name]) for name in files} == {
        name: one.bytes for name, one in manifest.files.items()
    }
    kinds = [name.split("/")[1] for name in files if name.count("/") > 1]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "cells": 12,
        "labels": 3,
        "pretrainings": 6,
    }
    tables = {
        f"{name}.{kind}"
        for name in ("leaderboard", "statistics", "budget")
        for kind in ("md", "csv")
    }
    tables |= {"scores.csv", "losses.csv", "intrinsic.csv", "tupe-1.md"}
    assert {name.split("/")[1] for name in files if name.count("/") == 1} == {"plan.json", *tables}
    assert manifest.experiments == [finished.name]
    again = shutil.copytree(
        finished, tmp_path / "elsewhere" / finished.name, copy_function=shutil.copyfile
    )
    write_bundle([Store(again)], tmp_path / "again.zip")
    assert (tmp_path / "x.zip").read_bytes() == (tmp_path / "again.zip").read_bytes()


def test_a_file_that_goes_while_a_bundle_is_written_is_left_out(finished, tmp_path, monkeypatch):
    """As when a sweep finishes what had failed."""
    failure, real = finished / "failures" / "x.json", Path.read_bytes
    failure.parent.mkdir(exist_ok=True)
    failure.write_text("{}")
    monkeypatch.setattr(
        Path, "read_bytes", lambda path: (failure.unlink(missing_ok=True), real(path))[1]
    )
    assert not [
        name
        for name in write_bundle([Store(finished)], tmp_path / "x.zip").files
        if "failures" in name
    ]
    assert faults(tmp_path / "x.zip") == ()


def test_a_write_that_fails_leaves_the_old_bundle_and_nothing_else(finished, bundle, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    before, there = bundle.read_bytes(), sorted(bundle.parent.iterdir())
    monkeypatch.setattr(zipfile.ZipFile, "writestr", full)
    with pytest.raises(UserError, match="No space left on device"):
        write_bundle([Store(finished)], bundle)
    assert (bundle.read_bytes(), sorted(bundle.parent.iterdir())) == (before, there)


def test_several_experiments_two_of_one_name_and_one_that_does_not_verify(
    finished, glue_bench, refused, tmp_path
):
    other = shutil.copytree(finished, finished.with_name("other"))
    shutil.copytree(finished, tmp_path / "else" / finished.name)
    said = glue_bench("export", finished.parent, "-o", tmp_path / "x.zip")
    assert said.status == 0, said
    assert said.out.startswith(f"other, {finished.name}: written to {tmp_path / 'x.zip'} (")
    assert {name.split("/")[0] for name in contents(tmp_path / "x.zip")} == {
        "other",
        finished.name,
        MANIFEST,
    }
    error = refused("export", finished, tmp_path / "else" / finished.name, "-o", tmp_path / "y.zip")
    assert f"two of the folders have one name ({finished.name}); give each experiment once" in error
    assert not (tmp_path / "y.zip").exists()
    path = other / "leaderboard.csv"
    path.write_text(path.read_text().replace(",1,", ",2,", 1))
    said = glue_bench("export", finished.parent, "-o", tmp_path / "y.zip")
    assert (said.status, (tmp_path / "y.zip").exists()) == (1, True)
    assert "other/leaderboard.csv: line 2 is not what the records give" in said.err


def test_the_size_of_a_small_bundle_is_printed_in_kilobytes(bench, glue_bench, tmp_path):
    bench.finish("rte")
    printed = glue_bench("export", bench.plan(), "-o", tmp_path / "x.zip").out
    kilobytes = (tmp_path / "x.zip").stat().st_size / 1000
    assert f" files, {kilobytes:.0f} KB, SHA-256 " in printed


def test_no_bit_of_a_file_or_of_the_archive_can_be_flipped_unseen(bundle):
    whole, files, damaged = bundle.read_bytes(), contents(bundle), bundle.with_name("damaged.zip")

    def flipped(content: bytes, where: float, bit: int) -> bytes:
        place = int(where * len(content))
        return content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :]

    @given(
        st.sampled_from([None, *sorted(files)]),
        st.floats(0, 1, exclude_max=True),
        st.integers(0, 7),
    )
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    def flip(name, where, bit):
        if name is None:
            damaged.write_bytes(flipped(whole, where, bit))
        else:
            rewrite(damaged, {**files, name: flipped(files[name], where, bit)})
        if name == MANIFEST:
            with pytest.raises(UserError, match=r"manifest.json is no manifest, or was changed"):
                faults(damaged)
        elif name:
            assert faults(damaged) == (f"{name}: not what the manifest has a digest of{BROKEN}",)
        else:
            with suppress(UserError):  # it is no bundle any more
                assert faults(damaged) or contents(damaged) == files

    flip()


def test_files_that_are_gone_were_added_or_lead_out_are_named(bundle, monkeypatch, tmp_path):
    (tmp_path / "aside").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "aside"))
    files = contents(bundle)
    gone = next(name for name in files if name.endswith("/record.json"))
    kept = {name: content for name, content in files.items() if name != gone}
    rewrite(bundle, kept | {"small/x.md": b""})
    assert faults(bundle) == (
        "small/x.md: not in the manifest; take it away",
        f"{gone}: missing{BROKEN}",
    )
    manifest = Manifest.read(kept.pop(MANIFEST))
    away = dict.fromkeys(
        ("../out.md", "/out.md", "small\\..\\out.md", "small/.hidden.md"), manifest.files[gone]
    )
    manifest = manifest.model_copy(update={"files": manifest.files | away}).seal()
    rewrite(bundle, kept | dict.fromkeys(away, files[gone]) | {MANIFEST: manifest.file()})
    with open_bundle(bundle) as opened:
        assert {path.name for path in opened.folder.parent.rglob("*")}.isdisjoint(
            {"out.md", ".hidden.md"}
        )
        assert set(opened.faults) >= {
            f"{name}: a bundle has no file of such a name{BROKEN}" for name in away
        }


def test_what_is_compressed_or_of_another_format_is_refused(bundle, refused):
    files = contents(bundle)
    rewrite(bundle, {MANIFEST: files[MANIFEST], "small/x.md": b"0" * 2**20}, zipfile.ZIP_DEFLATED)
    assert "compressed or encrypted" in refused("verify", bundle)
    rewrite(bundle, {MANIFEST: json.dumps({**json.loads(files[MANIFEST]), "format": "x"}).encode()})
    assert "no manifest" in refused("verify", bundle)
