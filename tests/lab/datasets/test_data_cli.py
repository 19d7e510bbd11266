"""`rfa data` and `rfa data get`: listing, downloading, unpacking, merging; errors in one line."""

from __future__ import annotations

import importlib
import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rfa.cli import data as cli
from rfa.cli.main import main
from rfa.lab.datasets import fetch
from rfa.lab.datasets.catalog import CATALOG, DataSet, Source
from rfa.lab.datasets.dataset import DataError
from rfa.lab.datasets.download import DownloadError
from tests.lab.datasets.server import Answer, Server, honest, serve, whole

VECTORS = b"the 0.1 0.2\nof 0.3 0.4\n" * 1000


@pytest.fixture(autouse=True)
def _own_settings(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del cache
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def server() -> Iterator[Server]:
    with serve() as running:
        yield running


def run(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(main, ["data", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert "Traceback" not in result.output
    return result


def listing(*arguments: str | Path) -> dict[str, Any]:
    result = run("--json", *arguments)
    assert result.exit_code == 0
    listed = json.loads(result.stdout)
    return {each["name"]: each for each in listed["datasets"]} | {"at": listed["directory"]}


def dataset(*sources: Source) -> DataSet:
    files = tuple(f"{source.file}|{source.file}.gz" for source in sources)
    return DataSet("toy", "A toy", files, sources, "its page", "none", None, "")


def put(monkeypatch: pytest.MonkeyPatch, *sources: Source) -> None:
    monkeypatch.setitem(CATALOG, "toy", dataset(*sources))


def archive(**members: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return packed.getvalue()


def shard(values: list[int], **options: Any) -> bytes:
    arrow: Any = pytest.importorskip("pyarrow")
    parquet: Any = importlib.import_module("pyarrow.parquet")
    packed = io.BytesIO()
    columns = {"user": [f"u{value}" for value in values], "sentiment": values}
    parquet.write_table(arrow.table(columns), packed, **options)
    return packed.getvalue()


def rows(path: Path) -> Any:
    parquet: Any = importlib.import_module("pyarrow.parquet")
    return parquet.read_table(path).to_pydict()["sentiment"]


def test_the_catalog_names_the_files_that_are_read() -> None:
    for name, task in cli.USED_BY.items():
        reader = task.reader
        assert CATALOG[name].files == reader.files
    for each in CATALOG.values():
        assert [source.file for source in each.sources] == [
            entry.split("|")[0] for entry in each.files
        ]
        assert all(source.url.startswith("https://") for source in each.sources)


def test_without_a_directory_everything_is_missing_but_what_is_made() -> None:
    listed = listing()
    assert listed["at"] is None
    assert listed["sent140"]["missing"] == ["sent140.parquet", "glove.6B.50d.txt"]
    assert listed["emnist"]["paper"]["devices"] == 1000
    assert listed["emnist"]["counts"] is None
    assert not listed["emnist"]["there"]
    assert listed["glyphs"]["there"]
    assert listed["glyphs"]["counts"]["devices"] == 1000
    assert "No data directory is set" in run().output


@pytest.mark.parametrize("name", ["empty", "absent"])
def test_an_empty_or_absent_directory(tmp_path: Path, name: str) -> None:
    directory = tmp_path / name
    if name == "empty":
        directory.mkdir()
    output = " ".join(run("--data-dir", directory).output.split())
    assert "Missing: femnist.parquet" in output
    assert "rfa data get emnist|shakespeare|sent140|glove" in output
    assert ("does not exist" in output) == (name == "absent")
    for each in CATALOG.values():
        assert each.origin in output
        assert each.license in output


def test_the_directory_may_come_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RFA_DATA", str(tmp_path))
    (tmp_path / "glove.6B.50d.subset.txt.gz").touch()
    listed = listing()
    assert listed["at"] == str(tmp_path)
    assert listed["glove"]["there"]
    assert listed["sent140"]["missing"] == ["sent140.parquet"]


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "shakespeare.zip").write_text("no archive")
    listed = listing("--data-dir", tmp_path)
    assert not listed["shakespeare"]["there"]
    assert "shakespeare.zip" in listed["shakespeare"]["problem"]
    assert "unreadable" in run("--data-dir", tmp_path).output


def test_a_cache_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object, **_options: object) -> None:
        msg = "the cache is full"
        raise DataError(msg)

    (tmp_path / "femnist.parquet").touch()
    monkeypatch.setattr(cli, "load", fail)
    assert listing("--data-dir", tmp_path)["emnist"]["problem"] == "the cache is full"


def test_get_a_file_and_leave_it_alone_the_next_time(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = archive(**{"x/full.html": b"<html>"})
    server.script = honest({"/a.zip": content})
    put(monkeypatch, Source("a.zip", server.url("/a.zip"), holds="/full.html"))
    result = run("get", "toy", "--data-dir", tmp_path / "new")
    assert result.exit_code == 0
    assert str(tmp_path / "new" / "a.zip") in result.output
    assert (tmp_path / "new" / "a.zip").read_bytes() == content
    assert "there already" in run("--data-dir", tmp_path / "new", "get", "toy").output
    assert len(server.asked) == 1


def test_a_file_under_its_other_name_is_not_downloaded(server: Server, tmp_path: Path) -> None:
    (tmp_path / "a.txt.gz").touch()
    assert fetch.get(dataset(Source("a.txt", server.url("/a"))), tmp_path) == []
    assert server.asked == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"no archive", "not a zip archive"),
        (archive(other=b""), "none of its 1 members"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",  # an archive tells the time
)
def test_get_a_wrong_archive(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, said: str
) -> None:
    server.play(whole(content))
    put(monkeypatch, Source("a.zip", server.url("/a.zip"), holds="/full.html"))
    result = run("get", "toy", "--data-dir", tmp_path)
    assert result.exit_code == 1
    assert said in result.output
    assert [path for path in tmp_path.iterdir() if path.name != "cache"] == []


def test_get_a_member_of_an_archive(server: Server, tmp_path: Path) -> None:
    server.script = honest({"/all.zip": archive(**{"v.txt": VECTORS, "w.txt": b"other"})})
    source = Source("v.txt", server.url("/all.zip"), member="v.txt")
    seen: list[str] = []

    def note(label: str, done: int, total: int | None) -> None:
        seen.append(f"{label} {done} {total}")

    assert fetch.get(dataset(source), tmp_path, note) == [tmp_path / "v.txt"]
    assert (tmp_path / "v.txt").read_bytes() == VECTORS
    assert [path.name for path in tmp_path.iterdir()] == ["v.txt"]
    assert seen[-1] == f"unpacking v.txt {len(VECTORS)} {len(VECTORS)}"


def test_a_damaged_member_is_found_and_the_archive_thrown_away(
    server: Server, tmp_path: Path
) -> None:
    content = bytearray(archive(**{"v.txt": VECTORS}))
    content[45] ^= 0xFF
    server.play(whole(bytes(content)))
    source = Source("v.txt", server.url("/all.zip"), member="v.txt")
    with pytest.raises(DownloadError, match="damaged"):
        fetch.get(dataset(source), tmp_path)
    assert list(tmp_path.iterdir()) == []


def listed_shards(server: Server, *shards: bytes) -> Source:
    files = {f"/{k}.parquet": content for k, content in enumerate(shards)}
    urls = [server.url(path) for path in files]
    listed = {"default": {"train": urls, "test": [server.url("/test.parquet")]}}
    server.script = honest({**files, "/list": json.dumps(listed).encode()})
    return Source("all.parquet", server.url("/list"), split="train")


def test_get_shards_as_one_file(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = listed_shards(server, shard([0, 4, 0], row_group_size=2), shard([4]), shard([0]))
    put(monkeypatch, source)
    assert run("get", "toy", "--data-dir", tmp_path / "new").exit_code == 0
    assert rows(tmp_path / "new" / "all.parquet") == [0, 4, 0, 4, 0]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["all.parquet"]


def test_one_shard_is_the_file(server: Server, tmp_path: Path) -> None:
    content = shard([4, 0])
    fetch.get(dataset(listed_shards(server, content)), tmp_path)
    assert (tmp_path / "all.parquet").read_bytes() == content


def test_shards_that_came_are_kept_when_another_fails(server: Server, tmp_path: Path) -> None:
    first, second = shard([4]), shard([0])
    source = listed_shards(server, first, second)
    fine = server.script
    server.script = lambda path, headers: (
        Answer(b"", 404) if path == "/1.parquet" else fine(path, headers)
    )
    with pytest.raises(DownloadError, match="404"):
        fetch.get(dataset(source), tmp_path)
    assert not (tmp_path / "all.parquet").exists()
    server.script = fine
    fetch.get(dataset(source), tmp_path)
    assert rows(tmp_path / "all.parquet") == [4, 0]
    assert [path for path, _ in server.asked].count("/0.parquet") == 1


@pytest.mark.parametrize("damaged", [0, 1])
def test_a_damaged_shard_is_thrown_away(server: Server, tmp_path: Path, damaged: int) -> None:
    shards = [shard([4]), shard([0])]
    shards[damaged] = b"PAR1" + b"x" * 50 + b"PAR1"
    source = listed_shards(server, *shards)
    with pytest.raises(DownloadError, match="cannot be read"):
        fetch.get(dataset(source), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["all.parquet.shards"]
    assert len(list((tmp_path / "all.parquet.shards").iterdir())) == 1


def test_a_shard_that_is_no_parquet(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="starts and ends with b'PAR1'"):
        fetch.get(dataset(listed_shards(server, b"PAR1 but cut off")), tmp_path)


@pytest.mark.parametrize(
    "content", ["[]", "{", '{"a": 1}', '{"a": {"train": []}}', '{"error": "gone"}', '{"a": null}']
)
def test_a_listing_that_is_none(server: Server, tmp_path: Path, content: str) -> None:
    server.play(whole(content.encode()))
    with pytest.raises(DownloadError, match="should list the parquet files"):
        fetch.get(dataset(Source("a.parquet", server.url("/list"), split="train")), tmp_path)


def test_a_listing_cannot_lead_to_files_of_this_computer(server: Server, tmp_path: Path) -> None:
    server.play(whole(b'{"default": {"train": ["file:///etc/hostname"]}}'))
    with pytest.raises(DownloadError, match="only http and https"):
        fetch.get(dataset(Source("a.parquet", server.url("/list"), split="train")), tmp_path)


def test_mistakes_of_the_user_end_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for arguments, said in (
        (("get", "nothing"), "there is no data set 'nothing'"),
        (("get", "emnist"), "give --data-dir or set RFA_DATA"),
        (("get", "shakespeare", "--data-dir", tmp_path / "file" / "x"), "cannot be"),
    ):
        result = run(*arguments)
        assert result.exit_code == 1
        assert said in result.output.replace("\n", " ")
    assert run("get", "glyphs").exit_code == 0
