"""The pretend Objective-C: prototypes, ownership, pools."""

import threading

import pytest
from pretend_metal import PretendMetal, Refused
from pretend_metal.runtime import known

from edgequant.device.metal.objc import SELECTORS, Messages


def test_it_knows_what_the_host_sends_and_no_more():
    assert {selector: asked.letters for selector, asked in known().items()} == SELECTORS


def test_an_unknown_selector_is_refused(runtime):
    with pytest.raises(Refused, match="no class has the selector newTexture"):
        runtime.bind("newTexture")


def test_another_prototype_is_refused(runtime, monkeypatch):
    monkeypatch.setitem(SELECTORS, "contents", "U")
    with pytest.raises(Refused, match="contents is p, not U"):
        runtime.bind("contents")


def test_a_prototype_is_for_one_selector(mac):
    function, _ = mac.runtime.bind("contents")
    _, handle = mac.runtime.bind("gpuAddress")
    with pytest.raises(Refused, match="used for another selector"):
        function(mac.buffer(), handle)


def test_an_object_answers_what_its_class_has(mac):
    with pytest.raises(Refused, match=r"Queue .* does not respond to contents"):
        mac.send(mac.queue, "contents")


@pytest.mark.parametrize("receiver", [None, 0, 12345])
def test_there_must_be_a_receiver(mac, receiver):
    with pytest.raises(Refused, match=r"nil|no object"):
        mac.send(receiver, "contents")


@pytest.mark.parametrize(
    ("selector", "arguments"),
    [
        ("newBufferWithLength:options:", (64,)),
        ("newBufferWithLength:options:", (64, 0, 0)),
        ("newBufferWithLength:options:", (64.0, 0)),
        ("newBufferWithLength:options:", (-1, 0)),
        ("newBufferWithLength:options:", (1 << 64, 0)),
        ("supportsFamily:", ("7",)),
        ("newComputePipelineStateWithFunction:error:", (12345, 0)),
        ("newLibraryWithSource:options:error:", ("text", None, 0)),
        ("newLibraryWithSource:options:error:", (1.5, None, 0)),
    ],
)
def test_wrong_arguments_are_refused(mac, selector, arguments):
    with pytest.raises(Refused):
        mac.send(mac.device, selector, *arguments)


def test_wrong_kinds_of_text_truth_and_size_are_refused(mac):
    text = "stringWithCString:encoding:"
    with pytest.raises(Refused, match="not a C string"):
        mac.send(mac.runtime.class_named("NSString"), text, "text", 4)
    with pytest.raises(Refused, match="encoding 1"):
        mac.send(mac.runtime.class_named("NSString"), text, b"text", 1)
    with pytest.raises(Refused, match="neither YES nor NO"):
        mac.send(mac.made("MTLCompileOptions"), "setFastMathEnabled:", 2)
    encoder = mac.encoder(mac.commands())
    with pytest.raises(Refused, match="not an MTLSize"):
        mac.send(encoder, "dispatchThreadgroups:threadsPerThreadgroup:", (1, 1, 1), (1, 1, 1))
    mac.send(encoder, "endEncoding")


def test_what_was_released_is_gone(mac):
    buffer = mac.buffer()
    mac.send(mac.send(buffer, "retain"), "release")
    assert mac.send(buffer, "contents")
    mac.send(buffer, "release")
    with pytest.raises(Refused, match=r"Buffer .* was released"):
        mac.send(buffer, "release")


def test_the_device_and_classes_stay(mac):
    mac.send(mac.device, "release")
    with pytest.raises(Refused, match="more often than it was taken"):
        mac.send(mac.device, "release")
    with pytest.raises(Refused, match="class String was released"):
        mac.send(mac.runtime.class_named("NSString"), "release")


def test_a_machine_without_a_device_or_class(kernels):
    assert PretendMetal(kernels, present=False).default_device() is None
    assert PretendMetal(kernels).class_named("MTLTexture") is None


def test_pools_release_what_is_in_them(runtime):
    send = Messages(runtime)
    with send.pool():
        text = send.string("words")
        kept = send(send.string("kept"), "retain")
        assert send.text(text) == "words"
    assert runtime.alive() == [f"String {kept:#x}"]
    with pytest.raises(Refused, match="was released"):
        send.text(text)
    send(kept, "release")
    assert runtime.alive() == []


def test_pools_are_of_a_thread_and_close_in_order(runtime):
    send, found = Messages(runtime), []

    def elsewhere() -> None:
        with pytest.raises(Refused, match="without a pool"):
            send.string("words")
        found.append(True)

    with send.pool():
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert found
        outer = runtime.push_pool()
        inner = runtime.push_pool()
        with pytest.raises(Refused, match="is popped, but"):
            runtime.pop_pool(outer)
        runtime.pop_pool(inner)
        runtime.pop_pool(outer)


def test_what_is_alive_is_told(mac):
    mac.pipeline()
    mac.send(mac.device, "retain")
    named = " ".join(mac.runtime.alive())
    assert all(kind in named for kind in ("Queue", "Library", "Function", "Pipeline", "Device"))
    assert mac.runtime.sent["newCommandQueue"] == 1
