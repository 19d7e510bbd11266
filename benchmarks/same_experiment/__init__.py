"""The same experiment with rfa, byzfl and pfl: lines of code, seconds and accuracies."""
