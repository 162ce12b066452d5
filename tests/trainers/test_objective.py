"""The objective against values worked out by hand, and its gradient against the formula, token by token."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollouts.api.scored_group import ScoredRollout
from tests.inference.engines.tiny_model import VOCABULARY
from tests.trainers.rows import token_row, training_row
from trainers.grpo import Learner, divergence, policy_loss, token_weights
from trainers.grpo_config import GrpoConfig
from trainers.policy import open_policy, sampled_logprobs
from trainers.shared_prompts import passes, shared_prompt, shares_prompts
from trainers.training_rows import rows_of_scored
from trajectories.errors import ConfigError
from trajectories.rows import TokenRow
from trajectories.trajectory import StopReason

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


@pytest.fixture
def config(tiny_folder, tmp_path):
    return GrpoConfig(model=tiny_folder, output_dir=tmp_path)


@pytest.mark.parametrize(
    ("ratio", "advantage", "objective"),
    [
        (1.1, 2.0, 2.2),
        (1.5, 2.0, 2.4),  # the gain is clipped at 1.2
        (0.5, 2.0, 1.0),  # what became less likely is not
        (0.5, -2.0, -1.6),  # the gain is clipped at 0.8
        (1.5, -2.0, -3.0),
    ],
)
def test_the_objective_is_the_lesser_of_ratio_and_clipped_ratio_times_advantage(
    config, ratio, advantage, objective
):
    loss = policy_loss(torch.tensor([ratio]), torch.tensor([advantage]), torch.tensor([0.5]), config)
    assert float(loss) == pytest.approx(-0.5 * objective)


def test_clip_bounds_can_differ(config):
    wide = config.model_copy(update={"clip_high": 0.4})
    loss = policy_loss(torch.tensor([1.5]), torch.tensor([1.0]), torch.tensor([1.0]), wide)
    assert float(loss) == pytest.approx(-1.4)


def test_divergence_is_zero_where_policies_agree_and_positive_elsewhere():
    same = torch.tensor([-1.0])
    assert float(divergence(same, same)) == 0
    assert float(divergence(torch.tensor([-1.0]), torch.tensor([-2.0]))) == pytest.approx(math.exp(-1))
    assert float(divergence(torch.tensor([-2.0]), torch.tensor([-1.0]))) == pytest.approx(math.e - 2)


def sampled_row(count: int) -> TokenRow:
    return TokenRow("start", [0] * (count + 1), [0] + [1] * count, [None] + [-1.0] * count, [0] * (count + 1))


def rollout(name: str, reward: float, *rows: TokenRow) -> ScoredRollout:
    return ScoredRollout(name, reward, list(rows), StopReason.COMPLETED)


def test_token_weights_by_hand(config):
    rows = rows_of_scored(
        "g", [rollout("a", 1, sampled_row(4)), rollout("b", 0, sampled_row(1), sampled_row(3))]
    )

    def weights(normalisation):
        return token_weights(rows, config.model_copy(update={"normalisation": normalisation}))

    assert weights("rollout") == pytest.approx([1 / 8, 1 / 8, 1 / 8])
    assert weights("token") == pytest.approx([1 / 8, 1 / 8, 1 / 8])
    assert weights("constant") == pytest.approx([1 / 1024] * 3)


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=6),
    st.sampled_from(["rollout", "token", "constant"]),
)
def test_a_rollout_in_many_rows_weighs_as_much_as_in_one(pieces, normalisation):
    config = GrpoConfig(model=".", output_dir=".", normalisation=normalisation)
    other = rollout("other", 0.0, sampled_row(5))
    whole = rows_of_scored("g", [rollout("a", 1.0, sampled_row(sum(pieces))), other])
    broken = rows_of_scored("g", [rollout("a", 1.0, *map(sampled_row, pieces)), other])

    def weight_of_each_token(rows):
        weights = token_weights(rows, config)
        return [w for row, w in zip(rows, weights, strict=True) for _ in range(sum(row.row.loss_mask))]

    assert weight_of_each_token(broken) == pytest.approx(weight_of_each_token(whole))


def test_every_sampled_token_gets_its_own_gradient_and_the_environments_get_none(config):
    """The loss' derivative by the logits is w r A (p - onehot) where a token was sampled, and 0 elsewhere."""
    learner = Learner(config)
    rows = [training_row(1, 1.5), training_row(2, -0.5, outputs=3), training_row(3, 0.7, outputs=1)]
    rows = [as_sampled(learner, row, delta=-0.05) for row in rows]
    rows.sort(key=lambda row: row.row.token_ids)  # as a pass orders them
    captured = []

    def keep(module, inputs, output):
        output.retain_grad()
        captured.append(output)

    learner.policy.model.lm_head.register_forward_hook(keep)
    learner.update(rows)

    prompt, logits = captured
    assert prompt.grad is None or not prompt.grad.any()
    shared = shared_prompt([row.row for row in rows])
    positions = sorted({t - 1 for row in rows for t, mask in enumerate(row.row.loss_mask) if mask})
    assert positions[0] >= shared
    checked = {0: 0, 1: 0}
    for index, row in enumerate(rows):
        weight = 1 / (len(rows) * sum(row.row.loss_mask))
        for column, position in enumerate(positions):
            if position + 1 >= len(row.row.token_ids):
                assert not logits.grad[index, column].any(), "padding"
                continue
            mask = row.row.loss_mask[position + 1]
            expected = torch.zeros(VOCABULARY)
            if mask:
                expected = logits[index, column].detach().softmax(-1)
                expected[row.row.token_ids[position + 1]] -= 1
                expected *= weight * math.exp(0.05) * row.advantage
            torch.testing.assert_close(
                logits.grad[index, column], expected, atol=1e-6 if mask else 0, rtol=1e-4 if mask else 0
            )
            checked[mask] += 1
    assert checked[1] == sum(sum(row.row.loss_mask) for row in rows)
    assert checked[0] > 0, "the passes hold positions of environment tokens too"


