"""The paper, reproduced: its figures, tables and theorem, each by a command."""
