"""Lightning, as in `import pytorch_lightning`: a strategy whose workers gossip, in place of DDP."""

from __future__ import annotations

from gossamer.integrations.shared import needed, require_overrides

with needed("lightning"):
    from pytorch_lightning.strategies import DDPStrategy

from gossamer.integrations.strategy import OWN, StrategyMixin


class GossamerStrategy(StrategyMixin, DDPStrategy):
    """`Trainer(strategy=GossamerStrategy(topology="ring", algorithm="choco", compressor="sign"))`."""


require_overrides(StrategyMixin, DDPStrategy, *OWN)
