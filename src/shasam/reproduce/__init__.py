"""The tables and figures of the paper, declared in YAML, filled by runs, beside its numbers."""
