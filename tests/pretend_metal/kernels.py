"""Libraries, functions and pipelines: MSL from its text to what the CPU shim runs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from pretend_metal import msl
from pretend_metal.foundation import CompileOptions, ConstantValues, Error, String
from pretend_metal.kinds import ID, POINTER, UNSIGNED
from pretend_metal.limits import Limits
from pretend_metal.objects import Heap, Thing, message
from pretend_metal.refused import Refused

Triple = tuple[int, int, int]
COMPILE_FAILURE, FUNCTION_NOT_FOUND = 3, 5  # MTLLibraryError


class Runnable(Protocol):
    """Compiled MSL: `metal_on_cpu.library.Library`."""

    @property
    def shared_nbytes(self) -> int: ...

    def dispatch(
        self,
        entry: str,
        arguments: bytes,
        groups: Triple,
        threads: Triple,
        *,
        simd: int,
        order: int,
        memory: Sequence[tuple[int, int, bool]] | None,
    ) -> None: ...


Compile = Callable[[str, Mapping[int, int]], Runnable]


class Library(Thing):
    """MTLLibrary, and how it was made."""

    def __init__(self, heap: Heap, source: str, compile_: Compile, limits: Limits) -> None:
        super().__init__(heap)
        self.source, self.compile, self.limits = source, compile_, limits
        self.bare = msl.without_comments(source)

    @message("newFunctionWithName:constantValues:error:", ID, ID, POINTER, returns=ID)
    def new_function(self, name: Thing, values: Thing, error: int) -> Thing | None:
        if not isinstance(name, String) or not isinstance(values, ConstantValues):
            raise Refused(
                f"a function is made of a name and constants, not {name!r} and {values!r}"
            )
        entry = name.text.decode()
        if entry not in msl.entries(self.bare):
            Error(self.heap, FUNCTION_NOT_FOUND, f"no function {entry}").tell(error)
            return None
        known = {}
        for number, (kind, optional) in msl.constants(self.bare).items():
            if number in values.values:
                known[number] = values.values[number]
            given = values.kinds.get(number)
            if given != kind and not (optional and given is None):
                what = f"function constant {number} of {entry} is of {kind}; given is {given}"
                Error(self.heap, COMPILE_FAILURE, what).tell(error)
                return None
        return Function(self.heap, self, entry, self.compile(self.source, known))


class Function(Thing):
    """MTLFunction."""

    def __init__(self, heap: Heap, library: Library, entry: str, made: Runnable) -> None:
        super().__init__(heap)
        self.library, self.entry, self.made = library, entry, made


class Pipeline(Thing):
    """MTLComputePipelineState.

    Attributes:
        arguments: what it is given.
        pins: how many command buffers that were committed, and are not completed, use it.
    """

    def __init__(self, heap: Heap, function: Function) -> None:
        super().__init__(heap)
        self.entry, self.made = function.entry, function.made
        self.limits = function.library.limits
        self.arguments = msl.arguments(function.library.bare)
        self.pins = 0

    def dealloc(self) -> None:
        if self.pins:
            raise Refused(f"{self!r} was released while a command buffer that uses it may run")

    @message("threadExecutionWidth", returns=UNSIGNED)
    def thread_execution_width(self) -> int:
        return self.limits.simd

    @message("maxTotalThreadsPerThreadgroup", returns=UNSIGNED)
    def max_total_threads(self) -> int:
        return self.limits.threads


def make_library(
    heap: Heap, source: str, options: Thing | None, compile_: Compile, limits: Limits, error: int
) -> Library | None:
    """Compile MSL."""
    if options is not None and not isinstance(options, CompileOptions):
        raise Refused(f"{options!r} are not compile options")
    if options is None or options.fast_math:
        raise Refused("with fast math, kernels that look for NaN and infinity are wrong")
    try:
        compile_(source, {})
    except Exception as failed:  # whatever the shim raises is what Apple's compiler would say
        Error(heap, COMPILE_FAILURE, str(failed)).tell(error)
        return None
    return Library(heap, source, compile_, limits)


def make_pipeline(heap: Heap, function: Thing, error: int) -> Pipeline | None:
    """Make a pipeline, unless the device has less threadgroup memory than it wants."""
    if not isinstance(function, Function):
        raise Refused(f"a pipeline is made of a function, not of {function!r}")
    wanted, there = function.made.shared_nbytes, function.library.limits.shared
    if wanted > there:
        what = f"Threadgroup memory size ({wanted}) exceeds the maximum threadgroup memory allowed"
        Error(heap, COMPILE_FAILURE, f"{what} ({there})").tell(error)
        return None
    return Pipeline(heap, function)
