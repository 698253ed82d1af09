"""PPO, GRPO and DPO written down directly in numpy: what the graphs of graphs/rl are compared with.

It shares no code with the project.  Whole sequences are run for every sampled token, sums are written as their
definitions say, and gradients are central differences in every single parameter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

CLIP, VALUE_CLIP, KL, GAMMA, LAMBDA, BETA = 0.2, 0.2, 0.05, 1.0, 0.95, 0.1
STEP = 1e-5


# -- the model --------------------------------------------------------------------------------------------------------
def normed(x, gain):
    x = x - x.mean(-1, keepdims=True)
    return gain * x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)


def hidden(w, ids):
    """Decoder states [n, m, d] before the head."""
    x = w["W_e"][ids]
    n, m, d = x.shape
    heads = w["W_q"].shape[2]
    future = np.triu(np.ones((m, m), bool), 1)
    for layer in range(len(w["W_q"])):
        y = normed(x, w["gain_1"][layer])
        q, k, v = ((y @ w[name][layer].reshape(d, d)).reshape(n, m, heads, -1) for name in ("W_q", "W_k", "W_v"))
        scores = np.moveaxis(q, 2, 1) @ np.moveaxis(k, 2, 1).swapaxes(2, 3) / math.sqrt(d / heads)
        p = np.exp(np.where(future, -np.inf, scores))
        mixed = p / p.sum(-1, keepdims=True) @ np.moveaxis(v, 2, 1)
        x = x + np.moveaxis(mixed, 1, 2).reshape(n, m, d) @ w["W_o"][layer].reshape(d, d)
        u = normed(x, w["gain_2"][layer]) @ w["W_1"][layer]
        u = u / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u**3)))
        x = x + u @ w["W_2"][layer]
    return normed(x, w["gain_f"])


def log_softmax(w, ids):
    logits = hidden(w, ids) @ w["W_e"].T
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def log_p(w, ids, prompt):
    """Log-probability of every token after the prompt, [n, T]."""
    rows = log_softmax(w, ids)
    return np.array([[rows[n, t - 1, ids[n, t]] for t in range(prompt, ids.shape[1])] for n in range(len(ids))])


def values_of(w, ids, prompt):
    """The critic's value of the state before every token after the prompt, [n, T]."""
    return (hidden(w, ids) @ w["w_value"])[:, prompt - 1 : -1]


def sampled(w, prompts, rollouts, uniforms):
    """K continuations of every prompt, a token for each row of uniform numbers; and what each token's log p was."""
    ids, logs = np.repeat(prompts, rollouts, axis=0), []
    for row in uniforms:
        log_rows = log_softmax(w, ids)[:, -1]
        chosen = []
        for logits, u in zip(log_rows, row, strict=True):
            token, mass = 0, math.exp(logits[0])
            while mass <= u:
                token += 1
                mass += math.exp(logits[token])
            chosen.append(token)
        logs.append([row[token] for row, token in zip(log_rows, chosen, strict=True)])
        ids = np.concatenate([ids, np.array(chosen)[:, None]], axis=1)
    return ids, np.array(logs).T


# -- advantages -------------------------------------------------------------------------------------------------------
def estimated_advantages(rewards, values):
    """The definition: the sum of all later errors, faded by (gamma lambda) per token."""
    out = np.zeros_like(rewards)
    for n, t in np.ndindex(*rewards.shape):
        for later in range(t, rewards.shape[1]):
            after = values[n, later + 1] if later + 1 < rewards.shape[1] else 0.0
            error = rewards[n, later] + GAMMA * after - values[n, later]
            out[n, t] += (GAMMA * LAMBDA) ** (later - t) * error
    return out


def group_normalised(score, rollouts):
    out = []
    for first in range(0, len(score), rollouts):
        group = score[first : first + rollouts]
        mean = sum(group) / rollouts
        variance = sum((r - mean) ** 2 for r in group) / rollouts
        out += [(r - mean) / math.sqrt(variance + 1e-5) for r in group]
    return np.array(out)


# -- losses -----------------------------------------------------------------------------------------------------------
def surrogate(new, old, advantage):
    """One token's clipped objective, case by case."""
    ratio = math.exp(new - old)
    if advantage >= 0:
        return min(ratio, 1 + CLIP) * advantage
    return max(ratio, 1 - CLIP) * advantage


def ppo_policy_loss(new, old, advantages):
    gains = [surrogate(*x) for x in zip(new.flat, old.flat, advantages.flat, strict=True)]
    return -sum(gains) / len(gains)


