"""Serves one GGUF model with llama.cpp's own HTTP server on the loopback interface.

Prints one JSON line when it is ready ({"event": "ready", "url": ..., "pid": ...}) or when it cannot start
({"event": "failed", "reason": ..., "message": ...}, exit code 1). Ends on SIGTERM, and when its standard
input reaches its end, which is how it notices that the process that started it is gone.
"""

import argparse
import json
import os
import signal
import socket
import sys
import threading


def tell(event, **fields):
    print(json.dumps({"event": event, **fields}), flush=True)


def fail(reason, message):
    tell("failed", reason=reason, message=message)
    os._exit(1)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="GGUF file")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--ctx", type=int, default=4096, help="tokens of context of each slot")
    parser.add_argument("--parallel", type=int, default=4, help="slots: requests served at once")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--exact", action="store_true", help="keep keys and values in float32, as training does")
    return parser.parse_args()


def free_port(host, port):
    """The port itself if it can be bound, or a free one for 0."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            fail("port", f"cannot listen on {host}:{port}: {error.strerror}")
        return probe.getsockname()[1]


def main():
    args = arguments()
    # llama.cpp may write to standard output; only our JSON lines belong there.
    out = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = os.fdopen(out, "w")
    if not os.path.isfile(args.model):
        fail("model", f"model file {args.model} does not exist")
    port = free_port(args.host, args.port)
    # OpenMP's threads spin while they wait for each other. With other work on the same processors (workers,
    # sandboxes) the spinning takes what the slower thread needs: 64 tokens on each of 4 slots took 109 s on
    # two busy cores, and 15 s with this.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        import xllamacpp
    except ImportError as error:
        fail("package", f"the Python package xllamacpp cannot be imported: {error}")

    params = xllamacpp.CommonParams()
    params.model.path = args.model
    params.hostnames = [args.host]
    params.port = port
    params.model_alias = {os.path.splitext(os.path.basename(args.model))[0]}
    params.reuse_port = False
    params.n_ctx = args.ctx * args.parallel
    params.n_parallel = args.parallel
    # Each slot has a context of its own, so one long request cannot starve the others.
    params.kv_unified = False
    params.cpuparams.n_threads = args.threads
    params.cpuparams_batch.n_threads = args.threads
    params.endpoint_slots = True
    params.endpoint_metrics = True
    # A request that is given up while its prompt is read frees its slot within two batches.
    params.n_batch = 128
    # States of prompts that lost their slot are kept in memory, by default up to 8 GiB of it.
    params.cache_ram_mib = 1024
    # Never drop the beginning of a context silently: the trained tokens must be the ones conditioned on.
    params.ctx_shift = False

    if args.exact:
        # Keys and values in float16, and flash attention, change log-probabilities in the fourth digit.
        params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED

    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    signal.signal(signal.SIGINT, lambda *_: stopped.set())

    def watch_parent():
        while sys.stdin.buffer.read(4096):
            pass
        stopped.set()
        # While the model is still loading nobody waits for the event.
        threading.Timer(5, os._exit, [0]).start()

    threading.Thread(target=watch_parent, daemon=True).start()
    try:
        server = xllamacpp.Server(params)
    except Exception as error:  # the binding raises RuntimeError and others for anything llama.cpp refuses
        fail("server", f"llama.cpp did not start: {error}")
    tell("ready", url=server.listening_address, pid=os.getpid())
    stopped.wait()
    # The server's own destructor waits for open streams; nothing of it is worth waiting for.
    os._exit(0)


if __name__ == "__main__":
    main()
