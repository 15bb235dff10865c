"""The cost of a real model: loading, the first map, another head or layer, one ablated head, every head ablated in turn.

usage: python -m benchmarks.models [--times 5] [--long] [--ratios [--with FOLDER]]

One thread, in this process, with nothing painted: the seconds are those of the processor, so that a busy machine does not count.
A first map is the trace and everything a page shows of one head of one layer; what is kept is counted as well. Needs `make models`;
`make models ALL=1` brings the second one, which is measured where it is there.

`--long` measures long texts of the second one instead, each number in a process of its own (Linux): seconds and the peak of memory, above the process
with the loaded model, of a plain pass (sdpa, no attentions, no cache of keys), of a trace of the same model, and of one look at a head of it.

`--ratios` shows a trace in plain passes, with attentions (eager) and without (sdpa), beside hooks that keep Q, K, V, the pattern and Z, TransformerLens'
`run_with_cache` and nnsight; `--with FOLDER`, which may be given again, is a folder of `pip install --target` that has them. It needs 8 GB.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer

from attention import Intervention, Layer, Model, Trace
from attention.base.cache import CACHE
from attention.models.library import LIBRARY, Settings
from benchmarks.texts import natural

FOLDER = Path(os.environ.get("LAB_MODELS") or Path(__file__).parents[1] / "models")
MINILM, SMOLLM = "all-MiniLM-L6-v2", "SmolLM2-135M-Instruct"
_MOST_KEPT_GB = 6
MOST_FIRST, MOST_OTHER = 0.5, 0.1  # seconds of MiniLM with 256 tokens, issue 14
MOST_CHANGED = 0.4  # seconds until MiniLM with 64 tokens shows its maps with a head silenced, issue 15
MOST_MATTER = {MINILM: 5, SMOLLM: 60}  # seconds for every head silenced in turn, with 16 tokens, issue 15


def seconds(act: Callable[[], object]) -> float:
    """The processor seconds of a call."""
    began = time.process_time()
    act()
    return time.process_time() - began


def look(layer: Layer, head: int) -> None:
    """Computes everything that a page shows of a head."""
    for step in layer.steps:
        layer.matrix(step.name, head)
        layer.stats(step.name)


def measured(name: str, tokens: int, times: int) -> tuple[list[float], Trace]:
    """The median seconds of a first map, of another head and of another layer, and the trace."""
    rows = []
    for _ in range(times):
        source = Model(name, natural(tokens), max_tokens=tokens)
        CACHE.reset(2**28)
        traces: list[Trace] = []
        first = seconds(lambda source=source, found=traces: (found.append(source.trace()), look(found[0].layers[0], 0)))
        trace = traces[0]
        head = seconds(lambda trace=trace: look(trace.layers[0], 1))
        other = seconds(lambda trace=trace: look(trace.layers[3], 1))
        rows.append((first, head, other))
    return [statistics.median(column) for column in zip(*rows, strict=True)], trace


def changed(name: str, times: int) -> tuple[float, float, int]:
    """The median seconds of the maps of an ablated head, the seconds of all heads in turn, and the number of heads."""
    ablated = (Intervention(layer=1, head=2, ablate="zero"),)
    source = Model(name, natural(64), max_tokens=64, interventions=ablated)
    _ = source.trace()

    def anew() -> None:
        CACHE.reset(2**28)
        look(source.trace().layers[2], 0)

    once = statistics.median(seconds(anew) for _ in range(times))
    from attention.circuits.sweep import HeadSweep, Progress, sweep_heads  # others need only names of models from here

    progress: list[Progress[HeadSweep]] = []
    turn = seconds(lambda: progress.extend(sweep_heads(Model(name, natural(16), max_tokens=16))))
    return once, turn, progress[-1].total


def long_text(what: str, tokens: int) -> tuple[float, float]:
    """The processor seconds of SmolLM2 with so many tokens, and the megabytes above the loaded model at their peak: of a "pass", a "trace" or a "look"."""
    tokenizer = AutoTokenizer.from_pretrained(FOLDER / SMOLLM)
    model = AutoModelForCausalLM.from_pretrained(FOLDER / SMOLLM, dtype=torch.float32).eval()
    ids = tokenizer(natural(tokens), return_tensors="pt").input_ids[:, :tokens]
    source = Model.of(model, tokenizer, inputs={"input_ids": ids}, max_tokens=tokens)
    with torch.no_grad():
        model(ids[:, :16])
    trace = source.trace() if what == "look" else None

    def act() -> None:
        if what == "pass":
            with torch.no_grad():
                model(ids, use_cache=False, logits_to_keep=1)
        elif trace is None:
            source.trace()
        else:
            trace.layers[18].top(6, tokens - 1, 5)
            trace.layers[18].block_maxima(6)

    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = _megabytes("VmRSS")
    return seconds(act), _megabytes("VmHWM") - before


def _megabytes(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 2**10


def long_texts(most_ratio: float = 3.0, most_megabytes: float = 2048) -> list[str]:
    """Prints the table of long texts; what breaks a bound of issue 46."""
    broken = []
    # As on a server (`limits.configure_allocator`): otherwise glibc keeps up to 600 MB of what was freed.
    settings = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(2**20)}
    print(
        "| SmolLM2, tokens | plain pass | trace | in plain passes | a head: top keys, block maxima | TransformerLens, kept |"
    )
    print("|---|---|---|---|---|---|")
    for tokens in (2048, 8000):
        cells = {}
        for what in ("pass", "trace", "look"):
            command = [sys.executable, "-m", "benchmarks.models", "--one", what, str(tokens)]
            output = subprocess.run(command, check=True, capture_output=True, text=True, env=settings).stdout
            cells[what] = [float(number) for number in output.split()[-2:]]
        (plain, _), (traced, peak), _ = cells.values()
        shown = {what: f"{each:.1f} s, {megabytes:,.0f} MB" for what, (each, megabytes) in cells.items()}
        # Scores and pattern of every head, by `run_with_cache`.
        lens = 2 * 30 * 9 * tokens**2 * 4 / 2**20
        print(
            f"| {tokens:,} | {shown['pass']} | {shown['trace']} | {traced / plain:.1f} | {shown['look']} | {lens:,.0f} MB |",
            flush=True,
        )
        if traced > most_ratio * plain or peak > most_megabytes:
            broken.append(
                f"{tokens:,} tokens took {traced / plain:.1f} plain passes and {peak:,.0f} MB, more than {most_ratio:g} or {most_megabytes:,.0f}"
            )
    return broken


def ratios(tokens: Sequence[int], times: int) -> None:
    """Prints the seconds of a plain pass, and those of a trace and of its rivals, also in plain passes: the smallest of so many runs, in turn."""
    for name in (SMOLLM, MINILM):
        if (FOLDER / name).is_dir():
            _ratios_of(name, tokens, times)


def _ratios_of(name: str, tokens: Sequence[int], times: int) -> None:
    tokenizer = AutoTokenizer.from_pretrained(FOLDER / name)
    eager, sdpa = _loaded(name, "eager"), _loaded(name, "sdpa")
    lens, nnsight = _lens(name, tokenizer), _nnsight(name)
    print(
        f"\n| {name} | plain, with attentions | plain, sdpa | trace, `Model.of` in a loop | trace, a Model kept | hooks | TransformerLens | nnsight |\n"
        "|---|---|---|---|---|---|---|---|"
    )
    for count in tokens:
        if count > eager.config.max_position_embeddings:
            continue
        ids = tokenizer(natural(count), return_tensors="pt").input_ids[:, :count]

        def model_of(ids: Tensor = ids) -> Model:
            return Model.of(sdpa, tokenizer, inputs={"input_ids": ids}, max_tokens=ids.shape[1])

        kept = model_of()
        acts: dict[str, Callable[[], object] | str] = {
            "eager": lambda ids=ids: eager(ids, output_attentions=True, use_cache=False),
            "sdpa": lambda ids=ids: sdpa(ids, use_cache=False),
            "loop": lambda new=model_of: new().trace(),
            "kept": kept.trace,
            "hooks": lambda ids=ids: _hooked(eager, ids),
            # It keeps scores and pattern of every head.
            "lens": _unless_large(lens, ids, 2 * eager.config.num_hidden_layers * eager.config.num_attention_heads),
            "nnsight": nnsight if isinstance(nnsight, str) else lambda ids=ids: nnsight(ids),
        }
        took: dict[str, float] = {}
        with torch.no_grad():
            for _ in range(times):
                for what, act in acts.items():
                    if not isinstance(act, str):
                        took[what] = min(took.get(what, float("inf")), seconds(act))
        cells = [f"{count:,}", f"{took['eager']:.2f} s", f"{took['sdpa']:.2f} s"]
        for what in ("loop", "kept", "hooks", "lens", "nnsight"):
            act = acts[what]
            if isinstance(act, str):
                cells.append(act)
            else:
                of_eager, of_sdpa = (took[what] / took[plain] for plain in ("eager", "sdpa"))
                cells.append(f"{took[what]:.2f} s, {of_eager:.1f} × / {of_sdpa:.1f} ×")
        print(f"| {' | '.join(cells)} |", flush=True)


def _loaded(name: str, attention: str) -> Any:
    kind = AutoModelForCausalLM if name == SMOLLM else AutoModel
    return kind.from_pretrained(FOLDER / name, dtype=torch.float32, attn_implementation=attention).eval()


def _modules(model: Any) -> list[tuple[Any, ...]]:
    """Of each layer, the modules of Q, K and V, the one whose input is Z, and the one that returns the pattern; None where that one returns Z as well."""
    if hasattr(model, "encoder"):
        return [(a.query, a.key, a.value, None, a) for a in (layer.attention.self for layer in model.encoder.layer)]
    return [(a.q_proj, a.k_proj, a.v_proj, a.o_proj, a) for a in (layer.self_attn for layer in model.model.layers)]


def _hooked(model: Any, ids: Tensor) -> list[Any]:
    """What plain hooks keep: Q, K, V, Z and the pattern of every layer."""
    kept: list[Any] = []
    hooks = []
    for *projections, output, attention in _modules(model):
        hooks += [each.register_forward_hook(lambda _, __, y: kept.append(y)) for each in projections]
        if output is not None:
            hooks.append(output.register_forward_pre_hook(lambda _, args: kept.append(args[0])))
        hooks.append(attention.register_forward_hook(lambda _, __, y: kept.append(y)))
    model(ids, use_cache=False)
    for hook in hooks:
        hook.remove()
    return kept


def _lens(name: str, tokenizer: Any) -> Callable[[Tensor], object] | str:
    if importlib.util.find_spec("transformer_lens") is None:
        return "not installed"
    from transformer_lens import TransformerBridge

    model = _loaded(name, "eager")  # of its own: the bridge replaces modules
    try:
        bridge = TransformerBridge.boot_transformers(
            str(FOLDER / name), hf_model=model, tokenizer=tokenizer, device="cpu", dtype=torch.float32
        )
    except AttributeError:
        return "its bridge takes no BertModel"
    run: Callable[[Tensor], object] = bridge.run_with_cache
    return run


def _unless_large(act: Callable[[Tensor], object] | str, ids: Tensor, maps: int) -> Callable[[], object] | str:
    kept = maps * ids.shape[1] ** 2 * 4 / 2**30
    if isinstance(act, str):
        return act
    return f"would keep {kept:.1f} GB" if kept > _MOST_KEPT_GB else lambda: act(ids)


def _nnsight(name: str) -> Callable[[Tensor], object] | str:
    if importlib.util.find_spec("nnsight") is None:
        return "not installed"
    import nnsight

    model = nnsight.NNsight(_loaded(name, "eager"))

    def act(ids: Tensor) -> list[Any]:
        with model.trace(ids, use_cache=False):
            kept = nnsight.save([])
            for *projections, output, attention in _modules(model):
                kept += [each.output for each in projections]
                kept += [] if output is None else [output.input]
                kept += [attention.output]
        return kept

    return act


def main() -> int:
    """Prints the table; 1 if a bound is broken."""
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--times", type=int, default=5)
    ask.add_argument("--quick", action="store_true", help="two times")
    ask.add_argument("--long", action="store_true", help="long texts")
    ask.add_argument("--ratios", action="store_true", help="a trace in plain passes, beside other libraries")
    ask.add_argument("--tokens", type=int, nargs="+", default=[64, 256, 512, 1024, 2048], help="of --ratios")
    ask.add_argument("--with", dest="folders", action="append", default=[], metavar="FOLDER", help="other libraries")
    ask.add_argument("--one", nargs=2, metavar=("WHAT", "TOKENS"), help=argparse.SUPPRESS)
    args = ask.parse_args()
    if args.one:
        print(*long_text(args.one[0], int(args.one[1])))
        return 0
    if args.long:
        broken = long_texts()
        for text in broken:
            print(f"broken: {text}", file=sys.stderr)
        return 1 if broken else 0
    times = 2 if args.quick else args.times
    torch.set_num_threads(1)
    if args.ratios:
        sys.path += args.folders
        ratios(args.tokens, times)
        return 0
    LIBRARY.hold(Settings(FOLDER))
    broken = []
    print(f"import of transformers and the like, with the first load: {seconds(lambda: LIBRARY.get(MINILM)):.2f} s")
    print("\n| | load | tokens | first map | another head | another layer | kept |\n|---|---|---|---|---|---|---|")
    for name in (MINILM, *([SMOLLM] if (FOLDER / SMOLLM).is_dir() else [])):
        LIBRARY.hold(Settings(FOLDER))
        load = seconds(lambda name=name: LIBRARY.get(name))
        for tokens in (32, 256):
            (first, head, other), trace = measured(name, tokens, times)
            megabytes = trace.nbytes / 2**20
            print(
                f"| {name} | {load:.2f} s | {len(trace.tokens)} | {first * 1000:.0f} ms | {head * 1000:.0f} ms | {other * 1000:.0f} ms | {megabytes:.1f} MB |",
                flush=True,
            )
            if name == MINILM and first > MOST_FIRST:
                broken.append(f"the first map of {tokens} tokens took {first:.2f} s, more than {MOST_FIRST}")
            if name == MINILM and max(head, other) > MOST_OTHER:
                broken.append(
                    f"another head or layer at {tokens} tokens took {max(head, other):.2f} s, more than {MOST_OTHER}"
                )
    print("\n| | tokens | a head silenced, its new maps | heads | each silenced in turn |\n|---|---|---|---|---|")
    for name in (MINILM, *([SMOLLM] if (FOLDER / SMOLLM).is_dir() else [])):
        once, turn, heads = changed(name, times)
        print(f"| {name} | 64, 16 | {once * 1000:.0f} ms | {heads} | {turn:.1f} s |", flush=True)
        if name == MINILM and once > MOST_CHANGED:
            broken.append(f"the maps of a silenced head took {once:.2f} s, more than {MOST_CHANGED}")
        if turn > MOST_MATTER[name]:
            broken.append(f"every head of {name} silenced in turn took {turn:.1f} s, more than {MOST_MATTER[name]}")
    for text in broken:
        print(f"broken: {text}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
