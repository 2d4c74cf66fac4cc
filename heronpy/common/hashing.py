"""A hash of values that is equal in every process, on every host and after every restart. Pure.

Fields grouping and key groups depend on this hash: two values that Python considers equal must reach the same
task. So the hash is canonical over *values*, not over representations: `a == b` implies
`stable_hash(a) == stable_hash(b)` for every type with a rule below, even inside containers. The
builtin `hash()` is never used, because it is salted per process.

Rules: numbers of all types by their mathematical value (every NaN alike); text; bytes and
bytearray; None; tuples, including named tuples; lists; mappings and sets without regard to order; enums by class and
name, or by their value if they equal their value; data classes by class and compared fields; dates, times (aware ones
by their instant), durations; UUIDs; ranges; arrays; deques. A class may define `__stable_key__()` that returns a value
with a rule. A value of any other type is hashed by its pickled bytes, with one warning per type, because equal
values may pickle differently.

The results are written into checkpoints, so changing a rule moves keys between tasks.
"""

from __future__ import annotations

import array
import collections
import dataclasses
import datetime
import decimal
import enum
import io
import math
import numbers
import pickle
import struct
import uuid
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from hashlib import blake2b
from typing import Any

_MASK = 0xFFFFFFFFFFFFFFFF
_GOLDEN = 0x9E3779B97F4A7C15
_INT_MIN, _INT_MAX = -(1 << 63), (1 << 63) - 1
#: Modulus of the rule for numbers that fit neither into 64 bits nor into a double (a Mersenne prime).
_PRIME = (1 << 61) - 1
#: Maximum number of types whose rule is cached, because user code may create classes without end.
_RULES_MAX = 4096

Rule = Callable[[Any], int]


def stable_hash(value: object) -> int:
    """Return the 64-bit hash of a value; equal values have equal hashes in every process."""
    kind = type(value)
    if kind is str:
        return _text(value)
    if kind is int and _INT_MIN <= value <= _INT_MAX:  # type: ignore[operator]
        return _mix(value)  # type: ignore[arg-type]
    try:
        return (_rules.get(kind) or _rule_for(kind))(value)
    except RecursionError:
        raise ValueError(
            f"a key of type {kind.__name__} is nested too deeply to be hashed; group by a flat value"
        ) from None


def stable_hash_many(values: Sequence[object]) -> int:
    """Return the 64-bit hash of several values in order; for a single value, the hash of that value."""
    if len(values) == 1:
        return stable_hash(values[0])
    return _digest(b"M" + b"".join([_packed(stable_hash(value)) for value in values]))


# ---- mixing ------------------------------------------------------------------------------------


