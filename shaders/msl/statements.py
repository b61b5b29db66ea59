"""Rewrites of a function's statements. Each leaves what is computed as it is, and in its order.

`tidy` says in which order they are done.
"""

import re

from msl.tree import Block, each, flat, is_loop, is_steady, leaves, mentions, text

UNROLLED = 16  # rounds of a loop up to which it is always unrolled
IF = re.compile(r"if\((.*)\)")
SET = re.compile(r"([\w.>-]+) = (.*);")
DECLARED = re.compile(
    r"(?!return|threadgroup|else)([\w:<>, ]+?(?: (?:device|constant|threadgroup|thread))?\*?)"
    r" (\w+)(?: = (.*))?;"
)
STEP = re.compile(r"(\w+) = \1 (?:(\+) (\w+(?: [*/] \w+)*)|([-*]) (\w+));")
COUNTED = re.compile(r"for\((?:\w+ )?(\w+) = \d+U?; \1 <=? (\d+)U?; \1(?: \+= (\d+)U?|.*)\)")
LEAVES = re.compile(r"\b(?:continue|break|return)\b")
CALL = re.compile(r"[\w.>-]+(?:\((?:[^()]|\([^()]*\))*\))?")


def tidy(body: Block) -> None:
    """Rewrite a function's body."""
    function = _Function(body)
    for rewrite in (
        function.pass_on,
        function.choose,
        function.carry,
        function.pass_on,
        function.loop,
        function.sink,
        function.choose,
        function.unroll,
    ):
        each(body, rewrite)
    if body[-1:] == ["return;"]:
        body.pop()


class _Function:
    """The rewrites, of one block at a time."""

    def __init__(self, body: Block) -> None:
        self._body = body

    def choose(self, block: Block) -> None:
        """Make `if`s that choose a value choices, and turn around those that do nothing."""
        i = -1
        while (i := i + 1) < len(block) - 1:
            said = IF.fullmatch(text(block, i))
            if said is None:
                continue
            rest = block[i + 3] if text(block, i + 2) == "else" else None
            if rest is not None and block[i + 1] == []:
                block[i : i + 4] = [f"if(!({said[1]}))", rest]
            elif rest == []:
                del block[i + 2 : i + 4]
            elif rest is not None and (chosen := _choice(said[1], block[i + 1], rest)):
                block[i : i + 4] = [chosen]
                declared = DECLARED.fullmatch(text(block, i - 1))
                if declared and not declared[3] and chosen.startswith(declared[2] + " = "):
                    block[i - 1 : i + 1] = [f"{declared[1]} {chosen}"]

    def carry(self, block: Block) -> None:
        """`T a = e; ... v = a;` becomes `v = e;` where nothing between means v, or leaves."""
        for j in range(len(block) - 1, -1, -1):
            said = re.fullmatch(r"(\w+) = (\w+);", text(block, j))
            if said is None:
                continue
            for i in range(j - 1, -1, -1):
                made = DECLARED.fullmatch(text(block, i))
                if made and made[2] == said[2] and made[3]:
                    if mentions(self._body, said[2]) == 2:
                        block[i] = f"{said[1]} = {made[3]};"
                        del block[j]
                    break
                between = "\n".join(flat(block[i : i + 1]))
                if mentions(between, said[1]) or re.search(
                    r"\b(?:continue|break|return)\b", between
                ):
                    break

    def pass_on(self, block: Block) -> None:
        """`T a = e; return a;` and the like do without a."""
        for i in range(len(block) - 2, -1, -1):
            made, after = DECLARED.fullmatch(text(block, i)), text(block, i + 1)
            if not made or not made[3] or mentions(after, made[2]) != 1:
                continue
            if mentions(self._body, made[2]) != 2:
                continue
            left, right = re.split(rf"\b{made[2]}\b", after)
            if after == f"if({made[2]})":
                block[i : i + 2] = [f"if({made[3]})"]
            # What else is there must be names alone: then no order matters.
            elif not re.search(r"[(*\[&]", left + right) and after.endswith(";"):
                alone = right == ";" and (left == "return " or left.endswith(" = "))
                inner = made[3] if alone or CALL.fullmatch(made[3]) else f"({made[3]})"
                block[i : i + 2] = [f"{left}{inner}{right}"]

    def loop(self, block: Block) -> None:
        """Give loops their conditions, steps and starts; drop those that are none."""
        i = -1
        while (i := i + 1) < len(block) - 1:
            body = block[i + 1]
            if block[i] != "for(;;)" or isinstance(body, str):
                continue
            while _is_fixed(body):
                block.insert(i, body.pop(0))  # the same in every round
                i += 1
            if body[-1:] == ["break;"] and not leaves(body[:-1]):
                block[i : i + 2] = [body[:-1]]
                continue
            ends = re.fullmatch(r"if\(!\((.*)\)\)", text(body, 0))
            if ends is None or body[1] != ["break;"]:
                continue
            del body[:2]
            step = _take_step(body, ends[1])
            if step is None:
                block[i] = f"while({ends[1]})"
                continue
            start = self._take_start(block, i, step[0])
            i = next(at for at in range(i, -1, -1) if block[at] == "for(;;)")
            block[i] = f"for({start}; {ends[1]}; {step[1]})"

    def _take_start(self, block: Block, i: int, counter: str) -> str:
        """Take what sets a counter from before the loop at i, if it can as well be done there."""
        at = i - 1
        while text(block, at) and not mentions(text(block, at), counter):
            at -= 1
        first = text(block, at)
        made, put = DECLARED.fullmatch(first), SET.fullmatch(first)
        if made and made[2] == counter and made[3]:
            kind, value = made[1] + " ", made[3]
        elif put and put[1] == counter:
            kind, value = "", put[2]
        else:
            return ""
        if at < i - 1 and not is_steady(value, block[at + 1 : i]):
            return ""
        inside = mentions(block[i + 1 : i + 2], counter) + 1
        if kind and mentions(self._body, counter) > inside:
            block[at] = f"{kind}{counter};"  # it is used again; `sink` may part the two
            return f"{counter} = {value}"
        del block[at]
        return f"{kind}{counter} = {value}"

    def sink(self, block: Block) -> None:
        """Declare what has no value yet where it gets its first."""
        for i in range(len(block) - 1, -1, -1):
            made = DECLARED.fullmatch(text(block, i))
            places = _places(block, i + 1, made[2]) if made and not made[3] else None
            if made and places:
                for where, at in places:
                    first = text(where, at)
                    loop = first.startswith("for(")
                    where[at] = f"for({made[1]} {first[4:]}" if loop else f"{made[1]} {first}"
                del block[i]

    def unroll(self, block: Block) -> None:
        """Mark loops over few numbers to be unrolled."""
        for i in range(len(block) - 2, -1, -1):
            said = COUNTED.fullmatch(text(block, i))
            if said and int(said[2]) <= UNROLLED * int(said[3] or 1):
                block.insert(i, "#pragma unroll")


