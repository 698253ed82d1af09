"""Parts of a decoder.  A block appends its operations to a builder and says which parameters it needs."""
