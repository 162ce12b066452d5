"""A transformers model that runs pieces of many sequences in one forward pass, without padding.

All new ids of a pass stand in one row of the input, one piece after another; attention, registered here
with transformers, gives each piece its own cached history. Padding to a rectangle, the usual way, wastes
compute on sequences of unequal length and copies the whole cache whenever one joins or leaves.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from inference.kv_cache import KVRow, Tensor
from trajectories.errors import ConfigError

ATTENTION = "lachesis_packed"


@dataclass(frozen=True, slots=True)
class Piece:
    """New ids of one sequence; ``row`` holds what comes before them."""

    row: KVRow
    ids: list[int]
    logits: Literal["none", "last", "all"] = "last"
    """After which of ``ids`` logits are wanted."""


class PackedModel:
    """A causal language model of a Hugging Face folder.

    Raises:
        ConfigError: torch is missing, or the folder holds no such model.
    """

    def __init__(self, folder: Path, *, device: str, dtype: str):
        torch, transformers = _libraries()
        transformers.AttentionInterface.register(ATTENTION, _packed_attention)
        self.folder = folder
        self.device = torch.device(device)
        self._dtype = getattr(torch, dtype)
        self._model = self._load(folder).to(self.device)
        config = self._model.config.get_text_config()
        if any(kind != "full_attention" for kind in getattr(config, "layer_types", None) or []):
            raise ConfigError(f"{folder}: only models with full attention in every layer can be embedded")
        self.layers: int = config.num_hidden_layers
        self.vocab_size: int = self._model.get_input_embeddings().weight.shape[0]
        self.context_length: int = config.max_position_embeddings

    def _load(self, folder: Path) -> Any:
        _, transformers = _libraries()
        if not (folder / "config.json").is_file():
            raise ConfigError(
                f"model folder {folder} has no config.json; scripts/fetch_model.py prints a usable one"
            )
        transformers.utils.logging.disable_progress_bar()
        try:
            model = transformers.AutoModelForCausalLM.from_pretrained(
                folder, dtype=self._dtype, attn_implementation=ATTENTION, local_files_only=True
            )
        except (OSError, ValueError) as error:
            raise ConfigError(f"model folder {folder} can't be loaded: {error}") from error
        return model.eval().requires_grad_(False)

    def forward(self, pieces: Sequence[Piece]) -> Tensor:
        """Append each piece to its row; return the logits asked for, float32 [asked, vocabulary]."""
        import torch

        ids: list[int] = []
        positions: list[int] = []
        asked: list[int] = []
        for piece in pieces:
            start = len(piece.row.ids)
            ids.extend(piece.ids)
            positions.extend(range(start, start + len(piece.ids)))
            wanted = {"none": 0, "last": 1, "all": len(piece.ids)}[piece.logits]
            asked.extend(range(len(ids) - wanted, len(ids)))
        with torch.inference_mode():
            output = self._model(
                input_ids=torch.tensor([ids], device=self.device),
                position_ids=torch.tensor([positions], device=self.device),
                use_cache=False,
                logits_to_keep=torch.tensor(asked, dtype=torch.long, device=self.device),
                segments=[_segment(piece, self.device) for piece in pieces],
            )
        for piece in pieces:
            piece.row.commit(piece.ids)
        return output.logits[0].float()

    def load_weights(self, weights: Any) -> None:
        """Replace the weights by a state dict or by those of a folder.

        Raises:
            ConfigError: They belong to another architecture.
        """
        if isinstance(weights, Path):
            weights = self._load(weights).state_dict()
        try:
            self._model.load_state_dict(weights)
        except RuntimeError as error:
            raise ConfigError(f"weights do not fit the model of {self.folder}: {error}") from error


def _segment(piece: Piece, device: Any) -> tuple[KVRow, int, Tensor]:
    import torch

    past, new = len(piece.row.ids), len(piece.ids)
    if new == 1 or past == 0:
        return piece.row, new, None
    mask = torch.ones(new, past + new, dtype=torch.bool, device=device).tril(past)
    return piece.row, new, mask


def _packed_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: None,
    *,
    segments: list[tuple[KVRow, int, Tensor]],
    scaling: float,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention in the form transformers calls it; query is [1, heads, packed, head_dim]."""
    from torch.nn.functional import scaled_dot_product_attention

    heads, packed, head_dim = query.shape[1:]
    output = query.new_empty(packed, heads, head_dim)
    start = 0
    for row, new, mask in segments:
        end = start + new
        keys, values = row.append(module.layer_idx, key[0, :, start:end], value[0, :, start:end])
        if new == 1:  # the query heads that share a key head are its queries: a fifth faster than enable_gqa
            grouped = query[:, :, start].view(1, keys.shape[0], -1, head_dim)
            mixed = scaled_dot_product_attention(grouped, keys[None], values[None], scale=scaling)
            output[start] = mixed.view(heads, head_dim)
        else:
            mixed = scaled_dot_product_attention(
                query[:, :, start:end],
                keys[None],
                values[None],
                attn_mask=mask,
                is_causal=mask is None,
                scale=scaling,
                enable_gqa=True,
            )
            output[start:end] = mixed[0].transpose(0, 1)
        start = end
    return output[None], None


def _libraries() -> tuple[Any, Any]:
    try:
        import torch
        import transformers
    except ImportError as error:
        raise ConfigError(
            f"the embedded engine needs torch and transformers ({error}): pip install 'lachesis-rl[torch]'"
        ) from error
    return torch, transformers
