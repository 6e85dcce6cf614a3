# SPDX-License-Identifier: MIT
"""The driver's side of the conversation with the workers (worker.c tells the lines)."""
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from layers import relative_error

# float32 sums of a few thousand products, in any order, stay well below.
TOLERANCE = 1e-5
HERE = Path(__file__).resolve().parent

# name -> program and variant. {bin}: where the built workers are.
ENGINES = {
    "peak": ("{bin}/worker_limits", "peak"),
    "read": ("{bin}/worker_limits", "read"),
    "libffn native": ("{bin}/worker_ffn", "native"),
    "libffn blas": ("{bin}/worker_ffn", "blas"),
    "oneDNN": ("{bin}/worker_onednn", "-"),
    "ONNX Runtime": (str(HERE / "worker_onnxruntime.py"), "-"),
    "OpenBLAS": ("{bin}/worker_openblas", "-"),
}
LIMITS = ("peak", "read")
OWN = ("libffn native", "libffn blas")


class WorkerFailure(Exception):
    pass


def environment(level):
    """What workers inherit: nothing that makes a library use kernels for another CPU, or wait in another way than it does by default."""
    variables = {name: value for name, value in os.environ.items()
                 if not name.startswith(("OPENBLAS_", "OMP_", "GOMP_", "GOTO_", "DNNL_", "ONEDNN_", "FFN_"))}
    if level == "avx2":
        variables.update(FFN_MAX_ISA="avx2", OPENBLAS_CORETYPE="Haswell", ONEDNN_MAX_CPU_ISA="AVX2")
    return variables


class Worker:
    engines = ENGINES

    def __init__(self, name, shape, folder, bin_folder, max_tokens, level):
        self.name, self.form, self.error = name, "", None
        self.y_file = folder / ("y-" + name.replace(" ", "-"))
        self.shape = shape
        program, variant = self.engines[name]
        program = program.format(bin=bin_folder)
        command = [sys.executable, program] if program.endswith(".py") else [program]
        command += [variant, folder, *shape.arguments(max_tokens)]
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=environment(level))

    def ask(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # then there is no answer either
        return self.answer(line)

    def answer(self, question="start"):
        """(True, text), or (False, why it cannot)."""
        text = self.process.stdout.readline()
        if not text:
            raise WorkerFailure(f"{self.name} ended at \"{question}\" with status {self.process.wait()}")
        kind, _, rest = text.strip().partition(" ")
        return kind != "unavailable", rest

    def prepare(self, tokens, threads, right):
        """Makes ready for a cell and checks the output. Returns a sentence if this engine cannot do it."""
        can, self.form = self.ask(f"prepare {tokens} {threads} {self.y_file}")
        if not can:
            return self.form
        if self.name not in LIMITS:
            self.error = self.deviation(tokens, right)
            if not self.error <= TOLERANCE:  # NaN too
                raise WorkerFailure(f"{self.name}: the output is wrong, off by {self.error:g} of the largest number")
        return None

    def deviation(self, tokens, right):
        return relative_error(np.fromfile(self.y_file, dtype=np.float32).reshape(tokens, -1), right[:tokens])

    def run(self, count):
        can, times = self.ask(f"run {count}")
        if not can:
            raise WorkerFailure(f"{self.name}: {times}")
        return [float(time) for time in times.split()]

    def turn(self, count):
        """{what is timed: seconds of each run}, of a round."""
        return {self.name: self.run(count)}

    def stop(self):
        self.process.stdin.close()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def start_workers(names, *arguments, kind=Worker):
    """The workers of those engines that can be had, and {name: sentence} for the others."""
    workers, missing = [kind(name, *arguments) for name in names], {}
    for worker in list(workers):
        can, sentence = worker.answer()
        if not can:
            missing[worker.name] = sentence
            worker.stop()
            workers.remove(worker)
    return workers, missing
