"""Results of a sweep: counts, tables, figures, summary and output folder."""
