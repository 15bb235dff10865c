"""Tiny trained models: the tasks, their rules and controls, and the source "trained"."""

import re
import threading
from dataclasses import replace
from functools import cache

import contract
import pytest
import torch
from margins import approx
from test_explain import check_printed_lines

from attention import Cell, ConfigError, Override, TextError, explain
from attention.base.cache import CACHE
from attention.base.knobs import Limits
from attention.export import program
from attention.formula.functions import generator
from attention.patching.intervention import Intervention, parse_codes
from attention.sources.registry import source_of
from attention.training import TASKS, Plan, Trained, train, trained
from attention.training.jobs import _RUNNING, get_film
from attention.training.learning import PROBES, _measure_gold_weight, measure
from attention.training.network import forward
from attention.training.task import Design

SHORT = {"sort": 120, "induction": 60, "dates": 120}  # steps after which the pattern is there
LIMITS = Limits(tokens=64, characters=200, d_model=64, heads=8, trace_mb=64)


@cache
def last(task: str, control: str = ""):
    return list(train(task, steps=SHORT.get(task, 0), control=control, every=1000))[-1]


# Each takes minutes of a processor; pictures and dates are learned slowest.
SLOWEST = {"shapes", "dates"}


@pytest.mark.sample(2)
@pytest.mark.parametrize("task", [pytest.param(task, marks=[pytest.mark.long] * (task in SLOWEST)) for task in TASKS])
def test_task_is_learned_and_its_controls_are_not(task):
    design, result = TASKS[task].design, last(task)
    chance = next(iter(train(task)))
    assert chance.accuracy < 0.2
    assert chance.score < 0.2
    floor = {"sort": (0.9, 0.5), "induction": (0.9, 0.85), "dates": (0.8, 0.5)}
    accuracy, pattern = floor.get(task, TASKS[task].reaches)
    assert result.accuracy >= accuracy
    assert result.score >= pattern
    assert result.loss < chance.loss / 3
    for name, control in TASKS[task].controls.items():
        other = last(task, name)
        if "encoded_values" in control.changes:  # as accurate, with a weaker pattern
            assert other.accuracy > 0.7
        else:
            assert other.accuracy < 0.5
            assert other.score < 0.4
        assert other.design != design


def test_gold_cells_follow_the_rule_of_the_task():
    def posed(task, *rows, **changes):
        return TASKS[task].posed(torch.tensor(rows), Plan(task, turned=tuple(changes.items())).design)

    assert posed("reverse", [0, 1, 2, 3], length=4).gold[0].int().tolist() == torch.eye(4).flip(1).int().tolist()
    copied = posed("copy", [5, 6, 7, 8], offset=2)
    assert copied.answers.tolist() == [[-1, -1, 5, 6]]
    assert copied.gold[0].nonzero().tolist() == [[2, 0], [3, 1]]
    looked = TASKS["lookup"].posed(torch.tensor([[7, 3, 9, 1, 2, 0, 9, 7, 3]]), Design(26, 10, 3, memory=(26, 10)))
    assert looked.answers.tolist() == [[0, 1, 2]]
    in_order = posed("sort", [9, 2, 4])
    assert in_order.tokens.tolist() == [[26, 2, 4]]
    assert in_order.answers.tolist() == [[2, 4, 9]]
    assert in_order.gold[0].nonzero().tolist() == [[0, 1], [1, 2], [2, 0]]
    pairs = posed("induction", [4, 8, 6, 4, 8, 6])  # rows 3 and 4 attend to the cell after the same token
    assert pairs.gold[0].nonzero().tolist() == [[3, 1], [4, 2]]
    assert pairs.answers.tolist() == [[-1, -1, -1, 8, 6]]
    date = TASKS["dates"].read("March 9, 2024", TASKS["dates"].design)
    batch = TASKS["dates"].posed(date.ids, TASKS["dates"].design)
    assert "".join("0123456789-"[i] for i in batch.answers[0].tolist()) == "2024-03-09"
    read = [
        "".join(char for char, is_gold in zip(date.memory, row, strict=True) if is_gold)
        for row in batch.gold[0].tolist()
    ]
    assert read == ["2", "0", "2", "4", "", "March", "March", "", "", "9"]


