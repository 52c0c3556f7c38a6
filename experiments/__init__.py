"""The paper's experiments, and those beyond it: their sweeps, figures and claims."""
