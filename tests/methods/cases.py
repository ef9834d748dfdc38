"""What ``check_method`` needs to know of each method: configuration and oracles."""

from __future__ import annotations

from typing import Any

from tests.methods import oracles as o

from shasam.methods.fdvae import FDVAE

TWO_STAGE = {"oracle_logits": o.two_stage_logits}
PLAIN = {"oracle_logits": o.plain_logits}

CASES: dict[str, dict[str, Any]] = {
    "ce": {"oracle": o.ce_oracle, **PLAIN},
    "balanced": {"oracle": o.balanced_oracle, **PLAIN},
    "posthoc": {"oracle": o.ce_oracle, **PLAIN},
    "reweight": {"oracle": o.reweight_oracle, **PLAIN},
    "groupdro": {"oracle": o.groupdro_oracle, **PLAIN},
    "grl": {"oracle": o.grl_oracle, **PLAIN},
    "lnl": {"oracle": o.lnl_oracle, **PLAIN},
    "mfd": {"oracle": o.mfd_oracle, **PLAIN},
    "supcon": {"oracle": o.supcon_oracle, **TWO_STAGE},
    "fscl": {"oracle": o.fscl_oracle, **TWO_STAGE},
    "fscl+": {"oracle": o.fscl_plus_oracle, **TWO_STAGE},
    "tadet": {"oracle": o.tadet_oracle, **PLAIN},
    "tadet-mmd": {"oracle": o.tadet_mmd_oracle, **PLAIN},
    "fairvit": {"oracle": o.fairvit_oracle, "oracle_logits": o.fairvit_logits},
    "fdvae": {
        "oracle": o.fdvae_oracle,
        "oracle_logits": o.fdvae_logits,
        "config": FDVAE.Config(block=4, hidden=24),
    },
}
