"""
Weights as llama.cpp loads them: a GGUF file in float32 (the format is described in ggml's docs/gguf.md).

usage: python -m trainer.gguf_file LIKE.gguf CHECKPOINT    writes CHECKPOINT/model.gguf unless it is there
"""

from __future__ import annotations

import json
import os
import struct
import sys
from pathlib import Path

import gguf
import numpy
from safetensors.numpy import load_file

ALIGNMENT = 32


class GgufFiles:
    """Writes files of a Llama model."""

    def __init__(self, like: Path):
        # All but the weights is that of another file of the model: shape, tokenizer and chat template.
        reader = gguf.GGUFReader(like)
        self.entries = int(reader.fields["GGUF.kv_count"].contents())
        begin = min(field.offset for name, field in reader.fields.items() if not name.startswith("GGUF."))
        self.metadata = reader.data[begin : reader.tensors[0].field.offset].tobytes()

    def of(self, checkpoint: Path) -> Path:
        """The file of a checkpoint's weights, in its folder; it appears whole."""
        out = checkpoint / "model.gguf"
        if out.exists():
            return out
        config = json.loads((checkpoint / "config.json").read_text())
        names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
        heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
        infos, weights, at = [], [], 0
        for key, weight in load_file(checkpoint / "model.safetensors").items():
            module = key.removesuffix(".weight")
            values = weight.astype(numpy.float32)
            if (count := heads.get(module.rsplit(".", 1)[-1])) is not None:
                values = interleaved(values, count)
            infos.append(info(f"{names.get_name(module)}.weight", values.shape, at))
            weights.append(values)
            at += padded(values.nbytes)
        head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), self.entries) + self.metadata + b"".join(infos)
        draft = out.with_name(f"{out.name}.draft")
        with draft.open("wb") as file:
            file.write(head.ljust(padded(len(head)), b"\0"))
            for values in weights:
                file.write(values.tobytes().ljust(padded(values.nbytes), b"\0"))
        os.replace(draft, out)
        return out


def info(name: str, shape: tuple[int, ...], offset: int) -> bytes:
    """Describes a tensor in float32; dimensions are told from the innermost."""
    text = name.encode()
    return (
        struct.pack("<Q", len(text))
        + text
        + struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        + struct.pack("<IQ", gguf.GGMLQuantizationType.F32, offset)
    )


def interleaved(weight: numpy.ndarray, heads: int) -> numpy.ndarray:
    """Rows of a head in the order in which llama.cpp rotates them: neighbours in pairs, where transformers pairs halves."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


if __name__ == "__main__":
    GgufFiles(Path(sys.argv[1])).of(Path(sys.argv[2]))
