"""A service in the form of OctoAI that names the loudest tone of a sound, instead of its words. It needs numpy."""

import numpy as np
from octoai.service import Service
from octoai.types import Audio, Text

NAMES = ("A", "A#", "B", "C", "C#", "D", "D#", "E", "F", "F#", "G", "G#")


class Tones(Service):
    """Hears tones."""

    def infer(self, audio: Audio) -> Text:
        """Return the name of the tone, or silence."""
        samples, rate = audio.to_numpy()
        if samples.ndim > 1:
            samples = samples.mean(axis=1)
        spectrum = np.abs(np.fft.rfft(samples))
        if not len(samples) or spectrum.max() < 1e-3 * len(samples):
            return Text(text="silence")
        frequency = spectrum.argmax() * rate / len(samples)
        return Text(text=NAMES[round(12 * np.log2(frequency / 440)) % 12])
