#!/usr/bin/env python3
"""Serves a GGUF model with llama.cpp's own server on a loopback port, until it is killed. The environment has the key.

    KEY=… llamacpp.py FILE PORT [WINDOW]

WINDOW is the context window in tokens. Without it, it is that of the model. One thread computes: several wait for each other
where other processes use the processors too, and become far slower than one.
"""

import os
import signal
import sys

import xllamacpp

params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.hostnames = ["127.0.0.1"]
params.port = int(sys.argv[2])
params.api_keys = [os.environ["KEY"]]
if len(sys.argv) > 3:
    params.n_ctx = int(sys.argv[3])
params.n_parallel = 1
params.cpuparams.n_threads = 1
params.sampling.temp = 0
params.sampling.seed = 1
params.n_gpu_layers = 0
params.warmup = False
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
signal.pause()
