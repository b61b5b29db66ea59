"""Pretend libraries and pipelines, and what is read from MSL."""

import pytest
from pretend_metal import Refused, msl

CONSTANT = """
constant uint threads_0 [[function_constant(0)]];
constant bool gated_0 [[function_constant(1)]];
constant bool gated_1 = is_function_constant_defined(gated_0) ? gated_0 : false;
struct Args_0 { uint device* x_0; };
[[kernel]] void twice(Args_0 constant* args_0 [[buffer(0)]]) { }
"""
NESTED = """
struct Inner_0 { half device* w_0; packed_uint4 device* x_0; };
struct Params_0 { Inner_0 inner_0; uint count_0; };
struct Context_0 { array<float, int(64)> threadgroup* part_0; };
kernel void twice(Params_0 constant* params_0 [[buffer(0)]],
                  uint lane_0 [[thread_index_in_simdgroup]])
{
    // kernel void commented(
}
"""


def test_what_is_read_from_a_kernel():
    bare = msl.without_comments(NESTED)
    assert msl.entries(bare) == ["twice"]
    assert msl.arguments(bare) == msl.Arguments(addresses=2, nbytes=24)
    assert msl.constants(CONSTANT) == {0: ("uint", False), 1: ("bool", True)}


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        (("uint count_0;", "uint count_0; uint device* late_0;"), "follows the addresses"),
        (("uint count_0;", "half count_0;"), "half count_0 follows the addresses"),
        (("[[buffer(0)]]", "[[buffer(1)]]"), "no struct at"),
    ],
)
def test_what_cannot_be_read_is_refused(changed, match):
    with pytest.raises(Refused, match=match):
        msl.arguments(NESTED.replace(*changed))


def test_pipelines_say_what_they_can(mac):
    pipeline = mac.pipeline()
    assert mac.send(pipeline, "maxTotalThreadsPerThreadgroup") == 1024
    assert mac.send(pipeline, "threadExecutionWidth") == 32


def test_what_does_not_compile_is_an_error(mac):
    assert mac.library("kernel void twice() { oops; }") is None
    assert "oops" in mac.said
    assert mac.pipeline(CONSTANT.replace("{ }", "{ oops; }"), {0: 1}) is None
    assert "oops" in mac.said


def test_functions_have_names_and_constants(mac):
    assert mac.pipeline(CONSTANT) is None
    assert mac.said == "function constant 0 of twice is of uint; given is None"
    assert mac.pipeline(CONSTANT, {0: 32})
    assert mac.pipeline(CONSTANT, {0: 32, 1: 1}) is None
    assert mac.said == "function constant 1 of twice is of bool; given is uint"
    assert mac.pipeline(CONSTANT.replace("twice", "thrice"), {0: 32}) is None
    assert mac.said == "no function twice"


def test_constants_are_of_uint(mac):
    values = mac.made("MTLFunctionConstantValues")
    with pytest.raises(Refused, match="of type 3"):
        mac.send(values, "setConstantValue:type:atIndex:", 4096, 3, 0)


def test_fast_math_is_refused(mac):
    text = mac.send.string(NESTED)
    for options in (None, mac.made("MTLCompileOptions")):
        with pytest.raises(Refused, match="fast math"):
            mac.send(mac.device, "newLibraryWithSource:options:error:", text, options, 0)


def test_too_much_threadgroup_memory_is_an_error(mac, kernels):
    kernels.shared_nbytes = 32768
    assert mac.pipeline(NESTED)
    kernels.shared_nbytes = 32769
    assert mac.pipeline(NESTED) is None
    assert "exceeds the maximum" in mac.said


def test_what_is_given_must_be_of_its_class(mac):
    for selector, arguments in (
        ("newLibraryWithSource:options:error:", (mac.queue, None, 0)),
        ("newLibraryWithSource:options:error:", (mac.send.string("x"), mac.queue, 0)),
        ("newComputePipelineStateWithFunction:error:", (mac.queue, 0)),
    ):
        with pytest.raises(Refused):
            mac.send(mac.device, selector, *arguments)
    with pytest.raises(Refused, match="made of a name and constants"):
        mac.send(
            mac.library(), "newFunctionWithName:constantValues:error:", mac.queue, mac.queue, 0
        )
