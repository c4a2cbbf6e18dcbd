"""Sound files as arrays: by the module soundfile, or WAV files by the standard library."""

import io
import wave
from typing import Any, Tuple


def decode(contents: bytes) -> Tuple[Any, int]:
    """Return the samples (frames, or frames x channels; -1 to 1) and the sample rate in Hz."""
    soundfile = _soundfile()
    if soundfile:
        return soundfile.read(io.BytesIO(contents))
    import numpy as np

    try:
        with wave.open(io.BytesIO(contents)) as file:
            width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
            data = file.readframes(file.getnframes())
    except (wave.Error, EOFError) as e:
        raise ValueError(f"without the module soundfile only WAV files of whole numbers are read: {e}") from None
    data = data[: len(data) - len(data) % (width * channels)]
    if width == 1:
        samples = (np.frombuffer(data, np.uint8).astype(np.float64) - 128) / 128
    else:
        # The bytes of a sample are the upper ones of an int32.
        wide = np.zeros((len(data) // width, 4), np.uint8)
        wide[:, 4 - width :] = np.frombuffer(data, np.uint8).reshape(-1, width)
        samples = wide.view("<i4")[:, 0] / 2.0**31
    return (samples if channels == 1 else samples.reshape(-1, channels)), rate


def encode(data: Any, sample_rate: int, kind: str) -> bytes:
    """Return samples (frames, or frames x channels; -1 to 1, or int16) as a file."""
    file = io.BytesIO()
    soundfile = _soundfile()
    if soundfile:
        soundfile.write(file, data=data, samplerate=sample_rate, format=kind)
        return file.getvalue()
    if kind.upper() != "WAV":
        raise ImportError(f"{kind} files need the module soundfile: pip install soundfile")
    import numpy as np

    data = np.asarray(data)
    if data.dtype != np.int16:
        data = np.clip(np.rint(data * 32768.0), -32768, 32767)
    with wave.open(file, "wb") as out:
        out.setnchannels(1 if data.ndim == 1 else data.shape[1])
        out.setsampwidth(2)
        out.setframerate(sample_rate)
        out.writeframes(data.astype("<i2").tobytes())
    return file.getvalue()


def _soundfile() -> Any:
    try:
        import soundfile
    except (ImportError, OSError):  # OSError: the module is there and libsndfile is not
        return None
    return soundfile
