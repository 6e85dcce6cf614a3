# SPDX-License-Identifier: MIT
"""Arrays of any strides, shapes and makers: what goes in without a copy, what is copied, what is refused."""
import tracemalloc

import numpy as np
import pytest

import libffn
import oracle
from conftest import assert_close


def strided_views(random, rows, columns):
    """Arrays of one shape that lie in memory in every way."""
    base = random(2 * rows + 4, 2 * columns + 4)
    packed = np.zeros((rows, columns), [("skip", np.int8), ("number", np.float32)])
    packed["number"] = random(rows, columns)
    return {
        "contiguous": random(rows, columns),
        "transposed": random(columns, rows).T,
        "Fortran": np.asfortranarray(random(rows, columns)),
        "rows of a fused matrix": base[3 : 3 + rows, :columns],
        "every other row": base[: 2 * rows : 2, :columns],
        "every other column": base[:rows, : 2 * columns : 2],
        "rows backwards": base[rows - 1 :: -1, :columns],
        "both backwards": random(rows, columns)[::-1, ::-1],
        "transposed, every third": random(3 * columns, 2 * rows)[::3, ::2].T,
        "one row for all": np.broadcast_to(random(1, columns), (rows, columns)),
        "one column for all": np.broadcast_to(random(rows, 1), (rows, columns)),
        "one number for all": np.broadcast_to(random(1, 1), (rows, columns)),
        "read-only": np.frombuffer(random(rows, columns).tobytes(), np.float32).reshape(rows, columns),
        "not aligned": packed["number"],
        "an axis of a larger array": random(rows, 3, columns)[:, 1],
    }


@pytest.mark.parametrize("name", strided_views(lambda *shape: np.zeros(shape, np.float32), 6, 4))
def test_weights_of_any_strides(name, random):
    up, down = strided_views(random, 6, 4)[name], strided_views(random, 4, 6)[name]
    x = random(3, 4)
    layer = libffn.Layer(up=up, down=down, activation="relu")
    assert_close(layer(x), oracle.layer(x, up=up, down=down, activation="relu"))
    np.testing.assert_array_equal(layer.weights()["up"], up)


def test_vectors_of_any_strides(random):
    up, down, x = random(6, 4), random(4, 6), random(3, 4)
    for bias in (random(12)[::2], random(6)[::-1], np.broadcast_to(random(1), 6), random(6, 2)[:, 1]):
        layer = libffn.Layer(up, down, activation="relu", up_bias=bias)
        assert_close(layer(x), oracle.layer(x, up=up, down=down, activation="relu", up_bias=bias))


def test_a_layer_of_width_one(random):
    up, down, x = np.broadcast_to(random(1, 1), (6, 1)), random(1, 6), random(5, 1)
    layer = libffn.Layer(up, down, activation="relu")
    for v in (x, x[::-1], x[::2], np.broadcast_to(x[:1], (5, 1))):
        assert_close(layer(v), oracle.layer(v, up=up, down=down, activation="relu"))


def test_weights_may_change_once_the_layer_is_made(weights, random):
    layer, x = libffn.Layer(**weights), random(3, 24)
    expected = layer(x)
    weights["up"][:] = np.nan
    np.testing.assert_array_equal(layer(x), expected)


@pytest.mark.parametrize("name", strided_views(lambda *shape: np.zeros(shape, np.float32), 7, 24))
def test_inputs_and_outputs_of_any_strides(name, layer, weights, random):
    x = strided_views(random, 7, 24)[name]
    expected = oracle.layer(x, **weights)
    assert_close(layer(x), expected)
    out = strided_views(random, 7, 24)[name]
    if out.flags.writeable and all(out.strides):
        assert layer(x, out=out) is out
        assert_close(np.ascontiguousarray(out), expected)


SHAPES = [(24,), (1, 24), (5, 24), (2, 3, 24), (2, 1, 3, 24), (2, 3, 2, 2, 24), (0, 24), (2, 0, 24), (1,) * 6 + (24,)]


@pytest.mark.parametrize("shape", SHAPES)
def test_any_leading_shape(shape, layer, weights, random):
    x = random(*shape)
    assert_close(layer(x), oracle.layer(x, **weights))
    assert_close(layer(x, out=np.empty(shape, np.float32)), oracle.layer(x, **weights))


