"""A model file in, the smaller one that is wanted out: by recipe, to a size, to a divergence."""
