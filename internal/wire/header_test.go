package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// unhex reads bytes written by hand: hexadecimal with spaces, "text" for ASCII.
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	var out []byte
	for i, part := range strings.Split(s, `"`) {
		if i%2 == 1 {
			out = append(out, part...)
			continue
		}
		b, err := hex.DecodeString(strings.Join(strings.Fields(part), ""))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b...)
	}
	return out
}

// golden are messages of every kind, written by hand from the protocol's table.
var golden = map[string]struct {
	from    Side
	bytes   string
	header  Header
	payload string
}{
	"frame": {Client, `
		01 01 01 05  07 00 00 00  08 07 06 05 04 03 02 01  00 e4 0b 54 02 00 00 00
		80 02  e0 01  1a 00  fa 00
		02 08 00  0a 00 14 00 2c 01 c8 00
		04 0c 00 "{" 22 "size" 22 ": 42}"
		ff d8`, Header{
		Kind: KindFrame, Codec: JPEG, Flags: FlagKey | FlagMust, SID: 7, Seq: 0x0102030405060708,
		CaptureUS: 10_000_000_000,
		Width:     640, Height: 480, DeadlineMS: 250,
		Ext: Ext{ROI: [4]uint16{10, 20, 300, 200}, HasROI: true, Params: []byte(`{"size": 42}`)},
	}, "\xff\xd8"},
	"config": {Client, `
		01 02 04 00  01 00 00 00  00 00 00 00 00 00 00 00  ff ff ff ff ff ff ff ff
		00 00  00 00  00 00  00 00
		00 00 00 01 67`,
		Header{Kind: KindConfig, Codec: H264, SID: 1, CaptureUS: -1}, "\x00\x00\x00\x01g"},
	"result": {Server, `
		01 03 0c 00  ff ff ff ff  ff ff ff ff ff ff ff ff  00 00 00 00 00 00 00 00
		00 00  00 00  00 00  00 00
		02 00 00 00 "{}" 2a`,
		Header{Kind: KindResult, Codec: Tensors, SID: math.MaxUint32, Seq: math.MaxUint64}, "\x02\x00\x00\x00{}*"},
	"tensor": {Client, `
		01 04 0c 04  02 00 00 00  03 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00
		00 00  00 00  3a 00  00 00
		01 37 00 "` + traceparent + `"
		00 00 00 00`,
		Header{Kind: KindTensor, Codec: Tensors, Flags: FlagMust, SID: 2, Seq: 3,
			Ext: Ext{Traceparent: []byte(traceparent)}}, "\x00\x00\x00\x00"},
	"audio": {Client, `
		01 05 0a 0a  00 00 00 00  09 00 00 00 00 00 00 00  01 00 00 00 00 00 00 00
		00 00  00 00  00 00  ff ff
		ff 7f 00 80`,
		Header{Kind: KindAudio, Codec: PCM16, Flags: FlagDiscontinuity | FlagEnd, Seq: 9, CaptureUS: 1,
			DeadlineMS: math.MaxUint16}, "\xff\x7f\x00\x80"},
}

