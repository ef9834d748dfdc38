from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from tests.data.folders import make_folder

from shasam.commands.embed import embed as command
from shasam.data.decode import decode
from shasam.errors import DataError, SpecError
from shasam.pipeline import embedding as parts
from shasam.pipeline.embedding import Embedder, embed
from shasam.spec.fields import DataSpec, ModelSpec

SIZE, WIDTH = 8, 3


class Colours:
    """The mean colour, between -1 and 1; counts the images that it has seen."""

    def __init__(self, fails_after: int | None = None) -> None:
        self.seen, self.fails_after = 0, fails_after

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        self.seen += len(images)
        if self.fails_after is not None and self.seen > self.fails_after:
            raise KeyboardInterrupt
        return images.mean((2, 3))


def embedder(encode: Colours, weights: str = "w") -> Embedder:
    return Embedder("colours", {}, SIZE, WIDTH, weights, torch.device("cpu"), encode)


@pytest.fixture
def people(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "PART", 4)
    folder = make_folder(tmp_path / "photos", 30)
    return DataSpec(csv=folder / "people.csv", root=folder)


def test_a_file_has_every_attribute_and_the_vector_of_each_image(people, tmp_path):
    done = embed(people, embedder(Colours()), tmp_path / "people.parquet", batch=3)
    assert (done.rows, done.width, done.bad, done.computed) == (30, WIDTH, 0, 30)
    table = pq.read_table(done.path)
    assert table.column_names == ["id", "path", "smile", "age", "person", "embedding"]
    assert str(table.field("embedding").type) == "fixed_size_list<element: float>[3]"
    for row in table.to_pylist():
        pixels = decode((people.root / row["path"]).read_bytes(), SIZE)
        mean = pixels.reshape(-1, 3).mean(0) / 127.5 - 1
        assert np.allclose(row["embedding"], mean, atol=1e-5)
    about = json.loads(table.schema.metadata[b"shasam"])
    assert (about["encoder"], about["size"], about["weights_sha256"]) == ("colours", "8", "w")
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_after_a_stop_nothing_is_lost_and_nothing_is_computed_twice(people, tmp_path):
    whole = embed(people, embedder(Colours()), tmp_path / "whole.parquet")
    out, first, second = tmp_path / "people.parquet", Colours(fails_after=17), Colours()
    with pytest.raises(KeyboardInterrupt):
        embed(people, embedder(first), out)
    assert not out.exists()
    done = embed(people, embedder(second), out)
    assert second.seen == done.computed == 30 - 16  # four parts of four images were kept
    assert out.read_bytes() == whole.path.read_bytes()
    third = Colours()
    assert embed(people, embedder(third), out).computed == 0 and third.seen == 0


def test_other_weights_or_another_picture_are_computed_anew(people, tmp_path):
    out, again, changed = tmp_path / "people.parquet", Colours(), Colours()
    embed(people, embedder(Colours()), out)
    embed(people, embedder(again, "other weights"), out)
    assert again.seen == 30
    (people.root / "p003.jpg").write_bytes((people.root / "p004.jpg").read_bytes())
    embed(people, embedder(changed, "other weights"), out)
    assert changed.seen == 30
    vectors = pq.read_table(out).column("embedding").to_pylist()
    assert vectors[3] == vectors[4]


def test_a_torn_part_is_computed_again(people, tmp_path):
    out = tmp_path / "people.parquet"
    with pytest.raises(KeyboardInterrupt):
        embed(people, embedder(Colours(fails_after=17)), out)
    torn = sorted((tmp_path / ".people.parquet.parts").glob("*.parquet"))[1]
    torn.write_bytes(torn.read_bytes()[:-9])
    again = Colours()
    embed(people, embedder(again), out)
    assert again.seen == 30 - 12


def test_unreadable_images_are_left_out_only_if_that_is_accepted(tmp_path):
    folder = make_folder(tmp_path / "photos", 30, bad=2)
    spec = DataSpec(csv=folder / "people.csv", root=folder)
    out = tmp_path / "people.parquet"
    with pytest.raises(DataError, match=r"2 of 30 images cannot be read .*data\.allow_bad"):
        embed(spec, embedder(Colours()), out)
    assert not out.exists()
    accepted = embed(spec.model_copy(update={"allow_bad": True}), embedder(Colours()), out)
    assert (accepted.rows, accepted.bad) == (28, 2)
    assert pq.read_table(out).column("id").to_pylist()[0] == "p002.jpg"


def test_random_weights_and_a_missing_encoder_are_refused(people, tmp_path):
    with pytest.raises(SpecError, match="random weights"):
        command(data=people, model=ModelSpec(encoder="resnet18"), out=tmp_path / "x.parquet")
    with pytest.raises(SpecError, match="name an encoder"):
        command(data=people, out=tmp_path / "x.parquet")
    assert not list(tmp_path.glob("*.parquet"))


def test_the_features_of_a_trained_run_are_those_that_the_run_gives(tmp_path, capsys):
    import shasam

    folder = make_folder(tmp_path / "photos", 60)
    data = {"csv": str(folder / "people.csv"), "root": str(folder), "target": "smile"}
    data |= {"sensitive": "age<35", "store": str(tmp_path / "store"), "holdout_per_cell": 4}
    run = shasam.train(
        "ce",
        data=data,
        profile="smoke",
        overrides={"train.steps": 2, "train.batch_views": 16},
        out=tmp_path / "runs",
    )
    spec = DataSpec(csv=folder / "people.csv", root=folder)
    model = ModelSpec(encoder=str(run.path))
    command(data=spec, model=model, out=tmp_path / "people.parquet")
    assert "60 embeddings" in capsys.readouterr().out
    rows = pq.read_table(tmp_path / "people.parquet").to_pylist()
    expected = shasam.load(run).features([folder / row["path"] for row in rows])["encoder"]
    assert np.allclose([row["embedding"] for row in rows], expected, atol=1e-4)
    with pytest.raises(SpecError, match="trained on 32 px"):
        command(data=DataSpec(csv=folder / "people.csv", root=folder, size=64), model=model)