def test_score_is_the_weight_on_gold_cells():
    weights = torch.tensor([[[[0.25, 0.75], [0.5, 0.5]], [[0.5, 0.5], [1.0, 0.0]]]])
    assert _measure_gold_weight(weights, torch.tensor([[[False, True], [False, False]]])) == approx((0.75 + 0.5) / 2)


def test_two_concurrent_trainings_give_the_digits_of_one():
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    alone = list(train("reverse", 3, 20))
    results = {}
    trainings = [
        threading.Thread(target=lambda seed=seed: results.update({seed: list(train("reverse", seed, 20))}))
        for seed in (3, 4)
    ]
    for training in trainings:
        training.start()
    thread_counts = []
    while any(training.is_alive() for training in trainings):
        other = threading.Thread(target=lambda: thread_counts.append((torch.zeros(1), torch.get_num_threads())[1]))
        other.start()
        other.join()
    for training in trainings:
        training.join()
    assert [snapshot.step for snapshot in alone] == list(range(21))
    assert all(torch.equal(first.row, second.row) for first, second in zip(alone, results[3], strict=True))
    assert not torch.equal(alone[-1].row, results[4][-1].row)
    assert torch.equal(state, torch.get_rng_state())
    assert torch.get_num_threads() == threads
    assert set(thread_counts) <= {threads}


def test_training_stops_when_closed_or_out_of_time():
    training = train("copy", every=1)
    assert [next(training).step for _ in range(3)] == [0, 1, 2]
    training.close()
    assert not list(training)
    assert [snapshot.step for snapshot in train("copy", seconds=0)] == [0]
    with pytest.raises(ConfigError, match="from 0 to 1,000"):
        train("copy", steps=5000)
    with pytest.raises(ConfigError, match="reverse, copy, lookup"):
        train("chess")
    with pytest.raises(ConfigError, match="no positions"):
        train("reverse", control="one layer")
    with pytest.raises(ConfigError, match="length is a whole number from 4 to 48"):
        train("reverse", length=99)


def test_film_is_trained_once_for_all_viewers_and_cached():
    plan = Plan("reverse", 11, 20)
    films = [get_film(plan) for _ in range(4)]
    assert [snapshot.step for snapshot in films[0].wait()] == list(range(21))
    assert len({id(film) for film in films}) == 1
    assert get_film(plan) is films[0]
    assert CACHE.get(films[0].wanted) is films[0]
    assert films[0].nbytes >= 21 * films[0].snapshots[0].row.nbytes


def test_film_without_viewers_stops(monkeypatch):
    monkeypatch.setattr("attention.training.jobs._PATIENCE", -1)
    film = get_film(Plan("reverse", 12, 20))
    while film in _RUNNING.values():
        pass
    assert len(film.snapshots) < 3
    assert CACHE.get(film.wanted) is None
    monkeypatch.undo()
    assert get_film(Plan("reverse", 12, 20)).wait()[-1].step == 20  # who comes later has it trained again
    monkeypatch.setattr("attention.training.jobs._MAX_TRAININGS", 0)
    with pytest.raises(ConfigError, match="which is the limit"):
        get_film(Plan("reverse", 13, 20))


def test_induction_fails_without_the_first_layer():
    result, plan = last("induction"), Plan("induction")
    probes = plan.task.draw(PROBES, generator(0, "probes"), plan.design)
    assert measure(result.row, plan.design, probes).accuracy == approx(result.accuracy)
    for layer in (0, 1):
        assert measure(result.row, plan.design, probes, {(f"layer {layer}", 0)}).accuracy < 0.3