def as_sampled(learner: Learner, row, delta: float = 0.0):
    """The row with the logprobs its tokens have under the learner's policy, changed by ``delta``."""
    new = iter(learner.policy.logprobs([row.row])[0].tolist())
    logprobs = [next(new) + delta if mask else None for mask in row.row.loss_mask]
    return replace(row, row=replace(row.row, logprobs=logprobs))


def naive_logprobs(model, row: TokenRow):
    """Logprobs of the sampled tokens from one plain forward pass over the whole row."""
    ids = torch.tensor([row.token_ids])
    logprobs = model(ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
    return logprobs[torch.tensor(row.loss_mask[1:], dtype=torch.bool)]


@pytest.mark.parametrize("prompt", [[5, 6, 7, 8], [5]])
def test_rows_together_get_the_logprobs_and_the_gradient_each_gets_alone(config, prompt):
    model = open_policy(config, None).model
    rows = [token_row(seed, prompt=prompt, outputs=1 + seed % 3) for seed in range(5)]

    together, entropy = sampled_logprobs(model, rows)
    alone = torch.cat([naive_logprobs(model, row) for row in rows])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)
    assert entropy.shape == together.shape
    assert not entropy.requires_grad

    coefficients = torch.linspace(-1, 1, len(alone))
    gradients = [
        torch.autograd.grad((coefficients * logprobs).sum(), list(model.parameters()))
        for logprobs in (together, alone)
    ]
    for ours, plain in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, plain, atol=1e-4, rtol=1e-4)


def test_a_model_whose_cache_holds_states_computes_each_row_whole():
    """Linear attention: what it keeps of a prompt can't be repeated for each row."""
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "vocab_size": VOCABULARY}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16}
    linear = {"linear_num_key_heads": 1, "linear_num_value_heads": 2, "linear_key_head_dim": 16}
    experts = {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 32}
    sizes = {**shape, **heads, **linear, "linear_value_head_dim": 16, **experts, "decoder_sparse_step": 2}
    layers = ["linear_attention", "full_attention"]
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model("qwen3_next", **sizes, layer_types=layers)
    ).eval()
    assert not shares_prompts(model)

    rows = [token_row(seed) for seed in range(3)]
    together, _ = sampled_logprobs(model, rows)
    alone = torch.cat([naive_logprobs(model, row) for row in rows])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("tokens_per_pass", [1, 60, 100_000])
