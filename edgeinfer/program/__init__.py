"""The words a model is written in: ops on named values, and the program they form."""
