# SPDX-License-Identifier: MIT
"""The ctypes declarations against the baselines of the C interface, tests/abi/layout.txt and layout_io.txt."""
import ctypes
import re

import pytest

from conftest import SOURCE
from libffn import _abi, _abi_io, _native

PARTS = [("layout.txt", _abi), ("layout_io.txt", _abi_io)]
SCALARS = {
    "uint32_t": ctypes.c_uint32,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "ffn_status_t": ctypes.c_int32,
}
STRUCTS = {**_abi.STRUCTS, **_abi_io.STRUCTS}
CALLBACKS = {"ffn_parallel_for_fn": _abi.ParallelFor, "ffn_task_fn": _abi.Task}


def lines(name, pattern):
    text = (SOURCE / "tests" / "abi" / name).read_text()
    found = re.findall(pattern, text, re.MULTILINE)
    assert found
    return found


def allowed(c_type):
    """What the bindings may have for a C type: structs by pointers to them, strings as char *, handles as void *. A pointer to numbers may be
    one to a single number that is written, or to an array, whose address is an int."""
    c_type = c_type.replace("const", "").replace(" *", "*").strip()
    if "(*" in c_type:  # the allocator's two functions
        return {_abi.Allocate if "alignment" in c_type else _abi.Release}
    base, stars, count = re.fullmatch(r"(\w+) *([* ]*)(?:\[(\d+)\])?", c_type).groups()
    pointers = stars.count("*")
    if count:
        return {SCALARS[base] * int(count)}
    if base in STRUCTS:
        kind = STRUCTS[base]
        for _ in range(pointers):
            kind = ctypes.POINTER(kind)
        return {kind}
    if base == "char":
        return {ctypes.c_char_p}
    if not pointers:
        return {None if base == "void" else CALLBACKS.get(base) or SCALARS[base]}
    if pointers == 2:  # arrays, or where a new handle goes
        return {ctypes.POINTER(ctypes.c_void_p)}
    return {ctypes.c_void_p, ctypes.POINTER(SCALARS[base])} if base in SCALARS else {ctypes.c_void_p}


@pytest.mark.parametrize("name, module", PARTS)
def test_every_constant_is_there(name, module):
    known = {f"{prefix}{member.name}": int(member) for prefix, kind in module.CONSTANTS for member in kind}
    assert known == {constant: int(value) for constant, value in lines(name, r"^(FFN_\w+) = (-?\d+)$")}


@pytest.mark.parametrize("name, module", PARTS)
def test_every_struct_has_the_layout_of_the_library(name, module):
    expected = lines(name, r"^(ffn_\w+_t)\.(\w+) at (\d+), size (\d+), (.*)$")
    assert set(module.STRUCTS) == {struct for struct, *_ in expected}
    for struct, kind in module.STRUCTS.items():
        wanted = [(field, int(at), int(size), text) for owner, field, at, size, text in expected if owner == struct]
        assert [(field, getattr(kind, field).offset, getattr(kind, field).size) for field, _ in kind._fields_] == [want[:3] for want in wanted]
        for (field, have), want in zip(kind._fields_, wanted):
            assert have in allowed(want[3]), f"{struct}.{field}"
    for struct, size in re.findall(r"^struct (ffn_\w+), size (\d+)$", (SOURCE / "tests" / "abi" / name).read_text(), re.MULTILINE):
        assert ctypes.sizeof(module.STRUCTS[struct]) == int(size)


@pytest.mark.parametrize("name, module", PARTS)
def test_every_function_is_declared_with_the_types_of_its_prototype(name, module):
    library = _native.lib if module is _abi else _native.io()
    prototypes = {}
    for result, function, parameters in lines(name, r"^function (.*?)(ffn_\w+)\((.*)\)$"):
        types = [re.sub(r"\w+$", "", parameter) for parameter in parameters.split(", ") if parameter != "void"]
        prototypes[function] = [result, *types]
    assert set(module.FUNCTIONS) == set(prototypes)
    for function, c_types in prototypes.items():
        declared = [getattr(library, function).restype, *getattr(library, function).argtypes]
        assert declared == list(module.FUNCTIONS[function]) and len(declared) == len(c_types), function
        for have, c_type in zip(declared, c_types):
            assert have in allowed(c_type), function


@pytest.mark.parametrize("name", ["symbols.txt", "symbols_io.txt"])
def test_every_exported_symbol_is_declared(name):
    exported = lines(name, r"^(ffn_\w+)@@")
    assert set(exported) == set(_abi.FUNCTIONS if name == "symbols.txt" else _abi_io.FUNCTIONS)
