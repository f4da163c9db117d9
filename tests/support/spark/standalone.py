"""A standalone Spark cluster on loopback: a master and two workers, whose Python has the standard library alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyspark

from tests.support.peers.ports import free_port
from tests.support.peers.process import PATIENCE, Daemon
from tests.support.spark.classes import spark_class_options

#: Quick to start rather than quick to run.
_QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_HOME = Path(pyspark.__file__).parent


class Standalone:
    """Two workers of one core each.

    :param folder: for everything: ``python`` is the machines' Python, ``jobs`` is where jobs are submitted from.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.jobs = folder / "jobs"
        self.events = folder / "events"
        for path in (self.jobs, self.events):
            path.mkdir()
        quick = " ".join([*_QUICK, *spark_class_options()])
        python = folder / "python"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", python], check=True, timeout=PATIENCE)
        # No task before both workers are there: each is to have its share.
        settings = {
            "executor.memory": "500m", "executor.extraJavaOptions": quick,
            "scheduler.minRegisteredResourcesRatio": "1.0", "sql.shuffle.partitions": "2", "ui.enabled": "false",
            "driver.host": "127.0.0.1", "driver.bindAddress": "127.0.0.1", "eventLog.enabled": "true",
            "eventLog.dir": self.events.as_uri(), "eventLog.rolling.enabled": "false", "eventLog.compress": "false",
        }  # fmt: skip
        foreign = ("PYTHON", "PYSPARK", "SPARK", "VIRTUAL_ENV")
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith(foreign)},
            "PATH": os.pathsep.join([str(python / "bin"), str(_HOME / "bin"), os.environ["PATH"]]),
            "SPARK_HOME": str(_HOME),
            # Not in a file of settings: its folder would be in the class path, and that no more the one of the archive.
            "SPARK_SUBMIT_OPTS": " ".join([quick, *(f'-Dspark.{name}="{value}"' for name, value in settings.items())]),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": quick,
        }
        port = free_port()
        self.url = f"spark://127.0.0.1:{port}"
        place = ["--host", "127.0.0.1", "--webui-port", "0"]
        self._master = self._daemon("master.Master", [*place, "--port", str(port)], "I have been elected leader")
        self._workers = []
        for number in (1, 2):
            (folder / f"worker-{number}").mkdir()
            options = [self.url, *place, "--cores", "1", "--memory", "600m"]
            options += ["--work-dir", str(folder / f"worker-{number}")]
            ready = "Successfully registered with master"
            self._workers.append(self._daemon("worker.Worker", options, ready, f"worker-{number}"))

    def _daemon(self, main: str, options: Sequence[str], ready: str, name: str = "master") -> Daemon:
        command = [str(_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{main}", *options]
        return Daemon(name, command, self.folder, ready=ready, env=self.env)

    def start(self) -> None:
        self._master.start()
        with ThreadPoolExecutor() as pool:
            list(pool.map(Daemon.start, self._workers))

    def stop(self) -> None:
        for daemon in (*self._workers, self._master):
            daemon.kill()

    def shell(self, script: str) -> str:
        """Run a script in the jobs' folder as a user of the cluster would; what it printed."""
        ran = subprocess.run(
            ["sh", "-ec", script], cwd=self.jobs, env=self.env, capture_output=True, text=True, timeout=300, check=False
        )
        log = "\n".join(
            line for line in ran.stderr.splitlines() if " INFO " not in line and not line.startswith("\tat")
        )
        assert ran.returncode == 0, log[-6000:]
        return ran.stdout

    def missing(self, *modules: str) -> list[str]:
        """Those that the Python of the machines cannot find."""
        program = (
            "import sys\nfrom importlib.util import find_spec\nprint(*[m for m in sys.argv[1:] if not find_spec(m)])"
        )
        return self.shell(f"python3 -c '{program}' {' '.join(modules)}").split()

    def records_read(self) -> dict[str, int]:
        """Records that tasks of the last job took from sources, by the worker (its folder's name) that ran them."""
        last = max(self.events.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        found: dict[str, int] = {}
        for line in last.read_text().splitlines():
            event = json.loads(line)
            if event["Event"] == "SparkListenerTaskEnd":
                executor = event["Task Info"]["Executor ID"]
                (ran,) = self.folder.glob(f"worker-*/{last.name}/{executor}")
                count = event["Task Metrics"]["Input Metrics"]["Records Read"]
                found[ran.parts[-3]] = found.get(ran.parts[-3], 0) + count
        return found
