"""bench/verdicts_ncu.py: what it reads of ncu, how it judges, and a whole run with stand-ins for brrr and ncu."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import verdicts_ncu  # noqa: E402
from verdicts_ncu import Failed, Kernel, judge, judgement_of, kernels_of, part_of  # noqa: E402

RAW = (pathlib.Path(__file__).parent / "ncu.csv").read_text()
# The same format without --page raw: a metric a row.
LONG = '''"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device",\
"CC","Section Name","Metric Name","Metric Unit","Metric Value"
"0","1","brrr","host","f(int)","1","7","(128, 1, 1)","(8, 1, 1)","0","9.0","Command line profiler metrics",\
"gpu__time_duration.sum","us","2.50"
"0","1","brrr","host","f(int)","1","7","(128, 1, 1)","(8, 1, 1)","0","9.0","Command line profiler metrics",\
"dram__throughput.avg.pct_of_peak_sustained_elapsed","%","70.00"
'''
BRRR = '''#!/usr/bin/env python3
import json, sys
row = {"step_us": 100.0, "device_us": 99.0, "kernels_per_step": 5, "problems": []}
shares = {"overhead": 0.9, "bandwidth": 0.1, "compute": 0.0}
rows = [row | {"mode": mode, "regime": "overhead", "shares": shares} for mode in ("eager", "graph", "fused")]
print(json.dumps({"rows": rows}))
'''
NCU = '''#!/usr/bin/env python3
import os, pathlib, sys
given = sys.argv[1:]
if given == ["--query-metrics"]:
    print("dram__throughput   Throughput  %  of DRAM\\nlts__t_sectors  Counter\\nsm__pipe_tensor_cycles_active  Counter")
    sys.exit()
assert os.environ["BRRR_NVTX"] == "1" and given[given.index("--nvtx-include") + 1] == "step 5/"
log = pathlib.Path(given[given.index("--log-file") + 1])
if "bf16" in given and "sm__throughput" in str(given):
    log.write_text(pathlib.Path(CSV).read_text())
    sys.exit()
if "bf16" in given:
    log.write_text("==ERROR== no such metric\\n")
    sys.exit(1)
if "transformer" in given and "256" not in given:
    log.write_text("==ERROR== ERR_NVGPUCTRPERM - no permission\\n")
    sys.exit(1)
log.write_text(pathlib.Path(CSV).read_text())
'''


def kernel(ns, memory, arithmetic, waves):
    return Kernel("f", ns, memory, arithmetic, waves)


class Reading(unittest.TestCase):
    def test_raw_page(self):
        kernels = kernels_of(RAW)
        self.assertEqual([k.ns for k in kernels], [40000, 30000, 6000, 4000, 1536])
        self.assertEqual([k.memory for k in kernels], [38.1, 91.2, 51.0, 1.2, None])
        self.assertEqual([k.arithmetic for k in kernels], [82.3, 11.0, 14.0, 0.4, 0.01])
        self.assertEqual(kernels[0].waves, 3.88)
        self.assertIn("nvjet", kernels[0].name)

    def test_a_metric_a_row(self):
        self.assertEqual(kernels_of(LONG), [Kernel("f(int)", 2500, 70.0, None, None)])

    def test_no_kernels(self):
        self.assertEqual(kernels_of("==WARNING== No kernels were profiled.\n"), [])
        self.assertEqual(verdicts_ncu.problems_in(" x\n==ERROR== a\n==PROF== b"), ["==ERROR== a"])

    def test_an_unknown_unit_fails(self):
        with self.assertRaisesRegex(Failed, "fortnight"):
            kernels_of(LONG.replace('"us"', '"fortnight"'))


class Judging(unittest.TestCase):
    def test_parts(self):
        parts = [part_of(k, 60) for k in kernels_of(RAW)]
        # The third is below 60 % of all, but its grid fills the GPU.
        self.assertEqual(parts, ["compute", "bandwidth", "bandwidth", "latency", "unknown"])
        self.assertEqual(part_of(kernel(1, 61, 20, 0.5), 60), "bandwidth")
        self.assertEqual(part_of(kernel(1, 61, 20, 0.5), 70), "latency")
        self.assertEqual(part_of(kernel(1, 10, 20, None), 60), "unknown")

    def test_kernels_that_leave_the_step_uncovered(self):
        judged = judge(kernels_of(RAW), 400)
        self.assertEqual(judged["regime"], "overhead")
        self.assertAlmostEqual(judged["shares"]["idle"], 1 - 81.536 / 400)
        self.assertAlmostEqual(sum(judged["shares"].values()), 1)

    def test_kernels_side_by_side_cover_the_step(self):
        judged = judge([kernel(90e3, 20, 85, 4), kernel(30e3, 90, 5, 4)], 100)
        self.assertEqual(judged["regime"], "compute")
        self.assertAlmostEqual(judged["shares"]["compute"], 0.75)
        self.assertEqual(judged["shares"]["idle"], 0)

    def test_doubts(self):
        self.assertIsNone(judge([kernel(50e3, 20, 85, 4), kernel(49e3, 90, 5, 4)], 100)["regime"])
        near = judge([kernel(100e3, 65, 10, 0.4)], 100)  # latency by a limit of 70 %
        self.assertIsNone(near["regime"])
        self.assertEqual(near["doubts"], ["a limit of 70 % gives overhead"])
        self.assertIsNone(judge([kernel(100e3, None, 10, 4)], 100)["regime"])
        # Fills of workspaces are launches that ncu does not measure: their time is idle here.
        self.assertEqual(judge([kernel(30e3, 20, 85, 4)] * 3, 100, expected=4)["regime"], "compute")
        self.assertIsNone(judge([kernel(15e3, 20, 85, 4)] * 3, 100, expected=4)["regime"])
        self.assertIsNone(judge([kernel(100e3, 20, 85, 4)], 100, expected=9)["regime"])
        with self.assertRaises(Failed):
            judge([], 100)

    def test_judgements(self):
        row = {"regime": "compute", "shares": {"overhead": 0.15, "bandwidth": 0.4, "compute": 0.45}}
        for regime, expected in (("compute", "agrees"), ("bandwidth", "undecided"), ("overhead", "disagrees"),
                                 (None, "undecided")):
            self.assertEqual(judgement_of(row, {"regime": regime}), expected)
        self.assertEqual(judgement_of({"regime": None}, {"regime": "compute"}), "no verdict")

    def test_a_summary_has_the_longest_first(self):
        rows = verdicts_ncu.summary_of(kernels_of(RAW), 2)
        self.assertEqual([(row["ns"], row["count"]) for row in rows], [(40000, 1), (36000, 2)])

    def test_there_are_15_cases(self):
        self.assertEqual(len(set(verdicts_ncu.CASES)), 15)


class Running(unittest.TestCase):
    def test_a_run(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("brrr", BRRR), ("ncu", NCU.replace("CSV", repr(str(ROOT / "tests/bench/ncu.csv"))))):
                path = pathlib.Path(folder, name)
                path.write_text(text)
                path.chmod(0o755)
            out = pathlib.Path(folder, "out.json")
            done = subprocess.run([sys.executable, ROOT / "bench/verdicts_ncu.py", f"{folder}/brrr", "--ncu",
                                   f"{folder}/ncu", "--out", out, "--only", "graph"], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            found = json.loads(out.read_text())
            self.assertEqual(found["counts"], {"undecided": 4, "failed": 1})
            self.assertIn("ERR_NVGPUCTRPERM - no permission", done.stdout)
            self.assertIn("==ERROR== no such metric", done.stdout)
            self.assertIn("sm__pipe_tensor_cycles_active", " ".join(found["metrics"]))
            self.assertEqual(found["cases"][0]["brrr"]["regime"], "overhead")
            self.assertNotIn("sm__inst_executed_pipe_xu", " ".join(found["metrics"]))


if __name__ == "__main__":
    os.environ.pop("BRRR_NVTX", None)
    unittest.main()