VIEWS = {
    "a part of each sequence": lambda a: a[:, 1:4],
    "every other sequence": lambda a: a[::2],
    "every other row": lambda a: a[:, ::2],
    "sequences of another order": lambda a: a.transpose(1, 0, 2, 3),
    "three strides": lambda a: a[:, ::2, 1:],
    "three strides, turned": lambda a: a.transpose(2, 0, 1, 3),
    "half of the columns": lambda a: a[..., :24],
    "sequences backwards": lambda a: a[::-1],
    "columns backwards": lambda a: a[..., 23::-1],
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_of_sequences(name, layer, weights, random):
    x, target = VIEWS[name](random(4, 6, 3, 48)[..., :24]), random(4, 6, 3, 48)
    around = target.copy()
    out = VIEWS[name](target[..., :24])
    assert layer(x, out=out) is out
    assert_close(np.ascontiguousarray(out), oracle.layer(x, **weights))
    VIEWS[name](around[..., :24])[...] = out
    np.testing.assert_array_equal(target, around)  # nothing else was written


def bytes_of_call(layer, x, out):
    """The most memory that NumPy had in a call beyond what was there."""
    layer(x, out=out)  # the thread's scratch memory is there now
    tracemalloc.start()
    try:
        layer(x, out=out)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_rows_are_read_and_written_where_they_lie(layer, random):
    sequences = random(64, 8, 48)
    for view in (lambda a: a[0, :, :24], lambda a: a[::2, 0, 24:], lambda a: a[:, 2:5, :24], lambda a: a[::2, ::2, :24], lambda a: a[..., :24]):
        x, out = view(sequences), view(sequences.copy())
        assert bytes_of_call(layer, x, out) < 4096
    contiguous = random(512, 24)
    assert bytes_of_call(layer, contiguous, contiguous) < 4096
    assert bytes_of_call(layer, contiguous[::-1], contiguous.copy()) >= contiguous.nbytes  # what is copied would be seen


def test_in_place_gives_the_same_bits(layer, random):
    for view in (lambda a: a, lambda a: a[::2], lambda a: a.reshape(2, 4, 24)[:, 1:3], lambda a: a[::-1]):
        x = view(random(8, 24))
        expected = layer(x.copy())
        assert layer(x, out=x) is x
        np.testing.assert_array_equal(x, expected)


def test_an_output_that_overlaps_the_input_in_part_is_refused_and_untouched(layer, random):
    base = random(9, 24)
    before = base.copy()
    with pytest.raises(libffn.InvalidError, match="y overlaps x in part"):
        layer(base[:8], out=base[1:])
    np.testing.assert_array_equal(base, before)


def test_what_is_copied_may_overlap(layer, weights, random):
    base = random(9, 24)
    expected = oracle.layer(base[7::-1], **weights)
    layer(base[7::-1], out=base[1:])
    assert_close(base[1:], expected)


def test_wrong_shapes_are_refused_with_a_sentence(layer, random):
    x = random(2, 3, 24)
    for wrong, sentence in (
        (np.float32(1), "x has no dimension"),
        (random(2, 23), r"the last dimension of x is 23, must be 24 \(d_model\)"),
        (random(2, 0), "the last dimension of x is 0"),
    ):
        with pytest.raises(libffn.InvalidError, match=sentence):
            layer(wrong)
    for out in (random(3, 2, 24), random(2, 3, 23), random(6, 24), random(1, 2, 3, 24), random(24)):
        before = out.copy()
        with pytest.raises(libffn.InvalidError, match=r"the shape of out is .*, must be \(2, 3, 24\)"):
            layer(x, out=out)
        np.testing.assert_array_equal(out, before)


def test_other_dtypes_are_refused_with_a_sentence(layer, weights, random):
    x = random(2, 24)
    for wrong in (x.astype(np.float64), x.astype(np.float16), x.astype(">f4"), x.astype(np.int32), x.astype(object), x > 0, x.astype(complex)):
        with pytest.raises(libffn.UnsupportedError, match=r"^x is of dtype\(.*\), must be float32"):
            layer(wrong)
        with pytest.raises(libffn.UnsupportedError, match=r"^out is of dtype\(.*\), must be float32"):
            layer(x, out=wrong)
        with pytest.raises(libffn.UnsupportedError, match=r"^up is of dtype\(.*\), must be float32"):
            libffn.Layer(**{**weights, "up": wrong})
    for wrong in ([1.0] * 24, "x", None, 1.0, object()):
        with pytest.raises(libffn.UnsupportedError, match=r"^x is of type \w+, must be an array of float32"):
            layer(wrong)


def test_an_output_that_is_read_only_is_refused(layer, random):
    x, out = random(2, 24), random(2, 24)
    out.setflags(write=False)
    with pytest.raises(libffn.InvalidError, match="out is read-only"):
        layer(x, out=out)


class Exported:
    """An array of another library: NumPy's own, through one protocol alone."""

    def __init__(self, array, way):
        self.array = array
        if way == "__array_interface__":
            self.__array_interface__ = array.__array_interface__
        else:
            setattr(type(self), way, lambda self, *arguments, **named: getattr(self.array, way)(*arguments, **named))
            if way == "__dlpack__":
                type(self).__dlpack_device__ = lambda self: self.array.__dlpack_device__()


@pytest.mark.parametrize("way", ["__dlpack__", "__array_interface__", "__array__"])
def test_arrays_of_other_libraries_are_taken_without_a_copy(way, layer, weights, random):
    kind = type(way, (Exported,), {})
    x, out = random(3, 24), np.zeros((3, 24), np.float32)
    expected, given = oracle.layer(x, **weights), kind(out, way)
    assert_close(layer(kind(x, way)), expected)
    if way == "__array__":  # which may give a copy: the result would be lost
        with pytest.raises(libffn.UnsupportedError, match="out is of type __array__, must be an array of float32 that shares its memory"):
            layer(x, out=given)
    else:
        assert layer(kind(x, way), out=given) is given
        assert_close(out, expected)
    made = libffn.Layer(**{name: kind(value, way) if isinstance(value, np.ndarray) else value for name, value in weights.items()})
    assert_close(made(x), expected)


def test_an_export_that_fails_is_an_error_with_its_words(layer):
    class Elsewhere:
        def __dlpack__(self, **options):
            raise BufferError("on another device")

        def __dlpack_device__(self):
            return (2, 0)

    with pytest.raises(libffn.UnsupportedError, match="x cannot be taken as a NumPy array without a copy: .*device"):
        layer(Elsewhere())
