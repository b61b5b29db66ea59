"""A pretend Objective-C runtime with as much Metal as our host needs, where there is no Mac.

Messages go to Python objects; kernels run through the CPU shim (`metal_on_cpu`). It refuses what
Metal refuses, and what would go wrong on a Mac without a word: see `Refused` and the tests in
tests/unit/pretend_metal. `runtime` is the seam to the host; `objects`, `kinds` and `foundation` are
Objective-C; `device`, `memory`, `kernels`, `msl` and `commands` are Metal; `executor` says when
commands run, `hazards` what dispatches touch.

It cannot know what Apple's compiler says of a kernel, how fast anything is, or whether memory that
was not declared happens to be resident.
"""

from pretend_metal.executor import Late, Threaded
from pretend_metal.limits import Limits
from pretend_metal.refused import Refused
from pretend_metal.runtime import PretendMetal

__all__ = ["Late", "Limits", "PretendMetal", "Refused", "Threaded"]
