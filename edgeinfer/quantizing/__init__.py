"""Model file to smaller model file: what each weight becomes, and the way there."""
