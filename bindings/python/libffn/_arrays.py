# SPDX-License-Identifier: MIT
"""Arrays of anyone's as NumPy arrays of float32, without a copy, and how their rows lie in memory."""
from __future__ import annotations

from ctypes import addressof, c_char
from typing import Any, Optional, Sequence, Union, cast

import numpy as np
import numpy.typing as npt

from ._errors import InvalidError, UnsupportedError

Float32 = npt.NDArray[np.float32]
#: What is taken as an array: NumPy's, and whatever has __dlpack__, __array_interface__ or __array__ (PyTorch, JAX, ... on the CPU).
ArrayLike = Any

F32 = np.dtype(np.float32)


def _foreign(value: ArrayLike, name: str, written: bool, dtype: str) -> npt.NDArray[Any]:
    shared = hasattr(value, "__dlpack__") or hasattr(value, "__array_interface__")
    if not shared and (written or not hasattr(value, "__array__")):  # __array__ may give a copy
        raise UnsupportedError(f"{name} is of type {type(value).__name__}, must be an array of {dtype}{' that shares its memory' * written}")
    try:
        return np.from_dlpack(value) if hasattr(value, "__dlpack__") else np.asarray(value)
    except Exception as error:  # the exporter's own: on another device, not a strided array, part of a graph, ...
        raise UnsupportedError(f"{name} cannot be taken as a NumPy array without a copy: {error}") from error


def as_float32(value: ArrayLike, name: str, written: bool = False) -> Float32:
    """The array that `value` is, sharing its memory."""
    array = value if isinstance(value, np.ndarray) else _foreign(value, name, written, "float32")
    if array.dtype != F32:
        raise UnsupportedError(f"{name} is of {array.dtype!r}, must be float32 in the byte order of this CPU")
    if written and not array.flags.writeable:
        raise InvalidError(f"{name} is read-only")
    return array


def as_tensor(value: Union[ArrayLike, float], name: str) -> Float32:
    """A weight: as_float32, and a number is an array of one. PyTorch's parameters are detached, as weights are only read."""
    if isinstance(value, (int, float)):
        return np.array([value], F32)
    if type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "detach"):
        value = value.detach()
    array = as_float32(value, name)
    if array.ndim == 0:
        array = array.reshape(1)
    # In C all strides 0 means contiguous; here it is one number for all elements.
    if not array.flags.aligned or (array.size > 1 and not any(array.strides)):
        array = array.copy()
    return array


DENSE = 0x101  # NumPy's flags C_CONTIGUOUS and ALIGNED
WRITABLE = 0x501  # and WRITEABLE


def address(array: npt.NDArray[Any]) -> int:
    """Where element 0 is. ctypes.from_buffer is several times faster than what NumPy has for this, where it can be had."""
    if array.flags.num & WRITABLE == WRITABLE and array.size:
        return addressof(c_char.from_buffer(cast(Any, array)))
    return int(array.__array_interface__["data"][0])


def as_dense(value: ArrayLike, name: str, dtype: npt.DTypeLike = F32, written: bool = False) -> npt.NDArray[Any]:
    """An array without gaps, the last dimension fastest, of numbers of that type. What is only read goes through a copy where it has gaps; what is
    written must have none."""
    wanted = np.dtype(dtype)
    array = value if isinstance(value, np.ndarray) else _foreign(value, name, written, wanted.name)
    if array.dtype != wanted:
        raise UnsupportedError(f"{name} is of {array.dtype!r}, must be {wanted.name} in the byte order of this CPU")
    if array.flags.num & DENSE != DENSE:
        if written:
            raise InvalidError(f"{name} has gaps between its elements: it is written to, and must be contiguous")
        return np.ascontiguousarray(array) if array.flags.aligned else array.copy("C")
    if written and not array.flags.writeable:
        raise InvalidError(f"{name} is read-only")
    return array


