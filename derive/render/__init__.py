"""From derived expressions to LaTeX: a normal form arranged as the paper would write it, printed, and set in tables."""
