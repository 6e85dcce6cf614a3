# SPDX-License-Identifier: MIT
"""ONNX Runtime as a worker (worker.c tells the conversation): Gemm nodes with constant weights, activation nodes for the runtime to fuse, all graph
optimisations, inputs and outputs bound once. The weights prepacked, and for few tokens also not; the faster is the one that is timed. What is timed
is one method of the session, which is the runtime's own code but for the fraction of a microsecond that Python takes to call it."""
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

UNPACKED_TOKENS = 8  # up to here the form without prepacking is tried
LONG_RUN = 0.05      # seconds: such runs are not warmed up (worker.c)


def model_of(nodes, initializers, width_in, width_out):
    rows = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["tokens", width]) for name, width in (("x", width_in), ("y", width_out))]
    tensors = [numpy_helper.from_array(array, name) for name, array in initializers.items()]
    graph = helper.make_graph(nodes, "feed-forward", rows[:1], rows[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9).SerializeToString()


def layer_model(arrays, d_model, activation, gated):
    """Weights stored [in, out], as most exporters of models leave them."""
    node = helper.make_node
    initializers = {name: array if array.ndim == 1 else np.ascontiguousarray(array.T) for name, array in arrays.items() if name != "x"}
    bias = [name for name in ("up_bias", "down_bias") if name in arrays]
    up = node("Gemm", ["x", "up"] + bias[:1], ["u"])
    down = node("Gemm", ["h", "down"] + bias[1:], ["y"])
    if gated:
        middle = [node("Gemm", ["x", "gate"], ["g"]), node("Sigmoid", ["g"], ["s"]), node("Mul", ["g", "s"], ["a"]), node("Mul", ["a", "u"], ["h"])]
    else:
        middle = [node({"relu": "Relu", "gelu": "Gelu"}[activation], ["u"], ["h"])]
    return model_of([up] + middle + [down], initializers, d_model, d_model)


class Bound:
    """A session with its input and output."""

    def __init__(self, model, threads, prepack):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.log_severity_level = 3
        if not prepack:
            options.add_session_config_entry("session.disable_prepacking", "1")
        self.session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.binding = self.session.io_binding()

    def bind(self, x, y):
        self.binding.bind_input("x", "cpu", 0, np.float32, x.shape, x.ctypes.data)
        self.binding.bind_output("y", "cpu", 0, np.float32, y.shape, y.ctypes.data)
        return self

    def run(self):
        self.session.run_with_iobinding(self.binding)


def seconds_of(run):
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def wait_until_idle():
    give_up = time.perf_counter() + 0.5
    while time.perf_counter() < give_up:
        before = time.process_time()
        time.sleep(1e-3)
        if time.process_time() - before < 1.5e-4:
            return


class Layer:
    def __init__(self, folder, d_model, d_ff, activation, gated, max_tokens):
        shapes = {"x": (max_tokens, d_model), "up": (d_ff, d_model), "gate": (d_ff, d_model), "down": (d_model, d_ff), "up_bias": (d_ff,),
                  "down_bias": (d_model,)}
        arrays = {name: np.fromfile(folder / name, dtype=np.float32).reshape(shape) for name, shape in shapes.items() if (folder / name).exists()}
        self.x, self.y = arrays["x"], np.empty((max_tokens, d_model), dtype=np.float32)
        self.model = layer_model(arrays, d_model, activation, gated)
        self.sessions, self.threads, self.chosen, self.last = {}, 0, None, 0

    def bound(self, prepack, threads, tokens):
        """A session is kept for as long as the number of threads stays; only its rows are bound anew."""
        if threads != self.threads:
            self.sessions, self.threads = {}, threads
        if prepack not in self.sessions:
            self.sessions[prepack] = Bound(self.model, threads, prepack)
        return self.sessions[prepack].bind(self.x[:tokens], self.y[:tokens])

    def prepare(self, tokens, threads, path):
        forms = {"prepacked": True, "not prepacked": False} if tokens <= UNPACKED_TOKENS else {"prepacked": True}
        best = {}
        for form, prepack in forms.items():
            bound = self.bound(prepack, threads, tokens)
            bound.run()
            best[form] = min(seconds_of(bound.run) for _ in range(5 if len(forms) > 1 else 1))
        form = min(best, key=best.get)
        if tokens > UNPACKED_TOKENS:
            self.sessions.pop(False, None)
        self.chosen = self.bound(forms[form], threads, tokens)
        self.y[:tokens] = np.nan
        self.chosen.run()
        self.last = 0
        self.y[:tokens].tofile(path)
        return form

    def times(self, count):
        start, warm_ups = time.perf_counter(), 0
        while self.last < LONG_RUN and (warm_ups == 0 or warm_ups < 3 and time.perf_counter() - start < 2e-3):
            self.chosen.run()
            warm_ups += 1
        times = [seconds_of(self.chosen.run) for _ in range(count)]
        self.last = times[-1]
        return times


def main():
    folder, d_model, d_ff, activation, gated, max_tokens = sys.argv[2:]
    layer = Layer(Path(folder), int(d_model), int(d_ff), activation, gated == "1", int(max_tokens))
    print("ready", flush=True)
    for line in sys.stdin:
        command, *words = line.split()
        if command == "prepare":
            answer = "ok " + layer.prepare(int(words[0]), int(words[1]), words[2])
        else:
            answer = "times " + " ".join(f"{time:.9g}" for time in layer.times(int(words[0])))
        wait_until_idle()
        print(answer, flush=True)


if __name__ == "__main__":
    main()
