"""What a sweep leaves: counts, tables, figures, its folder."""
