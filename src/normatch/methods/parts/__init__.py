"""Parts that methods share: alignment, weights of pseudo-labels, losses, passes, parameter groups."""
