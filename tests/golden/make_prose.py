"""Write calibration/prose.txt: passages that our own books-54m model continues from our openings.

Run by hand, once; the text is committed, this script says how it came about:

    python tests/golden/make_prose.py CHECKPOINT calibration/prose.txt --known books-*.txt

Sampling draws from torch's generator, so another torch or another processor may write other
passages with the same seed. A passage that shares a run of 12 words with a file of --known, that
goes round in circles or that has unwanted words is left out.
"""

import argparse
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import LlamaForCausalLM

SEED = 20251129
TEMPERATURE = 0.9
TOP_P = 0.95
NEW_TOKENS = (320, 400)
BATCH = 46
LIMIT = 138_000  # bytes; below half of the calibration text
RUN = 12  # words in a row that count as copied
# Old novels speak ill of whole peoples, and their model may too: such passages go.
UNWANTED = re.compile(
    r"\b(nigg\w*|negro\w*|savages?|squaws?|red-?skins?|darky|darkies|jews?|jewish|heathens?"
    r"|gips\w+|half-breeds?|mulatto\w*|blackies?|indians?|natives?|white m[ae]n|slave\w*"
    r"|whores?|idiots?|bastards?|rape[sd]?|gutenberg)\b",
    re.IGNORECASE,
)

OPENINGS = (
    "The lighthouse had been dark for eleven nights when the new keeper climbed the stairs",
    "My grandmother kept her recipes in a tin box, and the oldest of them was written on "
    "birch bark",
    "Nobody in the valley could say who had built the bridge, but everybody paid to cross it",
    "It rained on the morning of the examination, and the candidates stood dripping in the hall",
    "The doctor put down his bag, listened at the door, and shook his head",
    "When the train stopped between two stations, the passengers at first paid no attention",
    "Of all the trades a boy might learn, that of the clockmaker asks the most patience",
    "The queen of that country had a strange custom: she answered every letter herself",
    "I have been asked to describe the machine exactly as I saw it on the first evening",
    "The harvest failed twice, and in the third year the village sent for the surveyor",
    "Snow lay so deep upon the pass that the mules sank to their bellies",
    "A merchant who buys too early is a fool, and one who buys too late is a beggar",
    "The letter was addressed to a man who had been dead for six years",
    "She opened the piano, struck one note, and waited until it had quite died away",
    "There are three ways of catching an eel, and my uncle believed in none of them",
    "The committee met on Thursday to decide what should be done with the old theatre",
    "We had been eight days at sea before the captain told us where we were going",
    "In the dry season the river shrinks to a string of pools, and the birds gather there",
    "The philosopher lived above a bakery, which he said kept his thoughts warm",
    "At the corner of the market stood a woman who sold nothing but keys",
    "The general read the dispatch twice, folded it, and asked for his breakfast",
    "My first winter in the city I lived on bread, tea and the kindness of my landlady",
    "The wolf that came down that night was old, and limped, and was not afraid",
    "To keep bees well, a man must first of all learn to move slowly",
    "The boy had drawn a map of the island, and on it a house that was not there",
    "The judge, who was known to sleep after luncheon, woke suddenly and asked a question",
    "Beyond the last houses of the town the road divides, and there is no signpost",
    "The two sisters had not spoken since the sale of the orchard",
    "An astronomer who counts the stars with the naked eye will seldom pass three thousand",
    "Every evening at six the old soldier walked to the harbour and counted the masts",
    "The fire began in the mill, a little after midnight, and the wind was from the west",
    "He was the sort of teacher who never raised his voice and never forgot a face",
    "The garden behind the hospital was laid out by a patient who refused to go home",
    "At the bottom of the well they found a spoon, a shoe, and a box of iron",
    "The wedding was to be in May, and in April the bridegroom lost his voice",
    "Salt was dearer than silver in those hills, and men carried it over by night",
    "The inspector noticed that all the clocks in the house showed a different hour",
    "A good cook wastes nothing, and a great cook is not seen to be saving",
    "The expedition left the coast with forty porters and a gramophone",
    "On the subject of ghosts the two clergymen could not agree",
    "The apprentice dropped the glass, and in the silence one could hear it rolling",
    "There was once a tailor who could not bear to hear the truth",
    "The bank closed its doors at noon, and by one o'clock the square was full",
    "Of the memory of horses many tales are told, but this one I witnessed myself",
    "The new schoolmistress arrived on foot, carrying a globe under her arm",
    "Liberty, said the printer, wiping his hands, is chiefly a matter of paper",
    "Under the ice the lake made a noise like a great door opening",
    "The painter had sold his coat, his watch, and all but one of his brushes",
    "In the forest the light is green until October, and after that it is brown",
    "When the miner came up again after nine days, he asked what year it was",
    "The telegram contained four words, and three of them were wrong",
    "My father measured the field with a chain, and I held the other end",
    "The prisoner in the third cell had taught a sparrow to come when he whistled",
    "The invention was simple, and for that reason nobody would believe in it",
    "Every family in the street had a story about the house with the blue shutters",
    "The fishermen would not go out on a Friday, though the sea was like glass",
    "She had learned the language from a dictionary and spoke it like a law book",
    "The moon rose behind the gallows hill, and the coachman began to sing",
    "It is a mistake to suppose that the poor do not keep accounts",
    "The king's physician tasted the soup himself and declared it excellent",
    "On the ninth of March the ice went out, and the first boat came up from the south",
    "The violin was not a fine one, but it had been broken and mended by a master",
    "Nothing is so hard to hide as a new pair of boots in a small village",
    "The desert begins where the telegraph poles end, about two miles beyond the fort",
    "The ferryman knew three songs and one joke, and the crossing took an hour",
    "In the library of the monastery there is one book which no one has been able to read",
    "The children found the old man asleep under the cherry tree with his hat full of fruit",
    "Concerning the cause of the explosion, the engineers gave two opinions",
    "He wrote to her every Sunday for a year, and she answered in the second",
    "The dog would not enter the room, and so we sent for a lantern",
    "It was a country of stone walls and short tempers",
    "The dinner was given in honour of a poet who had not been invited",
    "To the north of the town lies a marsh, and in the marsh, they say, a coach and four",
    "The nurse sat by the window, knitting, and did not look up when I came in",
    "No man is so busy as he who waits for an answer",
    "The storm had carried away the mast, two boats and the greater part of our biscuit",
    "Before the days of the railway, the journey took a week and a change of linen",
    "The two boys swore an oath upon a rusty knife and a page of arithmetic",
    "The actress read the play to the end, closed it, and laughed",
    "A shepherd sees more weather in a year than a townsman in his life",
    "The thief, it appeared, had wiped his feet before he came in at the window",
    "Among the papers of my late partner I came upon a plan of the harbour",
    "The balloon rose at ten, and at a quarter past the rope was cut",
    "Grief, like a tenant, sooner or later gives notice",
    "The potter said that clay remembers the last hand that held it",
    "Through the whole of that summer the smoke of the burning woods lay over us",
    "The election was decided by a cow, and this is how it happened",
    "Of my uncle's four sons the youngest was thought to be the least gifted",
    "The caravan halted at sunset beside a well with no bucket",
    "The professor held up a grain of sand and asked us what it was worth",
)


