# SPDX-License-Identifier: MIT
"""Writing safetensors, reading and writing .npy (version 1, little-endian float32), with Python alone. Numbers are array.array('f')."""
import ast
import json
import math
import struct
import sys
from array import array


def to_bytes(numbers):
    if sys.byteorder == "big":
        numbers = array("f", numbers)
        numbers.byteswap()
    return numbers.tobytes()


def from_bytes(data):
    numbers = array("f")
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def write_safetensors(path, tensors):
    """tensors: {name: (shape, numbers)}"""
    header, offset = {}, 0
    for name, (shape, numbers) in tensors.items():
        assert len(numbers) == math.prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, offset + 4 * len(numbers)]}
        offset += 4 * len(numbers)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, numbers in tensors.values():
            file.write(to_bytes(numbers))


def write_npy(path, shape, numbers):
    text = repr({"descr": "<f4", "fortran_order": False, "shape": tuple(shape)}).encode()
    text += b" " * (-(10 + len(text) + 1) % 64) + b"\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + to_bytes(numbers))


def read_npy(path):
    """(shape, numbers) of what `ffn run` or write_npy wrote"""
    with open(path, "rb") as file:
        data = file.read()
    start = 10 + struct.unpack_from("<H", data, 8)[0]
    header = ast.literal_eval(data[10:start].decode())
    assert data[:8] == b"\x93NUMPY\x01\x00" and header["descr"] == "<f4" and not header["fortran_order"]
    return header["shape"], from_bytes(data[start:])
