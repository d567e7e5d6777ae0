"""Components shared by methods: pseudo-labels, weak-to-strong training, consensus, parameter groups."""
