"""What embedding and head cost for one microbatch, and what they hold."""

from __future__ import annotations

from .block import Block, Held
from .embedding_head import embedding_layers, head_layers
from .layers import Stage
from .run import Run


class EmbeddingHead:
    """The first and the last stage of a model with a vocabulary; of one stage it is `both`."""

    def __init__(self, run: Run) -> None:
        self.run, plain = run, run.of_ends()
        first, last = embedding_layers(plain), head_layers(plain)
        self.embedding, self.head = Block(plain, first), Block(plain, last)
        steps = [layer.step for layer in [*first, *last]]
        if run.model.tied:  # its gradient is that of the embedding
            logits = next(layer for layer in last if layer.name == "Head_Logits")
            steps[len(first) + last.index(logits)] = logits.step.without_matrix()
        trained = run.execution.training
        self.first = Held([x.step for x in first], trained=trained)
        self.last = Held([x.step for x in last], trained=trained)
        self.both = Held(steps, trained=trained)
        self.table_gradient = run.reduction_bytes * run.vocab_rows * run.model.hidden

    def seconds(self, *stages: Stage, comm: bool = False) -> tuple[float, float]:
        """Return the time of embedding and of head in some passes, with or without collectives."""
        found = []
        for end in (self.embedding, self.head):
            time = 0.0
            for stage in stages:
                time += getattr(end, stage).time
                if comm and stage == "fw":
                    time += end.fw_tp.exposed["base"]
                if comm and stage == "agrad":
                    time += end.agrad_tp.exposed["base"]
            found.append(time)
        return found[0], found[1]

    @property
    def whole(self) -> tuple[float, float]:
        """Time of embedding and of head for one microbatch."""
        return self.seconds("fw", "agrad", "wgrad", comm=True)

    @property
    def link(self) -> tuple[float, float]:
        """Time of their collectives."""
        embedding_head = self.embedding, self.head
        embedding, head = (
            end.fw_tp.time["base"] + end.agrad_tp.time["base"] for end in embedding_head
        )
        return embedding, head
