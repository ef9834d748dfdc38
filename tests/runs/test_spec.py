from __future__ import annotations

import pytest
import yaml

from shasam.documents import read_yaml
from shasam.errors import SpecError
from shasam.pipeline.sweeps import expand
from shasam.spec import DEFAULT_METHOD, ViewsSpec, merge, parse_set, resolve, stored_spec


def test_a_profiles_words_on_drawn_faces_leave_other_images_alone():
    assert resolve({"method": "ce"}, profile="quick").data.target == "long_hair"
    other = resolve({"method": "ce", "data": {"name": "utkface"}}, profile="quick")
    assert other.data.target is None
    mine = resolve({"method": "ce", "data": {"target": "hat"}}, profile="quick")
    assert mine.data.target == "hat"


def test_a_method_that_needs_a_vit_gets_one_and_a_profiles_words_on_it():
    spec = resolve({"method": "tadet"}, profile="quick")
    assert (spec.model.encoder, spec.model.options["depth"]) == ("vit", 2)
    assert spec.train.learn.lr == 1e-3 != resolve({"method": "ce"}, profile="quick").train.learn.lr
    assert "depth" not in resolve({"method": "ce"}, profile="quick").model.options
    asked = resolve({"method": "tadet", "model": {"encoder": "resnet18"}}, profile="quick")
    assert asked.model.encoder == "resnet18"  # and refused when it is built


def test_layers_win_over_profiles_and_the_last_layer_wins():
    spec = resolve(
        {"method": "ce", "train": {"learn": {"epochs": 2}}}, {"train": {"lr": 0.5}}, profile="cpu"
    )
    assert (spec.train.learn.epochs, spec.train.learn.steps, spec.train.learn.lr) == (2, None, 0.5)
    assert spec.data.size == 64 and spec.model.options["width"] == 16


def test_all_errors_are_reported_at_once_with_the_nearest_key():
    body = {
        "method": "fscl",
        "options": {"temprature": 1},
        "data": {"szie": 3},
        "train": {"learn": {"lr": -1, "steps": 5}, "epcohs": 1},
        "seed": "many",
    }
    with pytest.raises(SpecError) as caught:
        resolve(body)
    text = str(caught.value)
    for part in (
        "options.temprature: no such key; did you mean 'temperature'",
        "data.szie: no such key; did you mean 'size'",
        "train.epcohs: no such key; did you mean 'epochs'",
        "train.learn.lr: input should be greater than 0, not -1",
        "seed: ",
    ):
        assert part in text


@pytest.mark.parametrize("word", ["profile", "method"])
def test_unknown_names_are_answered_with_the_nearest(word):
    with pytest.raises(SpecError, match="did you mean"):
        resolve({word: {"profile": "cpuu", "method": "fsc"}[word]})


def test_a_stage_with_two_lengths_or_none_is_refused():
    with pytest.raises(SpecError, match="epochs or steps"):
        resolve({"method": "ce", "train": {"learn": {"epochs": 2, "steps": 3}}})


def test_set_reads_values_as_yaml_and_numbers_with_exponents():
    body = parse_set(["train.lr=1e-3", "options.tau=0.5", "model.embed_dim=null", "data.name=x"])
    assert body == {
        "train": {"lr": 0.001},
        "options": {"tau": 0.5},
        "model": {"embed_dim": None},
        "data": {"name": "x"},
    }
    with pytest.raises(SpecError, match=r"dotted\.key=value"):
        parse_set(["seed"])


def test_the_printed_specification_reads_back_to_the_same_run(tmp_path):
    spec = resolve({"method": "fscl", "seed": 4}, profile="paper")
    (tmp_path / "run.yaml").write_text(spec.as_yaml())
    again = resolve(read_yaml(tmp_path / "run.yaml"))
    assert again == spec and again.name == spec.name


def test_the_key_changes_with_what_matters_and_not_with_where_the_store_is():
    base = resolve({"method": "ce"}, profile="cpu")
    assert base.key != resolve({"method": "ce", "seed": 1}, profile="cpu").key
    assert base.key != resolve({"method": "ce", "train": {"lr": 2.0}}, profile="cpu").key
    assert base.key == resolve({"method": "ce", "data": {"store": "/x"}}, profile="cpu").key


def test_defaults_written_out_give_the_same_key():
    options = {"temperature": 0.1}
    assert resolve({"method": "fscl", "options": options}).key == resolve({"method": "fscl"}).key


