"""The learner behind HTTP: routes, bearer tokens, limits, metrics, a page, and a gateway before a model."""
