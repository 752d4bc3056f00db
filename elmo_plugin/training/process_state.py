"""What each process of a run keeps of its own in a checkpoint."""

import logging
from typing import Any, Dict, List, Optional

import torch.distributed as dist
from allennlp.training.callbacks import TrainerCallback
from allennlp.training.gradient_descent_trainer import GradientDescentTrainer

logger = logging.getLogger(__name__)


class ProcessState(TrainerCallback):
    """
    A callback whose state is kept in each checkpoint, of every process its own: only the first
    process writes, the others send theirs when a checkpoint is saved.

    # Parameters

    serialization_dir : `str`
        The run's directory.
    """

    def __init__(self, serialization_dir: str) -> None:
        super().__init__(serialization_dir)
        self._saved: List[Dict[str, Any]] = []
        self._gathered: List[Dict[str, Any]] = []

    def own_state(self) -> Dict[str, Any]:
        """
        This process's: numbers, strings, lists, tuples, dictionaries and tensors, which are all
        that `torch.load` takes by default.
        """
        raise NotImplementedError

    def restore(self, state: Dict[str, Any]) -> None:
        """Called on start, when a run goes on, with what `own_state` of this process gave."""
        raise NotImplementedError

    def state_dict(self) -> Dict[str, Any]:
        """`processes`, a list of the processes' states."""
        if self.trainer is None:
            return {}
        return {"processes": self._gathered or [self.own_state()]}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """What `state_dict` gave, or another callback's, where a run was made with others."""
        self._saved = state_dict.get("processes", [])

    def on_start(self, trainer: GradientDescentTrainer, *args: Any, **kwargs: Any) -> None:
        """Restores this process's state, if the run goes on."""
        self.trainer = trainer
        if trainer._distributed:
            self._gather_before_saving(trainer)
        if len(self._saved) == trainer._world_size:
            self.restore(self._saved[dist.get_rank() if trainer._distributed else 0])
        elif self._saved:
            logger.warning(
                "The checkpoint was made by %d processes, now there are %d: %s starts anew",
                len(self._saved),
                trainer._world_size,
                type(self).__name__,
            )

    def _gather_before_saving(self, trainer: GradientDescentTrainer) -> None:
        checkpointer = trainer._checkpointer
        if checkpointer is None:
            return
        save = checkpointer.save_checkpoint

        def gather_and_save(trainer: GradientDescentTrainer) -> None:
            gathered: Optional[List[Any]] = [None] * trainer._world_size if is_first else None
            dist.gather_object(self.own_state(), gathered)
            self._gathered = gathered or []
            save(trainer)

        is_first = dist.get_rank() == 0  # the trainer's is of its node
        checkpointer.save_checkpoint = gather_and_save  # type: ignore[assignment, method-assign]
