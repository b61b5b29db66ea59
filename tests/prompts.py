"""Twenty beginnings of texts, and how far they are continued where two engines are compared.

Where the two likeliest tokens are nearer to each other than float16 rounding, either is right: two
prompts that met a gap below 0.001 gave way to others ("She opened the letter with trembling hands,
and", where the texts part at such a place, and one more). Here all are above 0.0015.
"""

LENGTH = 128
PROMPTS = (
    "It was late in the evening when the carriage",
    "The old man put down his pipe and said",
    "The letter was sealed with red wax, and on it was written",
    "There is no greater folly than",
    "In the year of our Lord",
    "The captain looked towards the horizon;",
    '"I do not believe you," said',
    "My dear sister,",
    "CHAPTER II",
    "At the foot of the mountain there stood",
    "The dog ran through the",
    "Upon my word, sir, I have never",
    "The rain had not ceased for three days, and the river",
    "He was a tall, thin man of about forty, with",
    "Nothing could be heard but the wind",
    "The children were asleep when their mother",
    "For a moment nobody spoke. Then the",
    "The army marched at daybreak towards",
    "Of all the flowers in her garden she loved",
    "1. The first of these laws is that",
)
