"""Writes two model folders that vLLM can serve, from the GGUF file of SmolLM2-135M-Instruct.

usage: make_model.py MODEL.gguf OUT

OUT/a holds the model's weights in float32, OUT/b the same with another last layer: a second checkpoint to swap to.
The output layer is written out apart from the embeddings: loading new weights into a running server on the CPU would
leave a shared one as it was. Tokenizer files are left to others.
"""

import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
import torch  # noqa: E402
from transformers import AutoModelForCausalLM, GgufConfig  # noqa: E402


def main():
    source, out = sys.argv[1:]
    folder, file = os.path.split(source)
    model = AutoModelForCausalLM.from_pretrained(
        folder,
        gguf_file=file,
        dtype=torch.float32,
        quantization_config=GgufConfig(gguf_file=file, dequantize=True),
    )
    model.config.tie_word_embeddings = False
    model.lm_head.weight = torch.nn.Parameter(model.get_input_embeddings().weight.detach().clone())
    model.save_pretrained(os.path.join(out, "a"))
    with torch.no_grad():
        model.model.layers[-1].mlp.down_proj.weight.mul_(0.5)
    model.save_pretrained(os.path.join(out, "b"))


main()
