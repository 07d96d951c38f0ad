"""qkv info: the line of the cache."""

from pathlib import Path

import pytest

from qkv.cli.info import info_command


def test_a_cache_at_a_url_is_shown_with_the_folder_of_its_copies(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    caches = {
        "s3://bucket/cache": f"s3://bucket/cache, with copies in {tmp_path}/qkv",
        str(tmp_path / "mine"): str(tmp_path / "mine"),
        "": f"{tmp_path}/qkv",
    }
    for given, shown in caches.items():
        monkeypatch.setenv("QKV_CACHE", given)
        info_command()
        assert capsys.readouterr().out.splitlines()[-1] == f"cache: {shown}"
