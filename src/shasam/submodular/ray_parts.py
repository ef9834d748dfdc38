"""Round one of a partitioned maximisation as tasks of Ray.

Every part is sent once, with its own rows alone, and a few parts ahead of the workers: the cluster
never holds more of the data than it is working on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor

from shasam.cluster import connected
from shasam.errors import ClusterError, ShasamError
from shasam.submodular.partition import Part, Picked

_AHEAD = 2  # parts for each processor that are sent before their turn
_RETRIES = 10  # of a part whose worker or node was lost


def on_ray(
    make: Callable[[Tensor], Part], pick: Callable[[Part], Picked], parts: list[Tensor]
) -> Iterator[Picked]:
    """What is picked from every part, in the order of the parts."""
    with connected(None, "engine='ray'"):
        import ray
        from ray.exceptions import RayError, RayTaskError

        task = ray.remote(_with_one_thread).options(num_cpus=1, max_retries=_RETRIES)
        most = _AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
        sent: deque[Any] = deque()
        left = iter(parts)
        try:
            while True:
                while len(sent) < most and (index := next(left, None)) is not None:
                    sent.append(task.remote(pick, make(index)))
                if not sent:
                    return
                yield ray.get(sent[0])
                sent.popleft()
        except RayTaskError as error:
            if isinstance(error.cause, ShasamError):
                raise error.cause from error
            raise
        except RayError as error:
            raise ClusterError(
                f"a part was lost on Ray {_RETRIES + 1} times ({type(error).__name__}); its "
                "workers may lack memory: choose more partitions, or look at Ray's logs"
            ) from error
        finally:
            for one in sent:
                ray.cancel(one, force=True)


def _with_one_thread(pick: Callable[[Part], Picked], part: Part) -> Picked:
    """On a worker, which has one processor; so are parts picked from on one machine too."""
    import torch

    torch.set_num_threads(1)
    return pick(part)