def sample(model: LlamaForCausalLM, tokenizer: Tokenizer, openings: tuple[str, ...]) -> list[str]:
    """Continue each opening, and return opening and continuation up to its last whole sentence."""
    bos, eos = tokenizer.token_to_id("<|begin_of_text|>"), tokenizer.token_to_id("<|end_of_text|>")
    ids = [[bos, *tokenizer.encode(text, add_special_tokens=False).ids] for text in openings]
    width = max(map(len, ids))
    rows = torch.tensor([[eos] * (width - len(row)) + row for row in ids])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in ids])
    low, high = NEW_TOKENS
    found = model.generate(
        rows, attention_mask=mask, do_sample=True, temperature=TEMPERATURE, top_p=TOP_P, top_k=0,
        min_new_tokens=low, max_new_tokens=high, pad_token_id=eos,
    )  # fmt: skip
    texts = [tokenizer.decode(row.tolist(), skip_special_tokens=True) for row in found]
    return [cut_at_sentence(text) for text in texts]


def cut_at_sentence(text: str) -> str:
    """Return the text up to its last full stop, exclamation or question mark, on tidy lines."""
    ends = [match.end() for match in re.finditer(r"[.!?][\"'’”]?(?=\s)", text)]
    whole = text[: ends[-1]] if ends else text
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+(?=\n)", "", whole)).strip()


def word_runs(text: str) -> Iterator[str]:
    """Yield every run of RUN words, without case and punctuation."""
    words = re.findall(r"[^\W_]+", text.lower())
    for start in range(len(words) - RUN + 1):
        yield " ".join(words[start : start + RUN])


def circles(text: str) -> bool:
    """Say whether four words in a row come back five times: sampling got stuck."""
    words = re.findall(r"[^\W_]+", text.lower())
    fours = Counter(zip(words, words[1:], words[2:], words[3:], strict=False))
    return max(fours.values(), default=0) >= 5


def main() -> None:
    """Sample, filter, write, and say how many passages went out and why."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--known", type=Path, nargs="*", default=[], help="texts not to repeat")
    options = parser.parse_args()
    torch.set_num_threads(1)  # in step with nobody: faster on a busy machine
    torch.manual_seed(SEED)
    tokenizer = Tokenizer.from_file(str(options.checkpoint / "tokenizer.json"))
    model = LlamaForCausalLM.from_pretrained(options.checkpoint, dtype=torch.float32).eval()
    known = {run for path in options.known for run in word_runs(path.read_text("utf-8"))}

    kept, size, dropped = [], 0, Counter()
    for start in range(0, len(OPENINGS), BATCH):
        for text in sample(model, tokenizer, OPENINGS[start : start + BATCH]):
            nbytes = len(text.encode()) + 2
            if not known.isdisjoint(word_runs(text)):
                dropped["copied"] += 1
            elif circles(text):
                dropped["circles"] += 1
            elif UNWANTED.search(text):
                dropped["unwanted words"] += 1
            elif size + nbytes > LIMIT:
                dropped["over the limit"] += 1
            else:
                kept.append(text)
                size += nbytes
        print(f"{len(kept)} passages, {size} bytes, left out: {dict(dropped)}", flush=True)
    options.output.write_text("\n\n".join(kept) + "\n", "utf-8", newline="\n")


if __name__ == "__main__":
    main()
