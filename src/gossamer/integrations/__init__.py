"""Gossamer inside other people's training loops; docs/integrations.md says how each is used.

gossamer.integrations.transformers       GossamerTrainer, for Hugging Face's Trainer
gossamer.integrations.accelerate         GossamerAccelerator, for your own loop with Accelerate
gossamer.integrations.lightning          GossamerStrategy, for `import lightning`
gossamer.integrations.pytorch_lightning  the same, for `import pytorch_lightning`

Each imports its framework, so import the one that you use.
"""
