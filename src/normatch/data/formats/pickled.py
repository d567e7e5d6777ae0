"""Safe reading of pickles of plain data: containers, numbers, text and NumPy arrays.

A pickle may call any function of any module. This reader allows only the few that rebuild arrays, most of them replaced
by functions of this module, and refuses a pickle that names any other.
"""

import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from normatch.errors import UserError, reason

__all__ = ["load_plain"]


def load_plain(content: bytes, place: str) -> Any:
    """The value of a pickle written by Python 2 or 3; strings of Python 2 become bytes. ``place`` is for messages."""
    try:
        return _PlainUnpickler(io.BytesIO(content), encoding="bytes").load()
    except UserError as error:
        raise UserError(f"{place} {error}") from None
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise UserError(f"{place} is not a readable pickle: {reason(error)}; get it again") from error


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _KNOWN:
            raise UserError(f"asks for {module}.{name}, which plain data never needs: do not use this file")
        return _KNOWN[module, name]


def _empty(_kind: object, _shape: object, _type: object) -> NDArray[Any]:
    # The pickle's next instruction sets shape, type and content.
    return np.empty(0, np.uint8)


def _from_buffer(
    buffer: bytes | bytearray, dtype: np.dtype[Any], shape: tuple[int, ...], order: Any, *axes: Any
) -> NDArray[Any]:
    if order not in ("C", "F") or any(axis is not None for axis in axes):
        raise UserError(f"has an array in memory order {order!r}: use an array in C order")
    return np.frombuffer(buffer, dtype).reshape(shape, order=order)


def _dtype(name: Any, align: object = False, copy: object = False) -> np.dtype[Any]:
    # Old pickles give 0 and 1, which NumPy 2.4 deprecates.
    made: np.dtype[Any] = np.dtype(name, align=bool(align), copy=bool(copy))
    return made


def _latin1(text: str, encoding: str) -> bytes:
    # Python 3 writes bytes in the old protocols as text to be encoded, always in latin1.
    if encoding != "latin1":
        raise UserError(f"has bytes in the encoding {encoding!r}, which no pickle of arrays has: do not use this file")
    return text.encode("latin1")


_KNOWN: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): _dtype,
    ("_codecs", "encode"): _latin1,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _empty for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _from_buffer for core in ("core", "_core")},
}
