"""The contract of a compressor, as checks for any class."""

from __future__ import annotations

import math
import pickle
import random
from collections.abc import Iterator
from dataclasses import fields, is_dataclass

import numpy as np
import torch
from torch import Tensor

from gossamer._random import generator
from gossamer.compress import Compressor, wire
from gossamer.compress.layout import Layout
from gossamer.errors import WireError

DTYPES = (torch.float32, torch.float64, torch.bfloat16)
SHAPES: dict[str, tuple[tuple[int, ...], ...]] = {
    "mixed": ((8, 6), (6,), (), (0, 3)),  # a matrix, a bias, a scalar, and a tensor without entries
    "single": ((1,),),
    "many": ((3, 5), (2, 2, 3), (7,)) * 12,
    "nothing": ((0,),),
    "no tensors": (),
}
DRAWS, COPIES = 40, 16  # messages, and vectors in each
ERRORS = 5.0  # standard errors that a measured mean may be off


def check_compressor(compressor: Compressor) -> None:
    """Raise an AssertionError that says what is wrong if a compressor breaks its contract.

    What is checked, on layouts with matrices, vectors, scalars and empty tensors, in float32,
    float64 and bfloat16:

    - value: it is frozen, hashable, and equal to itself after pickling
    - message: it has exactly `nbytes(layout)` bytes whatever the vector; the same generator gives the
      same bytes; neither the vector nor a global random generator is touched
    - addition: `add` does into += weight * C(v), also in float64, and writes nowhere else
    - numbers: any vector that `encode` accepts, zeros and extremes too, decodes to finite numbers;
      NaN and infinity are refused with the tensor's name
    - promises: E[C(v)] = v if `unbiased`; E|C(v) - v|² ≤ (1 - delta)|v|² if delta > 0
    - errors: a message that was cut, changed or made by somebody else is a WireError, and `into`
      is then as it was

    The measured means use fixed seeds: a class passes always or never. It takes about a second.

    Args:
        compressor: The one to check; check every setting that matters.

    Raises:
        AssertionError: The first thing that is wrong.

    Example:
        >>> from gossamer.compress import TopK
        >>> from gossamer.testing import check_compressor
        >>> check_compressor(TopK(0.1))
    """
    _check_value(compressor)
    for layout in layouts():
        for v in _vectors(layout).values():
            _check_message(compressor, v, layout)
            _check_addition(compressor, v, layout)
        _check_zeros(compressor, layout)
        _check_refusals(compressor, layout)
        _check_errors(compressor, layout)
    _check_promises(compressor)
    for layout in layouts():
        _check_extremes(compressor, layout)


def layouts() -> Iterator[Layout]:
    """Yield the layouts of the checks."""
    for dtype in DTYPES:
        for shapes in SHAPES.values():
            yield Layout(tuple(f"tensor{i}" for i in range(len(shapes))), shapes, dtype)


def _require(condition: object, text: str) -> None:
    """Raise an AssertionError; an assert statement would be gone under python -O."""
    if not condition:
        raise AssertionError(text)


def _vectors(layout: Layout) -> dict[str, Tensor]:
    """Return vectors on which compressors behave differently."""
    rng = generator("check_compressor", layout.size)
    normal, divisor = torch.randn(2, layout.size, generator=rng, dtype=torch.float64)
    vectors = {
        "Gaussian": normal,
        "constant": torch.full_like(normal, -0.75),
        "one-hot": torch.zeros_like(normal).index_fill_(0, torch.arange(min(layout.size, 1)), 3.0),
        "heavy-tailed": normal / divisor.abs().clamp(min=1e-3),
    }
    return {name: v.to(layout.dtype) for name, v in vectors.items()}


def _check_value(compressor: Compressor) -> None:
    _require(is_dataclass(compressor), f"{compressor!r} is no dataclass")
    name = fields(compressor)[0].name
    try:
        setattr(compressor, name, getattr(compressor, name))
    except AttributeError:
        pass
    else:
        raise AssertionError(f"{compressor!r} can be changed: decorate it with @dataclass(frozen=True)")
    copy = pickle.loads(pickle.dumps(compressor))  # noqa: S301 - our own bytes
    _require(copy == compressor, f"{compressor!r} is {copy!r} after pickling")
    _require(hash(copy) == hash(compressor), f"{compressor!r} has another hash after pickling")
    _require(0 <= compressor.code <= 255, f"code={compressor.code}: the header has one byte for it")


