"""The tasks, in the order in which learners should meet them."""

from __future__ import annotations

from attention.params.knob import Knob
from attention.params.ranges import Integer
from attention.training.design import Design
from attention.training.tasks import dates, dictionary, drawn_shapes, induction, letters
from attention.training.tasks.task import Control, Task

_NO_POSITIONS = {"positions": "none"}

# fmt: off
TASKS: dict[str, Task] = {task.name: task for task in (
    Task(
        "reverse", "Reverse 12 letters",
        "Write the letters backwards. Each position must look at the position at the other end: watch the anti-diagonal appear.",
        Design(26, 26, 12, positions="learned"), letters.letters, letters.reversed_letters, letters.read_letters,
        lambda design: letters.sample("transformers", design), "12 letters", 100, 5e-3, (1.0, 0.999),
        controls={"no positions": Control("Without positions the model cannot know the position of a letter: it cannot learn to reverse.", _NO_POSITIONS)},
        sliders=(Knob("length", 12, Integer(4, 48), "Letters", "How many letters are reversed."),),
        reads="abcdefghijkl", refuses=("abc", "4 12")),
    Task(
        "copy", "Copy from k places back",
        "Write the letter k positions earlier: a head that looks offset by position. Change k, and the diagonal moves.",
        Design(26, 26, 16, offset=1, positions="learned", causal=True), letters.letters, letters.copied_letters, letters.read_letters,
        lambda design: letters.sample("attentionlooking", design), "16 letters", 100, 5e-3, (1.0, 0.997),
        controls={"no positions": Control("Without positions the model cannot know which letter is k positions offset.", _NO_POSITIONS)},
        sliders=(Knob("offset", 1, Integer(1, 8), "k", "The distance to the copied letter, in positions."),),
        reads="abcdefghijklmnop", refuses=("abc",)),
    Task(
        "lookup", "Look up in a dictionary",
        "Each query asks for the value of a key, as in Python's {key: value}. Q and K learn to match, V brings the value.",
        Design(26, 10, 10, memory=(26, 10)), dictionary.entries, dictionary.looked_up, dictionary.read_entries,
        dictionary.sample, "10 entries such as a:3", 100, 5e-3, (1.0, 0.987),
        sliders=(Knob("length", 10, Integer(5, 20), "Entries", "How many entries the dictionary has."),),
        reads="a:1 b:2 c:3 d:4 e:5 f:6 g:7 h:8 i:9 j:0", refuses=("a:1 a:2", "x")),
    Task(
        "sort", "Sort 10 letters",
        "Write the letters in the order of the alphabet. Each query is the last letter written, and must find the next one.",
        Design(27, 26, 10, memory=(26,)), letters.distinct_letters, letters.sorted_letters, letters.read_distinct,
        lambda design: letters.sample("qwertyuiopasdfghjklzxcvbnm", design), "10 distinct letters", 300, 5e-3, (0.974, 0.77),
        sliders=(Knob("length", 10, Integer(5, 12), "Letters", "How many letters are sorted."),), next=True,
        reads="zyxwvutsrq", refuses=("aabcdefghi", "abc")),
    Task(
        "induction", "An induction head",
        "What came after this word last time? Two layers must work together: the first finds the previous word of each word, the second finds where the current word occurred before.",
        Design(64, 64, 32, layers=2, positions="relative", causal=True), induction.repeated, induction.continued, induction.read_words,
        induction.sample, "2 to 16 words", 200, 1e-2, (0.998, 0.992),
        controls={
            "one layer": Control("With one layer no key can know its previous word: the model cannot learn this.", {"layers": 1}),
            "no positions": Control("Without positions the first layer cannot find the previous word.", _NO_POSITIONS),
        },
        sliders=(Knob("length", 32, Integer(16, 64), "Positions", "How many tokens the model sees at once."),), next=True,
        reads="to be or not to be", refuses=("word", " ".join(f"w{i}" for i in range(17)))),
    Task(
        "dates", "Dates into ISO 8601",
        "Translate a date as people write it. Each character of the answer looks at the characters that it comes from.",
        Design(10, 11, dates.LONGEST, memory=(len(dates.SYMBOLS),), encoder=2, mlp=True), dates.dates, dates.translated, dates.read_date,
        lambda design: "March 9, 2024", "such as March 9, 2024 or 09.03.2024", 500, 5e-3, (0.977, 0.85), batch=48,
        controls={"values from the encoder": Control(
            "Values from the encoder too: the dates are just as right, but the weights say less. The model may read a neighbour that has taken up the digit: "
            "attention shows where a vector was read, not where the information came from.", {"encoded_values": True})},
        reads="31 May 1999",
        refuses=("9/10/2024", "31.02.2024", "March 9, 3024", "9 march 2024", "30 Feb 2024", "09 March 2024")),
    Task(
        "shapes", "Find a shape in a picture",
        "A tiny vision transformer. Six words name shapes, and the patches of a picture follow. Each word must give the colour of its shape, so it must look at the patch with that shape.",
        Design(len(drawn_shapes.SHAPES), len(drawn_shapes.COLORS), 5, patch=3 * drawn_shapes.SIDE**2), drawn_shapes.pictures, drawn_shapes.named_shapes,
        drawn_shapes.read_picture, drawn_shapes.sample, "such as red circle 1,2; blue square 4,4", 200, 5e-3, (0.996, 0.97),
        controls={
            "grey pictures": Control("If all shapes have one grey, no patch has the answer: the model never learns where to look, although it could see the shapes.", {"grey": True}),
            "one word": Control("If all words are the same to the model, no query can know which shape it asks for: all of them look alike.", {"tokens": 1}),
        },
        sliders=(Knob("length", 5, Integer(3, 6), "Patches", "How many patches are in a row and in a column of the picture."),),
        reads="red circle 1,2; blue square 4,4", refuses=("red circle", "pink circle 1,2", "red circle 1,5", "red circle 1,2; blue circle 2,2", "red circle 1,2; blue ring 1,2")),
)}
# fmt: on
"""All tasks by name."""

CONTROLS = tuple(dict.fromkeys(control for task in TASKS.values() for control in task.controls))
"""The names of all controls."""

MAX_TEXT_LENGTH = 300  # characters of a typed text

SLIDER_KEYS = tuple(dict.fromkeys(knob.key for task in TASKS.values() for knob in task.sliders))
"""The fields of a design that the sliders of any task can change."""