def test_how_a_batch_is_split_into_passes_changes_no_update(config, tokens_per_pass):
    rows = [training_row(seed, (-1.0) ** seed, outputs=1 + seed % 3) for seed in range(6)]

    def updated(limit: int):
        learner = Learner(config.model_copy(update={"tokens_per_pass": limit, "learning_rate": 0.01}))
        metrics = learner.update(rows)
        return metrics, learner.policy.weights()

    metrics, weights = updated(tokens_per_pass)
    expected, expected_weights = updated(1000)
    assert metrics.loss == pytest.approx(expected.loss, abs=1e-5)
    assert metrics.grad_norm == pytest.approx(expected.grad_norm, rel=1e-4)
    for name, weight in weights.items():
        # Adam's first step divides the gradient by its size, so noise around 0 may turn its sign.
        assert (weight - expected_weights[name]).abs().mean() < 1e-4


def test_passes_hold_every_row_once_and_keep_their_bound():
    rows = [token_row(seed, outputs=1 + seed % 4) for seed in range(20)]
    split = list(passes(rows, 80, share=True))
    assert sorted(index for taken in split for index in taken) == list(range(20))
    assert len(split) > 1
    for taken in split:
        shared = shared_prompt([rows[index] for index in taken])
        rests = len(taken) * max(len(rows[index].token_ids) - shared for index in taken)
        assert len(taken) == 1 or shared + rests <= 80 + 3 * len(taken)


def test_a_prompt_that_rows_share_counts_once_in_a_pass():
    prompt = list(range(9)) * 50
    alike = [token_row(seed, prompt=prompt) for seed in range(10)]
    other = [token_row(seed, prompt=prompt[::-1]) for seed in range(10, 12)]
    assert sorted(map(len, passes(alike + other, 1200, share=True))) == [2, 10]
    assert len(list(passes(alike, 500, share=True))) == 10
    assert len(list(passes(alike, 1200, share=False))) == 5


def test_a_broken_rollout_moves_the_policy_as_much_as_a_whole_one(config):
    """Two rows with the same ids as contexts and the tokens split between them."""
    row = token_row(4, outputs=2)
    first_output = row.loss_mask.index(1)
    gap = row.loss_mask.index(0, first_output)
    masks = [
        [mask if position < gap else 0 for position, mask in enumerate(row.loss_mask)],
        [mask if position >= gap else 0 for position, mask in enumerate(row.loss_mask)],
    ]
    halves = [replace(row, loss_mask=mask) for mask in masks]
    other = rollout("other", 0.0, token_row(5))

    def gradient(*rows: TokenRow):
        learner = Learner(config)
        learner.update(rows_of_scored("g", [rollout("a", 1.0, *rows), other]))
        return [parameter.grad.clone() for parameter in learner.policy.model.parameters()]

    for whole, broken in zip(gradient(row), gradient(*halves), strict=True):
        torch.testing.assert_close(broken, whole, atol=1e-5, rtol=1e-4)


def test_tokens_without_recorded_logprobs_are_refused(config):
    row = training_row(1, 1.0)
    bare = replace(row, row=replace(row.row, logprobs=[None] * len(row.row.logprobs)))
    with pytest.raises(ConfigError, match="without logprobs"):
        Learner(config).update([bare])


def test_an_update_whose_gradient_is_not_finite_is_left_out_and_counted(config):
    learner = Learner(config)
    before = {name: weight.clone() for name, weight in learner.policy.weights().items()}
    row = training_row(1, -1.0)
    absurd = [None if logprob is None else -1e30 for logprob in row.row.logprobs]

    metrics = learner.update([replace(row, row=replace(row.row, logprobs=absurd)), training_row(2, 1.0)])

    assert metrics.updates_left_out == 1
    for name, weight in learner.policy.weights().items():
        assert torch.equal(weight, before[name])
    assert learner.update([training_row(2, 1.0)]).updates_left_out == 0


def test_metrics_of_an_update(config):
    learner = Learner(config.model_copy(update={"updates_per_batch": 2, "learning_rate": 0.05}))
    rows = [as_sampled(learner, training_row(seed, (-1.0) ** seed)) for seed in range(4)]

    metrics = learner.update(rows)

    assert metrics.logprob_delta < 1e-5, "measured before the first update"
    assert metrics.clip_fraction > 0, "the second update sees the ratios the first one moved"
    assert metrics.ratio_max > 1.2
    assert 0 < metrics.entropy < math.log(VOCABULARY)
    assert metrics.tokens == sum(sum(row.row.loss_mask) for row in rows)