@pytest.mark.parametrize(
    ("flags", "held", "size", "chosen"),
    [
        ("fpu avx512f avx512_bf16", "", 64, "bf16-mixed"),
        ("fpu amx_bf16 amx_tile", "AVX512_CORE_AMX", 64, "bf16-mixed"),
        ("fpu avx512f avx512_vnni", "", 64, "32-true"),
        ("fpu avx512_bf16", "AVX2", 64, "32-true"),  # as --reproducible does
        ("fpu avx512_bf16", "", 16, "32-true"),  # oneDNN's fault on 1x1 maps
    ],
)
def test_auto_is_the_precision_that_the_processor_is_made_for(
    monkeypatch, tmp_path, flags, held, size, chosen
):
    (tmp_path / "cpuinfo").write_text(f"model name : one\nflags : {flags}\n")
    monkeypatch.setattr("shasam.spec.run._PROCESSOR", str(tmp_path / "cpuinfo"))
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", held or "DEFAULT")
    asked = {"method": "ce", "train": {"precision": "auto"}, "data": {"size": size}}
    spec = resolve(asked, profile="cpu")
    assert spec.train.precision == chosen
    written = {**asked, "train": {"precision": chosen}}
    assert spec.name == resolve(written, profile="cpu").name


def test_a_file_that_is_no_specification_is_refused(tmp_path):
    (tmp_path / "a.yaml").write_text("- 1\n- 2")
    with pytest.raises(SpecError, match="keys and values"):
        read_yaml(tmp_path / "a.yaml")
    (tmp_path / "b.yaml").write_text("!!python/object/apply:os.system ['true']")
    with pytest.raises(SpecError, match="not valid YAML"):
        read_yaml(tmp_path / "b.yaml")


def test_merge_keeps_what_is_not_mentioned():
    assert merge({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}}) == {"a": {"b": 1, "c": 3}}


def test_a_grid_is_the_product_of_runs_and_values():
    specs = expand(
        {
            "profile": "smoke",
            "base": {"data.alpha": 4},
            "grid": {"seed": [0, 1], "data.seed": "same as seed", "train.lr": [0.1, 0.2]},
            "runs": [{"method": "ce"}, {"method": "fscl", "options": {"temperature": 0.2}}],
        }
    )
    assert len(specs) == 8 and len({s.key for s in specs}) == 8
    assert all(s.data.seed == s.seed and s.data.alpha == 4 for s in specs)


def test_a_grid_of_too_many_runs_is_refused_before_it_is_expanded():
    grid = {f"options.x{k}": list(range(1000)) for k in range(8)}
    with pytest.raises(SpecError, match="at most 10,000 are allowed"):
        expand({"grid": grid})


@pytest.mark.parametrize("body", [{"runs": [None]}, {"runs": "ce"}, {"base": [1]}, {"grid": "x"}])
def test_parts_of_a_grid_that_are_something_else_are_a_sentence(body):
    with pytest.raises(SpecError, match="write"):
        expand(body)


def test_a_grid_with_errors_runs_nothing_and_names_them():
    with pytest.raises(SpecError, match="did you mean 'grid'"):
        expand({"gird": {}})
    with pytest.raises(SpecError, match="give a list"):
        expand({"grid": {"seed": 3}})
    with pytest.raises(SpecError, match="no such key"):
        expand({"base": {"method": "ce", "sed": 3}})


def test_options_of_another_encoder_are_refused_and_dropped_from_old_runs():
    with pytest.raises(SpecError, match=r"model\.options\.patch: no such key"):
        resolve({"method": "ce", "model": {"encoder": "resnet18", "patch": 8}})
    old = {"method": "ce", "model": {"encoder": "resnet18", "init": None, "width": 8, "patch": 16}}
    spec = stored_spec(old)
    assert spec.model.options == {"stem": "imagenet", "width": 8, "embed_dim": 256}


def test_a_table_of_ones_own_needs_no_data_flag():
    assert resolve({"data": {"csv": "people.csv"}}).data.name == "table"
    assert resolve({"data": {"name": "manifest", "csv": "people.csv"}}).data.name == "table"
    with pytest.raises(SpecError, match="csv is for your own table"):
        resolve({"data": {"name": "faces", "csv": "people.csv"}})


def test_every_field_of_the_specification_has_a_description():
    from shasam.spec import DataSpec, ModelSpec, StageSpec, TrainSpec

    for model in (DataSpec, ModelSpec, StageSpec, ViewsSpec):
        assert all(field.description for field in model.model_fields.values())
    stages = {"learn", "classify"}
    assert all(f.description for name, f in TrainSpec.model_fields.items() if name not in stages)


def test_a_flag_reaches_its_field(capsys):
    from shasam.cli import app

    flags = "--lr 0.25 --classify.lr 0.5 --split-seed 7 --seed 3 --encoder vit --allow-missing"
    flags += " --views.crop-scale 0.5 1"
    with pytest.raises(SystemExit) as end:
        app(f"train ce --profile smoke {flags} --print-config".split())
    assert end.value.code in (None, 0)
    body = yaml.safe_load(capsys.readouterr().out)
    assert (body["train"]["learn"]["lr"], body["train"]["classify"]["lr"]) == (0.25, 0.5)
    assert (body["data"]["seed"], body["seed"]) == (7, 3)
    assert body["model"]["encoder"] == "vit" and body["data"]["allow_missing"]
    assert body["data"]["views"]["crop_scale"] == [0.5, 1.0]


