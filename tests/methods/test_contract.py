"""Every method keeps the contract; every broken variant of one is found out."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from tests.methods.cases import CASES
from tests.methods.shasam_oracles import shasam_mined

from shasam.commands.methods import methods
from shasam.errors import ContractError
from shasam.methods.base import Dial
from shasam.mining import MiningConfig
from shasam.models import ResNet18, ViT
from shasam.registry import lookup, names
from shasam.testing import check_method


def test_every_registered_method_has_a_case() -> None:
    assert set(CASES) == set(names("method"))


LONG = ("fdvae", "shasam-ld", "shasam-literal")  # to learn by heart: see the slow tests below


@pytest.mark.parametrize("name", sorted(CASES))
def test_method_keeps_the_contract(name: str) -> None:
    by_heart = name not in LONG
    report = check_method(lookup("method", name), overfit=by_heart, **CASES[name])
    assert {"objective", "saved and loaded", "predictions"} <= set(report.checked)
    assert ("overfits" in report.checked) == by_heart


def of_vectors() -> list[str]:
    return [name for name in sorted(CASES) if not lookup("method", name).needs_images]


@pytest.mark.parametrize("name", of_vectors())
def test_method_keeps_the_contract_on_vectors(name: str) -> None:
    method = lookup("method", name)
    report = check_method(method, inputs="vectors", overfit=name not in LONG, **CASES[name])
    assert {"objective", "saved and loaded", "predictions"} <= set(report.checked)


def test_four_methods_are_tied_to_image_networks() -> None:
    assert set(CASES) - set(of_vectors()) == {"fdvae", "tadet", "tadet-mmd", "fairvit"}


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG)
def test_slow_methods_learn_the_images_by_heart(name: str) -> None:
    steps = 600 if name == "fdvae" else 40
    report = check_method(lookup("method", name), overfit_steps=steps, **CASES[name])
    assert "overfits" in report.checked


@pytest.mark.parametrize(
    "name", ["shasam", *(pytest.param(n, marks=pytest.mark.slow) for n in LONG[1:])]
)
def test_mined_batches_are_checked_and_nothing_is_asked_but_the_class(name: str) -> None:
    report = check_method(lookup("method", name), overfit=False)
    assert "mined batches" in report.checked


@pytest.mark.parametrize(
    "name", ["fscl+", *(pytest.param(n, marks=pytest.mark.slow) for n in ("supcon", "fscl"))]
)
def test_contrastive_methods_keep_the_contract_on_mined_batches(name: str) -> None:
    method = lookup("method", name)
    mining = {"negatives": "flqmi", "roles": "shared"}
    config = method.Config(sampling="mined", mining=mining)
    case = {**CASES[name], "config": config, "oracle_mined": shasam_mined}
    report = check_method(method, overfit=False, **case)
    assert {"mined batches", "objective"} <= set(report.checked)


def test_every_method_of_the_paper_is_registered() -> None:
    wanted = "ce balanced grl lnl fdvae mfd supcon fscl fscl+ tadet tadet-mmd fairvit reweight"
    more = "groupdro posthoc shasam shasam-random shasam-ld shasam-literal"
    assert {*wanted.split(), *more.split()} <= set(names("method"))


QUICK = ("fscl+", "groupdro", "posthoc", "tadet")  # the others in the slow tier


def tiers(names: Iterable[str], quick: tuple[str, ...]) -> list:
    return [n if n in quick else pytest.param(n, marks=pytest.mark.slow) for n in names]


@pytest.mark.parametrize("name", tiers(sorted(CASES), QUICK))
def test_more_classes_and_groups(name: str) -> None:
    case = {k: v for k, v in CASES[name].items() if k == "config"}
    report = check_method(lookup("method", name), classes=3, groups=4, overfit=False, **case)
    assert "finite at the edges" in report.checked


ON_VIT = ("ce", "grl", "lnl", "mfd", "supcon", "fscl", "fscl+", "groupdro")


@pytest.mark.parametrize("name", tiers(ON_VIT, ("grl", "fscl")))
def test_methods_without_a_vit_of_their_own_take_one(name: str) -> None:
    method = lookup("method", name)
    report = check_method(method, encoder=lambda: ViT("tiny", 32, 16, depth=2), overfit=False)
    assert "deterministic" in report.checked


def test_a_cifar_stem_works_too() -> None:
    method = lookup("method", "lnl")
    report = check_method(method, encoder=lambda: ResNet18("cifar", 4, None), overfit=False)
    assert "predictions" in report.checked


@pytest.mark.parametrize("name", ["tadet", "tadet-mmd", "fairvit"])
def test_vit_methods_refuse_a_resnet_with_advice(name: str) -> None:
    method = lookup("method", name)
    with pytest.raises(Exception, match=r"model\.encoder to vit"):
        method(method.Config(), ResNet18("imagenet", 4, 8), 2, 2)


def test_every_method_that_has_a_strength_names_it() -> None:
    without = {n for n in names("method") if lookup("method", n).dial is None}
    assert without == {"ce", "balanced", "balanced-hidden", "reweight", "supcon"}
    for name in ("shasam", "shasam-random", "shasam-ld", "shasam-literal"):
        assert lookup("method", name).dial == Dial("projection_dim", (128, 32, 8))


@pytest.mark.parametrize("dial", [Dial("strenght", (1, 2)), Dial("classifier_hidden", (8,)),
                                  Dial("classifier_hidden", (8, -0.5))])  # fmt: skip
def test_a_dial_that_does_not_turn_is_found_out(dial: Dial) -> None:
    broken = type("Broken", (lookup("method", "ce"),), {"dial": dial})
    with pytest.raises(ContractError, match="its dial"):
        check_method(broken)


@pytest.mark.parametrize("name", ["shasam", "shasam-random", "shasam-ld", "shasam-literal"])
def test_every_option_of_shasam_is_explained(name: str, capsys: pytest.CaptureFixture) -> None:
    config = lookup("method", name).Config
    fields = {**config.model_fields, **MiningConfig.model_fields}
    assert [key for key, field in fields.items() if not field.description] == []
    methods(name)
    shown = capsys.readouterr().out
    assert "its strength is projection_dim: from mild to strong 128, 32, 8" in shown
    assert "mining.margin" in shown


def test_a_broken_method_is_named_with_its_promise() -> None:
    ce = lookup("method", "ce")
    broken = type("Broken", (ce,), {"summary": ""})
    with pytest.raises(ContractError, match="Broken: description: `summary`"):
        check_method(broken)
