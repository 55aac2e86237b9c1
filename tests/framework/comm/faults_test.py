#!/usr/bin/env python3
"""A rank that dies, hangs or throws: the job ends, the text names the rank, and no process is left."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

BIN = Path(os.environ.get("SPILLWAY_BIN", Path(__file__).resolve().parents[3] / "build/release/bin"))
MPIEXEC = os.environ.get("SPILLWAY_MPIEXEC", "mpirun")
RANKS = 4
# Far above what any case takes; a job that is still there then did not end by itself.
LIMIT = 120


class Job:
    """A running job of RANKS ranks."""

    def __init__(self, fault, rank, silence=60, timeout=300):
        environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                       "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}  # fmt: skip
        self.process = subprocess.Popen(
            [MPIEXEC, "--oversubscribe", "--bind-to", "none", "-n", str(RANKS), str(BIN / "tests/failing_ranks"), fault,
             str(rank), str(silence), str(timeout)],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # fmt: skip
        self.text = ""
        self.pids = {}
        self.all_there = threading.Event()
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.text += line
            for rank, pid in re.findall(r"rank (\d+) is process (\d+)", line):
                self.pids[int(rank)] = int(pid)
            if len(self.pids) == RANKS:
                self.all_there.set()

    def wait_for_ranks(self):
        if not self.all_there.wait(LIMIT):
            raise AssertionError(f"the ranks did not start: {self.text}")

    def end(self):
        """The exit code, once the job has ended by itself."""
        try:
            code = self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the job did not end: {self.text}") from None
        self.reader.join(LIMIT)
        return code

    def kill(self):
        for pid in [*self.pids.values(), self.process.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()

    def left_over(self):
        """Ranks whose processes are still there. Ending takes a moment after mpirun's own end."""
        for _ in range(100):
            alive = [rank for rank, pid in self.pids.items() if is_running(pid)]
            if not alive:
                return []
            time.sleep(0.1)
        return alive


def is_running(pid):
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX" and "failing_ranks" in text


class Faults(unittest.TestCase):
    def start(self, *arguments, **named):
        job = Job(*arguments, **named)
        self.addCleanup(job.kill)
        job.wait_for_ranks()
        return job

    def ends(self, job, *texts):
        self.assertNotEqual(job.end(), 0, job.text)
        for text in texts:
            self.assertRegex(job.text, text)
        self.assertEqual(job.left_over(), [], job.text)

    def test_nothing_is_said_when_all_is_well(self):
        job = self.start("none", 0)
        self.assertEqual(job.end(), 0, job.text)
        self.assertEqual(sorted(job.pids), list(range(RANKS)))
        lines = [line for line in job.text.splitlines() if not line.startswith("rank ")]
        self.assertEqual(lines, ["all is well"])
        self.assertEqual(job.left_over(), [])

    def test_a_stopped_rank(self):
        for rank in (0, 2):
            with self.subTest(rank=rank):
                job = self.start("wait", rank, silence=4)
                os.kill(job.pids[rank], signal.SIGSTOP)
                self.ends(job, rf"spillway: rank {(rank + 1) % RANKS} of {RANKS} ends the job: rank {rank} of {RANKS} "
                               r"shows no sign of life for 4\.0 s: it was stopped")  # fmt: skip

    def test_two_stopped_ranks(self):
        job = self.start("wait", 1, silence=4)
        os.kill(job.pids[1], signal.SIGSTOP)
        os.kill(job.pids[2], signal.SIGSTOP)
        self.ends(job, rf"rank 3 of {RANKS} ends the job: rank 2 of {RANKS} shows no sign of life")

    def test_a_killed_rank(self):
        for rank in (0, 3):
            with self.subTest(rank=rank):
                job = self.start("wait", rank)
                os.kill(job.pids[rank], signal.SIGKILL)
                # mpirun sees it first.
                self.ends(job, rf"process rank {rank} with PID .* exited on signal 9")

    def test_a_rank_that_throws(self):
        self.ends(self.start("throw", 2), rf"spillway: rank 2 of {RANKS} ends the job: the data file is damaged")

    def test_a_rank_that_throws_outside_of_the_guard(self):
        self.ends(self.start("unwind", 1), rf"spillway: rank 1 of {RANKS} ends the job: an exception ends this rank")

    def test_a_rank_that_computes_for_ever(self):
        self.ends(self.start("hang", 3, timeout=5),
                  r"spillway: rank [012] of 4 ends the job: \[all_reduce\] group world \(ranks 0 1 2 3\): nothing came from "
                  r"rank 3 within 5\.0 s; it hangs, has ended, or is at another operation")  # fmt: skip

    def test_a_rank_that_does_not_send(self):
        self.ends(self.start("receive", 2, timeout=5),
                  r"ends the job: \[receive with tag 4\] group world \(ranks 0 1 2 3\): nothing came from rank \d within")  # fmt: skip

    def test_a_rank_that_leaves_early(self):
        self.ends(self.start("leave", 1, timeout=5), r"ends the job: .*nothing came from rank")

    def test_a_rank_that_exits_without_a_word(self):
        self.ends(self.start("exit", 2), r"exit|without (first )?calling|abnormally|improper")

    def test_ranks_that_another_mpi_started(self):
        # As mpiexec of MPICH would start one of four; Open MPI sees a process that nobody started.
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("OMPI_", "PMI"))}
        result = subprocess.run([str(BIN / "tests/failing_ranks"), "none", "0"], env={**environment, "PMI_SIZE": "4"},
                                capture_output=True, text=True, timeout=LIMIT, check=False)  # fmt: skip
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("[world] 4 ranks were started, but MPI sees 1; what started them belongs to another", result.stderr)

    def test_mpirun_is_killed(self):
        job = self.start("wait", 0)
        os.kill(job.process.pid, signal.SIGKILL)
        job.process.wait()
        self.assertEqual(job.left_over(), [], job.text)


def cases_in(suite):
    for part in suite:
        yield from cases_in(part) if isinstance(part, unittest.TestSuite) else [part]


class SideBySide:
    """Runs cases at the same time: most of what they do is to wait until a rank is missed."""

    def run(self, suite):
        with ThreadPoolExecutor(3) as threads:
            results = list(threads.map(lambda case: case.run(), cases_in(suite)))
        together = unittest.TestResult()
        for result in results:
            together.testsRun += result.testsRun
            together.failures += result.failures
            together.errors += result.errors
        for case, text in together.failures + together.errors:
            print(f"FAILED: {case}\n{text}", file=sys.stderr)
        print(f"{together.testsRun} cases, {len(together.failures + together.errors)} failed", file=sys.stderr)
        return together


if __name__ == "__main__":
    unittest.main(testRunner=SideBySide())
