"""Strings, errors and classes: the part of Foundation that the host needs."""

import ctypes
from typing import Any, ClassVar

from pretend_metal.kinds import BOOL, ID, POINTER, SIGNED, STRING, UNSIGNED
from pretend_metal.objects import Heap, Thing, message
from pretend_metal.refused import Refused

UTF8 = 4


class String(Thing):
    def __init__(self, heap: Heap, text: bytes = b"") -> None:
        super().__init__(heap)
        self.text = text

    @message("UTF8String", returns=STRING)
    def utf8(self) -> bytes:
        return self.text


class Error(Thing):
    def __init__(self, heap: Heap, code: int, description: str) -> None:
        super().__init__(heap)
        self.error_code, self.description = code, description

    @message("localizedDescription", returns=ID)
    def localized_description(self) -> Thing:
        return String(self.heap, self.description.encode()).autoreleased()

    @message("code", returns=SIGNED)
    def code(self) -> int:
        return self.error_code

    def tell(self, where: int) -> None:
        """Leave it, autoreleased, where a caller wants an NSError *, if it does."""
        self.autoreleased()
        if where:
            ctypes.c_void_p.from_address(where).value = self.id


class Class(Thing):
    """A class whose instances are made by `alloc` and `init`."""

    def __init__(self, heap: Heap, kind: type[Thing]) -> None:
        super().__init__(heap)
        self._kind = kind

    @message("alloc", returns=ID)
    def alloc(self) -> Thing:
        return self._kind(self.heap)

    def dealloc(self) -> None:
        raise Refused(f"the class {self._kind.__name__} was released")


class StringClass(Class):
    def __init__(self, heap: Heap) -> None:
        super().__init__(heap, String)

    @message("stringWithCString:encoding:", STRING, UNSIGNED, returns=ID)
    def with_c_string(self, text: bytes, encoding: int) -> Thing:
        if encoding != UTF8:
            raise Refused(f"a string in encoding {encoding}")
        return String(self.heap, text).autoreleased()


class CompileOptions(Thing):
    """MTLCompileOptions."""

    fast_math = True

    @message("init", returns=ID)
    def init(self) -> Thing:
        return self

    @message("setFastMathEnabled:", BOOL)
    def set_fast_math(self, wanted: bool) -> None:
        self.fast_math = wanted


class ConstantValues(Thing):
    """MTLFunctionConstantValues."""

    KINDS: ClassVar[dict[int, tuple[str, Any]]] = {
        33: ("uint", ctypes.c_uint32),
        53: ("bool", ctypes.c_bool),
    }  # MTLDataType

    def __init__(self, heap: Heap) -> None:
        super().__init__(heap)
        self.values: dict[int, int] = {}
        self.kinds: dict[int, str] = {}

    @message("init", returns=ID)
    def init(self) -> Thing:
        return self

    @message("setConstantValue:type:atIndex:", POINTER, UNSIGNED, UNSIGNED)
    def set_one(self, pointer: int, kind: int, index: int) -> None:
        if kind not in self.KINDS:
            raise Refused(
                f"function constant {index} is of type {kind}; kernels have uint and bool"
            )
        self.kinds[index], held = self.KINDS[kind]
        self.values[index] = int(held.from_address(pointer).value)
