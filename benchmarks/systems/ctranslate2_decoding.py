"""CTranslate2 with a model exported by qkv; on a CPU it decodes as many batches at once as there are cores, one thread each."""

from pathlib import Path
from typing import Any

import numpy as np

from qkv.base.hardware import cpu_cores
from qkv.bench.workers.training import build_model
from qkv.interop.ctranslate2.writer import write_ctranslate2
from qkv.interop.packages import import_optional
from qkv.text.tokenizer import SPECIAL_TOKENS

MAX_POSITIONS = 512


class CTranslate2Decoding:
    def __init__(self, job: Any):
        library = import_optional("ctranslate2")
        self.version = f"ctranslate2 {library.__version__}"
        precision = job.options["precision"]
        self.pieces = [*SPECIAL_TOKENS, *(f"w{i}" for i in range(len(SPECIAL_TOKENS), job.size["vocab"]))]
        folder = Path(job.folder) / f"ctranslate2-{precision}"
        folder.mkdir()
        write_ctranslate2(build_model(job).eval(), (self.pieces, self.pieces), MAX_POSITIONS, precision, folder)
        threads = {"inter_threads": cpu_cores(), "intra_threads": 1} if job.device == "cpu" else {}
        self.translator = library.Translator(str(folder), job.device, **threads)

    def translate(self, sources: list[np.ndarray], beam: int, length: int, batch: int) -> list[list[str]]:
        texts = [[self.pieces[i] for i in text] for text in sources]
        # A batch of one measures latency: one text after the other.
        jobs = [texts] if batch > 1 else [[text] for text in texts]
        found: list[list[str]] = []
        for job in jobs:
            results = self.translator.translate_batch(
                job, max_batch_size=batch, beam_size=beam, min_decoding_length=length, max_decoding_length=length
            )
            found += [result.hypotheses[0] for result in results]
        return found


def make(job: Any) -> CTranslate2Decoding:
    return CTranslate2Decoding(job)
