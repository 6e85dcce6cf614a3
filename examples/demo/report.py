# SPDX-License-Identifier: MIT
"""Running the ffn program, timing it, and the table of its layers."""
import json
import math
import statistics
import subprocess
import time

LIMIT = 2e-6  # the largest error that passes, relative to the largest value of the layer's output
PASSES = 20  # a layer's time is the median of so many calls


class Failure(Exception):
    """What ends the demo; its text is one line for the user."""


class Ffn:
    """The ffn program on one model, with the options that say what its layers are (none where it recognises them)."""

    def __init__(self, program, model, *options):
        self.command = [str(program), "run", str(model), "--json", *options]

    def run(self, layers, source, target):
        """Runs layers of the model on source.npy into target.npy; gives the program's report on each."""
        files = ["--layer", layers, "--input", str(source), "--output", str(target)]
        done = subprocess.run(self.command + files, capture_output=True, text=True)
        if done.returncode:
            raise Failure(done.stderr.strip() or f"{self.command[0]} ends with status {done.returncode}")
        return json.loads(done.stdout)

    def time(self, count, source, target):
        """Seconds of each layer's call as the program measures it: weights loaded, files read. The layers take turns, as in the model, and the
        first pass only warms up."""
        start = time.monotonic()
        answer = self.run(",".join([f"0-{count - 1}"] * (1 + PASSES)), source, target)
        seconds = [call["seconds"] for call in answer["layers"]]
        print(
            f"time: the median of {PASSES} calls for {answer['tokens']} tokens, weights loaded, on {answer['threads']} threads with {answer['isa']};"
            f" {len(seconds)} calls with loading: {time.monotonic() - start:.2f} s\n"
        )
        return [statistics.median(seconds[count + layer :: count]) for layer in range(count)]


def compare(got, expected):
    """The largest difference of two flat lists, and the largest expected value."""
    if len(got) != len(expected):
        raise Failure(f"the output has {len(got)} numbers, must have {len(expected)}")
    errors = [abs(a - b) for a, b in zip(got, expected)]
    return max(errors) if all(map(math.isfinite, errors)) else math.inf, max(map(abs, expected))


class Table:
    """One line a layer, then the totals."""

    FORM = "{:>5}  {:<13}  {:>10}  {:>11}  {:>9}  {:>13}  {:>9}"

    def __init__(self, tokens):
        self.tokens, self.layers, self.parameters, self.seconds, self.error, self.relative = tokens, 0, 0, 0.0, 0.0, 0.0
        print(self.FORM.format("layer", "shape", "parameters", "time", "tokens/s", "largest error", "/ max |y|"))

    def add(self, layer, seconds, error, largest):
        """layer: what Ffn.run told; error and largest: what compare told."""
        shape = "{d_model}-{d_ff}-{d_out}".format(**layer)
        self.line(layer["layer"], shape, layer["parameters"], seconds, error, error / largest)
        self.layers += 1
        self.parameters += layer["parameters"]
        self.seconds += seconds
        self.error, self.relative = max(self.error, error), max(self.relative, error / largest)

    def line(self, name, shape, parameters, seconds, error, relative):
        rate = f"{self.tokens / seconds:,.0f}"
        print(self.FORM.format(name, shape, f"{parameters:,}", f"{seconds * 1e3:.3f} ms", rate, f"{error:.1e}", f"{relative:.1e}"), flush=True)

    def finish(self):
        """The totals; gives the exit status."""
        self.line("total", f"{self.layers} layer" + "s" * (self.layers != 1), self.parameters, self.seconds, self.error, self.relative)
        good = self.relative <= LIMIT
        verdict = "within" if good else "FAILED: more than"
        print(f"\nlargest error: against the layer in float64; {verdict} {LIMIT:g} of the largest value")
        return 0 if good else 1
