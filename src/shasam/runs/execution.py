"""How the runs of a sweep are carried out: where, how many at the same time, and with what."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter
from pydantic import BaseModel, ConfigDict, Field, model_validator

from shasam.runs.machine import how_runs_compute, variables_of_runs


class ExecutionOptions(BaseModel):
    """Hold execution options of several runs; they do not change a run's hash."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    jobs: int | None = Field(
        None, ge=1, description="Runs at the same time; by default 1, on Ray as many as fit."
    )
    threads: int | None = Field(
        None,
        ge=1,
        description="Threads of each run; by default the cores are divided among the jobs, on Ray "
        "1.",
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = Field(
        "auto", description="Device to compute on."
    )
    reproducible: Annotated[bool, Parameter(negative=())] = Field(
        False,
        description="Use AVX2 and one thread in each run: the same bits on every x86-64 processor, "
        "but slower.",
    )
    engine: Literal["local", "ray"] = Field(
        "local",
        description="local: processes of this machine. ray: tasks of a Ray cluster whose nodes "
        "share the folders of data and runs.",
    )
    address: str | None = Field(
        None,
        description="Ray address: auto or HOST:PORT. Default: a temporary local Ray.",
    )

    @model_validator(mode="after")
    def _address_of_ray(self) -> ExecutionOptions:
        if self.address is not None and self.engine != "ray":
            raise ValueError("--address belongs to --engine ray; leave it out, or add that")
        return self

    @property
    def _threads(self) -> int | None:
        """On Ray a number that does not follow from the cluster: it can change decisions."""
        return self.threads or (1 if self.engine == "ray" else None)

    def variables(self) -> dict[str, str]:
        """Environment variables that every run is started with."""
        return variables_of_runs(self.jobs or 1, self._threads, self.reproducible)

    def line(self) -> str:
        """What is said where a sweep begins."""
        return how_runs_compute(self.jobs or 1, self._threads, self.reproducible)


LOCALLY = ExecutionOptions()