class Rows:
    """How the rows of some arrays of one leading shape lie: `batch` sequences of `length` rows, and for each array the two strides in bytes."""

    def __init__(self, batch: int, length: int, strides: Sequence[tuple[int, int]]) -> None:
        self.batch, self.length, self.strides = batch, length, strides


def has_rows(array: Float32) -> bool:
    """Whether each row is dense, and every step from one to another forward by at least a row: what the library takes."""
    row = array.shape[-1] * 4
    if not array.flags.aligned or (array.shape[-1] > 1 and array.strides[-1] != 4):
        return False
    return all(size <= 1 or stride >= row for size, stride in zip(array.shape[:-1], array.strides[:-1]))


def _merge(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> list[tuple[int, list[int]]]:
    """Axes of some arrays, outermost first, as steps through memory: size, and the stride in each array. Axes that follow each other without a gap
    in all of the arrays are one step, axes of size 1 none."""
    steps: list[tuple[int, list[int]]] = []
    for axis, size in enumerate(shape):
        of_axis = [of_array[axis] for of_array in strides]
        if size == 1:
            continue
        if steps and steps[-1][1] == [size * stride for stride in of_axis]:
            steps[-1] = (steps[-1][0] * size, of_axis)
        else:
            steps.append((size, of_axis))
    return steps


def find_rows(arrays: Sequence[Float32]) -> Optional[Rows]:
    """Rows of arrays that have_rows, or None where their leading dimensions are more than two steps through memory."""
    steps = _merge(arrays[0].shape[:-1], [array.strides for array in arrays])
    if len(steps) > 2:
        return None
    while len(steps) < 2:
        steps.insert(0, (1, [0] * len(arrays)))
    (batch, outer), (length, inner) = steps
    return Rows(batch, length, list(zip(outer, inner)))


def find_sequences(arrays: Sequence[Float32]) -> Optional[Rows]:
    """The same where it matters which rows are a sequence: those along the last but one dimension. All before it are the batch."""
    leading = arrays[0].shape[:-1]
    steps = _merge(leading[:-1], [array.strides for array in arrays])
    if len(steps) > 1:
        return None
    batch, outer = steps[0] if steps else (1, [0] * len(arrays))
    length = leading[-1] if leading else 1
    # Of a single row any stride would do; NumPy may have one that is no multiple of a number's size.
    inner = [array.strides[-2] if length != 1 else array.shape[-1] * 4 for array in arrays]
    return Rows(batch, length, list(zip(outer, inner)))


def check_shape(array: Float32, name: str, leading: tuple[int, ...], width: int) -> None:
    if array.shape != (*leading, width):
        raise InvalidError(f"the shape of {name} is {array.shape}, must be {(*leading, width)}")


def check_dimension(array: npt.NDArray[Any], name: str) -> None:
    """Whether it may be [..., width]."""
    if array.ndim == 0:
        raise InvalidError(f"{name} has no dimension, must have at least one")


def as_rows(value: ArrayLike, name: str, written: bool = False) -> Float32:
    """A dense array [..., width] of float32."""
    array: Float32 = as_dense(value, name, written=written)
    check_dimension(array, name)
    return array


def as_mask(mask: Optional[ArrayLike], leading: tuple[int, ...]) -> Optional[npt.NDArray[Any]]:
    """A mask [...] of bool or uint8."""
    if mask is None:
        return None
    array = as_dense(mask, "mask", np.bool_ if getattr(mask, "dtype", None) == np.bool_ else np.uint8)
    if array.shape != leading:
        raise InvalidError(f"the shape of mask is {array.shape}, must be {leading}")
    return array


def optional(array: Optional[npt.NDArray[Any]]) -> Optional[int]:
    return None if array is None else address(array)


def shaped(value: Optional[ArrayLike], name: str, shape: tuple[int, ...], dtype: npt.DTypeLike = F32, written: bool = False) -> Any:
    """A dense array of that shape, or None."""
    if value is None:
        return None
    array = as_dense(value, name, dtype, written)
    if array.shape != shape:
        raise InvalidError(f"the shape of {name} is {array.shape}, must be {shape}")
    return array
