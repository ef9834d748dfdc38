"""What ``check_method`` needs to know of each method: configuration and oracles."""

from __future__ import annotations

from typing import Any

from tests.methods import oracles as o
from tests.methods.shasam_oracles import shasam_mined, shasam_oracle

from shasam.methods.fdvae import FDVAE
from shasam.methods.jtt import JTT
from shasam.methods.lisa import LISA
from shasam.methods.posthoc import Thresholds
from shasam.methods.shasam import LiteralConfig, LogDetConfig, RandomSetsConfig, ShasamConfig

TWO_STAGE = {"oracle_logits": o.two_stage_logits}
PLAIN = {"oracle_logits": o.plain_logits}
SHASAM = {"oracle": shasam_oracle, "oracle_mined": shasam_mined, **TWO_STAGE}
# negatives mined from small pools that grow from 40 % of the stage on
EARLIER = {
    "represented": "candidates", "pool": 6.0, "start": 0.4, "ramp": 0.2, "trim": 0.15,
    "refresh": "free",
}  # fmt: skip

CASES: dict[str, dict[str, Any]] = {
    "ce": {"oracle": o.ce_oracle, **PLAIN},
    "balanced": {"oracle": o.balanced_oracle, **PLAIN},
    "balanced-hidden": {"oracle": o.balanced_hidden_oracle, **PLAIN},
    "posthoc": {"oracle": o.ce_oracle, **PLAIN},
    "thresholds": {
        "oracle": o.thresholds_oracle,
        "config": Thresholds.Config(metric="demographic_parity"),  # the small data breaks it
        **PLAIN,
    },
    "reweight": {"oracle": o.reweight_oracle, **PLAIN},
    "groupdro": {"oracle": o.groupdro_oracle, **PLAIN},
    "scaling": {"oracle": o.ce_oracle, **PLAIN},
    "dfr": {"oracle": o.dfr_oracle, "oracle_logits": o.dfr_logits},
    "gap": {"oracle": o.soft_gap_oracle, **PLAIN},
    "mmd": {"oracle": o.mmd_oracle, **PLAIN},
    "hsic": {"oracle": o.hsic_oracle, **PLAIN},
    "jtt": {"oracle": o.jtt_oracle, "config": JTT.Config(upweight=3), **PLAIN},
    "lisa": {"oracle": o.lisa_oracle, "config": LISA.Config(alpha=0.7, within_class=0.3), **PLAIN},
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
    # other values than the defaults, so that a setting that is ignored is found out
    "shasam": {
        **SHASAM,
        "config": ShasamConfig(
            weight=0.7,
            companion=0.6,
            temperature=0.5,
            weight_ramp=0.5,
            smooth="exact",
            conditional_gain=0.3,
            mining={"greedy": "lazy", "trim": 0.15},
        ),
    },
    "shasam-random": {
        **SHASAM,
        "config": RandomSetsConfig(
            weight=0.7, companion=0.6, temperature=0.5, mining={**EARLIER, "negatives": "flqmi"}
        ),
    },
    "shasam-ld": {**SHASAM, "config": LogDetConfig(companion=0.6)},
    "shasam-literal": {**SHASAM, "config": LiteralConfig(weight=0.7, mining={"k": 4})},
}
