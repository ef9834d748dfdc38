"""Naive versions of every method's losses and scores, written from the formulas as loops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from shasam.errors import ContractError
from shasam.methods.base import Method
from shasam.testing import ExpectedLoss
from shasam.testing.bench import Lab
from shasam.types import Batch


def ce(scores: Tensor, labels: Tensor) -> Tensor:
    """Mean over rows of -log softmax."""
    total = torch.zeros(())
    for row, label in zip(scores, labels.tolist(), strict=True):
        total = total + torch.log(torch.exp(row - row.max()).sum()) + row.max() - row[label]
    return total / len(labels)


def balanced(batch: Batch, method: Method) -> None:
    counts = [
        int(((batch.t_B == t) & (batch.s_B == s)).sum())
        for t in range(method.classes)
        for s in range(method.groups)
    ]
    if max(counts) - min(counts) > 1:
        raise ContractError(f"the batch has cells of {counts}, but it must be balanced")


def ramp(progress: float) -> float:
    return 2 / (1 + math.exp(-10 * progress)) - 1


def mmd(x: Tensor, y: Tensor, scale: float) -> Tensor:
    def mean(a: Tensor, b: Tensor) -> Tensor:
        kernels = [torch.exp(-((p - q) ** 2).sum() / (2 * scale)) for p in a for q in b]
        return torch.stack(kernels).mean()

    return mean(x, x) + mean(y, y) - 2 * mean(x, y)


def mean_distance(x: Tensor, y: Tensor) -> float:
    return float(np.mean([float(((p - q) ** 2).sum()) for p in x.detach() for q in y.detach()]))


# -- end to end --------------------------------------------------------------------------------


def ce_oracle(m: Method, b: Batch, stage: str) -> Sequence:
    return [ce(m.classifier(m.encoder(b.images)), b.t_B)]


def thresholds_oracle(m: Method, b: Batch, stage: str) -> Sequence:
    """The head for the group learns from features that it does not change."""
    features = m.encoder(b.images)
    own = ce(m.classifier(features), b.t_B)
    return [own + ce(m.group_head(features.detach()), b.s_B)]


def balanced_oracle(m: Method, b: Batch, stage: str) -> Sequence:
    balanced(b, m)
    return ce_oracle(m, b, stage)


def balanced_hidden_oracle(m: Method, b: Batch, stage: str) -> Sequence:
    balanced(b, m)
    inner, outer = m.classifier.hidden, m.classifier.out
    if getattr(inner, "out_features", None) != m.config.classifier_hidden:
        raise ContractError("there is no hidden layer of the width that the options say")
    hidden = torch.clamp(m.encoder(b.images) @ inner.weight.T + inner.bias, min=0)
    with torch.no_grad():
        told = m.features(b.images).get("hidden")
    if told is None or not torch.allclose(told, hidden, atol=1e-5):
        raise ContractError("the features do not hold what the last layer reads")
    return [ce(hidden @ outer.weight.T + outer.bias, b.t_B)]


def grl_oracle(m: Method, b: Batch, stage: str) -> Sequence:
    f = m.encoder(b.images)
    target, group = ce(m.classifier(f), b.t_B), ce(m.adversary(f), b.s_B)
    return [
        {
            "value": target + group,
            "encoder": target - m.config.strength * ramp(b.progress) * group,
            "classifier": target,
            "adversary": group,
        }
    ]


def lnl_oracle(m: Method, b: Batch, stage: str) -> Sequence:
    tap = "hidden2" if "hidden2" in m.encoder.taps else "layer2"  # the last layer of an MLP
    f, found = m.encoder.forward_taps(b.images, (tap,))
    read = found[tap] if found[tap].ndim == 4 else found[tap][:, :, None, None]
    scores = m.predictor(read)  # (B, G, h, w)
    pixels = scores.permute(0, 2, 3, 1)
    entropy, group, count = torch.zeros(()), torch.zeros(()), 0
    for i, image in enumerate(pixels):
        for row in image:
            for pixel in row:
                q = torch.exp(pixel) / torch.exp(pixel).sum()
                entropy = entropy + (q * torch.log(q)).sum()
                group = group - torch.log(q[b.s_B[i]])
                count += 1
    entropy, group = entropy / count, group / count
    first = ce(m.classifier(f), b.t_B) + m.config.entropy * entropy
    return [first, {"value": group, "": -m.config.reversal * group}, group]


def mfd_oracle(m: Method, b: Batch, stage: str) -> Sequence:
    if stage == "teacher":
        return [ce(m.teacher["classifier"](m.teacher["encoder"](b.images)), b.t_B)]
    balanced(b, m)
    tap = "hidden2" if "hidden2" in m.encoder.taps else "layer4"
    f, found = m.encoder.forward_taps(b.images, (tap,))
    with torch.no_grad():
        _, given = m.teacher["encoder"].forward_taps(b.images, (tap,))
    student, teacher = found[tap].flatten(1), given[tap].flatten(1)
    scale = m.config.sigma * mean_distance(teacher, student)
    gap = torch.zeros(())
    for t in range(m.classes):
        for s in range(m.groups):
            cell = (b.t_B == t) & (b.s_B == s)
            if cell.any():
                gap = gap + mmd(teacher[b.t_B == t], student[cell], scale)
    return [ce(m.classifier(f), b.t_B) + m.config.strength / 2 * gap]


def tadet_oracle(m: Method, b: Batch, stage: str) -> Sequence:
    balanced(b, m)
    f, found = m.encoder.forward_taps(b.images, ("query",))
    q = found["query"]
    target, group = ce(m.classifier(f), b.t_B), ce(m.adversary(q), b.s_B)
    gaps = []
    for a, c in combinations(range(m.groups), 2):
        if (b.s_B == a).any() and (b.s_B == c).any():
            gaps.append(((q[b.s_B == a].mean(0) - q[b.s_B == c].mean(0)) ** 2).mean())
    gap = m.config.alignment * torch.stack(gaps).mean()
    factor = m.config.strength * ramp(b.progress)
    return [
        {
            "value": target + group + gap,
            "encoder": target - factor * group + gap,
            "classifier": target,
            "adversary": group,
        }
    ]


def tadet_mmd_oracle(m: Method, b: Batch, stage: str) -> Sequence:
    balanced(b, m)
    f, found = m.encoder.forward_taps(b.images, ("query",))
    q = found["query"]
    scale, gaps = m.config.sigma * mean_distance(q, q), []
    for t in range(m.classes):
        for a, c in combinations(range(m.groups), 2):
            x, y = q[(b.t_B == t) & (b.s_B == a)], q[(b.t_B == t) & (b.s_B == c)]
            if len(x) and len(y):
                gaps.append(mmd(x, y, scale))
    return [ce(m.classifier(f), b.t_B) + m.config.strength * torch.stack(gaps).mean()]


def dfr_oracle(m: Method, b: Batch, stage: str) -> Sequence:
    if stage == "learn":
        return ce_oracle(m, b, stage)
    balanced(b, m)
    features = b.features["encoder"] if b.features else m.encoder(b.images).detach()
    return [ce(m.last(features), b.t_VB)]


def jtt_oracle(m: Method, b: Batch, stage: str) -> Sequence:
    """The second model, after counting how often its plan draws each row of a pass."""
    if stage == "identify":
        return [ce(m.first["classifier"](m.first["encoder"](b.images)), b.t_B)]
    lab = Lab(type(m), m.config, None, m.classes, m.groups, m.encoder.inputs)
    m.first.eval()
    with torch.no_grad():  # one class too often, so that the first model is wrong now and then
        for p in list(m.first["classifier"].parameters())[-1:]:
            p[0] += 1.0
        scores = m.first["classifier"](m.first["encoder"](lab.images)).tolist()
    plan = lab.plan(m, m.stages()[1], 8)
    steps = plan.steps_per_epoch
    drawn = [
        r for step in range(steps) for r in plan.draw(0, step, lambda rows: rows).rows_B.tolist()
    ]
    wanted = []
    for row, label in enumerate(lab.t_N.tolist()):
        right = scores[row].index(max(scores[row])) == label
        wanted += [row] * (1 if right else 1 + m.config.upweight)
    if len(drawn) != len(wanted) // 8 * 8:
        raise ContractError(f"a pass has {len(drawn)} rows, not {len(wanted)}")
    left_out = list(wanted)
    for row in drawn:
        if row not in left_out:
            raise ContractError(f"row {row} comes more often than the first model's errors say")
        left_out.remove(row)
    return ce_oracle(m, b, stage)


def lisa_oracle(m: Method, b: Batch, stage: str) -> Sequence:
    """Row by row, with the random numbers in the method's order: kind of step, partners, shares."""
    balanced(b, m)
    within = float(torch.rand(())) < m.config.within_class
    n, labels = len(b.t_B), list(zip(b.t_B.tolist(), b.s_B.tolist(), strict=True))
    draws = torch.rand(n, n).tolist()
    alpha = torch.tensor(m.config.alpha)
    shares = torch.distributions.Beta(alpha, alpha).sample((n,)).tolist()
    mixed, partners = [], []
    for i, (t, s) in enumerate(labels):
        fits = [
            j
            for j, (u, v) in enumerate(labels)
            if (u == t and v != s if within else v == s and u != t)
        ]
        partners.append(max(fits, key=lambda j: draws[i][j]) if fits else i)
        mixed.append(shares[i] * b.images[i] + (1 - shares[i]) * b.images[partners[i]])
    scores, loss = m.classifier(m.encoder(torch.stack(mixed))), torch.zeros(())
    for i, j in enumerate(partners):
        own, other = (ce(scores[i : i + 1], b.t_B[k : k + 1]) for k in (i, j))
        loss = loss + shares[i] * own + (1 - shares[i]) * other
    return [loss / n]


