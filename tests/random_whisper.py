"""Random Whisper checkpoints of every vocabulary kind."""

import json

import numpy as np

from xdna_asr.weights.arena import AnyArray

KINDS = {".en": (51_864, 80), "multilingual": (51_865, 80), "v3": (51_866, 128)}


def checkpoint(vocabulary: int, mels: int, d: int = 32, layers: int = 2, seed: int = 0) -> dict[str, AnyArray]:
    """A random transformers Whisper checkpoint."""
    rng = np.random.default_rng(seed)

    def made(*shape: int) -> AnyArray:
        return np.asarray(rng.standard_normal(shape) / np.sqrt(shape[-1]), np.float32)

    out = {"conv1.weight": made(d, mels, 3), "conv1.bias": made(d), "conv2.weight": made(d, d, 3), "conv2.bias": made(d)}
    out = {f"model.encoder.{name}": tensor for name, tensor in out.items()}
    for part, blocks in (("encoder", ("self_attn",)), ("decoder", ("self_attn", "encoder_attn"))):
        for layer in range(layers):
            base = f"model.{part}.layers.{layer}"
            for block in blocks:
                for name in "qkv":
                    out[f"{base}.{block}.{name}_proj.weight"] = made(d, d) * 2
                    if name != "k":
                        out[f"{base}.{block}.{name}_proj.bias"] = made(d)
                out |= {f"{base}.{block}.out_proj.weight": made(d, d), f"{base}.{block}.out_proj.bias": made(d)}
            out |= {f"{base}.fc1.weight": made(4 * d, d), f"{base}.fc1.bias": made(4 * d)}
            out |= {f"{base}.fc2.weight": made(d, 4 * d), f"{base}.fc2.bias": made(d)}
            for norm in (*blocks, "final"):
                out |= {f"{base}.{norm}_layer_norm.weight": 1 + made(d), f"{base}.{norm}_layer_norm.bias": made(d)}
        out |= {f"model.{part}.layer_norm.weight": 1 + made(d), f"model.{part}.layer_norm.bias": made(d)}
    out["model.encoder.embed_positions.weight"] = made(1500, d)
    out["model.decoder.embed_positions.weight"] = made(448, d)
    out["model.decoder.embed_tokens.weight"] = made(vocabulary, d) * 3
    return out


def tokenizer(vocabulary: int) -> str:
    """A `tokenizer.json` with the special tokens of the generation with `vocabulary` tokens; words are numbers."""
    shift = vocabulary - 51_864
    languages = ["en", *(f"x{i}" for i in range(98 + (shift == 2)))]
    names = [*languages, "translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps"]
    specials = ["<|endoftext|>", "<|startoftranscript|>", *(f"<|{name}|>" for name in names)]
    first = 50_256 + (shift > 0)
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    added = [{"id": first + i, "content": name, **flags} for i, name in enumerate(specials)]
    words = {str(i): i for i in range(first)}
    return json.dumps({"version": "1.0", "added_tokens": added, "model": {"type": "WordLevel", "vocab": words, "unk_token": "0"}})
