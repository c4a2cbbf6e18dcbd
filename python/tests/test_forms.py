"""Forms."""

from __future__ import annotations

import random
import sys
import unittest

from .peer import ROOT

sys.path.insert(0, ROOT)

from millrace import _forms  # noqa: E402

FORM = (
    b'--b\r\nContent-Disposition: form-data; name="title"\r\n\r\nA \xc3\xa9\r\n'
    b'--b\r\nContent-Disposition: form-data; name="file"; filename="a \\"b\\".bin"\r\nContent-Type: image/png\r\n\r\n'
    b'\x00\r\n--\r\n\xff\r\n--b--\r\n'
)
KIND = 'multipart/form-data; boundary="b"'


class TestForms(unittest.TestCase):
    """What _forms.read makes of bodies."""

    def test_multipart(self) -> None:
        """Fields are texts, and files are bytes with their name and header."""
        (name, title), (other, file) = _forms.read(memoryview(FORM), KIND)
        self.assertEqual((name, title, other), ("title", "A é", "file"))
        self.assertEqual(
            (file.data, file.filename, file.header["content-type"]), (b"\x00\r\n--\r\n\xff", 'a "b".bin', "image/png")
        )

    def test_text_before_and_after(self) -> None:
        """What is before the first boundary and behind the last is no part."""
        self.assertEqual(
            _forms.read(b"preamble\r\n" + FORM + b"epilogue", "multipart/form-data; charset=utf-8; boundary=b"),
            _forms.read(FORM, KIND),
        )

    def test_empty_file(self) -> None:
        """A file without a name and contents is a file."""
        ((_, file),) = _forms.read(
            b'--b\r\nContent-Disposition: form-data; name="f"; filename=""\r\n\r\n\r\n--b--', KIND
        )
        self.assertEqual((file.data, file.filename), (b"", ""))

    def test_empty_form(self) -> None:
        """A form may have no parts."""
        self.assertEqual(_forms.read(b"--b--\r\n", KIND), [])

    def test_urlencoded(self) -> None:
        """Fields keep their order; empty ones are kept."""
        self.assertEqual(
            _forms.read(b"a=1&b=%C3%A9+x&a=", "application/x-www-form-urlencoded"),
            [("a", "1"), ("b", "é x"), ("a", "")],
        )

    def test_other_types_have_no_fields(self) -> None:
        """JSON is no form."""
        self.assertEqual(_forms.read(b'{"a": 1}', "application/json"), [])

    def test_refused(self) -> None:
        """What is malformed is refused with the reason."""
        part = b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\nx\r\n'
        for body, kind, reason in (
            (FORM, "multipart/form-data", "no boundary"),
            (FORM.replace(b"image/png", b"image/png\nX-Evil: 1"), KIND, "a control character"),
            (FORM.replace(b"image/png", b"image/png\rX-Evil: 1"), KIND, "a control character"),
            (FORM.replace(b"image/png", b"image/\x00png"), KIND, "a control character"),
            (b"", KIND, "its boundary is not in the body"),
            (FORM, "multipart/form-data; boundary=other", "its boundary is not in the body"),
            (FORM[:-8], KIND, "the last boundary is missing"),
            (b"--bx\r\n\r\nx\r\n--b--", KIND, "a boundary is malformed"),
            (b"--b\r\nContent-Disposition: form-data; name=a\r\n--b--", KIND, "no empty line"),
            (b"--b\r\n\r\nx\r\n--b--", KIND, "no name"),
            (b"--b\r\nno colon\r\n\r\nx\r\n--b--", KIND, "no colon"),
            (part * (_forms.MAX_PARTS + 1) + b"--b--", KIND, "more than 1000 parts"),
            (b"&".join([b"a=1"] * (_forms.MAX_PARTS + 1)), "application/x-www-form-urlencoded", "fields"),
        ):
            with self.subTest(reason), self.assertRaisesRegex(_forms.FormError, reason):
                _forms.read(body, kind)

    def test_changed_forms(self) -> None:
        """A form with bytes changed, cut or repeated is read or refused by FormError."""
        rng = random.Random(1)
        for _ in range(5000):
            body = bytearray(FORM)
            for _ in range(rng.randrange(4)):
                at = rng.randrange(len(body))
                change = rng.randrange(3)
                if change == 0:
                    body[at] = rng.choice(b'\r\n-b:;="x\x00\xff')
                elif change == 1:
                    del body[at : at + rng.randrange(8)]
                else:
                    body[at:at] = body[max(0, at - rng.randrange(12)) : at]
                if not body:
                    break
            try:
                for _, value in _forms.read(bytes(body), KIND):
                    data = value.encode() if isinstance(value, str) else value.data
                    self.assertLessEqual(len(data), 3 * len(body))
            except _forms.FormError:
                pass
