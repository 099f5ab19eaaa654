"""Decoding of attention models: one window of audio to the tokens of its text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from xdna_asr.decoding import guards
from xdna_asr.decoding.rules import Rules, log_softmax, log_sum_exp
from xdna_asr.text.vocabulary import Vocabulary
from xdna_asr.types import F32, DecoderRun, EncodedAudio, WhisperRuntime

MAX_TOKENS: Final = 224
"""Longest text of one window: half of the text positions (openai/whisper `decoding.py`)."""


@dataclass(frozen=True)
class Hypothesis:
    """One decoded window."""

    tokens: list[int]
    """Text and, if asked for, timestamps; without the end of text."""
    logprobs: list[float]
    """One a token, and the end of text's if it was reached."""
    alignment: F32
    """(heads, tokens + 1, S): where the audio each prediction looked at lies."""
    no_speech: float
    """Probability that the window holds no speech."""
    temperature: float
    ended: bool
    """False when the decode was cut: too long, or it began to repeat itself."""

    @property
    def average_logprob(self) -> float:
        """Mean log-probability, the end of text counted."""
        return sum(self.logprobs) / (len(self.tokens) + 1)


def decode(
    run: DecoderRun,
    rules: Rules,
    prompt: Sequence[int],
    *,
    prefix: Sequence[int] = (),
    temperature: float = 0.0,
    max_tokens: int = MAX_TOKENS,
    rng: np.random.Generator | None = None,
) -> Hypothesis:
    """Write after `prompt` and `prefix` until the end of text: the likeliest token each time, or a sample at `temperature` > 0.

    `prefix` is text that is already settled; it is part of the hypothesis.
    """
    vocabulary = rules.vocabulary
    at_start, last = list(prompt).index(vocabulary.start), len(prompt) - 1
    output = run.step([*prompt, *prefix], wanted=[at_start, *range(last, last + len(prefix) + 1)])
    no_speech = float(np.exp(log_softmax(output.logits[0])[vocabulary.no_speech]))
    tokens = list(prefix)
    logprobs = [float(log_softmax(row)[token]) for row, token in zip(output.logits[1:], prefix, strict=False)]
    aligned: list[F32] = [output.alignment[:, last : last + len(prefix)]]
    ended = False
    while True:
        aligned.append(output.alignment[:, -1:])
        logits = output.logits[-1].copy()
        rules.apply(logits, tokens)
        token = _pick(logits, temperature, rng)
        logprobs.append(float(logits[token]) - log_sum_exp(logits))
        if token == vocabulary.end_of_text:
            ended = True
            break
        tokens.append(token)
        output = run.step([token])
        if len(tokens) >= max_tokens or guards.repeats_itself(tokens):
            aligned.append(output.alignment[:, -1:])
            break
    return Hypothesis(tokens, logprobs, np.concatenate(aligned, axis=1), no_speech, temperature, ended)


def _pick(logits: F32, temperature: float, rng: np.random.Generator | None) -> int:
    if temperature == 0 or rng is None:
        return int(logits.argmax())
    probabilities = np.exp(log_softmax(logits / np.float32(temperature)).astype(np.float64))
    return int(rng.choice(len(logits), p=probabilities / probabilities.sum()))


def detect_language(runtime: WhisperRuntime, audio: EncodedAudio, vocabulary: Vocabulary) -> dict[str, float]:
    """Probability of each language the model knows, from one decoder step."""
    codes = list(vocabulary.languages)
    logits = runtime.decoder(audio).step([vocabulary.start]).logits[-1]
    probabilities = np.exp(log_softmax(logits[[vocabulary.languages[code] for code in codes]]))
    return dict(zip(codes, probabilities.tolist(), strict=True))
