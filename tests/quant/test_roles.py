"""Which weights are which, by their names."""

from edgeinfer.quant.roles import output_of


def test_the_embeddings_make_logits_where_there_is_no_output_matrix():
    assert output_of({"token_embd.weight", "output.weight"}) == "output.weight"
    assert output_of({"token_embd.weight", "output_norm.weight"}) == "token_embd.weight"
