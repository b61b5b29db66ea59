"""Play a bundle: `python tests/bundle_player DIR -p PROMPT -n TOKENS`, greedily, on libvulkan.

It imports nothing but Python's standard library, and knows no more than the bundle's README and
manifest say: what is here, an app does in its own language.
"""

import argparse
import json
import sys
from pathlib import Path

from bpe import Words
from gpu import Gpu
from player import Player


def main():
    """Print the text that follows a prompt."""
    parser = argparse.ArgumentParser(prog="bundle_player")
    parser.add_argument("folder", type=Path)
    parser.add_argument("-p", "--prompt", required=True)
    parser.add_argument("-n", "--tokens", type=int, default=0, help="at most; 0: no limit")
    parser.add_argument("--gpu", default="", metavar="UUID", help="which; left out, the first")
    asked = parser.parse_args()
    gpu = Gpu(asked.gpu)
    first = json.loads((asked.folder / "manifest.json").read_text("utf-8"))
    file = next(one["file"] for one in first["manifests"] if gpu.suits(one["subgroup"]))
    manifest = json.loads((asked.folder / file).read_text("utf-8"))
    gpu.open(manifest["needs"], manifest["limits"])
    words = Words(asked.folder, manifest)
    player = Player(asked.folder, manifest, gpu)
    for token in player.text(words.encode(asked.prompt), asked.tokens):
        sys.stdout.write(words.feed(token))
    sys.stdout.write(words.finish() + "\n")


main()
