"""Results shown: pictures, tables, and one page that holds them all."""
