"""Work, depth, memory and communication of a graph, derived and compared with printed claims."""
