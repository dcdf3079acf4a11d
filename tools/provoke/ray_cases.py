"""Failures of Ray, on a small cluster of its own for each case."""

from __future__ import annotations

from tools.provoke.case import Case

_RAY = """
import os, signal, time, ray
ray.init(num_cpus=1, num_gpus=GPUS, include_dashboard=False, object_store_memory=80 << 20, _temp_dir=TEMP)
"""
_CLUSTER = """
import os, signal, time, ray
from ray.cluster_utils import Cluster
fast = {'health_check_initial_delay_ms': 500, 'health_check_period_ms': 500, 'health_check_timeout_ms': 500,
        'health_check_failure_threshold': 2}
cluster = Cluster(initialize_head=True, head_node_args={'num_cpus': 0, 'include_dashboard': False,
                  '_system_config': fast, 'object_store_memory': 80 << 20, 'temp_dir': TEMP})
node = cluster.add_node(num_cpus=1, num_gpus=1, object_store_memory=80 << 20)
ray.init(address=cluster.address)
"""
_ACTOR = """
@ray.remote(num_cpus=1)
class RayWorkerWrapper:
    def pid(self): return os.getpid()
    def execute_method(self, s):
        time.sleep(s)
    def die(self): os._exit(1)
    def fill(self):
        kept = []
        while True:
            kept.append(bytearray(os.urandom(1 << 20)) * 64)
            time.sleep(0.02)
"""


def _ray(name: str, label: str, script: str, *, gpus: int = 0, cluster: bool = False, **more: object) -> Case:
    start = _CLUSTER if cluster else _RAY.replace("GPUS", str(gpus))
    head = "TEMP = '/tmp/pr' + str(__import__('os').getpid())\n"
    return Case(name=name, label=label, script=head + start + _ACTOR + script, timeout_s=240.0, **more)  # type: ignore[arg-type]


CASES = (
    _ray(
        "actor-is-killed",
        "ray_actor_died",
        "a = RayWorkerWrapper.remote()\npid = ray.get(a.pid.remote())\nr = a.execute_method.remote(30)\ntime.sleep(1)\n"
        "os.kill(pid, signal.SIGKILL)\nray.get(r)",
        phase="serve",
    ),
    _ray(
        "actor-exits",
        "ray_actor_died",
        "a = RayWorkerWrapper.remote()\nray.get(a.die.remote())",
        phase="serve",
    ),
    _ray(
        "actor-segfaults",
        "worker_segfault",
        "a = RayWorkerWrapper.remote()\npid = ray.get(a.pid.remote())\nr = a.execute_method.remote(30)\ntime.sleep(1)\n"
        "os.kill(pid, signal.SIGSEGV)\nray.get(r)",
        phase="serve",
    ),
    _ray(
        "task-is-killed",
        "ray_actor_died",
        "@ray.remote(max_retries=0)\ndef task(): os.kill(os.getpid(), signal.SIGKILL)\nray.get(task.remote())",
        phase="serve",
    ),
    _ray(
        "runtime-env-fails",
        "ray_actor_died",
        "b = RayWorkerWrapper.options(runtime_env={'working_dir': 'file:///no/such/package.zip'}).remote()\n"
        "ray.get(b.pid.remote())",
        phase="start",
    ),
    _ray(
        "memory-monitor",
        "ray_host_oom",
        "a = RayWorkerWrapper.remote()\nray.get(a.fill.remote())",
        phase="serve",
        env={"RAY_memory_usage_threshold": "0.25", "RAY_memory_monitor_refresh_ms": "100"},
    ),
    _ray(
        "node-is-lost",
        "node_lost",
        "a = RayWorkerWrapper.options(num_gpus=1).remote()\nray.get(a.pid.remote())\nr = a.execute_method.remote(60)\n"
        "time.sleep(1)\ncluster.remove_node(node, allow_graceful=False)\nray.get(r, timeout=40)",
        cluster=True,
        phase="serve",
    ),
    _ray(
        "group-does-not-fit",
        "ray_placement_group_infeasible",
        "from vllm.v1.executor import ray_utils\nray_utils.PG_WAIT_TIMEOUT = 5\n"
        "g = ray.util.placement_group([{'GPU': 1.0}] * 16, strategy='PACK')\n"
        "ray_utils._wait_until_pg_ready(g)",
        gpus=8,
        phase="start",
    ),
    _ray(
        "actor-does-not-fit",
        "ray_placement_group_infeasible",
        "a = RayWorkerWrapper.options(num_gpus=16).remote()\ntime.sleep(20)\nray.get(a.pid.remote(), timeout=10)",
        gpus=8,
        phase="start",
    ),
    _ray("healthy-ray", "none", "a = RayWorkerWrapper.remote()\nray.get(a.pid.remote())\nray.shutdown()", phase="stop"),
    Case(
        name="no-cluster",
        label="distributed_init_timeout",
        phase="start",
        env={"RAY_gcs_rpc_server_reconnect_timeout_s": "3"},
        script="import ray\nray.init(address='127.0.0.1:9', _node_ip_address='127.0.0.1')",
    ),
    Case(
        name="no-running-instance",
        label="distributed_init_timeout",
        phase="start",
        script="import ray\nray.init(address='auto', _temp_dir='/tmp/none')",
    ),
    _ray(
        "wrong-token",
        "permission_or_hf_gated",
        "import subprocess, sys\naddress = ray.get_runtime_context().gcs_address\n"
        "env = {**os.environ, 'RAY_AUTH_TOKEN': 'ff' * 32}\n"
        "sys.exit(subprocess.run([sys.executable, '-c', f'import ray; ray.init({address!r})'], env=env).returncode)",
        phase="start",
        env={"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "aa" * 32},
    ),
)