def soft_gap_oracle(m: Method, b: Batch, stage: str) -> Sequence:
    scores = m.classifier(m.encoder(b.images))
    q, gaps = torch.exp(scores) / torch.exp(scores).sum(1, keepdim=True), []
    for t in range(m.classes):
        for a, c in combinations(range(m.groups), 2):
            x, y = (q[(b.t_B == t) & (b.s_B == g)][:, t] for g in (a, c))
            if len(x) and len(y):
                gaps.append(torch.abs(x.sum() / len(x) - y.sum() / len(y)))
    return [ce(scores, b.t_B) + m.config.strength * sum(gaps) / len(gaps)]


def mmd_oracle(m: Method, b: Batch, stage: str) -> Sequence:
    f = m.encoder(b.images)
    scale, gaps = m.config.sigma * mean_distance(f, f), []
    for t in range(m.classes):
        for a, c in combinations(range(m.groups), 2):
            x, y = f[(b.t_B == t) & (b.s_B == a)], f[(b.t_B == t) & (b.s_B == c)]
            if len(x) and len(y):
                gaps.append(mmd(x, y, scale))
    return [ce(m.classifier(f), b.t_B) + m.config.strength * torch.stack(gaps).mean()]


def hsic_oracle(m: Method, b: Batch, stage: str) -> Sequence:
    """With the centring matrix H written out."""
    f = m.encoder(b.images)
    scale, found = m.config.sigma * mean_distance(f, f), []
    for t in range(m.classes):
        x, s = f[b.t_B == t], b.s_B[b.t_B == t]
        n = len(x)
        if n < 2:
            continue
        rows = [[torch.exp(-((p - q) ** 2).sum() / (2 * scale)) for q in x] for p in x]
        k = torch.stack([torch.stack(row) for row in rows])
        same = torch.tensor([[float(p == q) for q in s] for p in s])
        h = torch.eye(n) - torch.ones(n, n) / n
        found.append(torch.trace(k @ h @ same @ h) / (n - 1) ** 2)
    return [ce(m.classifier(f), b.t_B) + m.config.strength * sum(found) / len(found)]


