"""SHaSaM-MINE and SHaSaM-LEARN in other people's frameworks; each module needs its package."""

from shasam.extras import need

need("torch", __name__)
