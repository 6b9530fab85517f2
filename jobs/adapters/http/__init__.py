"""HTTP: one page of text, made anew for whoever asks."""
