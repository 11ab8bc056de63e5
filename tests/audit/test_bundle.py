"""Bundles: what is in one, that the same content gives the same bytes, and that no damage goes unseen."""

import json
import shutil
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stored import documents

from glue_bench.audit import bundle as bundle_module
from glue_bench.audit.bundle import MANIFEST, is_place, write_bundle
from glue_bench.audit.checks import Check
from glue_bench.audit.unpack import unpacked
from glue_bench.audit.verify import verify
from glue_bench.errors import UserError
from glue_bench.records.disk import record_digest
from glue_bench.records.store import Store

in_one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def bundle(finished, tmp_path) -> Path:
    path = tmp_path / "small.zip"
    write_bundle([Store(finished)], path)
    return path


@pytest.fixture
def no_tables(monkeypatch) -> None:
    """Only what is told from the bundle itself: the rest takes a second."""
    monkeypatch.setattr("glue_bench.audit.verify.check_experiment", lambda _: [Check("none", "")])


def contents(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewrite(path: Path, files: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in files.items():
            archive.writestr(name, content)


def faults(path: Path) -> list[str]:
    return [fault for verified in verify(path) for fault in verified.faults]


# Writing


def test_a_bundle_of_a_sweep_under_way_describes_what_is_in_it(finished, tmp_path, monkeypatch):
    (moved := finished / "aside").mkdir()
    paths = sorted((finished / "records").iterdir())
    for path in paths[:2]:
        path.rename(moved / path.name)
    whole, glob = bundle_module.read_file, Path.glob

    def then_a_cell_ends(path, most):
        for later in moved.glob(paths[0].name):
            later.rename(paths[0])
        return whole(path, most)

    def and_another_one_between_two_listings(folder, pattern):
        found = list(glob(folder, pattern))
        if folder == finished / "records" and (moved / paths[1].name).exists():
            (moved / paths[1].name).rename(paths[1])
        return found

    monkeypatch.setattr(bundle_module, "read_file", then_a_cell_ends)
    monkeypatch.setattr(Path, "glob", and_another_one_between_two_listings)
    manifest = write_bundle([Store(finished)], tmp_path / "x.zip")
    monkeypatch.undo()
    assert manifest["experiments"]["small"]["records"] == len(paths) - 2
    told = {verified.name: verified.checks for verified in verify(tmp_path / "x.zip")}
    assert [check.faults for check in told["bundle"]] == [()]
    (predictions,) = [check for check in told["small"] if check.name == "predictions"]
    assert predictions.faults == ()


def test_what_is_wrong_with_a_plan_is_said_with_its_own_path(finished, tmp_path):
    (finished / "plan.json").write_text("{")
    with pytest.raises(UserError, match=f"^{finished / 'plan.json'}: not valid JSON"):
        write_bundle([Store(finished)], tmp_path / "x.zip")


def test_it_holds_what_a_run_leaves_and_nothing_private_or_half_written(finished, tmp_path):
    for left in ("checkpoints/add-0/step-1/model.safetensors", "claims/x", "records/.x.json.a1", "notes.txt", ".a.md"):
        (finished / left).parent.mkdir(parents=True, exist_ok=True)
        (finished / left).write_text("{}")
    for kind in ("predictions", "pretraining"):
        (finished / kind / "being-written.safetensors").write_bytes(b"")
    manifest = write_bundle([Store(finished)], tmp_path / "x.zip")
    files = contents(tmp_path / "x.zip")
    assert {name: len(content) for name, content in files.items() if name != MANIFEST} == {
        name: entry["bytes"] for name, entry in manifest["files"].items()
    }
    kinds = [name.split("/")[1] if name.count("/") > 1 else name for name in manifest["files"]]
    assert {kind: kinds.count(kind) for kind in kinds if "." not in kind} == {
        "intrinsic": 4,
        "labels": 3,
        "predictions": 6,
        "pretraining": 4,
        "records": 6,
    }
    tables = {"leaderboard.md", "leaderboard.csv", "scores.csv", "statistics.csv", "budget.csv", "intrinsic.csv"}
    assert {f"small/{name}" for name in ("plan.json", *tables)} <= files.keys()
    assert not [name for name in files if "checkpoints" in name or "claims" in name or "/." in name or "notes" in name]
    assert json.loads(files[MANIFEST]) == manifest


def test_the_manifest_tells_records_data_and_environments(finished, tmp_path):
    manifest = write_bundle([Store(finished)], tmp_path / "x.zip")
    told, record = manifest["experiments"]["small"], documents(Store(finished))[0]
    assert (told["planned"], told["records"], told["failures"]) == (6, 6, 0)
    assert told["environments"] == [{"records": 6, **record["environment"]}]
    assert told["data"][record["cell"]["task"]] == record["data"]
    assert manifest["schema_version"] == 1
    assert manifest["digest"] == record_digest(manifest)


def test_the_same_content_gives_the_same_bytes(finished, tmp_path):
    write_bundle([Store(finished)], tmp_path / "a.zip")
    again = shutil.copytree(finished, tmp_path / "elsewhere" / "small", copy_function=shutil.copyfile)
    write_bundle([Store(again)], tmp_path / "b.zip")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_a_write_that_fails_leaves_the_old_bundle_and_nothing_else(finished, bundle, monkeypatch):
    before = bundle.read_bytes()
    (finished / "leaderboard.md").write_text("changed")

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(zipfile.ZipFile, "writestr", full)
    with pytest.raises(UserError, match="No space left on device"):
        write_bundle([Store(finished)], bundle)
    assert bundle.read_bytes() == before
    assert [path.name for path in bundle.parent.iterdir()] == ["runs", "small.zip"]


@pytest.mark.usefixtures("no_tables")
def test_several_experiments_and_two_of_one_name(finished, glue_bench, refused, tmp_path):
    shutil.copytree(finished, finished.with_name("other"))
    shutil.copytree(finished, tmp_path / "else" / "small")
    said = glue_bench("export", finished.parent, "-o", tmp_path / "x.zip")
    assert said.status == 0, said
    assert [line.split() for line in said.out.splitlines()[:3]] == [
        ["experiment", "cells", "records", "failures"],
        ["other", "6", "6", "0"],
        ["small", "6", "6", "0"],
    ]
    assert {name.split("/")[0] for name in contents(tmp_path / "x.zip")} == {"other", "small", MANIFEST}
    error = refused("export", finished, tmp_path / "else" / "small", "-o", tmp_path / "y.zip")
    assert "two of the folders have one name (small, small); give each experiment once" in error
    assert not (tmp_path / "y.zip").exists()


def test_bad_words_are_one_line(refused, finished, tmp_path):
    assert "the name of a bundle ends in .zip" in refused("export", finished, "-o", tmp_path / "x.tar")
    assert "there is no folder" in refused("export", finished, "-o", tmp_path / "no" / "x.zip")
    assert "no experiment in" in refused("export", tmp_path / "no", "-o", tmp_path / "x.zip")


# Reading


def test_a_bundle_verifies_whole_and_unpacked(bundle, glue_bench, tmp_path, monkeypatch):
    said = glue_bench("verify", bundle)
    assert said.status == 0, said
    assert said.out.endswith(f"{bundle}: good\n")
    with zipfile.ZipFile(bundle) as archive:
        archive.extractall(tmp_path / "unpacked")
    monkeypatch.setattr("glue_bench.audit.checks.check_tables", lambda _: Check("tables", ""))
    assert glue_bench("verify", tmp_path / "unpacked").status == 0
    (tmp_path / "unpacked" / "small" / "more.md").write_text("more")
    said = glue_bench("verify", tmp_path / "unpacked")
    assert said.status == 1
    assert "fault: small/more.md: not in the manifest; take it away" in said.out


@pytest.mark.usefixtures("no_tables")
def test_no_byte_of_any_file_can_be_flipped_unseen(bundle):
    files, damaged = contents(bundle), bundle.with_name("damaged.zip")

    @given(name=st.sampled_from(sorted(files)), where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
    @in_one_folder
    def flip(name, where, bit):
        content = bytearray(files[name])
        content[int(where * len(content))] ^= 1 << bit
        rewrite(damaged, {**files, name: bytes(content)})
        if name == MANIFEST:
            try:
                assert json.loads(content) == json.loads(files[name]) or faults(damaged)  # white space says nothing
            except (UserError, ValueError):
                return
        else:
            assert f"{name}: not what the manifest has a digest of; the bundle is damaged; get it anew" in faults(
                damaged
            )

    flip()


@pytest.mark.usefixtures("no_tables")
def test_a_flip_in_the_archive_is_seen_or_changes_no_content(bundle):
    whole, files, damaged = bundle.read_bytes(), contents(bundle), bundle.with_name("damaged.zip")

    @given(where=st.integers(0, len(whole) - 1), bit=st.integers(0, 7))
    @in_one_folder
    def flip(where, bit):
        content = bytearray(whole)
        content[where] ^= 1 << bit
        damaged.write_bytes(content)
        try:
            assert faults(damaged) or contents(damaged) == files
        except UserError:
            return

    flip()


@pytest.mark.usefixtures("no_tables")
def test_files_that_are_gone_or_were_added_are_named(bundle):
    files = contents(bundle)
    gone = next(name for name in files if "/records/" in name)
    rewrite(bundle, {**{name: content for name, content in files.items() if name != gone}, "small/x.md": b""})
    assert faults(bundle)[:2] == [
        "small/x.md: not in the manifest; take it away",
        f"{gone}: missing; the bundle is damaged; get it anew",
    ]


ESCAPES = ["../out.md", "/out.md", "small/../../out.md", "small\\..\\out.md", "c:/out.md", "small/.hidden.md", "a/b.sh"]


@pytest.mark.usefixtures("no_tables")
@pytest.mark.parametrize("name", ESCAPES)
def test_nothing_is_unpacked_outside(bundle, name):
    assert not is_place(name)
    files = contents(bundle)
    manifest = json.loads(files.pop(MANIFEST))
    manifest["files"][name] = dict(next(iter(manifest["files"].values())))
    manifest["digest"] = record_digest(manifest)
    rewrite(bundle, {**files, name: b"outside", MANIFEST: json.dumps(manifest).encode()})
    with unpacked(bundle) as found:
        assert not list(found.folder.parent.glob("out.md"))
        assert not [path for path in found.folder.rglob("*") if path.name in ("out.md", ".hidden.md", "b.sh")]
    assert any(f"{zipfile.ZipInfo(name).filename}: " in fault for fault in faults(bundle))


def test_a_bomb_is_not_unpacked(bundle):
    files = contents(bundle)
    rewrite(bundle, {MANIFEST: files[MANIFEST], **dict.fromkeys(files.keys() - {MANIFEST}, b"0" * 2**20)}, 8)
    with pytest.raises(UserError, match=r"compressed or encrypted|larger than the archive"):
        verify(bundle)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not a zip", "not a bundle that `glue-bench export` wrote, or damaged"),
        (b"", "not a bundle that `glue-bench export` wrote, or damaged"),
    ],
)
def test_what_is_no_bundle_is_one_line(refused, tmp_path, content, message):
    (tmp_path / "x.zip").write_bytes(content)
    assert message in refused("verify", tmp_path / "x.zip")
    assert "no file or folder" in refused("verify", tmp_path / "nothing")
    rewrite(tmp_path / "y.zip", {"CoLA.tsv": b"index\tprediction\n"})
    assert "it has no manifest.json" in refused("verify", tmp_path / "y.zip")


def test_another_schema_version_is_one_line(bundle, refused):
    files = contents(bundle)
    manifest = {**json.loads(files[MANIFEST]), "schema_version": 2}
    rewrite(bundle, {**files, MANIFEST: json.dumps({**manifest, "digest": record_digest(manifest)}).encode()})
    assert "schema version 2, this glue-bench reads 1" in refused("verify", bundle)


def test_a_bundle_of_what_does_not_verify_says_so(finished, glue_bench, tmp_path):
    path = finished / "leaderboard.csv"
    path.write_text(path.read_text().replace(",1,", ",2,", 1))
    said = glue_bench("export", finished, "-o", tmp_path / "x.zip")
    assert said.status == 1
    assert (tmp_path / "x.zip").exists()
    assert "small/leaderboard.csv: line 2 is not what the records give" in said.err


@pytest.mark.usefixtures("no_tables")
def test_files_of_an_experiment_that_the_manifest_does_not_name(bundle):
    files = contents(bundle)
    manifest = json.loads(files[MANIFEST]) | {"experiments": {}}
    manifest["digest"] = record_digest({key: value for key, value in manifest.items() if key != "digest"})
    rewrite(bundle, files | {MANIFEST: json.dumps(manifest).encode()})
    assert faults(bundle) == [
        "manifest.json: it has files of small, and says nothing of that experiment; the bundle is damaged; get it anew"
    ]