def reweight_oracle(m: Method, b: Batch, stage: str) -> Sequence:
    lab = Lab(type(m), m.config, None, m.classes, m.groups)  # the training rows of the check
    pairs = list(zip(lab.t_N.tolist(), lab.s_N.tolist(), strict=True))
    n = [[pairs.count((t, s)) for s in range(m.groups)] for t in range(m.classes)]
    total = sum(map(sum, n))
    loss, scores = torch.zeros(()), m.classifier(m.encoder(b.images))
    for i, (t, s) in enumerate(zip(b.t_B.tolist(), b.s_B.tolist(), strict=True)):
        if m.config.scheme == "inverse":
            weight = total / (m.classes * m.groups * n[t][s])
        else:
            weight = sum(n[t]) * sum(row[s] for row in n) / (total * n[t][s])
        loss = loss + weight * ce(scores[i : i + 1], b.t_B[i : i + 1])
    return [loss / len(b.t_B)]


def groupdro_oracle(m: Method, b: Batch, stage: str) -> Sequence:
    scores = m.classifier(m.encoder(b.images))
    # remembered by the oracle itself: what the method remembers may be wrong
    cells = m.classes * m.groups
    q = [1 / cells] * cells if b.step == 0 else vars(m)["oracle_q"]
    losses = []
    for t in range(m.classes):
        for s in range(m.groups):
            cell = (b.t_B == t) & (b.s_B == s)
            losses.append(ce(scores[cell], b.t_B[cell]) if cell.any() else torch.zeros(()))
    q = [w * math.exp(m.config.step * float(v.detach())) for w, v in zip(q, losses, strict=True)]
    q = [w / sum(q) for w in q]
    vars(m)["oracle_q"] = q
    return [sum(w * v for w, v in zip(q, losses, strict=True))]