def _digest(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")


def _packed(hashed: int) -> bytes:
    return hashed.to_bytes(8, "little")


def _mix(number: int) -> int:
    """Mix with splitmix64: every bit of the input affects every bit of the result."""
    number = (number + _GOLDEN) & _MASK
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _MASK
    return number ^ (number >> 31)


def _hash(value: Any) -> int:
    """Hash a nested value as `stable_hash` does, without handling RecursionError."""
    kind = type(value)
    return (_rules.get(kind) or _rule_for(kind))(value)


def _ordered(tag: bytes, values: Iterable[Any]) -> int:
    return _digest(tag + b"".join([_packed(_hash(value)) for value in values]))


def _unordered(tag: bytes, hashes: Iterable[int]) -> int:
    count = total = 0
    for hashed in hashes:
        count += 1
        total += _mix(hashed)
    return _digest(tag + _packed(count) + _packed(total & _MASK))


# ---- numbers -----------------------------------------------------------------------------------

_NAN = _digest(b"nan")


def _integer(value: Any) -> int:
    value = int(value)
    if _INT_MIN <= value <= _INT_MAX:
        return _mix(value)
    try:
        nearest = float(value)
    except OverflowError:
        return _residue(value, 1)
    return _double(nearest) if nearest == value else _residue(value, 1)


def _float(value: Any) -> int:
    number = float(value)
    if math.isnan(number):
        return _NAN
    if _INT_MIN <= number <= _INT_MAX and number.is_integer():
        return _integer(int(number))
    return _double(number)


def _double(number: float) -> int:
    return _digest(b"f" + struct.pack("<d", number))


def _residue(numerator: int, denominator: int) -> int:
    """Return a number modulo a prime, without building a huge integer for Decimal('1e999999')."""
    return _residue_class(abs(numerator) * pow(denominator, _PRIME - 2, _PRIME), numerator < 0)


def _residue_class(magnitude: int, negative: bool) -> int:
    return _digest((b"-" if negative else b"+") + _packed(magnitude % _PRIME))


def _rational(value: Any) -> int:
    numerator, denominator = int(value.numerator), int(value.denominator)
    if denominator == 1:
        return _integer(numerator)
    try:
        nearest = numerator / denominator
    except OverflowError:
        return _residue(numerator, denominator)
    if nearest.as_integer_ratio() == (numerator, denominator):
        return _double(nearest)
    return _residue(numerator, denominator)


def _decimal(value: decimal.Decimal) -> int:
    if value.is_nan():
        return _NAN
    if value.is_infinite() or not value:
        return _float(float(value))
    if -400 < value.adjusted() < 400:
        numerator, denominator = value.as_integer_ratio()
        if denominator == 1:
            return _integer(numerator)
        nearest = float(value)
        if nearest.as_integer_ratio() == (numerator, denominator):
            return _double(nearest)
        return _residue(numerator, denominator)
    # Out of the range of doubles: only the residue can be computed in bounded time.
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    power = pow(10, exponent, _PRIME)  # a negative exponent uses the inverse of 10
    coefficient = 0
    for digit in digits:
        coefficient = (coefficient * 10 + digit) % _PRIME
    return _residue_class(coefficient * power, bool(sign))


def _complex(value: Any) -> int:
    number = complex(value)
    if number.imag == 0:
        return _float(number.real)
    return _ordered(b"j", (number.real, number.imag))


# ---- text and bytes ----------------------------------------------------------------------------


def _text(value: Any) -> int:
    try:
        data = str.encode(value)
    except UnicodeEncodeError:
        data = str.encode(value, "utf-8", "surrogatepass")
    return int.from_bytes(blake2b(b"s" + data, digest_size=8).digest(), "little")


def _bytes(value: Any) -> int:
    return _digest(b"b" + bytes(value))


# ---- containers --------------------------------------------------------------------------------


def _tuple(value: Any) -> int:
    return _ordered(b"t", tuple.__iter__(value))


def _list(value: Any) -> int:
    return _ordered(b"l", value)


def _deque(value: Any) -> int:
    return _ordered(b"q", value)


def _array(value: Any) -> int:
    return _ordered(b"a", value)


def _set(value: Any) -> int:
    return _unordered(b"S", map(_hash, value))


def _mapping(value: Any) -> int:
    return _unordered(b"d", (_entry(key, item) for key, item in value.items()))


def _counter(value: Any) -> int:
    # A Counter equals one that lists absent elements with a count of zero.
    return _unordered(b"d", (_entry(key, item) for key, item in value.items() if item != 0))


def _entry(key: Any, item: Any) -> int:
    return _digest(_packed(_hash(key)) + _packed(_hash(item)))


def _range(value: Any) -> int:
    # Ranges compare as sequences.
    length = len(value)
    step = value.step if length > 1 else 0
    return _ordered(b"r", (length, value.start if length else 0, step))


# ---- classes with a meaning ----------------------------------------------------------------------


def _enum(value: Any) -> int:
    # Omit the module: a class of the main file has a different module name in each kind of process.
    name = value._value_ if isinstance(value, enum.Flag) else value._name_
    return _ordered(b"E", (type(value).__qualname__, name))


def _dataclass(value: Any) -> int:
    compared = [getattr(value, f.name) for f in dataclasses.fields(value) if f.compare]
    return _ordered(b"D", (type(value).__qualname__, *compared))


def _stable_key(value: Any) -> int:
    return _ordered(b"K", (type(value).__qualname__, value.__stable_key__()))


def _datetime(value: Any) -> int:
    if value != value:  # pandas NaT is a datetime
        return _NAN
    micros = _micros_of_day(value) + value.toordinal() * 86_400_000_000
    # pandas timestamps count nanoseconds; they equal a plain datetime only if the nanoseconds are zero.
    nanos = micros * 1000 + getattr(value, "nanosecond", 0)
    # Python compares with the offset of fold=0 (PEP 495).
    offset = value.replace(fold=0).utcoffset() if value.fold else value.utcoffset()
    if offset is None:
        return _ordered(b"T", (nanos,))
    return _ordered(b"Z", (nanos - _micros(offset) * 1000,))


def _date(value: Any) -> int:
    return _ordered(b"Y", (value.toordinal(),))


def _time(value: Any) -> int:
    offset = value.replace(fold=0).utcoffset() if value.fold else value.utcoffset()
    if offset is None:
        return _ordered(b"c", (_micros_of_day(value),))
    return _ordered(b"C", (_micros_of_day(value) - _micros(offset),))


def _timedelta(value: Any) -> int:
    return _ordered(b"V", (_micros(value) * 1000 + getattr(value, "nanoseconds", 0),))


def _micros_of_day(value: datetime.datetime | datetime.time) -> int:
    seconds = value.hour * 3600 + value.minute * 60 + value.second
    return seconds * 1_000_000 + value.microsecond


def _micros(value: datetime.timedelta) -> int:
    return (value.days * 86400 + value.seconds) * 1_000_000 + value.microseconds


def _uuid(value: uuid.UUID) -> int:
    return _digest(b"U" + value.bytes)


# ---- other types -------------------------------------------------------------------------------


def _pickled(value: Any) -> int:
    kind = type(value)
    try:
        data = _pickle(value)
    except (pickle.PicklingError, TypeError, ValueError, AttributeError) as error:
        raise TypeError(
            f"a value of type {kind.__qualname__} cannot be a grouping key because it cannot be "
            f"pickled ({error}); group by a plain value or define __stable_key__()"
        ) from error
    return _digest(b"P" + data)


def _pickle(value: Any) -> bytes:
    # Pickle without the memo: equal values must not differ because some of their parts are the same object.
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, protocol=4)
    pickler.fast = True
    try:
        pickler.dump(value)
    except (RecursionError, ValueError):  # the value contains itself, so the memo is needed
        return pickle.dumps(value, protocol=4)
    return buffer.getvalue()