def _is_fixed(body: Block) -> bool:
    """Tell whether a loop's first statement gives a name to what is the same in every round."""
    made = DECLARED.fullmatch(text(body, 0))
    return bool(made and made[3] and is_steady(made[3], body[1:]))


def _take_step(body: Block, condition: str) -> tuple[str, str] | None:
    """Take the statement that counts out of a loop's body; return the counter and the step."""
    at = len(body) - 1
    while (said := text(body, at)) and not re.match(r"(?:continue|break|return)\b", said):
        step = STEP.fullmatch(said)
        if step and mentions(condition, step[1]):
            by = step[3] or step[5]
            later = body[at + 1 :]
            steady = not mentions(later, step[1]) and is_steady(by, later)
            if not steady or not _drop_before_continue(body[:at], said, dry=True):
                return None
            _drop_before_continue(body[:at], said, dry=False)
            del body[at]
            one = step[2] == "+" and by in ("1", "1U")
            return step[1], f"{step[1]}++" if one else f"{step[1]} {step[2] or step[4]}= {by}"
        at -= 1
    return None


def _drop_before_continue(block: Block, counts: str, *, dry: bool) -> bool:
    """Drop a loop's count before each `continue` of it; tell whether it stands before all."""
    i = -1
    while (i := i + 1) < len(block):
        statement = block[i]
        if statement == "continue;":
            if text(block, i - 1) != counts:
                return False
            if not dry:
                del block[i - 1]
                i -= 1
        elif isinstance(statement, str) or is_loop(block, i - 1):
            continue
        elif not _drop_before_continue(statement, counts, dry=dry):
            return False
    return True


def _choice(condition: str, then: "str | Block", rest: "str | Block") -> str | None:
    """Return the statement that `if(condition) then else rest` is, if both set one variable."""
    if isinstance(then, str) or isinstance(rest, str) or len(then) != 1 or len(rest) != 1:
        return None
    yes, no = SET.fullmatch(text(then, 0)), SET.fullmatch(text(rest, 0))
    if not yes or not no or yes[1] != no[1]:
        return None
    if no[2] == "false":
        return f"{yes[1]} = {_operand(condition)} && {_operand(yes[2])};"
    if yes[2] == "true":
        return f"{yes[1]} = {_operand(condition)} || {_operand(no[2])};"
    return f"{yes[1]} = {_operand(condition)} ? {_operand(yes[2])} : {_operand(no[2])};"


def _operand(text: str) -> str:
    return f"({text})" if re.search(r"\?|&&|\|\|", text) else text


def _places(block: Block, start: int, name: str) -> list[tuple[Block, int]] | None:
    """Return where a variable may be declared with a value instead; None if that would not do.

    A value must not outlive a loop that counts with it, nor a block that begins by setting it.
    """
    found: list[tuple[Block, int]] = []
    known = lost = False  # it has a value in this block; it may have another from inside
    for i in range(start, len(block)):
        statement = block[i]
        if not mentions(block[i : i + 1], name):
            continue
        value = SET.fullmatch(text(block, i))
        if text(block, i).startswith(f"for({name} = "):
            found.append((block, i))
            lost = True
        elif text(block, i - 1).startswith(f"for({name} = "):
            pass
        elif value and value[1] == name and (known or not mentions(value[2], name)):
            if lost and mentions(value[2], name):
                return None
            found += [] if known else [(block, i)]
            known, lost = True, False
        elif not known and not isinstance(statement, str):
            inner = _places(statement, 0, name)
            if inner is None:
                return None
            found += inner
            lost = True
        elif not known or lost:
            return None
    return found
