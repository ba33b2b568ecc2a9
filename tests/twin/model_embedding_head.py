"""What embedding and head cost for one microbatch, and what they hold."""

from .block import Block, Held
from .embedding_head import embedding_layers, head_layers
from .layers import Layer, Stage
from .optimizer import Step
from .prediction import add_losses, add_modules, as_block, module_layers
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
        self.largest = self.head_weight = self.last.whole
        self.module_time = self.expert_weight = 0.0
        self.module: Block | None = None  # as a block of another stage
        if run.modules:
            self._apart(first, last)
        elif run.model.mtp_layers:
            self._modules(first, last, steps)

    def _apart(self, first: list[Layer], last: list[Layer]) -> None:
        """Let modules of another stage use the head; they have their own copy of the table."""
        run, count = self.run, self.run.modules
        norms = [last[0].step] * count
        self.last = Held([*[x.step for x in last], *norms], trained=run.execution.training)
        self.largest = self.head_weight = self.last.whole
        self.table_gradient = run.reduction_bytes * sum(layer.weights for layer in first)
        self.module = as_block(Block(run, make=module_layers), self.embedding, count)
        before = self.whole[1]
        add_losses(self.head, count)
        self.module_time = self.whole[1] - before

    def _modules(self, first: list[Layer], last: list[Layer], both: list[Step]) -> None:
        """Let the head predict further tokens, one with each module."""
        run, count = self.run, self.run.model.mtp_layers
        trained, tied = run.execution.training, run.model.tied
        layers = module_layers(run)
        own = [layer.step for layer in layers]
        experts = [layer.step for layer in layers if layer.kind == "grouped"]
        self.expert_weight = count * Held(experts).whole
        each = [last[0].step, *own]  # the norm before the head comes first there
        copied = [layer.step for layer in first]
        if tied:  # the table is there already
            copied[0] = copied[0].without_matrix()
        self.largest = max(Held(steps).whole for steps in ([x.step for x in last], copied, own))
        mine = [x.step for x in last] + each * count
        if run.ends_apart or tied:
            mine += copied
        self.last = Held(mine, trained=trained)
        self.both = Held(both + each * count, trained=trained)
        self.table_gradient = run.reduction_bytes * sum(layer.weights for layer in first)
        before = self.whole[1]
        add_modules(self.head, self.embedding, Block(run, make=module_layers), count)
        self.module_time = self.whole[1] - before

    def seconds(self, *stages: Stage, comm: bool = False) -> tuple[float, float]:
        """Return the time of embedding and of head in some passes, with or without collectives."""
        found = []
        for end in (self.embedding, self.head):
            time = 0.0
            for stage in stages:
                time += getattr(end, stage).time
                if comm and stage == "fw":
                    time += end.fw_tp.exposed["base"] + end.ep[0] + end.cp_exposed[0]
                if comm and stage == "agrad":
                    time += end.agrad_tp.exposed["base"]
                    time += end.re.time + end.recomm.exposed["base"]  # of modules
                    time += end.ep[1] + end.ep[2] + end.cp_exposed[1] + end.cp_exposed[2]
            found.append(time)
        return found[0], found[1]

    @property
    def whole(self) -> tuple[float, float]:
        """Time of embedding and of head for one microbatch."""
        return self.seconds("fw", "agrad", "wgrad", comm=True)

    @property
    def link(self) -> tuple[float, float]:
        """Time of their collectives."""
        ends = self.embedding, self.head
        embedding, head = (end.fw_tp.time["base"] + end.agrad_tp.time["base"] for end in ends)
        return embedding, head

    @property
    def exposed(self) -> tuple[float, float]:
        """Time of their collectives that nothing hides."""
        ends = self.embedding, self.head
        embedding, head = (end.fw_tp.exposed["base"] + end.agrad_tp.exposed["base"] for end in ends)
        return embedding, head
