"""Hand-written training passes for GPUs, which fuse more than torch.compile does and move fewer bytes."""