def test_specifications_from_before_the_views_had_keys_mean_supcons_views():
    body = resolve({"method": "ce"}, profile="cpu").as_dict()
    body["data"].pop("views")
    assert stored_spec(body).data.views == ViewsSpec()
    assert ViewsSpec().crop_scale == (0.2, 1.0)
    with pytest.raises(SpecError, match="the smaller one first"):
        resolve({"data": {"views": {"crop_scale": [0.9, 0.5]}}})


def test_profile_paper_has_the_published_settings_of_every_method():
    from shasam.registry import names

    learn = {
        name: resolve({"method": name}, profile="paper").train.learn for name in names("method")
    }
    assert (learn["shasam-literal"].optimizer, learn["shasam-literal"].lr) == ("sgd", 0.4)
    assert (learn["fdvae"].optimizer, learn["fdvae"].lr) == ("adam", 1e-4)
    assert (learn["tadet"].lr, learn["tadet"].steps, learn["tadet"].clip) == (3e-2, 20_000, 1.0)
    assert (learn["fairvit"].schedule, learn["fairvit"].lr) == ("step", 5e-4)
    lnl = resolve({"method": "lnl"}, profile="paper")
    assert lnl.options["start"] == "ce"
    assert (lnl.train.stage("baseline").lr, lnl.train.learn.lr) == (1e-2, 1e-3)
    # the paper's rate is for its own objective alone; with cross-entropy beside it, it diverges
    assert [name for name in learn if learn[name].lr == 0.4] == ["shasam-literal"]
    assert [learn[name].lr for name in ("shasam", "shasam-random", "shasam-ld")] == [0.1] * 3
    assert learn["shasam-literal"].warmup == 0.0  # as printed


def test_shasam_mines_as_the_paper_and_shasam_random_does_not_unless_a_rule_is_named():
    rules = ("anchors", "positives", "negatives")

    def mining(method, **given):
        options = {"mining": given} if given else {}
        made = resolve({"method": method, "options": options}, profile="smoke")
        return made.options["mining"]

    for method in ("shasam", "shasam-ld", "shasam-literal"):
        chosen = mining(method)
        assert [chosen[rule] for rule in rules] == ["logdet", "flcg", "fl1mi"]
        assert (chosen["represented"], chosen["pool"], chosen["start"]) == ("ground", None, 0.0)
    assert {mining("shasam-random")[rule] for rule in rules} == {"random"}
    assert mining("shasam-random") == mining("shasam-random", trim=0.3)  # nothing is mined
    named = mining("shasam-random", negatives="flqmi")
    assert [named[rule] for rule in rules] == ["random", "random", "flqmi"]
    # a key that is not given stays as the method has it
    literal = mining("shasam-literal", margin=0.95)
    assert (literal["k"], literal["pairs"], literal["ground_shrinks"]) == (16, "one", True)
    assert resolve({}, profile="smoke").method == DEFAULT_METHOD == "shasam-random"


def test_a_stored_run_of_the_earlier_shasam_is_one_of_shasam_random():
    earlier = {
        "anchors": "random", "positives": "random", "negatives": "flqmi", "ridge": 1.0, "nu": 1.0,
        "eta": 1.0, "trim": 0.15, "start": 0.4, "ramp": 0.2, "pool": 6.0, "refresh": "free",
        "pairs": "all", "pair_sampling": "uniform", "small_pool": "repeat", "ground": 0.2,
        "ground_shrinks": False,
    }  # fmt: skip
    body = resolve({"method": "ce"}, profile="smoke").as_dict()
    read = stored_spec({**body, "method": "shasam", "options": {"mining": earlier}})
    assert read.method == "shasam-random"
    mining = read.options["mining"]
    assert (mining["represented"], mining["roles"], mining["epoch"]) == (
        "candidates", "shared", "images",
    )  # fmt: skip
    assert {key: mining[key] for key in earlier} == earlier
    # what is stored today is read as it is
    now = resolve({"method": "shasam"}, profile="smoke")
    assert stored_spec(now.as_dict()) == now


def test_contrastive_methods_mine_where_they_are_asked_to_and_keep_their_names_else():
    plain = resolve({"method": "fscl+"}, profile="smoke")
    assert not {"sampling", "mining"} & set(plain.options)
    mined = resolve({"method": "fscl+", "options": {"sampling": "mined"}}, profile="smoke")
    assert mined.options["mining"]["negatives"] == "fl1mi" and "k" not in mined.options["mining"]
    assert stored_spec(mined.as_dict()).key == mined.key != plain.key
    with pytest.raises(SpecError, match=r"add options\.sampling=mined"):
        resolve({"method": "fscl+", "options": {"mining": {"negatives": "random"}}})
    with pytest.raises(SpecError, match=r"options\.sampling"):
        resolve({"method": "shasam", "options": {"sampling": "natural"}})
