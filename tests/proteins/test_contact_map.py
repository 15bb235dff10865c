"""Contacts of residues: equal to what transformers predicts, explained, in tables, and refused with a sentence."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from margins import approx
from test_protein_sequences import README
from tiny_models import TinyModels
from torch import Tensor
from transformers.models.esm.modeling_esm import eager_attention_forward

from attention import File, Model, Override, Trace
from attention.base.errors import AttentionError, ConfigError, MissingError, ShapeError, SizeError
from attention.explanation.derived import derived_views
from attention.files import array_writer
from attention.formula.names import Cell
from attention.models.library import LIBRARY
from attention.patching.intervention import parse_codes
from attention.pictures.heatmap import derived_map_json
from attention.pictures.steps_view import available_views, derived_view, lab_maps
from attention.proteins import contact_map, contact_table, contact_terms, contacts, example
from attention.proteins.contact_map import CONTACTS, estimate_seconds
from attention.proteins.sequences import UBIQUITIN

# float32: the probabilities of transformers differ from those in double precision by this much at most
SEQUENCES = (
    README,
    "KALTARQQEVFDLIRD<mask>ISQTGMPPTRAEIAQRLGFRSPNAAEEHLKALARKGVIEIVSGASRGIRLLQEE",
    "KA<mask>ISQ",
    UBIQUITIN,
)
"""Those of the README of fair-esm, and ours."""


@pytest.fixture(scope="module")
def folder() -> Path:
    return LIBRARY.folder(example.NAME)


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    return transformers.AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    return transformers.EsmForMaskedLM.from_pretrained(folder, attn_implementation="eager").eval()


def predicted(model: Any, tokenizer: Any, text: str) -> Tensor:
    encoded = tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        result: Tensor = model.predict_contacts(encoded["input_ids"], encoded["attention_mask"])[0]
    return result


@pytest.mark.parametrize("text", SEQUENCES, ids=len)
def test_contacts_equal_predict_contacts(folder: Path, model: Any, tokenizer: Any, text: str) -> None:
    found, expected = contacts(Model(folder, text).trace()), predicted(model, tokenizer, text)
    assert found.shape == expected.shape
    assert found.dtype == torch.float32
    assert found == approx(expected)
    assert torch.equal(found, found.T)


@pytest.mark.parametrize("text", SEQUENCES, ids=len)
def test_contacts_in_double_precision_equal_the_head_in_double_precision(
    folder: Path, model: Any, tokenizer: Any, text: str
) -> None:
    trace, ids = Model(folder, text).trace(), tokenizer(text, return_tensors="pt")["input_ids"]
    weights = torch.stack([layer.weights for layer in trace.layers])[None].double()
    head = transformers.models.esm.modeling_esm.EsmContactPredictionHead(weights.shape[1] * weights.shape[2]).double()
    head.load_state_dict({name: each.double() for name, each in model.esm.contact_head.state_dict().items()})
    expected = head(ids, weights)[0].detach()
    assert contact_map._contacts(trace).logits.sigmoid() == approx(expected)


@pytest.mark.parametrize("text", SEQUENCES, ids=len)
@pytest.mark.parametrize("positions", ["rotary", "absolute"])  # ESM-2; ESM-1b and ESM-1v
def test_a_recorded_pass_is_the_models_own_to_the_bit(text: str, positions: str, tokenizer: Any) -> None:
    config = transformers.EsmConfig(
        vocab_size=33, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=48, max_position_embeddings=128,
        position_embedding_type=positions, token_dropout=True, emb_layer_norm_before=positions == "absolute", mask_token_id=32, pad_token_id=1,
        attn_implementation="eager",
    )  # fmt: skip
    with torch.random.fork_rng([]):
        torch.manual_seed(1)
        model = transformers.EsmForMaskedLM(config).eval()
    encoded = tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        plain = model(encoded["input_ids"], output_attentions=True, output_hidden_states=True)
        expected = model.predict_contacts(encoded["input_ids"], encoded["attention_mask"])[0]
    source = Model.of(model, tokenizer, text)
    trace = source.trace()
    assert torch.equal(source.run_with_hooks({}), plain.logits[0])
    seen: dict[str, Tensor] = {}
    source.run_with_hooks(
        {f"layers.{i}.{name}": _keeper(seen, f"{name} {i}") for i in range(3) for name in ("weights", "resid_post")}
    )
    for i, (layer, weights) in enumerate(zip(trace.layers, plain.attentions, strict=True)):
        assert torch.equal(seen[f"weights {i}"], weights[0])
        if i < 2:  # the last hidden state of transformers is normalized
            assert torch.equal(seen[f"resid_post {i}"], plain.hidden_states[i + 1][0])
        query, key, value = (layer[name][None] for name in ("query", "key", "value"))
        own = eager_attention_forward(torch.nn.Module().eval(), query, key, value, None, scaling=1.0)[1]
        assert torch.equal(own, weights)  # what is recorded is what the model multiplies, after rotation and scaling
        assert layer.weights == approx(weights[0])
    assert contacts(trace) == approx(expected)


def _keeper(seen: dict[str, Tensor], name: str) -> Any:
    def keep(tensor: Tensor) -> None:
        seen[name] = tensor.detach().clone()

    return keep


def test_padding_of_a_batch_changes_nothing(model: Any, tokenizer: Any) -> None:
    """As facebookresearch/esm#34 and #361: in a batch the head strips a padding token where a shorter sequence has its <eos>, so that maps must be cropped."""
    short, long = "KA<mask>ISQ", README
    batch = tokenizer([short, long], padding=True, return_tensors="pt")
    with torch.no_grad():
        padded = model.predict_contacts(batch["input_ids"], batch["attention_mask"])[0]
    assert padded.shape == (65, 65)
    row = {name: each[:1] for name, each in batch.items()}
    trace = Model.of(model, tokenizer, inputs=row).trace()
    assert trace.notes == ("59 padding tokens are left out: attention_mask hides them.",)
    found = contacts(trace)
    assert found.shape == (6, 6)
    assert found == approx(padded[:6, :6])
    assert torch.equal(found, contacts(Model.of(model, tokenizer, short).trace()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_and_fused_attention_have_contacts_too(
    folder: Path, tokenizer: Any, model: Any, dtype: torch.dtype
) -> None:
    """The library's own needs eager attention, which returns weights."""
    fused = transformers.EsmModel.from_pretrained(folder, dtype=dtype).eval()
    assert fused.config._attn_implementation == "sdpa"
    found = contacts(Model.of(fused, tokenizer, README).trace())
    both = torch.stack([found, predicted(model, tokenizer, README)]).flatten(1)
    assert torch.corrcoef(both)[0, 1] > 0.99


def test_interventions_and_knobs_change_the_contacts(folder: Path) -> None:
    plain = contacts(Model(folder, README).trace())
    ablated = Model(folder, README, interventions=parse_codes("0.1.zero")).trace()
    hot = Model(folder, README, config=Override(temperature=2.0)).trace()
    for changed in (ablated, hot):
        assert (contacts(changed) - plain).abs().max() > 1e-3
        parts = contact_terms(changed, 3, 20)
        assert 1 / (1 + math.exp(-parts["term"].sum())) == approx(float(contacts(changed)[2, 19]))


@pytest.fixture(scope="module")
def trace(folder: Path) -> Trace:
    return Model(folder, UBIQUITIN).trace()


def test_table_has_the_likeliest_pairs_at_least_six_apart(trace: Trace) -> None:
    probabilities = contacts(trace)
    table = contact_table(trace)
    assert len(table) == 76
    assert (table["j"] - table["i"] == table["distance"]).all()
    assert table["distance"].min() >= 6
    assert (table["probability"].diff().dropna() <= 0).all()
    for row in table.head(9).itertuples(index=False):
        assert UBIQUITIN[row.i - 1] == row[1]
        assert UBIQUITIN[row.j - 1] == row[3]
        assert float(probabilities[row.i - 1, row.j - 1]) == row.probability
    apart = torch.ones(76, 76).triu(6).bool()
    best = probabilities[apart].sort(descending=True).values
    assert torch.equal(torch.tensor(table["probability"].to_numpy()), best[:76])
    assert len(contact_table(trace, most=10**6)) == 70 * 71 // 2
    assert len(contact_table(trace, most=0)) == 0
    assert contact_table(trace, most=3, nearest=0)["distance"].min() >= 1
    assert contact_table(trace, nearest=76).empty
    with pytest.raises(ConfigError, match="numbers from 0; got -1 and 6"):
        contact_table(trace, most=-1)


def test_terms_of_a_pair_add_up_to_its_logit(trace: Trace) -> None:
    parts, logit = contact_terms(trace, 4, 20), float(contact_map._contacts(trace).logits[3, 19])
    assert len(parts) == 13
    assert parts["term"].sum() == approx(logit)
    assert parts["term"].iloc[-1] == -3.0
    assert parts["layer"].isna().tolist() == [False] * 12 + [True]
    top = parts.iloc[0]
    weights = trace.layers[int(top["layer"])].weights[int(top["head"])].double()
    both = weights + weights.T
    among = both[1:-1, 1:-1]
    correction = among[3].sum() * among[19].sum() / among.sum()
    assert top["weights"] == approx(float(both[4, 20]))
    assert top["APC"] == approx(float(correction))
    for wrong in ((0, 3), (3, 77)):
        with pytest.raises(ConfigError, match="Residues are numbered from 1 to 76"):
            contact_terms(trace, *wrong)


def test_a_cell_is_explained_by_its_heads(trace: Trace) -> None:
    found = CONTACTS.explain(trace, Cell(1, "weights", 2, 4, 20))
    assert found.value == float(contacts(trace)[3, 19])
    assert found.result == approx(found.value)
    assert found.short.startswith("1 / (1 + e^(")
    assert "the bias −3 and" in found.words
    assert "other heads" in found.words
    none = CONTACTS.explain(trace, Cell(0, "weights", 0, 0, 20))
    assert math.isnan(none.value)
    assert none.words == "<cls> is no residue, and has no contacts."


def test_the_view_is_there_for_a_model_with_contacts(trace: Trace, tiny: TinyModels) -> None:
    assert "contacts" in available_views(trace, trace.layers[0])
    cell = Cell(1, "weights", 2, 4, 20)
    shown = derived_view(trace, cell, "contacts")
    assert shown is not None
    assert shown[1] is CONTACTS
    drawn = lab_maps(trace, cell, "contacts", "fixed")[-1]
    assert drawn["layout"]["xaxis"]["title"]["text"].startswith("residue")
    assert drawn["layout"]["yaxis"]["title"]["text"].startswith("residue")
    numbers = torch.as_tensor(drawn["data"][0]["z"])
    assert torch.equal(numbers[1:-1, 1:-1], contacts(trace))
    assert numbers[0].isnan().all()
    assert derived_map_json(trace, CONTACTS, cell)["layout"]["meta"]["alt"].startswith("Heatmap of contacts")
    words = Model(str(tiny("BERT")), "the owl asked the moon").trace()
    assert "contacts" not in available_views(words, words.layers[0])
    with pytest.raises(MissingError, match="a regression over all heads that comes with a protein model"):
        contacts(words)


def test_a_long_sequence_is_estimated_before_it_is_drawn(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    assert estimate_seconds(trace) == approx(12 * 78**2 / 20_000_000)
    monkeypatch.setattr(contact_map, "_MAX_SECONDS", 0)
    with pytest.raises(SizeError, match="choose a shorter one, or contacts"):
        derived_views()["contacts"].find(trace, Cell(0, "weights", 0, 0, 0))


def test_hidden_tokens_and_files_have_no_contacts(folder: Path, trace: Trace, tmp_path: Path) -> None:
    with pytest.raises(ShapeError, match="show special tokens"):
        contacts(Model(folder, README, special="hide").trace())
    (tmp_path / "t.npz").write_bytes(array_writer.npz(trace))
    with pytest.raises(AttentionError, match="this trace has none"):
        contacts(File.open(tmp_path / "t.npz").trace())


def test_a_head_without_any_weight_adds_nothing(trace: Trace) -> None:
    zero = torch.zeros((), dtype=torch.float64)
    assert contact_map._nonzero(zero) == 1
    assert contact_map._nonzero(zero + 0.5) == 0.5


def test_the_example_has_the_vocabulary_of_transformers() -> None:
    from transformers.models.esm.configuration_esm import get_default_vocab_list

    assert get_default_vocab_list() == example.VOCABULARY