def _without_rule(kind: type) -> Rule:
    warnings.warn(
        f"values of type {kind.__module__}.{kind.__qualname__} are grouped by their pickled bytes, "
        "so equal values may reach different tasks; group by a plain value or define "
        "__stable_key__()",
        RuntimeWarning,
        stacklevel=5,
    )
    return _pickled


# ---- choosing the rule -------------------------------------------------------------------------

_EXACT: dict[type, Rule] = {
    str: _text,
    int: _integer,
    bool: _integer,
    float: _float,
    complex: _complex,
    bytes: _bytes,
    bytearray: _bytes,
    tuple: _tuple,
    list: _list,
    dict: _mapping,
    set: _set,
    frozenset: _set,
    type(None): lambda value: _digest(b"none"),
    type(...): lambda value: _digest(b"ellipsis"),
}

#: The order matters: a class that fits two rules needs the rule that matches its equality.
_BY_BASE: tuple[tuple[Any, Rule], ...] = (
    (str, _text),
    (collections.UserString, lambda value: _text(value.data)),
    ((bytes, bytearray, memoryview), _bytes),
    (decimal.Decimal, _decimal),
    (numbers.Integral, _integer),
    (numbers.Rational, _rational),
    (numbers.Real, _float),
    (numbers.Complex, _complex),
    (tuple, _tuple),
    ((list, collections.UserList), _list),
    (collections.deque, _deque),
    (array.array, _array),
    (range, _range),
    (collections.Counter, _counter),
    (Mapping, _mapping),
    (AbstractSet, _set),
    (datetime.datetime, _datetime),
    (datetime.date, _date),
    (datetime.time, _time),
    (datetime.timedelta, _timedelta),
    (uuid.UUID, _uuid),
    (enum.Enum, _enum),
)

_rules: dict[type, Rule] = dict(_EXACT)


def _rule_for(kind: type) -> Rule:
    rule = _find_rule(kind)
    if len(_rules) >= _RULES_MAX:
        _rules.clear()
        _rules.update(_EXACT)
    _rules[kind] = rule
    return rule


def _find_rule(kind: type) -> Rule:
    if hasattr(kind, "__stable_key__"):
        return _stable_key
    if kind.__module__ == "numpy" and kind.__name__ in ("bool", "bool_"):
        return lambda value: _integer(bool(value))
    if dataclasses.is_dataclass(kind) and _compares_by_fields(kind):
        return _dataclass
    for base, rule in _BY_BASE:
        if issubclass(kind, base):
            return rule
    return _without_rule(kind)


def _compares_by_fields(kind: type) -> bool:
    """Whether a data class has the generated equality or identity, not an equality that the user has written."""
    equality: object = kind.__eq__
    if equality is object.__eq__:
        return True
    code = getattr(equality, "__code__", None)
    # A generated method is compiled from a string, a written method from a file.
    return code is not None and code.co_filename == "<string>"