# -- two stages --------------------------------------------------------------------------------


def two_stage(m: Method, b: Batch) -> list[Tensor]:
    # the weights of the cells have a test of their own, in tests/training/test_trainer.py
    total = torch.zeros(())
    for kind, head in m.classifiers.items():
        scores = head(b.features[kind.split("-")[0]])
        for row, (t, s) in enumerate(zip(b.t_B.tolist(), b.s_B.tolist(), strict=True)):
            weight = float(m.reweight_KCG[0, t, s]) if "-" in kind else 1.0
            loss = torch.logsumexp(scores[row], 0) - scores[row, t]
            total = total + weight * loss / len(b.t_B)
    return [total]


def projections(m: Method, b: Batch) -> tuple[Tensor, list[int], list[int]]:
    p = m.projection(m.encoder(b.images))
    z = torch.stack([row / torch.sqrt((row**2).sum()) for row in p])
    return z, b.t_B.tolist() * b.views, b.s_B.tolist() * b.views


def supcon_oracle(m: Method, b: Batch, stage: str) -> Sequence:
    if stage == "classify":
        return two_stage(m, b)
    z, t, _ = projections(m, b)
    tau, n, total = m.config.temperature, len(z), torch.zeros(())
    for i in range(n):
        others = [a for a in range(n) if a != i]
        below = torch.log(sum(torch.exp(z[i] @ z[a] / tau) for a in others))
        positives = [p for p in others if t[p] == t[i]]
        total = total + sum(z[i] @ z[p] / tau - below for p in positives) / len(positives)
    return [-(tau / 0.07) * total / n]


def fscl_oracle(m: Method, b: Batch, stage: str, plus: bool = False) -> Sequence:
    if stage == "classify":
        return two_stage(m, b)
    z, t, s = projections(m, b)
    tau, n, total = m.config.temperature, len(z), torch.zeros(())
    cell = [sum(t[x] == t[y] and s[x] == s[y] for y in range(n)) - 1 for x in range(n)]
    for i in range(n):
        top = float((z[i] @ z[i] / tau).detach())
        negatives = [a for a in range(n) if t[a] != t[i] and s[a] == s[i]]
        below = torch.zeros(())
        if negatives:
            below = torch.log(sum(torch.exp(z[i] @ z[a] / tau - top) for a in negatives))
        positives = [p for p in range(n) if p != i and t[p] == t[i]]
        for p in positives:
            term = z[i] @ z[p] / tau - top - below
            if plus:
                scale = n / (m.classes * m.groups**2)
                total = total + scale * term / cell[p] / (cell[i] + 1)
            else:
                total = total + term / len(positives)
    return [-(tau / 0.07) * total / n]


