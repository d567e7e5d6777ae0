"""File formats that more than one data set uses."""
