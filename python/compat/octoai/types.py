"""Types of the inputs and outputs of services: pictures, sound and video as base64 text or URLs, texts, uploads.

numpy, Pillow, soundfile and imageio are imported by the methods that need them.
"""

import base64
import binascii
import io
import os
import tempfile
from typing import Any, BinaryIO, Dict, Iterator, List, Mapping, Optional, Tuple, Type, TypeVar, Union

from . import _download, _sound
from ._model import PYDANTIC, Field, HttpUrl, Model

M = TypeVar("M", bound="Media")


class Text(Model):
    """A text."""

    text: str

    def __str__(self) -> str:
        """Return the text."""
        return self.text


class MediaUrl(Model):
    """The address of a file."""

    url: HttpUrl

    if PYDANTIC >= 2:
        from pydantic import field_serializer

        @field_serializer("url")
        def _as_text(self, url: Any) -> str:
            return str(url)

    elif PYDANTIC == 0:

        def _checked(self, _name: str, value: Any) -> Any:
            return HttpUrl(value)


class Media(Model):
    """A file: its contents in base64 (``data`` is ``bytes``) or its address (``data`` is a ``MediaUrl``).

    Besides ``{"data": ...}`` the older forms are read: ``{"image_b64": text}``, ``{"audio_b64": text}``
    and ``{"video_b64": text}``.
    """

    data: Union[bytes, MediaUrl] = Field(description="URL reference or base64-encoded data")

    def __init__(self, data: Any = ..., **fields: Any) -> None:
        """Take the base64 text or the address. It raises pydantic's ``ValidationError``, or ``ValueError``."""
        if data is ...:
            data = fields.pop(f"{type(self).__name__.lower()}_b64", ...)
        if data is not ...:
            fields["data"] = data
        super().__init__(**fields)

    if PYDANTIC == 0:

        def _checked(self, _name: str, value: Any) -> Any:
            if isinstance(value, str):
                return value.encode()
            if isinstance(value, (bytes, MediaUrl)):
                return value
            return MediaUrl.model_validate(value)

    @classmethod
    def from_base64(cls: Type[M], b64: Union[bytes, str]) -> M:
        """Return a file with these contents, which are in base64."""
        return cls(data=b64)

    @classmethod
    def from_endpoint_response(cls: Type[M], resp_dict: Dict[str, Any], key: str) -> M:
        """Return the file under ``key`` of a reply or of its ``output``. It raises ``ValueError``."""
        for place in (resp_dict, resp_dict.get("output")):
            if isinstance(place, dict) and key in place:
                return cls(**place[key])
        raise ValueError(f"the response has no {key!r}")

    @classmethod
    def from_file(cls: Type[M], file_name: str) -> M:
        """Return the contents of a file. It raises ``ValueError`` when there is none."""
        if not os.path.isfile(file_name):
            raise ValueError(f"there is no file {file_name}")
        with open(file_name, "rb") as file:
            return cls._of(file.read())

    @classmethod
    def from_url(cls: Type[M], url: str, b64: bool = False, follow_redirects: bool = False) -> M:
        """Return the address, or with ``b64`` what is there now. Raise ``ValueError`` for other statuses than 200."""
        if b64:
            return cls._of(_download.fetch(url, follow_redirects))
        return cls(data=MediaUrl(url=url))

    @classmethod
    def _of(cls: Type[M], contents: bytes) -> M:
        return cls(data=base64.b64encode(contents))

    def download(self, follow_redirects: bool, file_name: str) -> None:
        """Write what is at the address into a file; with contents it does nothing."""
        if isinstance(self.data, MediaUrl):
            with open(file_name, "wb") as file:
                file.write(_download.fetch(str(self.data.url), follow_redirects))

    def default_download(self, file_name: str) -> None:
        """Write what is at the address into a file. Subclasses that follow redirects override it."""
        self.download(follow_redirects=False, file_name=file_name)

    def to_file(self, file_name: str) -> None:
        """Write the contents into a file."""
        if isinstance(self.data, MediaUrl):
            self.default_download(file_name)
            return
        with open(file_name, "wb") as file:
            file.write(self.to_bytes())

    def to_bytes(self) -> bytes:
        """Return the contents. It raises ``ValueError`` when they are not base64, or cannot be had."""
        if not isinstance(self.data, MediaUrl):
            try:
                return base64.b64decode(self.data)
            except binascii.Error as e:
                raise ValueError(f"the {type(self).__name__.lower()} is not base64: {e}") from None
        with tempfile.NamedTemporaryFile() as file:
            self.default_download(file.name)
            with open(file.name, "rb") as written:
                return written.read()

    def to_base64(self) -> bytes:
        """Return the contents in base64."""
        if isinstance(self.data, MediaUrl):
            return base64.b64encode(self.to_bytes())
        return self.data


