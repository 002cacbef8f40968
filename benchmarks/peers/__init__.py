"""What one could use instead, trained on the same model and the same batches as Gossamer."""