def fscl_plus_oracle(m: Method, b: Batch, stage: str) -> Sequence:
    return fscl_oracle(m, b, stage, plus=True)


def fdvae_oracle(m: Method, b: Batch, stage: str) -> Sequence:
    c, k = m.config, m.config.block
    if stage == "classify":
        mean, log_variance = b.features["encoder"], b.features["log_variance"]
        z = mean + torch.randn(mean.shape) * torch.sqrt(torch.exp(log_variance))
        shared = m.mutual(z[:, k : 2 * k])
        target = ce(m.classifier(z[:, :k] + c.mutual * shared), b.t_B)
        group = ce(m.mutual_adversary(shared), b.s_B)
        return [
            {
                "value": c.target * target + group,
                "mutual.": c.target * target - c.reversal_factor * group,
                "mutual_adversary": group,
                "classifier": c.target * target,
            }
        ]
    mean, log_variance = m.encoder.stats(b.images)
    z = mean + torch.randn(mean.shape) * torch.sqrt(torch.exp(log_variance))
    picture = F.interpolate(b.images, (64, 64), mode="bilinear", antialias=True)
    x, y = (picture * 0.5 + 0.5).clamp(0, 1), torch.sigmoid(m.decoder(z).double())
    recon = -(x * torch.log(y) + (1 - x) * torch.log(1 - y)).sum() / len(x)
    kl = torch.zeros(())
    for mu, lv in zip(mean.flatten(), log_variance.flatten(), strict=True):
        kl = kl + 0.5 * (mu**2 + torch.exp(lv) - 1 - lv)
    kl = kl / len(x)
    d = m.discriminator(z)
    tc = sum(row[0] - row[1] for row in d) / len(d)
    own, other = z[:, :k], z[:, 2 * k :]
    attribute = ce(m.heads["target"](own), b.t_B) + ce(m.heads["protected"](other), b.s_B)
    reverse = ce(m.heads["target_adversary"](own), b.s_B)
    reverse = reverse + ce(m.heads["protected_adversary"](other), b.t_B)
    plain = recon + kl + c.tc * tc + c.attribute * attribute
    first = {
        "value": plain + c.reversal * reverse,
        "encoder": plain - c.reversal_factor * c.reversal * reverse,
        "decoder": recon,
        "heads": c.attribute * attribute + c.reversal * reverse,
    }
    order = [torch.randperm(len(z)).tolist() for _ in range(2)]
    mixed = torch.stack(
        [torch.cat([own[i], z[order[0][i], k : 2 * k], other[order[1][i]]]) for i in range(len(z))]
    )
    real, fake = m.discriminator(z.detach()), m.discriminator(mixed.detach())
    zeros = torch.zeros(len(z), dtype=torch.int64)
    return [first, ce(real, zeros) + ce(fake, zeros + 1)]


# -- FairViT -----------------------------------------------------------------------------------


