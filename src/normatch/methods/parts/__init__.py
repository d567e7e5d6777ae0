"""Components shared by methods: alignment, weights of pseudo-labels, losses, passes, parameter groups."""
