"""What can be learned, each task declared once, in the order in which a person should meet them."""

from __future__ import annotations

from attention.formula.knobs import Knob
from attention.formula.ranges import Whole
from attention.training.design import Design
from attention.training.tasks import dates, induction, letters, lookup
from attention.training.tasks.task import Control, Task

_NO_POSITIONS = {"positions": "none"}

# fmt: off
TASKS: dict[str, Task] = {one.name: one for one in (
    Task(
        "reverse", "Reverse 12 letters",
        "Write the letters backwards. Each place must look at the place at the other end: watch the anti-diagonal appear.",
        Design(26, 26, 12, positions="learned"), letters.letters, letters.reversed_letters, letters.read_letters,
        lambda design: letters.sample("transformers", design), "12 letters", 100, 5e-3, (1.0, 0.999),
        controls={"no positions": Control("Without positions no place knows which one it is: it cannot learn to reverse.", _NO_POSITIONS)},
        sliders=(Knob("length", 12, Whole(4, 48), "Letters", "How many letters are reversed."),),
        reads="abcdefghijkl", refuses=("abc", "4 12")),
    Task(
        "copy", "Copy from k places back",
        "Write the letter that stood k places earlier: a head that looks back by position. Turn k, and the diagonal moves.",
        Design(26, 26, 16, offset=1, positions="learned", causal=True), letters.letters, letters.copied_letters, letters.read_letters,
        lambda design: letters.sample("attentionlooking", design), "16 letters", 100, 5e-3, (1.0, 0.997),
        controls={"no positions": Control("Without positions nothing says which letter stood k places back.", _NO_POSITIONS)},
        sliders=(Knob("offset", 1, Whole(1, 8), "k", "How many places back the letter stands."),),
        reads="abcdefghijklmnop", refuses=("abc",)),
    Task(
        "lookup", "Look up in a dictionary",
        "Each query asks for the value of a key, as in Python's {key: value}. Q and K learn to match, V brings the value.",
        Design(26, 10, 10, memory=(26, 10)), lookup.entries, lookup.looked_up, lookup.read_entries,
        lookup.sample, "10 entries such as a:3", 100, 5e-3, (1.0, 0.987),
        sliders=(Knob("length", 10, Whole(5, 20), "Entries", "How many entries the dictionary has."),),
        reads="a:1 b:2 c:3 d:4 e:5 f:6 g:7 h:8 i:9 j:0", refuses=("a:1 a:2", "x")),
    Task(
        "sort", "Sort 10 letters",
        "Write the letters in the order of the alphabet. Each query is the letter written last, and must find the next one.",
        Design(27, 26, 10, memory=(26,)), letters.distinct_letters, letters.sorted_letters, letters.read_distinct,
        lambda design: letters.sample("qwertyuiopasdfghjklzxcvbnm", design), "10 letters, each another", 300, 5e-3, (0.974, 0.77),
        sliders=(Knob("length", 10, Whole(5, 12), "Letters", "How many letters are sorted."),), next=True,
        reads="zyxwvutsrq", refuses=("aabcdefghi", "abc")),
    Task(
        "induction", "An induction head",
        "What came after this word the last time? Two layers must work together: the first finds the word before each, the second finds where it stood.",
        Design(64, 64, 32, layers=2, positions="relative", causal=True), induction.repeated, induction.continued, induction.read_words,
        induction.sample, "2 to 16 words", 200, 1e-2, (0.998, 0.992),
        controls={
            "one layer": Control("With one layer no key can know which word stood before it: it cannot learn this.", {"layers": 1}),
            "no positions": Control("Without positions the first layer cannot find the word before.", _NO_POSITIONS),
        },
        sliders=(Knob("length", 32, Whole(16, 64), "Positions", "How many tokens it sees at once."),), next=True,
        reads="to be or not to be", refuses=("word", " ".join(f"w{i}" for i in range(17)))),
    Task(
        "dates", "Dates into ISO 8601",
        "Translate a date as people write it. Each place of the answer looks at the characters that say it.",
        Design(10, 11, dates.LONGEST, memory=(len(dates.SYMBOLS),), encoder=2, mlp=True), dates.dates, dates.translated, dates.read_date,
        lambda design: "March 9, 2024", "such as March 9, 2024 or 09.03.2024", 500, 5e-3, (0.977, 0.85), batch=48,
        controls={"values from the encoder": Control(
            "Values from the encoder too: the dates are as right, but the weights say less. A neighbour that has taken the digit in is read instead: "
            "attention says where a vector was read, not where the information came from.", {"encoded_values": True})},
        reads="31 May 1999",
        refuses=("9/10/2024", "31.02.2024", "March 9, 3024", "9 march 2024", "30 Feb 2024", "09 March 2024")),
)}
# fmt: on
"""Every task by its name."""

CONTROLS = tuple(dict.fromkeys(control for one in TASKS.values() for control in one.controls))
"""The names of all controls."""

LONGEST_OWN = 300  # characters of what a person types

SLIDER_KEYS = tuple(dict.fromkeys(knob.key for one in TASKS.values() for knob in one.sliders))
"""The fields of a design that any task lets turn."""
