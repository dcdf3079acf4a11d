"""Failures of the operating system, Python and torch."""

from __future__ import annotations

from tools.provoke.case import Case

_LIMITED = "import resource; resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))\n"
_GLOO = """
import sys, torch, torch.distributed as dist, torch.multiprocessing as mp
from datetime import timedelta
"""

CASES = (
    Case(
        name="torch-cpu-allocator",
        label="host_oom",
        script=_LIMITED + "import torch\ntorch.empty(1 << 40, dtype=torch.uint8)",
    ),
    Case(name="numpy-allocation", label="host_oom", script=_LIMITED + "import numpy\nnumpy.ones((1 << 20, 1 << 18))"),
    Case(name="python-memory-error", label="host_oom", script=_LIMITED + "x = bytearray(1 << 40)"),
    Case(
        name="fork-without-memory",
        label="host_oom",
        script=_LIMITED + "import mmap\nmmap.mmap(-1, 1 << 40)",
    ),
    Case(
        name="weights-without-memory",
        label="host_oom",
        phase="start",
        script="import resource, torch\nfrom safetensors.torch import load_file\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 20, 1 << 20))\nload_file(MODEL + '/model.safetensors')",
    ),
    Case(
        name="shell-reports-kill",
        label="host_oom",
        command='bash -c \'echo "Loading checkpoint shards:  75% 3/4 [00:08<00:02,  2.83s/it]"; '
        '{python} -c "import os; os.kill(os.getpid(), 9)" & wait $!; echo Killed\'',
    ),
    Case(
        name="bad-alloc",
        label="host_oom",
        command="bash -c 'cd {work} && echo \"#include <vector>\nint main() {{ std::vector<char> v(1ull << 50); "
        "return v[3]; }}\" > a.cc && g++ a.cc -o a && ulimit -v 4000000 && ./a'",
    ),
    Case(
        name="dev-full",
        label="disk_full",
        script="with open('/dev/full', 'w') as f:\n    f.write('x' * 100000)",
    ),
    Case(
        name="safetensors-on-full-disk",
        label="disk_full",
        full_disk_mb=1,
        script="import torch\nfrom safetensors.torch import save_file\n"
        "save_file({'w': torch.zeros(4 << 20)}, FULL + '/model.safetensors')",
    ),
    Case(
        name="torch-save-on-full-disk",
        label="disk_full",
        full_disk_mb=1,
        script="import torch\ntorch.save({'w': torch.zeros(4 << 20)}, FULL + '/model.pt')",
    ),
    Case(
        name="parquet-on-full-disk",
        label="disk_full",
        full_disk_mb=1,
        script="import numpy, pyarrow, pyarrow.parquet as pq\n"
        "t = pyarrow.table({'x': numpy.random.default_rng(0).random(1 << 20)})\npq.write_table(t, FULL + '/t.parquet')",
    ),
    Case(
        name="journal-on-full-disk",
        label="disk_full",
        full_disk_mb=1,
        script="import os, shutil\nfd = os.open(FULL + '/study.journal', os.O_CREAT | os.O_WRONLY)\n"
        "while True:\n    os.write(fd, b'x' * 65536)",
    ),
    Case(
        name="file-size-limit",
        label="disk_full",
        script="import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "with open('big.bin', 'wb', buffering=0) as f:\n    [f.write(bytes(4096)) for _ in range(9)]",
    ),
    Case(
        name="shared-memory-too-small",
        label="shm_too_small",
        shared_mb=1,
        script="import shutil\nopen('w.bin', 'wb').write(bytes(8 << 20))\nshutil.copyfile('w.bin', '/dev/shm/w.bin')",
    ),
    Case(
        name="bus-error",
        label="shm_too_small",
        shared_mb=1,
        command="bash -c '{python} -X faulthandler -c \"from multiprocessing import shared_memory as m; "
        "s = m.SharedMemory(create=True, size=8 << 20); s.buf[:] = bytes(8 << 20)\"; exit $?'",
    ),
    Case(
        name="torch-shared-tensor",
        label="shm_too_small",
        shared_mb=1,
        script="import torch\ntorch.multiprocessing.set_sharing_strategy('file_system')\n"
        "torch.zeros(8 << 20).share_memory_()",
    ),
    Case(
        name="loader-worker-bus-error",
        label="shm_too_small",
        shared_mb=2,
        script="import torch\nfrom torch.utils.data import DataLoader, Dataset\n"
        "class Big(Dataset):\n    def __len__(self): return 8\n"
        "    def __getitem__(self, i): return torch.ones(4 << 20)\n"
        "for batch in DataLoader(Big(), batch_size=2, num_workers=1): pass",
    ),
    Case(
        name="socket-port",
        label="port_in_use",
        phase="start",
        script="import socket\na = socket.socket(); a.bind(('127.0.0.1', 0)); a.listen()\n"
        "socket.socket().bind(a.getsockname())",
    ),
    Case(
        name="uvicorn-port",
        label="port_in_use",
        phase="start",
        script="import socket, uvicorn\na = socket.socket(); a.bind(('127.0.0.1', 0)); a.listen()\n"
        "async def app(scope, receive, send): pass\nuvicorn.run(app, host='127.0.0.1', port=a.getsockname()[1])",
    ),
    Case(
        name="zmq-port",
        label="port_in_use",
        phase="start",
        script="import zmq\nc = zmq.Context()\na, b = c.socket(zmq.ROUTER), c.socket(zmq.ROUTER)\n"
        "b.bind(f\"tcp://127.0.0.1:{a.bind_to_random_port('tcp://127.0.0.1')}\")",
    ),
    Case(
        name="store-port",
        label="port_in_use",
        phase="start",
        script="import socket, torch.distributed as dist\na = socket.socket(); a.bind(('127.0.0.1', 0)); a.listen()\n"
        "dist.TCPStore('127.0.0.1', a.getsockname()[1], 1, True, wait_for_workers=False)",
    ),
    Case(
        name="store-without-server",
        label="distributed_init_timeout",
        phase="start",
        script="import torch.distributed as dist\nfrom datetime import timedelta\n"
        "dist.TCPStore('127.0.0.1', 9, 2, False, timeout=timedelta(seconds=3))",
    ),
    Case(
        name="store-without-peer",
        label="distributed_init_timeout",
        phase="start",
        script="import torch.distributed as dist\nfrom datetime import timedelta\n"
        "dist.TCPStore('127.0.0.1', 0, 2, True, timeout=timedelta(seconds=3))",
    ),
    Case(
        name="group-without-peer",
        label="distributed_init_timeout",
        phase="start",
        script=_GLOO + "s = dist.TCPStore('127.0.0.1', 0, 1, True)\n"
        "dist.init_process_group('gloo', store=s, rank=0, world_size=2, timeout=timedelta(seconds=3))",
    ),
    Case(
        name="unknown-host",
        label="distributed_init_timeout",
        phase="start",
        script="import torch.distributed as dist\nfrom datetime import timedelta\n"
        "dist.TCPStore('no-such-host.invalid', 29500, 2, False, timeout=timedelta(seconds=5))",
    ),
    Case(
        name="gloo-interface",
        label="distributed_init_timeout",
        phase="start",
        env={"GLOO_SOCKET_IFNAME": "ib99"},
        script=_GLOO + "s = dist.TCPStore('127.0.0.1', 0, 1, True)\n"
        "dist.init_process_group('gloo', store=s, rank=0, world_size=1)",
    ),
    Case(
        name="gloo-peer-dies",
        label="nccl_timeout_or_error",
        phase="serve",
        script=_GLOO
        + """
import os, signal
def run(rank, port):
    s = dist.TCPStore('127.0.0.1', port, 2, rank == 0)
    dist.init_process_group('gloo', store=s, rank=rank, world_size=2)
    dist.all_reduce(torch.ones(1))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(1))
if os.fork() == 0:
    run(1, 29711)
run(0, 29711)
""",
    ),
    Case(
        name="gloo-peer-is-late",
        label="nccl_timeout_or_error",
        phase="serve",
        script=_GLOO
        + """
import os, time
def run(rank, port):
    s = dist.TCPStore('127.0.0.1', port, 2, rank == 0)
    dist.init_process_group('gloo', store=s, rank=rank, world_size=2, timeout=timedelta(seconds=4))
    dist.all_reduce(torch.ones(1))
    if rank == 1:
        time.sleep(9)
        os._exit(0)
    dist.all_reduce(torch.ones(1))
if os.fork() == 0:
    run(1, 29712)
run(0, 29712)
""",
    ),
    Case(
        name="segfault",
        label="worker_segfault",
        command="{python} -X faulthandler -c 'import ctypes; ctypes.string_at(0)'",
    ),
    Case(
        name="segfault-in-shell",
        label="worker_segfault",
        command="bash -c '{python} -c \"import ctypes; ctypes.string_at(0)\"; exit $?'",
    ),
    Case(
        name="double-free",
        label="worker_segfault",
        script="import ctypes\nc = ctypes.CDLL(None)\nc.malloc.restype = ctypes.c_void_p\n"
        "c.free.argtypes = [ctypes.c_void_p]\np = c.malloc(4096)\nc.free(p)\nc.free(p)",
    ),
    Case(
        name="undefined-symbol",
        label="version_mismatch",
        phase="start",
        script="import ctypes, subprocess\n"
        "open('k.c', 'w').write('extern int _ZN2at4gone(); int f() { return _ZN2at4gone(); }')\n"
        "subprocess.check_call(['gcc', '-shared', '-fPIC', 'k.c', '-o', 'libk.so'])\n"
        "import os\nctypes.CDLL(os.path.abspath('libk.so'), os.RTLD_NOW)",
    ),
    Case(
        name="missing-library",
        label="version_mismatch",
        phase="start",
        script="import ctypes\nctypes.CDLL('libcudart.so.99')",
    ),
    Case(name="missing-module", label="version_mismatch", phase="start", script="import flash_attn_4_cute"),
    Case(name="gone-name", label="version_mismatch", phase="start", script="from transformers import GoneForCausalLM"),
    Case(
        name="torch-without-cuda",
        label="version_mismatch",
        phase="start",
        script="import torch\ntorch.zeros(1, device='cuda')",
    ),
    Case(
        name="extension-does-not-build",
        label="build_error",
        command='bash -c \'mkdir -p {work}/ext && cd {work}/ext && echo "int main( {{" > k.c && '
        'echo "from setuptools import Extension, setup; setup(name=\\"kern\\", ext_modules=[Extension(\\"kern\\", '
        '[\\"k.c\\"])])" > setup.py && {python} -m pip install --no-index --no-deps --no-build-isolation .\'',
    ),
    Case(
        name="compiler-is-gone",
        label="triton_or_compile_failure",
        phase="profile",
        env={"CXX": "/nonexistent/c++", "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"},
        script="import torch\ntorch.compile(lambda x: (x * 2 + 1).relu().sum())(torch.ones(64, 64))",
    ),
    Case(
        name="compiler-rejects-flags",
        label="triton_or_compile_failure",
        phase="profile",
        env={"CXX": "{work}/cxx", "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"},
        script="import os, torch\nopen(os.environ['CXX'], 'w').write('#!/bin/sh\\nexec g++ -mnone \"$@\"\\n')\n"
        "os.chmod(os.environ['CXX'], 0o755)\ntorch.compile(lambda x: (x * 2 + 1).relu().sum())(torch.ones(64, 64))",
    ),
    Case(
        name="dynamo-cannot-trace",
        label="triton_or_compile_failure",
        phase="profile",
        script="import torch\n@torch.compile(fullgraph=True)\ndef f(x):\n    print('x', x.sum().item())\n"
        "    import pdb; pdb.set_trace()\n    return x\nf(torch.ones(4))",
    ),
    Case(
        name="workspace-locked",
        label="workspace_locked",
        phase="serve",
        # There is no accelerator whose cache could be emptied on the way.
        script="import torch\nfrom vllm.v1.worker import workspace as w\ntorch.accelerator.empty_cache = lambda: None\n"
        "w.init_workspace_manager(torch.device('cpu'))\n"
        "m = w.current_workspace_manager()\nm.get_simultaneous(((16, 576), torch.bfloat16))\nw.lock_workspace()\n"
        "m.get_simultaneous(((4096, 576), torch.bfloat16))",
    ),
)