TYPED = {
    "reverse": ("abcdefghijkl", ("abc", "4 12")),
    "copy": ("abcdefghijklmnop", ("abc",)),
    "lookup": ("a:1 b:2 c:3 d:4 e:5 f:6 g:7 h:8 i:9 j:0", ("a:1 a:2", "x")),
    "sort": ("zyxwvutsrq", ("aabcdefghi", "abc")),
    "induction": ("to be or not to be", ("word", " ".join(f"w{i}" for i in range(17)))),
    "dates": ("31 May 1999", ("9/10/2024", "31.02.2024", "March 9, 3024", "9 march 2024", "30 Feb 2024", "09 March 2024")),
    "shapes": ("red circle 1,2; blue square 4,4", ("red circle", "pink circle 1,2", "red circle 1,5", "red circle 1,2; blue circle 2,2", "red circle 1,2; blue ring 1,2")),
}  # fmt: skip
"""Of each task, a text that it reads, and texts that it refuses."""


@pytest.mark.parametrize("task", TASKS)
def test_own_text_is_read_or_refused_in_one_sentence(task):
    reads, refuses = TYPED[task]
    for text in refuses:
        with pytest.raises(TextError, match=r"got .*: .*\."):
            _ = Trained(task, text=text).example
    assert Trained(task).example.tokens == Trained(task, text="  ").example.tokens
    assert Trained(task, text=reads).example.ids.shape[0] == 1


