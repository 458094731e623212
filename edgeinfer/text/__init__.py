"""Turn text into token ids and back, as the model file says."""