def _check_message(compressor: Compressor, v: Tensor, layout: Layout) -> None:
    before, globals_before = v.clone(), _global_randomness()
    message = compressor.encode(v, layout, generator(1))
    again = compressor.encode(v.clone(), layout, generator(1))
    _require(torch.equal(v, before), "encode has changed its input")
    _require(torch.equal(message, again), "the same generator gives another message: draw from `rng` alone")
    _require(
        message.numel() == compressor.nbytes(layout),
        f"nbytes is {compressor.nbytes(layout)}, the message has {message.numel()} bytes "
        f"({layout.shapes} of {layout.dtype}): payload_nbytes must count what pack writes",
    )
    v.add_(1.0)
    _require(torch.equal(message, again), "the message changes with the vector: it holds a reference")
    v.copy_(before)
    decoded = compressor.decode(message, layout)
    _require(torch.equal(message, again), "decode has changed the message")
    _require(_global_randomness() == globals_before, "a global random generator was used")
    _require(
        decoded.dtype == layout.dtype and decoded.shape == (layout.size,) and bool(decoded.isfinite().all()),
        f"decode gives {tuple(decoded.shape)} of {decoded.dtype}, not {layout.size} finite {layout.dtype}",
    )


def _global_randomness() -> tuple[bytes, bytes, object]:
    numpy_state = np.random.get_state(legacy=False)  # only to see that nobody used it
    return torch.get_rng_state().numpy().tobytes(), pickle.dumps(numpy_state), random.getstate()


def _check_addition(compressor: Compressor, v: Tensor, layout: Layout) -> None:
    message = compressor.encode(v, layout, generator(2))
    exact = torch.zeros(layout.size, dtype=torch.float64)
    compressor.add(exact, message, layout)
    for dtype in (torch.float64, layout.dtype):
        # C(v) itself is computed in the scalar dtype, so float64 does not make the sum exact to 1e-16
        eps = 8 * max(torch.finfo(dtype).eps, torch.finfo(layout.scalar_dtype).eps)
        start = torch.randn(layout.size, generator=generator(3), dtype=torch.float64).to(dtype)
        for weight in (1.0, 0.5, -1.0):
            room = torch.full((layout.size + 2,), 7.0, dtype=dtype)
            into = room[1:-1].copy_(start)
            compressor.add(into, message, layout, weight)
            expected = start.double() + weight * exact
            off = (into.double() - expected).abs()
            _require(
                bool((off <= eps * (start.double().abs() + exact.abs() + 1e-6)).all()),
                f"add with weight {weight} into {dtype} is not into + weight * C(v): off by {_max(off)}",
            )
            _require(bool(room[0] == room[-1] == 7), "add has written outside of `into`")
    off = (compressor.decode(message, layout).double() - exact).abs()
    slack = torch.finfo(layout.dtype).eps * exact.abs()
    _require(bool((off <= slack).all()), f"decode is not what add adds to zeros: off by {_max(off)}")


def _check_zeros(compressor: Compressor, layout: Layout) -> None:
    zeros = torch.zeros(layout.size, dtype=layout.dtype)
    decoded = compressor.decode(compressor.encode(zeros, layout, generator(4)), layout)
    _require(bool(decoded.isfinite().all()), "zeros do not decode to finite numbers")
    try:
        delta = compressor.delta(layout)
    except Exception as error:
        raise AssertionError(f"delta fails for the layout {layout.shapes}: {error!r}") from error
    _require(0 <= delta <= 1, f"delta is {delta} for {layout.shapes}; it lies between 0 and 1")
    _require(not (delta > 0 and decoded.any()), f"delta = {delta} promises that zeros stay zeros")


def _check_refusals(compressor: Compressor, layout: Layout) -> None:
    end = 0
    for name, size in zip(layout.names, layout.sizes, strict=True):
        end += size
        for bad in (math.nan, math.inf, -math.inf) if size else ():
            v = torch.zeros(layout.size, dtype=layout.dtype)
            v[end - 1] = bad
            try:
                compressor.encode(v, layout, generator(5))
            except ValueError as error:
                _require(f"'{name}'" in str(error), f"{bad} in '{name}' is refused without the name: {error}")
            else:
                raise AssertionError(f"{bad} in '{name}' was encoded")


def _check_extremes(compressor: Compressor, layout: Layout) -> None:
    info = torch.finfo(layout.dtype)
    for value in (info.max, info.max / 4, info.tiny, info.smallest_normal * info.eps):
        v = torch.full((layout.size,), value, dtype=layout.dtype)
        v[::2] *= -1
        try:
            message = compressor.encode(v, layout, generator(6))
        except ValueError:
            continue  # refused with a reason: nothing wrong can arrive
        decoded = compressor.decode(message, layout)
        _require(
            bool(decoded.isfinite().all()),
            f"entries of magnitude {value:.3g} ({layout.dtype}) were encoded and decode to {decoded[:3]}",
        )


