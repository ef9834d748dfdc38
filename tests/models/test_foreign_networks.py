"""The network of a foreign run: built from what may describe one, and from nothing outside."""

from __future__ import annotations

import pytest
from tests.fuzz.folders import no_network

from shasam.errors import ShasamError
from shasam.models.hub import checked_architecture
from shasam.spec import stored_spec

GOOD = {"model_type": "vit", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 24, "image_size": 32, "patch_size": 8}  # fmt: skip
PIXELS = {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5], "side": 32}


def stored(**options: object) -> dict:
    return {"method": "ce", "model": {"encoder": "hf", "options": options}}


@pytest.mark.parametrize("source", ["/etc", "owner/name", ".", "~/models", "../.."])
def test_a_stored_run_makes_nobody_look_for_its_network(source, monkeypatch) -> None:
    from shasam.models import hub

    def looked(*words: object) -> None:
        raise AssertionError("the source of a stored run was looked at")

    monkeypatch.setattr(hub, "model_folder", looked)
    with no_network(), pytest.raises(ShasamError, match=r"model\.options"):
        stored_spec(stored(source=source))
    assert stored_spec(stored(source=source, architecture=GOOD, **PIXELS)).model.encoder == "hf"


@pytest.mark.parametrize("given", [{}, {"sha256": "0"}, {"sha256": "0", "bytes": 9}])
def test_a_stored_run_makes_nobody_read_its_onnx_file(given, monkeypatch) -> None:
    from shasam.models import onnx_model

    monkeypatch.setattr(onnx_model, "read_onnx", lambda path: pytest.fail("it was read"))
    model = {"encoder": "onnx", "options": {"source": "/etc/passwd", **given}}
    with pytest.raises(ShasamError, match=r"model\.options: a run that was trained with onnx"):
        stored_spec({"method": "ce", "model": model})


def test_a_stored_run_does_not_make_anybody_read_its_table(tmp_path, monkeypatch) -> None:
    from shasam.data import source

    monkeypatch.setattr(source, "remembered_sha256", lambda path: pytest.fail("it was read"))
    (tmp_path / "t.csv").write_text("path,a\n")
    data = {"name": "table", "csv": str(tmp_path / "t.csv"), "root": str(tmp_path)}
    assert stored_spec({"method": "ce", "data": data}).data.csv_sha256 is None


@pytest.mark.parametrize(
    "change",
    [{"model_type": "bert"}, {"model_type": None}, {"model_type": "owner/name"}, {"patch_size": 0},
     {"num_hidden_layers": 100_000}, {"hidden_size": 10**9}, {"hidden_size": True},
     {"hidden_size": "16"}, {"num_attention_heads": 0}, {"num_attention_heads": 3},
     {"hidden_act": "os.system"},
     {"hidden_act": ["gelu"]}, {"layer_norm_eps": float("nan")}, {"layer_norm_eps": None},
     {"num_channels": 4}, {"depths": [1] * 17}, {"depths": 3}, {"hidden_sizes": []},
     {"hidden_sizes": [8, -1]}, {"qkv_bias": "yes"}, {"image_size": [32, 32]}],
)  # fmt: skip
def test_configurations_that_describe_no_network_are_refused(change) -> None:
    with pytest.raises(ShasamError):
        checked_architecture({**GOOD, **change})


def test_keys_that_load_code_or_ask_the_hub_do_not_reach_transformers() -> None:
    hostile = {
        "_attn_implementation": "kernels-community/flash-attn", "auto_map": {"AutoModel": "x.y"},
        "attn_implementation": "kernels-community/x", "quantization_config": {"a": 1},
        "_name_or_path": "owner/name", "torch_dtype": "x", "pruned_heads": {"0": [0]},
    }  # fmt: skip
    assert checked_architecture({**GOOD, **hostile}) == GOOD


def test_what_only_transformers_can_tell_is_a_sentence_too() -> None:
    pytest.importorskip("transformers", reason="needs shasam[hf]")
    from shasam.models.hub import _network

    with no_network(), pytest.raises(ShasamError, match="cannot be built"):
        _network({**GOOD, "hidden_act": "no_such"})
