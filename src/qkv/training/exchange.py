"""The sum of all processes' gradients, in buckets that travel while the backward pass still computes the others.

On the CPU, gloo's threads exchange a bucket; on GPUs, NCCL does so on a stream of its own, and a CUDA graph that records an
update records the exchange too. All processes send the same buckets in the same order, whatever happens: one that has no rows
sends zeros, and one that ran out of memory sends what lies in its buffers; afterwards all agree whether the sum counts.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch.distributed as dist
from torch import Tensor

from qkv.training import distributed

BUCKET_BYTES = 25 << 20  # large enough for full bandwidth, small enough to overlap; torch's own choice for DDP


class Bucket:
    """Parameters whose gradients are views of one message."""

    def __init__(self, parameters: list[Tensor]):
        self.parameters = parameters
        self.flat = parameters[0].new_zeros(sum(p.numel() for p in parameters))
        pieces = self.flat.split([p.numel() for p in parameters])
        self.views = [piece.view_as(p) for piece, p in zip(pieces, parameters, strict=True)]

    def clear(self) -> None:
        """Make all gradients zero; backward passes add to them in place."""
        self.flat.zero_()
        for parameter, view in zip(self.parameters, self.views, strict=True):
            parameter.grad = view


class GradientExchange:
    """Sums the gradients of all processes.

    An update begins with `clear`. Before its last backward pass comes `start`, after it `finish`; a hook on each parameter sends
    a bucket as soon as its gradients are complete. Gradients lie in the buckets only, also between micro-batches.
    """

    def __init__(self, parameters: Sequence[Tensor]):
        self.parameters = list(parameters)
        self.index = {id(p): number for number, p in enumerate(self.parameters)}
        self.messages: list[Any] = []  # under way
        self.bytes = 0  # sent by this process so far, as counted by the sizes of messages
        self.arrived: list[int] = []  # numbers of the parameters whose gradients are complete, in order
        self.present: set[int] = set()  # ids of the parameters that have had a gradient since `clear`
        self.finished = [0] * len(self.parameters)  # which parameters had a gradient here in the exchange finished last
        self.started = self.ordered = False
        # The last layers' gradients come first; after the first update the order is known.
        self.make_buckets(reversed(range(len(self.parameters))))
        for parameter in self.parameters:
            parameter.register_post_accumulate_grad_hook(self.gradient_complete)
        self.clear()

    def make_buckets(self, order: Iterable[int]) -> None:
        """Deal the parameters into buckets of one dtype each, in this order."""
        dealt: list[list[Tensor]] = []
        size = 0
        for parameter in (self.parameters[number] for number in order):
            own = parameter.numel() * parameter.element_size()
            if not dealt or size + own > BUCKET_BYTES or dealt[-1][0].dtype != parameter.dtype:
                dealt.append([])
                size = 0
            dealt[-1].append(parameter)
            size += own
        self.buckets = [Bucket(parameters) for parameters in dealt]
        self.bucket_of = {id(p): number for number, bucket in enumerate(self.buckets) for p in bucket.parameters}

    def clear(self) -> None:
        """Make all gradients zero, and forget an exchange that was not finished."""
        for bucket in self.buckets:
            bucket.clear()
        self.present.clear()
        self.messages = []
        self.started = False

    def start(self, loss: Tensor) -> None:
        """Begin the exchange of an update: the next backward pass is its last one. The loss becomes the sum of all losses."""
        self.started = True
        self.arrived = []
        self.missing = [len(bucket.parameters) for bucket in self.buckets]
        self.sent = 0
        self.send(loss)

    def gradient_complete(self, parameter: Tensor) -> None:
        """Send the buckets that are complete with this gradient, in their order."""
        self.present.add(id(parameter))
        if not self.started:
            return
        self.arrived.append(self.index[id(parameter)])
        self.missing[self.bucket_of[id(parameter)]] -= 1
        while self.sent < len(self.buckets) and not self.missing[self.sent]:
            self.send_bucket()

    def send_bucket(self) -> None:
        """Send the next bucket."""
        self.send(self.buckets[self.sent].flat)
        self.sent += 1

    def send(self, message: Tensor) -> None:
        """Begin to sum a tensor over all processes, in place."""
        self.bytes += message.numel() * message.element_size()
        self.messages.append(dist.all_reduce(message, async_op=True))

    def finish(self) -> None:
        """Send the buckets that are left and wait for all; a parameter without a gradient here has None then.

        A process that failed before or in its last backward pass sends what is in the buckets.
        """
        if not self.started:
            self.start(self.buckets[0].flat.new_zeros(()))
        while self.sent < len(self.buckets):
            self.send_bucket()
        for message in self.messages:
            message.wait()
        self.messages = []
        self.started = False
        self.finished = [int(id(p) in self.present) for p in self.parameters]
        for parameter, present in zip(self.parameters, self.finished, strict=True):
            if not present:
                parameter.grad = None

    def any_recording_failed(self, failed: bool) -> bool:
        """Return whether a process failed to record an update, or gradients exist in some of them only.

        A recorded update cannot take over gradients as `agree` does: Adam would change weights in some processes only.
        """
        worst, *anywhere = distributed.all_reduce_max([int(failed), *self.finished, *(1 - present for present in self.finished)])
        return bool(worst) or any(map(int.__and__, anywhere, anywhere[len(self.finished) :]))

    def agree(self, trouble: int) -> int:
        """Return the worst trouble of any process. Without one, take over gradients that only other processes have."""
        worst, *anywhere = distributed.all_reduce_max([trouble, *self.finished])
        if not worst:
            for bucket in self.buckets:
                for parameter, view in zip(bucket.parameters, bucket.views, strict=True):
                    if anywhere[self.index[id(parameter)]]:
                        parameter.grad = view
            if not self.ordered:
                self.take_order()
        return worst

    def take_order(self) -> None:
        """Order the buckets as the first process's gradients arrived, the same in all; parameters without one come last."""
        numbers = range(len(self.parameters))
        arrived = [*self.arrived, *(number for number in reversed(numbers) if number not in set(self.arrived))]
        # Gradients are views of the old buckets until the update is made.
        self.make_buckets(int(number) for number in distributed.broadcast([float(number) for number in arrived]))
        self.ordered = True
