"""Each message, structure and constant of the Metal host is what Apple's headers say; none idle."""

import ast
import re
from pathlib import Path

import pytest
from apple_headers import Headers, fetch

from edgequant.device.metal import objc
from edgequant.device.metal.objc import MESSAGES, SELECTORS, Size

HOST = Path(objc.__file__).parent
CONSTANTS = {
    name: value
    for name, value in vars(objc).items()
    if re.fullmatch(r"[A-Z][A-Z0-9_]+", name) and isinstance(value, int)
}
# metal-cpp has these in templates that all its classes derive from.
INHERITED = {"alloc": "Object", "init": "Object", "retain": "Referencing", "release": "Referencing"}
SENT = [
    (kind, *message.split())
    for kind, messages in MESSAGES.items()
    for message in messages.split(",")
]


@pytest.fixture(scope="session")
def headers() -> Headers:
    folder = fetch()
    if folder is None:
        pytest.skip("Apple's headers cannot be fetched here")
    return Headers(folder)


@pytest.mark.oracle
@pytest.mark.parametrize(("kind", "letters", "selector"), SENT)
def test_messages(headers: Headers, kind: str, letters: str, selector: str) -> None:
    described = INHERITED.get(selector, kind.removeprefix("MTL").removeprefix("NS"))
    assert headers.messages[described, selector] == letters


@pytest.mark.oracle
@pytest.mark.parametrize("name", CONSTANTS)
def test_constants(headers: Headers, name: str) -> None:
    found = {known.upper(): value for known, value in headers.constants.items()}
    assert found[name.replace("_", "")] == CONSTANTS[name]


@pytest.mark.oracle
def test_structures(headers: Headers) -> None:
    """`Size` is three NSUInteger of eight bytes, packed as C packs them anyway."""
    (body,) = re.findall(r"struct Size\n\{(.*?)\n\} _MTL_PACKED;", headers.text, re.DOTALL)
    fields = re.findall(r"^    NS::UInteger (\w+);", body, re.MULTILINE)
    assert [(name, kind.__name__) for name, kind in Size._fields_] == [
        (name, "c_ulong") for name in fields
    ]
    assert "using UInteger = std::uintptr_t;" in headers.text


@pytest.mark.oracle
def test_classes_and_functions(headers: Headers) -> None:
    made = {"NSString"} | {
        text for text in strings(HOST / "pipelines.py") if text.startswith("MTL")
    }
    assert made == {"NSString", "MTLCompileOptions", "MTLFunctionConstantValues"}
    for name in made:
        assert re.search(rf"_PRIVATE_DEF_CLS\({name}\)", headers.text)
    assert 'extern "C" MTL::Device* MTLCreateSystemDefaultDevice();' in headers.text


def test_every_constant_is_used_and_nothing_is_sent_unchecked() -> None:
    """That every message is sent, tests/unit/metal says."""
    texts, names = set(), set()
    for path in HOST.glob("*.py"):
        texts |= strings(path)
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, (ast.Attribute, ast.Name)) and isinstance(node.ctx, ast.Load):
                names.add(node.attr if isinstance(node, ast.Attribute) else node.id)
    assert {text for text in texts if re.fullmatch(r"(\w+:)+", text)} <= set(SELECTORS)
    assert set(CONSTANTS) <= names


def strings(path: Path) -> set[str]:
    """Return the texts in a module's code."""
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    return {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}
