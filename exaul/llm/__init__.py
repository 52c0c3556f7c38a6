"""Language models: an endpoint that answers, what its answers score, and who judges them."""
