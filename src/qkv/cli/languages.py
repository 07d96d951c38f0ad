"""qkv languages RUN FILE...: profiles of a translator's languages, by which a service detects them."""

from pathlib import Path
from typing import Annotated

import typer


def languages_command(
    run: Annotated[Path, typer.Argument(help="Folder of a translator's run.")],
    texts: Annotated[list[str], typer.Argument(metavar="FILE", help="Pairs of texts, as data.train takes them.")],
) -> None:
    """Store profiles of a run's languages in its folder, so that qkv serve can detect them.

    Training does so itself; this is for runs that were imported, or trained by an older version.
    """
    from qkv.folder.language_profiles import PROFILES
    from qkv.jobs.language_profiles import make_language_profiles

    found = make_language_profiles(run, texts)
    characters = " and ".join(f"{profile.characters:,}" for profile in found if profile is not None)
    print(f"{run / PROFILES}: profiles of {characters} characters")
