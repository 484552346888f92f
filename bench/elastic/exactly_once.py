"""C7: kill workers, the coordinator, and both at random, hundreds of times; count every record in the lineage."""

from __future__ import annotations

import time

from bench.elastic import common
from torchyard.elastic.chaos import ChaosJob, count_applied_records, kill_randomly


def c7(kills: int = 200, records: int = 100_000, epochs: int = 3, seed: int = 1) -> bool:
    sizes = ["--records", str(records), "--epochs", str(epochs), "--batch", "256", "--hidden", "64", "--features", "32"]
    alone = common.digest_alone(*sizes)
    with common.workspace() as folder:
        go = folder / "go"
        held = ["--hold", str(go), "--hold-pause", "2.0", "--snapshot-every", "10"]
        settings = common.options(folder, *sizes, *held, workers=3, lease=5.0)
        begun = time.time()
        with ChaosJob(settings) as chaos:
            chaos.wait_step(2, seconds=300)
            done = kill_randomly(chaos, seed=seed, kills=kills, pause=(0.05, 0.6))
            go.touch()
            stop = chaos.wait(1200)
        counts = count_applied_records(folder / "job")
    lost = records * epochs - len(counts)
    double = sum(1 for count in counts.values() if count > 1)
    digest = stop.message.split()[-1] if stop.cause == "finished" else stop.message
    figures = (
        f"{done['worker']} worker and {done['coordinator']} coordinator kills in {time.time() - begun:.0f} s, "
        f"{lost} records lost, {double} doubled, sha256 {'equal' if digest == alone else f'{digest} != {alone}'}"
    )
    met = lost == double == 0 and digest == alone and sum(done.values()) >= kills
    return common.show("C7", f"{records} records x {epochs} epochs", figures, "0 lost, 0 doubled, equal", met=met)
