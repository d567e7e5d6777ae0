"""Mean Teacher: the running average of the model is the teacher of another view (Tarvainen and Valpola 2017)."""

from typing import ClassVar

import torch
from torch import Tensor

from normatch.methods.base import Batch, methods
from normatch.methods.pi_model import PiModel

__all__ = ["MeanTeacher"]


@methods.named("mean-teacher")
class MeanTeacher(PiModel):
    """L = L_x + w(t) · 1/NK Σ ‖p(a) − p̄(b)‖², where p̄ is the prediction of the averaged model, without gradients.

    a and b are two weak views of all N = B + μB images of the batch; w(t) grows as in the Π-Model, whose settings these
    are. The teacher normalises by the statistics of the batch, as the student does.

    The average is the one that is evaluated and saved: its decay is the run's (``--ema``), 0.999 in the paper after
    0.99 during the ramp. As in the Π-Model, only the augmentation is random: there is no dropout.
    """

    summary: ClassVar[str] = "the averaged model teaches another view"
    paper: ClassVar[str] = "Tarvainen and Valpola, NeurIPS 2017"
    teacher_trains: ClassVar[bool] = True

    @torch.no_grad()
    def other(self, images: Tensor, batch: Batch) -> Tensor:
        p: Tensor = batch.teacher(images).float().softmax(1)
        return p
