"""CTranslate2 over the model that our export writes; on a CPU as many batches at once as there are cores, a thread for each."""

from pathlib import Path
from typing import Any

import numpy as np

from qkv.base.hardware import cpu_cores
from qkv.bench.systems.qkv_training import model_of
from qkv.interop.ctranslate2.writer import write_ctranslate2
from qkv.interop.packages import import_optional
from qkv.text.tokenizer import SPECIAL_TOKENS

PLACES = 512


class System:
    def __init__(self, job: Any):
        library = import_optional("ctranslate2")
        self.version = f"ctranslate2 {library.__version__}"
        precision = job.options["precision"]
        self.pieces = [*SPECIAL_TOKENS, *(f"w{i}" for i in range(len(SPECIAL_TOKENS), job.size["vocab"]))]
        folder = Path(job.folder) / f"ctranslate2-{precision}"
        folder.mkdir()
        write_ctranslate2(model_of(job).eval(), (self.pieces, self.pieces), PLACES, precision, folder)
        threads = {"inter_threads": cpu_cores(), "intra_threads": 1} if job.device == "cpu" else {}
        self.translator = library.Translator(str(folder), job.device, **threads)

    def translate(self, sources: list[np.ndarray], beam: int, length: int, batch: int) -> list[list[str]]:
        texts = [[self.pieces[i] for i in text] for text in sources]
        # A batch of one is somebody who waits for each answer: one text after the other.
        jobs = [texts] if batch > 1 else [[text] for text in texts]
        found: list[list[str]] = []
        for job in jobs:
            results = self.translator.translate_batch(
                job, max_batch_size=batch, beam_size=beam, min_decoding_length=length, max_decoding_length=length
            )
            found += [result.hypotheses[0] for result in results]
        return found


def make(job: Any) -> System:
    return System(job)
