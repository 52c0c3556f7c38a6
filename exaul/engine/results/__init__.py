"""Results of a sweep: totals, tables, figures, summary and output folder."""
