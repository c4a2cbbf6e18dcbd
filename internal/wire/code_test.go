package wire_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"millrace/internal/wire"
	"millrace/stream"
	"millrace/stream/coded"
)

// TestSameWords compares the words and numbers of this package with those of stream, because this package cannot
// import stream.
func TestSameWords(t *testing.T) {
	reasons := []string{}
	for _, r := range []stream.CloseReason{
		stream.ByClient, stream.ClientGone, stream.SlowConsumer, stream.Idle, stream.ByUnload, stream.ByDrain,
		stream.ByError, stream.SourceEnded,
	} {
		reasons = append(reasons, string(r))
	}
	if !slices.Equal(reasons, wire.CloseReasons) {
		t.Errorf("reasons are %v, in stream %v", wire.CloseReasons, reasons)
	}
	for ours, theirs := range map[wire.Codec]stream.Codec{
		wire.Opaque: stream.Opaque, wire.JPEG: stream.JPEG, wire.PNG: stream.PNG, wire.WebP: stream.WebP,
		wire.H264: stream.H264,
		wire.VP8:  stream.VP8, wire.VP9: stream.VP9, wire.AV1: stream.AV1, wire.RGB24: stream.RGB24,
		wire.NV12:  stream.NV12,
		wire.PCM16: stream.PCM16, wire.PCMFloat: stream.PCMFloat, wire.Tensors: stream.Tensors,
	} {
		if uint8(ours) != uint8(theirs) || ours.String() != theirs.String() {
			t.Errorf("codec %d %s is %d %s in stream", ours, ours, theirs, theirs)
		}
	}
	if s := wire.Codec(wire.Tensors + 1).String(); s != stream.Codec(wire.Tensors+1).String() {
		t.Errorf("an unknown codec is %q", s)
	}
	if wire.MaxWindow != stream.MaxWindow {
		t.Errorf("window is %d, in stream %d", wire.MaxWindow, stream.MaxWindow)
	}
	for _, mode := range []stream.Mode{stream.Latest, stream.Every} {
		text := `{"type":"open","sid":1,"policy":{"mode":"` + string(mode) + `","max_fps":0.001}}`
		if _, err := wire.ParseControl([]byte(text), wire.Client); err != nil {
			t.Error(err)
		}
	}
}

func TestCloseCodes(t *testing.T) {
	numbers := []wire.CloseCode{1000, 1001, 1008, 1009, 1011, 1013, 4400, 4401, 4404, 4408, 4409, 4429, 4503}
	if !slices.Equal(numbers, wire.CloseCodes) {
		t.Errorf("codes are %d", wire.CloseCodes)
	}
	names := map[string]bool{}
	for _, c := range wire.CloseCodes {
		if name := c.String(); name == "" || name[0] <= '9' || names[name] {
			t.Errorf("%d is called %q", uint16(c), name)
		}
		names[c.String()] = true
	}
	if s := wire.CloseCode(4999).String(); s != "4999" {
		t.Errorf("another code is %q", s)
	}
}

// Each error code becomes its published close code.
func TestEveryCodeHasACloseCode(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "..", "docs", "protocol.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(b), "Why a connection is closed:\n\n")
	text, _, _ = strings.Cut("\n"+text, "\n\n")
	for _, code := range coded.Codes {
		c := wire.CloseCodeOf(coded.Errorf(code, "", "x"))
		_, row, _ := strings.Cut(text, "\n- "+strconv.Itoa(int(c))+": ")
		row, _, _ = strings.Cut(row, "\n- ")
		if !strings.Contains(row, "`"+string(code)+"`") {
			t.Errorf("%s closes with %d, of which is published:%s", code, c, row)
		}
		if n := strings.Count(text, "`"+string(code)+"`"); n != 1 {
			t.Errorf("%s has %d close codes in what is published", code, n)
		}
	}
	if got := wire.CloseCodeOf(errors.New("x")); got != wire.CloseInternal {
		t.Errorf("an error without a code closes with %d", got)
	}
}

// The published lists have every code and reason sent to clients.
func TestCodesArePublished(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "..", "docs", "protocol.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(b), "# Codes")
	want := []string{"`unsupported_version`"}
	for _, c := range wire.CloseCodes {
		want = append(want, strconv.Itoa(int(c)))
	}
	for _, r := range wire.CloseReasons {
		want = append(want, "`"+r+"`")
	}
	for _, c := range coded.Codes {
		mark := ""
		if c.Retryable() {
			mark = " *"
		}
		want = append(want, "`"+string(c)+"`"+mark)
	}
	for _, w := range want {
		if !strings.Contains(text, "\n- "+w+": ") {
			t.Errorf("no line begins with %s", w)
		}
	}
}
