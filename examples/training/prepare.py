"""Writes the folder that training begins with: weights of a checkpoint and the tokenizer of its GGUF file.

usage: prepare.py MODEL.gguf CHECKPOINT OUT
"""

import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
from transformers import AutoTokenizer  # noqa: E402


def main():
    source, checkpoint, out = sys.argv[1:]
    folder, file = os.path.split(source)
    os.makedirs(out, exist_ok=True)
    AutoTokenizer.from_pretrained(folder, gguf_file=file).save_pretrained(out)
    for name in os.listdir(checkpoint):
        place = os.path.join(out, name)
        if not os.path.lexists(place):
            os.symlink(os.path.join(checkpoint, name), place)


main()