@pytest.mark.sample(5)
@pytest.mark.parametrize("task", TASKS)
def test_trace_of_the_network_is_explained_in_every_cell(task):
    steps = min(SHORT.get(task, 40), 40)
    source = Trained(task, steps=steps, at=steps // 2)
    trace, plan = source.trace(), source.plan
    assert [layer.name for layer in trace.layers] == list(plan.design.attention_layers)
    with torch.no_grad():
        _, recorded = forward(
            source.snapshot().parameters, plan.design, plan.task.posed(source.example.ids, plan.design)
        )
    for number, layer in enumerate(trace.layers):
        assert layer.weights == approx(recorded[layer.name]["weights"][0])
        assert layer.output is not None
        assert layer.formula is not None
        for step in layer.steps:
            rows, columns = layer.shape(step.name)[-2:]
            for row, column in ((0, 0), (rows - 1, columns - 1)):
                explanation = explain(trace, step.name, number, 0, row, column)
                assert explanation.words
                check_printed_lines(explanation)
                assert explanation.value == float(layer.matrix(step.name, 0)[row, column])
        colder = trace.with_config(Override(temperature=0.5)).layers[number]
        assert colder.scaled_scores == approx(2 * layer.scaled_scores)
    link = {"source": "trained", "task": task, "steps": str(steps), "at": str(steps // 2)}
    assert source_of(link, LIMITS) == (source, ())


@pytest.mark.parametrize("task", ["induction", "dates"])
def test_copied_python_trains_again_to_the_same_digits(task):
    source = Trained(task, seed=2, steps=10, at=7)
    trace = source.trace()
    code = program.python(source, trace, Cell(1, "output", 0, 3, 5))
    assert code.isascii()
    assert "import attention" not in code
    assert "from attention" not in code
    assert not [line for line in code.splitlines() if line.startswith(("def _", "_"))], "its names are for readers"
    variables = {}
    threads = torch.get_num_threads()
    exec(compile(code, "copied", "exec"), variables)
    torch.set_num_threads(threads)
    for step, tensor in trace.layers[1]:
        computed = variables[{"input": "x", "memory": "x2"}.get(step.name, step.name)]
        if step.name in ("head_output", "output"):  # in single precision the memory layout changes the last digits
            assert computed == approx(tensor)
        else:
            assert torch.equal(computed, tensor), step.name


def test_snapshot_between_two_pictures_is_trained_on_demand(monkeypatch):
    between = Trained("copy", steps=50, at=33).snapshot()
    assert between.step == 33
    assert 33 % Plan("copy", steps=50).every
    assert torch.equal(
        between.row, next(snapshot for snapshot in train("copy", steps=50, every=33) if snapshot.step == 33).row
    )
    with pytest.raises(ConfigError, match="from 0 to 50; got 51"):
        Trained("copy", steps=50, at=51).trace()
    monkeypatch.setattr("attention.training.learning._SECONDS", 0)
    with pytest.raises(ConfigError, match="too long here"):
        Trained("copy", seed=99).trace()


@pytest.mark.long  # trains a model
def test_head_is_ablated_inside_a_trained_model():
    source = Trained("induction", steps=SHORT["induction"], interventions=(Intervention(0, 0, ablate="zero"),))
    plain, trace = replace(source, interventions=()).trace(), source.trace()
    assert trace.changes
    assert re.search(r"9\d% of its answers are correct, and \d\d?% with the ablated heads", trace.caption)
    assert not trace.layers[0].output.any()
    assert not torch.equal(trace.layers[1].input, plain.layers[1].input)
    answers = [[prediction.tokens[0] for prediction in traced.predictions][13:] for traced in (plain, trace)]
    expected = [*trace.tokens[1:13], trace.tokens[0]]
    hits = [
        sum(token == expected_token for token, expected_token in zip(predicted, expected, strict=False))
        for predicted in answers
    ]
    assert hits[0] > 9
    assert hits[1] < 5
    variables = {}
    threads = torch.get_num_threads()
    short = replace(source, steps=10)
    exec(compile(program.python(short, short.trace(), Cell(1, "output", 0, 3, 5)), "copied", "exec"), variables)
    torch.set_num_threads(threads)
    assert variables["output"] == approx(short.trace().layers[1].output)
    link = {"source": "trained", "task": "induction", "steps": str(SHORT["induction"]), "interventions": "0.0.zero"}
    assert source_of(link, LIMITS) == (source, ())
    for code, said_of in (
        ("5.0.zero", "layers count from 0 to 1"),
        ("0.3.zero", "heads of layer 0 count from 0 to 0"),
    ):
        with pytest.raises(ConfigError, match=said_of):
            source_of({**link, "interventions": code}, LIMITS)[0].trace()


def differ(first, second):
    """The largest difference between two traces in a step of a layer or in logits."""
    steps = [
        (a[step.name], b[step.name])
        for a, b in zip(first.layers, second.layers, strict=True)
        for step in a.steps
        if b.has(step.name)
    ]
    logits = [(a.all_logits, b.all_logits) for a, b in zip(first.predictions, second.predictions, strict=True)]
    return max(float((a.nan_to_num(0, 0, 0) - b.nan_to_num(0, 0, 0)).abs().max()) for a, b in steps + logits)


@pytest.mark.parametrize("task", ["reverse", "induction", "dates"])
def test_neutral_intervention_changes_no_digit(task):
    plain = Trained(task, steps=20)
    base = plain.trace()
    for text in ("*.0.zero0", "0.0.mean0", "0.*.takeQ", "*.*.takeK", "*.*.takeV", "0.0.takeA", "*.*.takeZ"):
        assert differ(replace(plain, interventions=parse_codes(text), other=plain).trace(), base) == 0, text
    assert differ(replace(plain, frozen=True).trace(), base) == 0


@pytest.mark.long  # trains three models
def test_heads_are_patched_from_another_snapshot_seed_or_text():
    plain = Trained("induction", steps=60)
    others = (replace(plain, at=3), replace(plain, seed=5), replace(plain, text=" ".join("abcdefghijklm")))
    for other in others:
        other_trace = other.trace()
        for name in ("query", "key", "value", "weights", "head_output"):
            intervention = Intervention(1, 0, patch=name)
            trace = replace(plain, interventions=(intervention,), other=other).trace()
            step = "patched_output" if name == "head_output" else name
            assert torch.equal(trace.layers[1].matrix(step), other_trace.layers[1].matrix(name)), (other, name)
            assert "Patched from the other state" in explain(trace, step, 1, 0, 20, 8).words
            assert "activation patching" in trace.changes[0]
    # The second layer needs the first layer's output from the trained model; that of the untrained one does not help.
    hits = {}
    for at, other in ((3, 60), (60, 3), (60, 60)):
        source = replace(
            plain, at=at, interventions=(Intervention(0, patch="head_output"),), other=replace(plain, at=other)
        )
        trace = source.trace()
        expected = [*trace.tokens[1:], trace.tokens[0]]
        hits[at, other] = sum(
            prediction.tokens[0] == expected[i] for i, prediction in enumerate(trace.predictions) if i > 12
        )
    assert hits[60, 60] > 9
    assert hits[60, 3] < hits[60, 60]


def test_later_attention_of_a_trained_model_is_frozen():
    plain = Trained("induction", steps=60)
    base = plain.trace()
    frozen, free = (
        replace(plain, interventions=parse_codes("0.0.zero"), frozen=is_frozen).trace() for is_frozen in (True, False)
    )
    assert torch.equal(frozen.layers[1]["weights"], base.layers[1]["weights"])
    assert not torch.equal(free.layers[1]["weights"], base.layers[1]["weights"])
    assert not torch.equal(frozen.layers[1]["value"], base.layers[1]["value"])
    assert "frozen" in frozen.changes[-1]
    assert "with the ablated heads" not in frozen.caption, "which describes ablation without freezing"


def test_incompatible_other_state_gets_one_sentence():
    source = Trained("reverse", steps=1, interventions=parse_codes("0.0.takeV"))
    for other, sentence in (
        (None, "got none: give its text"),
        (Trained("copy", steps=1), "the other has 16, this one 12"),
        (Trained("lookup", steps=1), r"has other layers \(cross 0\)"),
        (replace(source, other=source), "takes from a third"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            replace(source, other=other).trace()
    assert source.with_other_run(Trained("reverse", seed=4, steps=1)).trace().changes
    assert source.with_other_run("something else") is source
    link = {
        "source": "trained",
        "interventions": "0.0.takeV",
        "frozen": "true",
        "other": "a b c d e f g h i j k l",
        "steps": "1",
    }
    opened, notes = source_of(link, LIMITS)
    assert opened == replace(source, frozen=True, other=Trained("reverse", steps=1, text=link["other"]))
    assert not notes
    assert opened.trace().changes


PROGRAMS = {
    "silenced before, set here": ("induction", "0.0.mean0.5;1.0.t0.5;1.0.w20,5=0.5r;1.0.s3,1=1", False, {}),
    "frozen, two heads": ("dates", "0.1.zero;1.0.zero0.25", True, {}),
    "taken from another seed": ("dates", "0.1.takeK;0.0.takeA;1.0.takeV;1.0.takeZ", False, {"seed": 5}),
    "taken from another step, frozen": ("induction", "0.0.takeQ;0.0.takeZ;1.0.takeA;1.0.mean", True, {"at": 2}),
    "taken from another text": ("reverse", "0.0.takeQ;0.0.first", False, {"text": "abcdefghijkl"}),
}  # fmt: skip


@pytest.mark.sample(1)
@pytest.mark.parametrize("title", PROGRAMS)
def test_copied_python_reproduces_the_changed_model(title, capsys):
    task, text, frozen, differs = PROGRAMS[title]
    plain = Trained(task, steps=10, at=7)
    source = replace(plain, interventions=parse_codes(text), frozen=frozen, other=replace(plain, **differs))
    trace, threads = source.trace(), torch.get_num_threads()
    for at, layer in enumerate(trace.layers):
        for step in ("weights", "patched_output" if layer.has("patched_output") else "head_output"):
            head = layer.n_heads - 1
            exec(compile(program.python(source, trace, Cell(at, step, head, 4, 1)), "copied", "exec"), {})
            said = re.fullmatch(r".*: (\S+) expected (\S+)", capsys.readouterr().out.strip().splitlines()[-1])
            torch.set_num_threads(threads)
            assert float(said[1]) == approx(float(said[2]), scale=1), (at, step)
            assert float(said[2]) == approx(float(layer.matrix(step, head)[4, 1]), scale=1)


@pytest.mark.parametrize("name", TASKS)
def test_task_keeps_the_contract(name: str) -> None:
    task = TASKS[name]
    assert task.name == name
    assert not list(contract.missing_words(name, title=task.title, sentence=task.sentence))
    assert not list(contract.check_link(trained.TASK, name))
    source, notes = source_of({"source": "trained", "task": name, "at": "0"}, LIMITS)
    assert isinstance(source, Trained)
    assert (source.task, notes) == (name, ())
    for layer in Trained(name, steps=2).trace().layers:
        assert not list(contract.check_layer(layer))