func TestGoldenMessages(t *testing.T) {
	for name, g := range golden {
		msg := unhex(t, g.bytes)
		h, payload, err := ParseHeader(msg, g.from)
		if err != nil || !same(&h, &g.header) || string(payload) != g.payload {
			t.Errorf("%s: %+v, %q, %v", name, h, payload, err)
		}
		if out := append(AppendHeader([]byte("x"), &g.header), g.payload...); string(out[1:]) != string(msg) {
			t.Errorf("%s is written as\n%x\nwant\n%x", name, out[1:], msg)
		}
		if err := g.header.Check(g.from); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// same says whether two headers say the same.
func same(a, b *Header) bool {
	x, y := *a, *b
	if (x.Ext.Traceparent == nil) != (y.Ext.Traceparent == nil) || (x.Ext.Params == nil) != (y.Ext.Params == nil) ||
		!bytes.Equal(x.Ext.Traceparent, y.Ext.Traceparent) || !bytes.Equal(x.Ext.Params, y.Ext.Params) {
		return false
	}
	if x.Ext.ROI != y.Ext.ROI || x.Ext.HasROI != y.Ext.HasROI {
		return false
	}
	x.Ext, y.Ext = Ext{}, Ext{}
	return x.Kind == y.Kind && x.Codec == y.Codec && x.Flags == y.Flags && x.SID == y.SID && x.Seq == y.Seq &&
		x.CaptureUS == y.CaptureUS && x.Width == y.Width && x.Height == y.Height && x.DeadlineMS == y.DeadlineMS
}

// refusal checks all promises about an error.
func refusal(t *testing.T, name string, err error, rule error, code, field string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || !errors.Is(err, rule) || string(e.Code) != code || e.Field != field || e.Msg == "" {
		t.Errorf("%s: got %#v (%v), want code %s, field %q, rule %q", name, e, err, code, field, rule)
		return
	}
	if whole := e.Error(); field != "" && !strings.HasPrefix(whole, field+": ") {
		t.Errorf("%s: %q does not name the field", name, whole)
	}
}

func TestEveryRuleOfTheHeader(t *testing.T) {
	base := AppendHeader(nil, &Header{Kind: KindFrame, Codec: JPEG, SID: 5, Seq: 6})
	base = append(base, "payload"...)
	at := func(values ...byte) []byte { // pairs of offset and value
		m := bytes.Clone(base)
		for i := 0; i < len(values); i += 2 {
			m[values[i]] = values[i+1]
		}
		return m
	}
	ext := func(entries string) []byte {
		e := unhex(t, entries)
		m := bytes.Clone(base[:HeaderLen])
		m[28] = byte(len(e))
		return append(m, e...)
	}
	roi := "02 08 00 0000 0000 0100 0100"
	for name, c := range map[string]struct {
		msg   []byte
		rule  error
		code  string
		field string
		fatal bool
	}{
		"empty":                   {nil, ErrShort, "invalid_argument", "header", true},
		"a byte short":            {base[:31], ErrShort, "invalid_argument", "header", true},
		"version 0":               {at(0, 0), ErrVersion, "unsupported_version", "version", true},
		"version 2":               {at(0, 2), ErrVersion, "unsupported_version", "version", true},
		"kind 0":                  {at(1, 0), ErrKind, "unsupported", "kind", false},
		"kind 6":                  {at(1, 6), ErrKind, "unsupported", "kind", false},
		"codec 13":                {at(2, 13), ErrCodec, "unsupported", "codec", false},
		"codec auto":              {at(2, 255), ErrCodec, "unsupported", "codec", false},
		"flag 16":                 {at(3, 17), ErrFlags, "unsupported", "flags", false},
		"frame of samples":        {at(2, 10), ErrPairing, "invalid_argument", "codec", false},
		"frame of tensors":        {at(2, 12), ErrPairing, "invalid_argument", "codec", false},
		"config of a still":       {at(1, 2), ErrPairing, "invalid_argument", "codec", false},
		"tensor of a picture":     {at(1, 4), ErrPairing, "invalid_argument", "codec", false},
		"audio of a picture":      {at(1, 5), ErrPairing, "invalid_argument", "codec", false},
		"audio of tensors":        {at(1, 5, 2, 12), ErrPairing, "invalid_argument", "codec", false},
		"result of a picture":     {at(1, 3), ErrPairing, "invalid_argument", "codec", false},
		"result from a client":    {at(1, 3, 2, 12), ErrDirection, "invalid_argument", "kind", false},
		"ext longer than message": {at(28, 8), ErrExtLen, "invalid_argument", "ext_len", false},
		"ext far longer":          {at(29, 255), ErrExtLen, "invalid_argument", "ext_len", false},
		"entry without length":    {ext("09 00"), ErrTLVLen, "invalid_argument", "ext", false},
		"entry longer than ext": {ext("02 09 00 0000 0000 0100 0100"), ErrTLVLen, "invalid_argument", "ext.roi",
			false},
		"unknown longer than ext": {ext("63 01 00"), ErrTLVLen, "invalid_argument", "ext[type 99]", false},
		"region twice":            {ext(roi + roi), ErrTLVTwice, "invalid_argument", "ext.roi", false},
		"parameters twice": {ext(`04 02 00 "{}" 04 02 00 "{}"`), ErrTLVTwice, "invalid_argument",
			"ext.params", false},
		"traceparent twice": {ext(`01 37 00 "` + traceparent + `" 01 37 00 "` + traceparent + `"`),
			ErrTLVTwice, "invalid_argument", "ext.traceparent", false},
		"short region": {ext("02 07 00 0000 0000 0100 01"), ErrTLVSize, "invalid_argument", "ext.roi",
			false},
		"long region": {ext("02 09 00 0000 0000 0100 0100 00"), ErrTLVSize, "invalid_argument",
			"ext.roi", false},
		"empty parameters": {ext("04 00 00"), ErrTLVSize, "invalid_argument", "ext.params", false},
		"wrong behind unknown ones": {ext("03 01 00 00 ff 00 00 03 00 00 02 00 00"), ErrTLVSize, "invalid_argument",
			"ext.roi", false},
	} {
		h, payload, err := ParseHeader(c.msg, Client)
		refusal(t, name, err, c.rule, c.code, c.field)
		if !same(&h, &Header{}) || payload != nil {
			t.Errorf("%s: something comes with the error", name)
		}
		var e *Error
		if !errors.As(err, &e) || e.Fatal != c.fatal || (e.SID == nil) != c.fatal || (e.Seq == nil) != c.fatal {
			t.Errorf("%s: %+v", name, e)
		} else if !c.fatal && (*e.SID != 5 || *e.Seq != 6) {
			t.Errorf("%s: is of frame %d of %d", name, *e.Seq, *e.SID)
		}
	}
	if _, _, err := ParseHeader(base, Server); !errors.Is(err, ErrDirection) {
		t.Errorf("a frame from the server: %v", err)
	}
}

func TestUnknownEntriesAreSkipped(t *testing.T) {
	ext := unhex(t, "63 00 00 "+"02 08 00 0100 0200 0300 0400 "+"63 02 00 ffff "+"00 01 00 00 "+"08 00 00 08 00 00")
	msg := AppendHeader(nil, &Header{Kind: KindFrame})
	msg[28] = byte(len(ext))
	msg = append(append(msg, ext...), 'p')
	h, payload, err := ParseHeader(msg, Client)
	if err != nil || string(payload) != "p" || h.Ext.ROI != [4]uint16{1, 2, 3, 4} || !h.Ext.HasROI {
		t.Fatalf("%+v %q %v", h, payload, err)
	}
}

// TestPairs holds every kind and codec against the protocol's table.
func TestPairs(t *testing.T) {
	for kind, codecs := range map[Kind]string{
		KindFrame: "1111111111000", KindConfig: "0000111100000", KindResult: "0000000000001",
		KindTensor: "0000000000001", KindAudio: "0000000000110",
	} {
		for c := range codecs {
			h := Header{Kind: kind, Codec: Codec(c)}
			from := Client
			if kind == KindResult {
				from = Server
			}
			if err := h.Check(from); (err == nil) != (codecs[c] == '1') {
				t.Errorf("kind %d with %s: %v", kind, h.Codec, err)
			}
		}
	}
}

func TestCheckRefusesWhatCannotBeWritten(t *testing.T) {
	ok := func() Header { return Header{Kind: KindTensor, Codec: Tensors} }
	long, short, empty := ok(), ok(), ok()
	long.Ext.Params = bytes.Repeat([]byte(" "), math.MaxUint16-tlvHead+1)
	short.Ext.Traceparent = []byte("00")
	empty.Ext.Params = []byte{}
	refusal(t, "long", long.Check(Client), ErrExtLen, "too_large", "ext")
	refusal(t, "short", short.Check(Client), ErrTLVSize, "invalid_argument", "ext.traceparent")
	refusal(t, "empty", empty.Check(Client), ErrTLVSize, "invalid_argument", "ext.params")
	long.Ext.Params = long.Ext.Params[1:]
	if err := long.Check(Client); err != nil {
		t.Fatal(err)
	}
	h, _, err := ParseHeader(AppendHeader(nil, &long), Client)
	if err != nil || len(h.Ext.Params) != math.MaxUint16-tlvHead {
		t.Fatalf("the longest extension: %v", err)
	}
	long.Ext.Traceparent = []byte(traceparent)
	defer func() {
		if recover() == nil {
			t.Fatal("an extension that is too long was written")
		}
	}()
	AppendHeader(nil, &long)
}

// anyHeader draws a valid header from either side.
func anyHeader(t *rapid.T) (h Header, from Side) {
	pairs := map[Kind][]Codec{
		KindFrame: {Opaque, JPEG, PNG, WebP, H264, VP8, VP9, AV1, RGB24, NV12}, KindConfig: {H264, VP8, VP9, AV1},
		KindResult: {Tensors}, KindTensor: {Tensors}, KindAudio: {PCM16, PCMFloat},
	}
	h.Kind = Kind(rapid.IntRange(1, 5).Draw(t, "kind"))
	h.Codec = rapid.SampledFrom(pairs[h.Kind]).Draw(t, "codec")
	h.Flags = Flags(rapid.IntRange(0, 15).Draw(t, "flags"))
	h.SID, h.Seq = rapid.Uint32().Draw(t, "sid"), rapid.Uint64().Draw(t, "seq")
	h.CaptureUS = rapid.Int64().Draw(t, "capture")
	h.Width, h.Height = rapid.Uint16().Draw(t, "width"), rapid.Uint16().Draw(t, "height")
	h.DeadlineMS = rapid.Uint16().Draw(t, "deadline")
	if rapid.Bool().Draw(t, "traced") {
		h.Ext.Traceparent = rapid.SliceOfN(rapid.Byte(), traceparentMin, 100).Draw(t, "traceparent")
	}
	if h.Ext.HasROI = rapid.Bool().Draw(t, "region"); h.Ext.HasROI {
		for i := range h.Ext.ROI {
			h.Ext.ROI[i] = rapid.Uint16().Draw(t, "roi")
		}
	}
	if rapid.Bool().Draw(t, "with params") {
		h.Ext.Params = rapid.SliceOfN(rapid.Byte(), 2, 300).Draw(t, "params")
	}
	if h.Kind == KindResult {
		return h, Server
	}
	return h, Client
}

func TestHeaderComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, from := anyHeader(t)
		body := rapid.SliceOf(rapid.Byte()).Draw(t, "payload")
		msg := append(AppendHeader(nil, &h), body...)
		got, payload, err := ParseHeader(msg, from)
		if err != nil || !same(&got, &h) || !bytes.Equal(payload, body) {
			t.Fatalf("%+v, %v", got, err)
		}
		// Written into headroom, the header is the same, and the bytes around are untouched.
		room := bytes.Repeat([]byte{0xee}, h.Size()+2)
		if n := PutHeader(room[1:len(room)-1], &h); n != h.Size() || room[0] != 0xee || room[n+1] != 0xee ||
			!bytes.Equal(room[1:n+1], msg[:n]) {
			t.Fatalf("in headroom: %x", room)
		}
	})
}

