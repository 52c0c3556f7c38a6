"""The paper's experiments: one file per figure, with its sweeps, figures and claims."""