class Image(Media):
    """A picture."""

    @classmethod
    def from_pil(cls, image_pil: Any, format: str = "JPEG") -> "Image":  # noqa: A002
        """Return a Pillow image as a file of this format."""
        file = io.BytesIO()
        image_pil.save(file, format=format)
        return cls._of(file.getvalue())

    def to_pil(self) -> Any:
        """Return a Pillow image. It raises ``ValueError`` or ``PIL.UnidentifiedImageError``."""
        from PIL import Image as Pillow

        return Pillow.open(io.BytesIO(self.to_bytes()))

    @property
    def image_b64(self) -> str:
        """The contents in base64."""
        return self.to_base64().decode()

    def is_valid(self) -> bool:
        """Return whether it is a picture that Pillow reads."""
        try:
            self.to_pil().verify()
            return True
        except Exception:  # the libraries raise what they like
            return False


class Audio(Media):
    """Sound. Without the module soundfile only WAV files of whole numbers are read and written."""

    @classmethod
    def from_numpy(cls, data: Any, sample_rate: int, format: str = "WAV") -> "Audio":  # noqa: A002
        """Return samples (frames x channels, -1 to 1) at ``sample_rate`` per second as a file of this format."""
        return cls._of(_sound.encode(data, sample_rate, format))

    def to_numpy(self) -> Tuple[Any, int]:
        """Return the samples (frames x channels, -1 to 1) and how many there are in a second."""
        return _sound.decode(self.to_bytes())

    @property
    def audio_b64(self) -> str:
        """The contents in base64."""
        return self.to_base64().decode()

    def is_valid(self) -> bool:
        """Return whether it is sound that can be read."""
        try:
            self.to_numpy()
            return True
        except Exception:  # the libraries raise what they like
            return False


class Video(Media):
    """A video. The methods with frames need the modules imageio and av."""

    @classmethod
    def from_numpy(
        cls, video_frames: List[Any], codec: str = "libx264", pixel_format: str = "yuv420p", fps: int = 30
    ) -> "Video":
        """Return pictures (height x width x 3) as a file."""
        imageio = _imageio()
        with tempfile.NamedTemporaryFile(suffix=".mp4") as file:
            with imageio.imopen(file.name, "w", plugin="pyav") as video:
                video.init_video_stream(codec=codec, fps=fps, pixel_format=pixel_format)
                for frame in video_frames:
                    video.write_frame(frame)
            return cls.from_file(file.name)

    def to_numpy_iterator(self) -> Tuple[Iterator[Any], str]:
        """Return an iterator over the pictures and the name of the file that it reads, which the caller removes."""
        imageio = _imageio()
        with tempfile.NamedTemporaryFile(suffix=".mp4", delete=False) as file:
            self.to_file(file.name)
        return imageio.imiter(file.name), file.name

    def to_numpy(self) -> Any:
        """Return all pictures as an array (frames x height x width x 3)."""
        imageio = _imageio()
        with tempfile.NamedTemporaryFile(suffix=".mp4") as file:
            self.to_file(file.name)
            return imageio.imread(file.name)

    @property
    def video_b64(self) -> str:
        """The contents in base64."""
        return self.to_base64().decode()

    def is_valid(self) -> bool:
        """Return whether it is a video that imageio reads."""
        imageio = _imageio()
        with tempfile.NamedTemporaryFile(suffix=".mp4") as file:
            try:
                self.to_file(file.name)
                return "video_format" in imageio.immeta(file.name, plugin="pyav")
            except Exception:  # the libraries raise what they like
                return False


def _imageio() -> Any:
    try:
        import imageio.v3
    except ImportError as e:
        raise ImportError(f"videos need the modules imageio and av: pip install imageio av ({e})") from e
    return imageio.v3


class File:
    """A file that was uploaded, as ``infer_form_data`` gets it."""

    def __init__(
        self,
        file: BinaryIO,
        *,
        size: Optional[int] = None,
        filename: Optional[str] = None,
        headers: Optional[Mapping[str, str]] = None,
    ) -> None:
        """Take an open file, its size in bytes, its name and the headers of its part of the form."""
        self.file = file
        self.size = size
        self.filename = filename
        self.headers = dict(headers or {})

    @property
    def content_type(self) -> Optional[str]:
        """The media type that the client sent."""
        return self.headers.get("content-type")

    async def read(self, size: int = -1) -> bytes:
        """Return up to ``size`` bytes; all that are left when it is negative."""
        return self.file.read(size)

    async def write(self, data: bytes) -> None:
        """Write at the present position."""
        self.file.write(data)

    async def seek(self, offset: int) -> None:
        """Set the position."""
        self.file.seek(offset)

    async def close(self) -> None:
        """Close the file."""
        self.file.close()
