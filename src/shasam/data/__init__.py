"""Images with labels: sources, protocols, hashed manifests, packed stores, views.

Importing this package registers the built-in sources and does not import torch;
``shasam.data.augment`` does.
"""

from __future__ import annotations

from shasam.data import sources
from shasam.data.dataset import Dataset, make_protocol, make_source, open_data
from shasam.data.source import Exclusion, Label, Listing, Reading, Source
from shasam.data.sources.hugging_face import from_datasets
from shasam.data.splits import Manifest, Protocol
from shasam.data.store import Store
from shasam.spec.fields import DataSpec

__all__ = [
    "DataSpec",
    "Dataset",
    "Exclusion",
    "Label",
    "Listing",
    "Manifest",
    "Protocol",
    "Reading",
    "Source",
    "Store",
    "from_datasets",
    "make_protocol",
    "make_source",
    "open_data",
    "sources",
]
