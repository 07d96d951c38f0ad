"""Checkpoints written in the background, by all processes, each its part of every tensor's rows.

Training waits only while tensors are copied to the host's memory. The processes write into one folder, which the first one makes
and renames when all parts are on the disk, so it must be on a file system that all share. Their writing threads talk over a group
of their own.
"""

import contextlib
import errno
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from qkv.base.errors import QkvError
from qkv.base.files import atomic_folder, delete_folder, digest, flush, partial_path, write_error, writer_name
from qkv.training import checkpoints, distributed
from qkv.training.progress import Progress

DIGEST = 16  # bytes
LAST_WRITE = 300.0  # seconds that a failed training waits for its last checkpoint
Files = dict[str, dict[str, Tensor]]  # the tensors of each file, by names


class CheckpointWriter:
    """Writes one checkpoint at a time; an error is raised by the next call of `check`, `save` or `wait`."""

    def __init__(self, run: Path, rank: int, world_size: int):
        self.run, self.rank, self.world_size = run, rank, world_size
        self.group: Any = dist.new_group(backend="gloo", timeout=distributed.LONGEST_WAIT) if world_size > 1 else None
        self.name = distributed.broadcast_text(writer_name())  # under which all processes write
        self.thread: threading.Thread | None = None
        self.error: BaseException | None = None
        self.pinned: dict[tuple[str, str], Tensor] = {}  # host memory that a GPU copies to at full speed

    def save(self, step: int, parts: Files, state: dict[str, Any], needed: set[int]) -> None:
        """Begin to write this process's part of a checkpoint; then delete those whose steps are not `needed`."""
        self.wait()
        copies = {file: {name: self.copy_to_host(file, name, t) for name, t in part.items()} for file, part in parts.items()}
        if torch.cuda.is_available():
            torch.cuda.current_stream().synchronize()
        self.folder = checkpoints.folder_of(self.run, step)
        # A daemon: a second Ctrl-C leaves at once.
        self.thread = threading.Thread(target=self.write, args=(step, copies, state, needed), daemon=True)
        self.thread.start()

    def copy_to_host(self, file: str, name: str, tensor: Tensor) -> Tensor:
        """Copy a tensor to the host's memory; a copy from a GPU is complete once its stream is synchronized."""
        if not tensor.is_cuda:
            return tensor.detach().clone()
        host = self.pinned.get((file, name))
        if host is None:
            host = self.pinned[file, name] = torch.empty_like(tensor, device="cpu", pin_memory=True)
        return host.copy_(tensor.detach(), non_blocking=True)

    def check(self) -> None:
        """Raise the error of a write that has failed."""
        if self.error is not None:
            error, self.error = self.error, None
            raise error

    def wait(self) -> None:
        """Wait until nothing is being written."""
        if self.thread is not None:
            self.thread.join()
            self.thread = None
        self.check()

    def abandon(self) -> None:
        """Delete the checkpoint that is being written, if there is one, and wait for nothing."""
        if self.thread is not None and self.rank == 0:
            # It takes another name first, so that the thread cannot give it the checkpoint's while files are missing in it.
            with contextlib.suppress(OSError):
                delete_folder(partial_path(self.folder, self.name))

    @contextlib.contextmanager
    def finished(self) -> Iterator[None]:
        """Wait at the end of a block until the last checkpoint is written, also after an error of this or another process.

        Nothing is waited for after a second signal to stop.
        """
        try:
            yield
            self.wait()
        except (QkvError, distributed.OtherProcessFailedError):
            if self.thread is not None:
                self.thread.join(LAST_WRITE)  # a process of another machine that is gone would never answer
            raise
        except BaseException:
            self.abandon()
            raise

    # In the background

    def write(self, step: int, files: Files, state: dict[str, Any], needed: set[int]) -> None:
        """Write a checkpoint together with the other processes."""
        try:
            if self.rank == 0:
                self.write_first_part(step, files, state)
                checkpoints.prune(self.run, needed)
            else:
                self.write_other_part(files)
        except BaseException as error:
            self.error = error

    def write_first_part(self, step: int, files: Files, state: dict[str, Any]) -> None:
        """Make the folder, write the first part, and rename the folder once all parts are there."""
        made = False
        try:
            with atomic_folder(self.folder, self.name) as aside:
                made = True
                self.announce_folder(True)
                digests = self.write_part(aside, files)
                checkpoints.write_state(aside, step, state, digests)
        except QkvError:
            if not made:
                self.announce_folder(False)
            raise

    def write_other_part(self, files: Files) -> None:
        """Write a part into the folder that the first process has made."""
        if not self.announce_folder(False):
            raise distributed.OtherProcessFailedError
        self.write_part(partial_path(self.folder, self.name), files)

    def announce_folder(self, made: bool) -> bool:
        """Return whether the first process has made the folder in which all write."""
        if self.group is None:
            return made
        answer = torch.tensor(int(made))
        dist.broadcast(answer, 0, group=self.group)
        return bool(answer)

    def write_part(self, aside: Path, files: Files) -> dict[str, str]:
        """Write this process's part of each file. -> the digests of all parts of all files."""
        digests = dict.fromkeys(files, "")
        failure: OSError | None = None
        try:
            for file, tensors in files.items():
                path = aside / checkpoints.part_name(file, self.rank, self.world_size)
                checkpoints.save_weights(path, tensors)
                flush(path)
                digests[file] = digest(path)
        except OSError as error:
            failure = error
        if self.group is not None:
            return self.agree(digests, failure)
        if failure is not None:
            raise failure
        return digests

    def agree(self, digests: dict[str, str], failure: OSError | None) -> dict[str, str]:
        """Exchange digests. -> those of all parts; if a process failed, the first that did raises its error, the others end."""
        status = 0 if failure is None else failure.errno or errno.EIO
        own = torch.tensor([status, *(byte for one in digests.values() for byte in bytes.fromhex(one or "00" * DIGEST))])
        found = [torch.zeros_like(own) for _ in range(self.world_size)]
        dist.all_gather(found, own, group=self.group)
        failed = [rank for rank, values in enumerate(found) if values[0]]
        if failed:
            raise write_error(self.folder, failure) if failure and self.rank == failed[0] else distributed.OtherProcessFailedError
        return {
            checkpoints.part_name(file, rank, self.world_size): bytes(values.tolist()).hex()
            for rank, one in enumerate(found)
            for file, values in zip(digests, one[1:].split(DIGEST), strict=True)
        }


def find_newest(run: Path, rank: int, progress: Progress) -> tuple[Path | None, dict[str, Any]]:
    """Return the newest intact checkpoint, which the first process has verified, and its state."""
    step = 0
    saved: dict[str, Any] = {}
    with distributed.all_or_none():
        if rank == 0:
            found, saved, problems = checkpoints.newest(run)
            for problem in problems:
                progress.warn(f"{problem}: not used; resuming from {found.name if found else 'the start'}")
            step = 0 if found is None else checkpoints.step_of(found)
    step = int(*distributed.broadcast([step]))
    if not step:
        return None, {}
    folder = checkpoints.folder_of(run, step)
    return folder, saved if rank == 0 else checkpoints.read_state(folder, verify=False)
