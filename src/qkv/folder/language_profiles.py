"""The profiles of a translator's two languages in its folder, by which a service detects the language of a text."""

import shutil
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from qkv.base.errors import CheckpointError
from qkv.base.files import atomic_file
from qkv.text.language_profile import LanguageProfile

PROFILES = "languages.safetensors"


class ProfilePair(NamedTuple):
    """The profiles of the source and the target language; None where the texts of a side had no letters."""

    source: LanguageProfile | None
    target: LanguageProfile | None


def save_language_profiles(folder: Path, profiles: ProfilePair) -> None:
    """Write the profiles into a run's folder."""
    tensors: dict[str, np.ndarray] = {}
    about: dict[str, str] = {}
    for side, profile in profiles._asdict().items():
        if profile is not None:
            tensors |= {f"{side}.sequences": profile.sequences, f"{side}.counts": profile.counts}
            about[f"{side}.characters"] = str(profile.characters)
    with atomic_file(folder / PROFILES) as path:
        save_file(tensors, str(path), about)


def read_language_profiles(folder: Path) -> ProfilePair:
    """Return the profiles in a folder; none for runs that were trained before there were any, or elsewhere."""
    path = folder / PROFILES
    if not path.exists():
        return ProfilePair(None, None)
    try:
        with safe_open(str(path), "numpy") as file:
            about, names = file.metadata() or {}, set(file.keys())
            found = [
                LanguageProfile(
                    file.get_tensor(f"{side}.sequences"),
                    file.get_tensor(f"{side}.counts"),
                    int(about[f"{side}.characters"]),
                )
                if f"{side}.sequences" in names
                else None
                for side in ProfilePair._fields
            ]
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise CheckpointError(f"{path}: damaged ({error}); delete it, and languages are told by their script") from None
    return ProfilePair(*found)


def copy_language_profiles(run: Path, folder: Path) -> None:
    """Copy the profiles of a run into another folder, if it has any."""
    if (run / PROFILES).exists():
        shutil.copyfile(run / PROFILES, folder / PROFILES)
