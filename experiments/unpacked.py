"""Vectors of ``shasam embed`` as a mapped array and a table of labels: ``python -m experiments.unpacked celeba.parquet``.

Parquet is decoded by every run that opens it, a .npy file is not; in sweeps of short runs that is a third of the time.
"""  # noqa: E501

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def unpack(path: Path) -> tuple[Path, Path]:
    """Write NAME.npy and NAME-labels.parquet beside NAME.parquet."""
    table = pq.read_table(path).combine_chunks()
    vectors = table.column("embedding").combine_chunks()
    if not pa.types.is_fixed_size_list(vectors.type) or vectors.null_count:
        raise SystemExit(f"{path}: each row needs one vector, as shasam embed writes them")
    array = path.with_suffix(".npy")
    np.save(array, vectors.flatten().to_numpy().reshape(table.num_rows, -1))
    labels = path.with_name(f"{path.stem}-labels.parquet")
    pq.write_table(table.drop_columns(["embedding"]).replace_schema_metadata(None), labels)
    return array, labels


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(*unpack(Path(name)))
