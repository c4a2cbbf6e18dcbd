package wire

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

func TestTensorsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOf(rapid.Byte()).Draw(t, "json")
		data := rapid.SliceOf(rapid.Byte()).Draw(t, "raw")
		payload := append(AppendTensorsPrefix(nil, text), data...)
		j, raw, err := SplitTensors(payload)
		if err != nil || !bytes.Equal(j, text) || !bytes.Equal(raw, data) {
			t.Fatalf("%q %q %v", j, raw, err)
		}
		room := make([]byte, len(payload))
		if n := PutTensorsPrefix(room, text); n != TensorsPrefixLen+len(text) || !bytes.Equal(room[:n], payload[:n]) {
			t.Fatalf("in headroom: %x", room)
		}
	})
}

func TestTensorsThatDoNotFit(t *testing.T) {
	for name, payload := range map[string]string{
		"empty": "", "three bytes": "\x00\x00\x00", "one too many": "\x03\x00\x00\x00{}",
		"the most": "\xff\xff\xff\xff{}",
	} {
		_, _, err := SplitTensors([]byte(payload))
		refusal(t, name, err, ErrTensors, "invalid_argument", "payload")
	}
}

func FuzzTensors(f *testing.F) {
	f.Add([]byte("\x02\x00\x00\x00{}raw"))
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, payload []byte) {
		j, raw, err := SplitTensors(bytes.Clone(payload)[:len(payload):len(payload)])
		if err != nil {
			sound(t, err)
			return
		}
		if out := append(AppendTensorsPrefix(nil, j), raw...); !bytes.Equal(out, payload) {
			t.Fatalf("%x became %x", payload, out)
		}
		_ = append(j, 'x') // append must not write over the bytes after j
		if len(raw) > 0 && !bytes.Equal(raw, payload[len(payload)-len(raw):]) {
			t.Fatal("the JSON can be appended to the tensors")
		}
	})
}
