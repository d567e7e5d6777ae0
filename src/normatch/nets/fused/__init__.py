"""Hand-written training passes for GPUs: what torch.compile leaves apart, fused; and fewer bytes moved."""