func FuzzHeader(f *testing.F) {
	for _, g := range golden {
		f.Add(unhex(f, g.bytes), g.from == Server)
	}
	malformed := Header{Kind: KindTensor, Codec: Tensors, Ext: Ext{Traceparent: []byte("00-0af7651916")}}
	f.Add(AppendHeader(nil, &malformed), false)
	f.Fuzz(func(t *testing.T, msg []byte, server bool) {
		from := Client
		if server {
			from = Server
		}
		msg = bytes.Clone(msg)[:len(msg):len(msg)]
		h, payload, err := ParseHeader(msg, from)
		if err != nil {
			sound(t, err)
			return
		}
		if err := h.Check(from); err != nil {
			t.Fatalf("read, but not to be written: %v", err)
		}
		again, _, err := ParseHeader(AppendHeader(nil, &h), from)
		if err != nil || !same(&again, &h) {
			t.Fatalf("%+v, then %+v, %v", h, again, err)
		}
		if h.Kind == KindTensor || h.Kind == KindResult {
			_, _, _ = SplitTensors(payload)
		}
	})
}

// sound checks that an error can be sent.
func sound(t *testing.T, err error) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Code == "" || e.Msg == "" || e.Err == nil {
		t.Fatalf("foreign error: %#v", err)
	}
	if len(e.Error()) > 1000 {
		t.Fatalf("an error of %d bytes", len(e.Error()))
	}
	m := e.Message()
	if _, err := ParseControl(AppendError(nil, &m), Server); err != nil {
		t.Fatalf("cannot be sent: %v", err)
	}
}
