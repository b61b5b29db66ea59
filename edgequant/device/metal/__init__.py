"""Metal: Apple's GPUs, through the Objective-C runtime and ctypes; macOS 13, iOS 16 and later.

Why an own host: pyobjc leaves open what becomes of memory that is not copied, and this way nothing
is to be installed. The kernels are those of Vulkan, written for Metal from the same sources; their
arguments are the same bytes.

`objc` is the vocabulary, `pipelines` and `recording` are what is made, and `device` has the verbs
of `Gpu`. Nothing outside this folder names an object of Apple's.
"""

from edgequant.device.single import Single, single


def _open() -> Single:
    from edgequant.device.metal.device import open_metal

    return open_metal()


DEVICE = single("metal", rank=10, open_api=_open)