def _check_errors(compressor: Compressor, layout: Layout) -> None:
    sound = compressor.encode(_vectors(layout)["Gaussian"], layout, generator(7))
    for problem, message in _broken(sound, compressor.code):
        into = torch.ones(layout.size, dtype=layout.dtype)
        try:
            compressor.add(into, message, layout)
        except WireError:
            _require(bool((into == 1).all()), f"{problem}: `into` was changed before the WireError")
        except Exception as error:
            raise AssertionError(f"{problem}: {error!r} in place of a WireError") from error
        else:
            raise AssertionError(f"{problem}: no WireError")


def _broken(sound: Tensor, code: int) -> Iterator[tuple[str, Tensor]]:
    """Yield what a bad network or a stranger may deliver in place of a message."""
    rng, n, header = generator(8), sound.numel(), wire.HEADER.size
    for length in {0, header - 1, header, n - 1} - {n}:
        yield f"cut to {length} of {n} bytes", sound[:length]
    yield "one byte more", torch.cat([sound, sound[:1]])
    for at in torch.randint(8 * n, (16,), generator=rng).tolist():
        flipped = sound.clone()
        flipped[at // 8] ^= 1 << at % 8
        yield f"bit {at} flipped", flipped
    yield "another code", wire.seal((code + 1) % 256, [sound[header:]])
    yield "random bytes", torch.randint(256, (n,), generator=rng, dtype=torch.uint8)
    yield "wrong dtype", sound.to(torch.int16)
    yield "two dimensions", sound[None]


def _check_promises(compressor: Compressor) -> None:
    for dtype in DTYPES:
        one = Layout(("weight", "bias", "scale"), ((6, 4), (6,), ()), dtype)
        # COPIES of every tensor: one message counts as that many draws
        names = tuple(f"{name}{i}" for i in range(COPIES) for name in one.names)
        layout = Layout(names, one.shapes * COPIES, dtype)
        normal = _vectors(one)["Gaussian"].repeat(COPIES)
        few = [compressor.encode(normal, layout, generator(9, i)) for i in range(4)]
        is_random = any(not torch.equal(few[0], message) for message in few)
        for kind, v in _vectors(one).items():
            received = torch.zeros(DRAWS if is_random else 1, layout.size, dtype=torch.float64)
            for i, into in enumerate(received):
                compressor.add(into, compressor.encode(v.repeat(COPIES), layout, generator(10, i)), layout)
            what = f"{kind} vector, {dtype}"
            if compressor.unbiased:
                _check_unbiased(received, v, what)
            if compressor.delta(layout) > 0:
                _check_contraction(received, v, compressor.delta(layout), what)


def _check_unbiased(received: Tensor, v: Tensor, what: str) -> None:
    x = v.double()
    signs = torch.randn(8, len(x), generator=generator(11), dtype=torch.float64).sign()
    for u in [x / x.norm(), *signs]:  # a sum over entries is closer to normal than an entry
        mean, error = _mean((received - x.repeat(COPIES)) @ u.repeat(COPIES) / COPIES)
        slack = ERRORS * error + _rounding(v) * float(u.norm())
        _require(
            abs(mean) <= slack,
            f"unbiased is promised, but the mean of C(v) - v is {mean:.3g} along some direction, "
            f"which chance keeps below {slack:.3g} ({what})",
        )


def _check_contraction(received: Tensor, v: Tensor, delta: float, what: str) -> None:
    mean, error = _mean((received - v.double().repeat(COPIES)).square().sum(dim=1) / COPIES)
    allowed = (1 - delta) * float(v.double().square().sum())
    _require(
        mean**0.5 <= (allowed + ERRORS * error) ** 0.5 + _rounding(v),
        f"delta = {delta:.4g} promises a squared error of at most {allowed:.4g}, "
        f"measured {mean:.4g} +- {error:.2g} ({what})",
    )


def _rounding(v: Tensor) -> float:
    """Return how far C(v) may be off because numbers have few digits."""
    return 4 * torch.finfo(v.dtype).eps * float(v.double().norm())


def _mean(values: Tensor) -> tuple[float, float]:
    """Return the mean and its standard error, 0 for a single value."""
    error = float(values.std()) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return float(values.mean()), error


def _max(values: Tensor) -> float:
    return float(values.max()) if values.numel() else 0.0