def masked_vit(m: Method, images: Tensor, c: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The masked network step by step: its embedding, and the class token after every block."""

    def mask(layer: torch.nn.Module) -> Tensor:
        return 1 + sum(c[g] * layer.scores[:, g] for g in range(len(c)))

    def linear(layer: torch.nn.Module, x: Tensor, rows: Tensor) -> Tensor:
        return (x @ layer.weight.T + layer.bias) * rows  # row r of weight and bias, times M_r

    vit = m.encoder
    x = vit.patch_embed(images)
    x = torch.cat([vit.cls_token.expand(len(x), -1, -1), x], dim=1) + vit.pos_embed
    tokens = []
    for block in vit.blocks:
        heads, width = block.attn.heads, x.shape[-1]
        rows = mask(block.attn.qkv)  # one per head, for q, k and v alike
        rows = torch.cat([rows[h].expand(width // heads) for h in range(heads)] * 3)
        qkv = linear(block.attn.qkv, block.norm1(x), rows)
        q, k, v = (part.unflatten(2, (heads, -1)).transpose(1, 2) for part in qkv.chunk(3, dim=2))
        weights = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(width // heads), dim=-1)
        y = (weights @ v).transpose(1, 2).flatten(2)
        x = x + linear(block.attn.proj, y, mask(block.attn.proj))
        y = F.gelu(linear(block.mlp.fc1, block.norm2(x), mask(block.mlp.fc1)))
        x = x + linear(block.mlp.fc2, y, mask(block.mlp.fc2))
        tokens.append(x[:, 0])
    return vit.norm(x)[:, 0], tokens


def fairvit_oracle(m: Method, b: Batch, stage: str) -> Sequence:
    c = m.mask_weights.detach().clone().requires_grad_()
    f, tokens = masked_vit(m, b.images, c)
    scores = m.classifier(f)
    loss = ce(scores, b.t_B)
    for token, head in zip(tokens[-len(m.deep_heads) :], m.deep_heads, strict=True):
        loss = loss + m.config.supervision * ce(head(token), b.t_B)
    line = _boundary(m)
    for row, t in zip(scores, b.t_B.tolist(), strict=True):
        if line is None:
            break
        top = row.topk(min(2, len(row))).indices.tolist()
        others = sum(row[j] for j in top if j != t)
        delta = (line[0] * row[t] + line[1] * others + line[2]) / math.hypot(line[0], line[1])
        each = m.config.distance * 32 / len(scores)
        if float(delta.detach()) >= 10:
            loss = loss - 2 * each
        else:
            loss = loss - each * delta * (0.5 if float(delta.detach()) >= 0 else 1.0)
    names = {n: p for n, p in m.named_parameters() if n != "mask_weights"}
    found = torch.autograd.grad(loss, [*names.values(), c], allow_unused=True)
    gradients = dict(zip(names, found[:-1], strict=True))
    shares = torch.zeros(len(c))
    for s, row in zip(b.s_B.tolist(), b.rows_B.tolist(), strict=True):
        shares[s * m.config.chunks + row % m.config.chunks] += 1 / len(b.s_B)
    for name in gradients:
        if name.endswith(".scores"):
            gradients[name] = gradients[name] * shares  # published: by the share of the batch
    weight_gradient = found[-1] * shares
    return [
        ExpectedLoss(float(loss.detach()), gradients),
        ExpectedLoss(
            float((c * weight_gradient).sum().detach()), {"mask_weights": weight_gradient}
        ),
    ]


def _boundary(m: Method) -> list[float] | None:
    if m.boundary[3]:
        return m.boundary[:3].tolist()
    used = m.recent[m.recent[:, 3] > 0].numpy()
    if len(used) == 0 or len(set(used[:, 2])) < 2:
        return None
    fit = LogisticRegression(C=1.0, tol=1e-12, max_iter=10_000).fit(used[:, :2], used[:, 2])
    return [*fit.coef_[0].tolist(), float(fit.intercept_[0])]


# -- scores ------------------------------------------------------------------------------------


def plain_logits(m: Method, images: Tensor) -> Tensor:
    return m.classifier(m.encoder(images))


def dfr_logits(m: Method, images: Tensor) -> Tensor:
    return m.last(m.encoder(images))


def two_stage_logits(m: Method, images: Tensor) -> Tensor:
    h = m.encoder(images)
    if m.config.primary_features == "encoder":
        return m.classifiers["encoder"](h)
    z = m.projection(h)
    return m.classifiers["projection"](z / z.norm(dim=1, keepdim=True))


def fdvae_logits(m: Method, images: Tensor) -> Tensor:
    z, k = m.encoder(images), m.config.block
    return m.classifier(z[:, :k] + m.config.mutual * m.mutual(z[:, k : 2 * k]))


def fairvit_logits(m: Method, images: Tensor) -> Tensor:
    return m.classifier(masked_vit(m, images, m.mask_weights)[0])
