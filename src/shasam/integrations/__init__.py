"""SHaSaM-MINE and SHaSaM-LEARN in other people's frameworks; each module needs its package."""
