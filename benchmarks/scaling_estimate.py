"""An estimate, not a measurement: updates of several GPUs and machines from the bytes that they exchange.

python benchmarks/scaling_estimate.py [--parameters 65e6] [--update-ms 30] [--backward 0.6]

Assumptions, printed with the table: each process computes as many tokens as the one that was measured (weak scaling); a ring
all-reduce of B bytes over n devices sends 2 (n - 1) / n B bytes per device; links reach 80 % of their nominal bandwidth; an
all-reduce has a latency of 20 us plus 2 us per device on NVLink, and 50 us plus 5 us per machine between machines; all buckets
but the last hide behind the backward pass; machines of 8 GPUs first reduce inside, then each GPU exchanges its eighth over the
network, 400 Gb/s per machine.
"""

import argparse

NVLINK, NETWORK, USED = 450e9, 400e9 / 8, 0.8  # bytes per second: per GPU in one direction, per machine; share that is reached
BUCKET_BYTES, GPUS = 25 << 20, 8  # bytes, GPUs of a machine


def exchange_seconds(size: float, gpus: int, machines: int) -> float:
    """Return the seconds of one all-reduce of so many bytes."""
    seconds = 0.0
    if gpus > 1:
        seconds += 2 * (gpus - 1) / gpus * size / (NVLINK * USED) + 20e-6 + 2e-6 * gpus
    if machines > 1:
        seconds += 2 * (machines - 1) / machines * size / (NETWORK * USED) + 50e-6 + 5e-6 * machines
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parameters", type=float, default=65e6, help="trained parameters, float32 gradients")
    parser.add_argument("--update-ms", type=float, default=30.0, help="measured time of an update on one GPU")
    parser.add_argument("--backward", type=float, default=0.6, help="share of the update that is its backward pass")
    options = parser.parse_args()
    size, update = 4 * options.parameters, options.update_ms / 1e3
    buckets = max(1, -(-int(size) // BUCKET_BYTES))
    size_line = f"{options.parameters / 1e6:.0f} million parameters, {size / 1e6:.0f} MB of gradients in {buckets} buckets"
    print(f"{size_line}, {options.update_ms:g} ms an update")
    print("| GPUs | machines | sent per GPU, MB | exchange, ms | not hidden, ms | efficiency without overlap | with overlap |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    for machines, gpus in ((1, 1), (1, 2), (1, 4), (1, 8), (2, 8), (4, 8)):
        total = sum(exchange_seconds(size / buckets, gpus, machines) for _ in range(buckets))
        last = exchange_seconds(size / buckets, gpus, machines)
        open_seconds = max(last, total - options.backward * update) if total else 0.0
        sent = 2 * (gpus - 1) / gpus * size + (2 * (machines - 1) / machines * size / GPUS if machines > 1 else 0)
        print(
            f"| {gpus * machines} | {machines} | {sent / 1e6:,.0f} | {1e3 * total:.2f} | {1e3 * open_seconds:.2f} | "
            f"{update / (update + total):.1%} | {update / (update + open_seconds):.1%} |"
        )


if __name__ == "__main__":
    main()
