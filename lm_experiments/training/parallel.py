"""How several devices train one model: replicas, or shards; gradients are sums, not means.

Each process takes the loss of its part of the batch over the token count of the whole batch, so
that the sum of all gradients is that of the batch, however unevenly its tokens are spread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from lightning.fabric.plugins.environments.cluster_environment import ClusterEnvironment
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import keystr, tree_map_with_path

from lm_experiments.model import Transformer
from lm_experiments.training.checkpoints import open_checkpoint, write_shard
from lm_experiments.training.shards import REST, ROWS, SUFFIX, Rows


class OneDevice:
    """The loss of a model, and its gradients as they come."""

    def __init__(self, model: Transformer) -> None:
        self.model = model

    def loss(self, inputs: Tensor, targets: Tensor, z_loss: float) -> Tensor:
        """Return the summed training loss of this process's micro-batch."""
        return self.model.loss(inputs, targets, z_loss)

    def part(self, last: bool) -> AbstractContextManager[Any]:
        """Wrap forward and backward of a micro-batch; gradients are reduced after the last one."""
        return nullcontext()


class Replicas(OneDevice):
    """A replica of the model on each device (Li et al. 2020); reduction overlaps with backward."""

    def __init__(self, model: Transformer, device: torch.device) -> None:
        super().__init__(model)
        ids = None if device.type == "cpu" else [device]
        self.replica = DistributedDataParallel(
            _Loss(model), device_ids=ids, gradient_as_bucket_view=True
        )
        # DistributedDataParallel averages unless told otherwise.
        self.replica.register_comm_hook(None, lambda state, bucket: _sum(bucket))

    def loss(self, inputs: Tensor, targets: Tensor, z_loss: float) -> Tensor:
        """Return the summed training loss of this process's micro-batch."""
        loss: Tensor = self.replica(inputs, targets, z_loss)
        return loss

    def part(self, last: bool) -> AbstractContextManager[Any]:
        """Wrap forward and backward of a micro-batch; gradients are reduced after the last one."""
        return nullcontext() if last else self.replica.no_sync()


class Shards(OneDevice):
    """Parameters, gradients and optimizer state cut over the devices (Zhao et al. 2023).

    Each block is gathered when it is needed. Between micro-batches gradients stay unsharded.
    """

    def __init__(self, model: Transformer, device: torch.device) -> None:
        super().__init__(model)
        mesh = init_device_mesh(device.type, (dist.get_world_size(),))
        units: list[nn.Module] = [*model.blocks, model]
        for unit in units:
            fully_shard(unit, mesh=mesh)
            assert isinstance(unit, FSDPModule)
            unit.set_gradient_divide_factor(1.0)
            unit.set_force_sum_reduction_for_comms(True)
        # These multiply by the head, so they need the gathered parameters.
        for method in ("loss", "losses"):
            register_fsdp_forward_method(model, method)

    def part(self, last: bool) -> AbstractContextManager[Any]:
        """Wrap forward and backward of a micro-batch; gradients are reduced after the last one."""
        assert isinstance(self.model, FSDPModule)
        self.model.set_requires_gradient_sync(last)
        return nullcontext()


class ReplicaStrategy(DDPStrategy):
    """Lightning's DDP, with the replicas made of the model inside the module."""

    spread: Callable[[Transformer, torch.device], OneDevice] = Replicas

    def configure_ddp(self) -> None:
        """Give each device its replica of the model."""
        module: Any = self.lightning_module
        module.parallel = type(self).spread(module.model, self.root_device)


class ShardStrategy(ReplicaStrategy):
    """FSDP, with checkpoints in shards that any number of devices can read."""

    spread = Shards

    def setup(self, trainer: Any) -> None:
        """Set up as DDP does; a model that is sharded already has nothing to synchronise."""
        if isinstance(getattr(self.lightning_module, "model", None), FSDPModule):
            self.model_to_device()
            self.setup_precision_plugin()
        else:
            super().setup(trainer)

    @property
    def restore_checkpoint_after_setup(self) -> bool:
        """Whether weights are loaded once the model is sharded, each device its own."""
        return True

    def save_checkpoint(
        self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any | None = None
    ) -> None:
        """Write this device's shard (see `write_shard`)."""
        rows: dict[str, Tensor] = {}

        def _rest(path: Any, leaf: Any) -> Any:
            if not isinstance(leaf, DTensor):
                return leaf
            rows[keystr(path)] = leaf.to_local().detach().to("cpu", copy=True)
            return None

        rest = tree_map_with_path(_rest, checkpoint)
        shard = {ROWS: rows, REST: rest if self.is_global_zero else None}
        write_shard(shard, Path(filepath).with_suffix(SUFFIX))

    def load_checkpoint(
        self, checkpoint_path: Any, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Open a checkpoint, of which each device then reads its rows."""
        return open_checkpoint(Path(checkpoint_path))

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        """Load this device's rows of the weights."""
        module: Any = self.lightning_module
        own = module.state_dict()
        saved = checkpoint["state_dict"].items()
        state = {name: _own(value, own.get(name)) for name, value in saved}
        module.load_state_dict(state, strict=strict)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """Load this device's rows of the optimizer's state, unless the weights alone were kept."""
        for optimizer, saved in zip(self.optimizers, checkpoint["optimizer_states"], strict=False):
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            state = {
                key: {name: _own(value, parameters[key]) for name, value in entries.items()}
                for key, entries in saved["state"].items()
            }
            optimizer.load_state_dict({**saved, "state": state})


STRATEGIES = {"ddp": ReplicaStrategy, "fsdp": ShardStrategy}


def environment_of(processes: int) -> ClusterEnvironment:
    """Return Lightning's cluster environment: torchrun's variables for several processes.

    Explicit, because Lightning would otherwise follow the SLURM variables of any job it is in.
    """
    return LightningEnvironment() if processes == 1 else TorchElasticEnvironment()


def plain(tensor: Tensor) -> Tensor:
    """Return the full tensor of one that may be sharded."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


class _Loss(nn.Module):
    """Makes the loss the forward pass, where DistributedDataParallel hooks in."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor, targets: Tensor, z_loss: float) -> Tensor:
        """Return the summed loss of the targets (batch, length), in nats, a scalar."""
        return self.model.loss(inputs, targets, z_loss)


def _sum(bucket: Any) -> torch.futures.Future[Tensor]:
    work: Any = dist.all_reduce(bucket.buffer(), async_op=True)
    summed: torch.futures.Future[Tensor] = work.get_future().then(lambda f: f.value()[0])
    return summed


def _own(value: Any, parameter: Any) -> Any:
    """Return this device's shard of a value that belongs to a parameter, element by element."""
    is_plain = isinstance(value, Tensor)
    if not isinstance(parameter, DTensor) or (is_plain and value.shape != parameter.shape):
        return value
    parts = value if isinstance(value, Rows) else Rows((value,))
    own: Any = torch.empty_like(parameter, dtype=parts.parts[0].dtype, requires_grad=False)
    local = own.to_local()
    # Rows are cut as torch.chunk cuts them.
    count = parameter.shape[0]
    start = min(count, dist.get_rank() * -(-count // dist.get_world_size()))
    local.copy_(parts.between(start, start + len(local)))
    return own
