"""Base class of trainer callbacks whose state differs between processes."""

import logging
from typing import Any, Dict, List, Sequence

import torch.distributed as dist
from allennlp.training.callbacks import TrainerCallback
from allennlp.training.gradient_descent_trainer import GradientDescentTrainer

logger = logging.getLogger(__name__)


class ProcessState(TrainerCallback):
    """
    Trainer callback whose state is saved in each checkpoint, separately for every process of a
    distributed run. Every process gets all states, since the first one of each node writes a
    checkpoint.
    """

    _saved: Sequence[Dict[str, Any]] = ()
    _gathered: Sequence[Dict[str, Any]] = ()

    def own_state(self) -> Dict[str, Any]:
        """
        Return this process's state. It may consist of numbers, strings, lists, tuples, dictionaries
        and tensors, which `torch.load` accepts by default.
        """
        raise NotImplementedError

    def restore(self, state: Dict[str, Any]) -> None:
        """Restore a result of `own_state`; called when a run resumes."""
        raise NotImplementedError

    def state_dict(self) -> Dict[str, Any]:
        """Return a dictionary whose key `processes` has a list of all processes' states."""
        if self.trainer is None:
            return {}
        return {"processes": self._gathered or [self.own_state()]}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """
        Store the saved states; `on_start` restores them. A state without the key `processes` is
        ignored.
        """
        self._saved = state_dict.get("processes", [])

    def on_start(self, trainer: GradientDescentTrainer, *args: Any, **kwargs: Any) -> None:
        """Restore this process's saved state, if there is one."""
        self.trainer = trainer
        if trainer._distributed:
            self._gather_before_saving(trainer)
        if len(self._saved) == trainer._world_size:
            self.restore(self._saved[dist.get_rank() if trainer._distributed else 0])
        elif self._saved:
            logger.warning(
                "The checkpoint was made by %d processes, now there are %d: %s is not restored",
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
            gathered: List[Any] = [None] * trainer._world_size
            dist.all_gather_object(gathered, self.own_state())
            self._gathered = gathered
            save(trainer)

        checkpointer.save_checkpoint = gather_and_save  # type: ignore[assignment, method-assign]