def ppo_value_loss(new, before, returns):
    worst = []
    for v, v0, r in zip(new.flat, before.flat, returns.flat, strict=True):
        near = v0 + min(max(v - v0, -VALUE_CLIP), VALUE_CLIP)
        worst.append(max((v - r) ** 2, (near - r) ** 2) / 2)
    return sum(worst) / len(worst)


def grpo_loss(new, old, advantages, reference):
    total = 0.0
    for n, t in np.ndindex(*new.shape):
        q = math.exp(reference[n, t] - new[n, t])
        total += surrogate(new[n, t], old[n, t], advantages[n]) - KL * (q - math.log(q) - 1)
    return -total / new.size


def dpo_loss(new, reference):
    """``new`` and ``reference``: log-probabilities of whole responses, those of a pair next to each other."""
    gain = new - reference
    margins = BETA * (gain[0::2] - gain[1::2])
    return sum(math.log(1 + math.exp(-x)) for x in margins) / len(margins)


# -- updates ----------------------------------------------------------------------------------------------------------
def gradients(loss, w):
    out = {}
    for name in w:
        out[name] = np.zeros_like(w[name])
        for at in np.ndindex(*w[name].shape):
            ends = []
            for sign in (1, -1):
                moved = w[name].copy()
                moved[at] += sign * STEP
                ends.append(loss(w | {name: moved}))
            out[name][at] = (ends[0] - ends[1]) / (2 * STEP)
    return out


@dataclass
class Trained:
    """A model's parameters and the averages that Adam keeps of their gradients."""

    w: dict[str, np.ndarray]
    first: dict[str, np.ndarray]
    second: dict[str, np.ndarray]

    def step(self, loss, rate):
        """One step of Adam without bias correction; gives the loss before it."""
        before = loss(self.w)
        found = gradients(loss, self.w)
        for name, g in found.items():
            self.first[name] = 0.9 * self.first[name] + 0.1 * g
            self.second[name] = 0.999 * self.second[name] + 0.001 * g * g
            self.w[name] = self.w[name] - rate * self.first[name] / np.sqrt(self.second[name] + 1e-5)
        return before


def parts(count, updates, epochs):
    """Which sequences each update is made of."""
    size = count // updates
    return [slice(k * size, (k + 1) * size) for _ in range(epochs) for k in range(updates)]


# -- iterations -------------------------------------------------------------------------------------------------------
def ppo(actor, critic, reference, reward, prompts, rollouts, uniforms, rate, updates=1, epochs=1):
    """One iteration; changes actor and critic, gives what it computed on the way."""
    S = prompts.shape[1]
    ids, old = sampled(actor.w, prompts, rollouts, uniforms)
    ref = log_p(reference, ids, S)
    score = hidden(reward, ids)[:, -1] @ reward["w_reward"]
    before = values_of(critic.w, ids, S)
    rewards = -KL * (old - ref)
    rewards[:, -1] += score
    advantages = estimated_advantages(rewards, before)
    returns = advantages + before
    out = {"ids": ids, "old": old, "reference": ref, "score": score, "values": before, "advantages": advantages,
           "returns": returns}  # fmt: skip
    for p in parts(len(ids), updates, epochs):
        out["loss_actor"] = actor.step(lambda w, p=p: ppo_policy_loss(log_p(w, ids[p], S), old[p], advantages[p]), rate)
    for p in parts(len(ids), updates, epochs):
        out["loss_critic"] = critic.step(
            lambda w, p=p: ppo_value_loss(values_of(w, ids[p], S), before[p], returns[p]), rate
        )
    return out


def grpo(actor, reference, reward, prompts, rollouts, uniforms, rate, updates=1, epochs=1):
    S = prompts.shape[1]
    ids, old = sampled(actor.w, prompts, rollouts, uniforms)
    ref = log_p(reference, ids, S)
    score = hidden(reward, ids)[:, -1] @ reward["w_reward"]
    advantages = group_normalised(score, rollouts)
    out = {"ids": ids, "old": old, "reference": ref, "score": score, "advantages": advantages}
    for p in parts(len(ids), updates, epochs):
        out["loss_actor"] = actor.step(
            lambda w, p=p: grpo_loss(log_p(w, ids[p], S), old[p], advantages[p], ref[p]), rate
        )
    return out


def dpo(actor, reference, ids, prompt, lengths, rate):
    """``lengths``: tokens of each response; what follows them is no part of it."""

    def whole(w):
        return np.array([row[:n].sum() for row, n in zip(log_p(w, ids, prompt), lengths, strict=True)])

    ref = whole(reference)
    return {"reference": ref, "loss_actor": actor.step(lambda w: dpo_loss(whole(w), ref), rate)}
