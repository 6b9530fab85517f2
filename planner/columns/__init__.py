"""What rows are made of: changes, rejections, who is alive, what follows from znodes."""
