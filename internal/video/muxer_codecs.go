package video

import (
	"bytes"
	"encoding/binary"
	"math"
)

// nalPPS is the type of a picture parameter set.
const nalPPS = 8

// maxSets bounds the parameter sets of each kind in a header.
const maxSets = 31

// nalUnits calls f with each unit of Annex B.
func nalUnits(b []byte, f func(unit []byte)) {
	start := []byte{0, 0, 1}
	at := bytes.Index(b, start)
	for at >= 0 {
		b = b[at+3:]
		unit := b
		if at = bytes.Index(b, start); at >= 0 {
			unit = b[:at]
		}
		if unit = bytes.TrimRight(unit, "\x00"); len(unit) > 0 {
			f(unit)
		}
	}
}

// appendLengthPrefixed appends the units of Annex B, each behind its length in four bytes.
func appendLengthPrefixed(to, b []byte) []byte {
	nalUnits(b, func(unit []byte) {
		to = append(binary.BigEndian.AppendUint32(to, uint32(len(unit))), unit...)
	})
	return to
}

// avcConfig returns the box avcC (ISO/IEC 14496-15, 5.3.3) with the parameter sets of a key frame: the sets inside the
// frame, otherwise the sets sent before; nil without any.
func avcConfig(sets, chunk []byte) ([]byte, error) {
	var sps, pps [][]byte
	for _, from := range [][]byte{chunk, sets} {
		nalUnits(from, func(unit []byte) {
			switch unit[0] & 0x1F {
			case nalSPS:
				sps = append(sps, unit)
			case nalPPS:
				pps = append(pps, unit)
			}
		})
		if len(sps) > 0 && len(pps) > 0 {
			break
		}
		sps, pps = nil, nil
	}
	if len(sps) == 0 {
		return nil, nil
	}
	if len(sps) > maxSets || len(pps) > maxSets || len(sps[0]) < 4 {
		return nil, errHeader
	}
	first, err := parseSPS(sps[0][1:])
	if err != nil {
		return nil, err
	}
	var b boxWriter
	b.box("avcC", func() {
		b.b = append(append(b.b, 1), sps[0][1:4]...)
		b.b = append(b.b, 0xff) // lengths of four bytes
		for i, list := range [][][]byte{sps, pps} {
			n := byte(len(list))
			if i == 0 {
				n |= 0xe0
			}
			b.b = append(b.b, n)
			for _, set := range list {
				if len(set) > math.MaxUint16 {
					err = errHeader
				}
				b.b = append(binary.BigEndian.AppendUint16(b.b, uint16(len(set))), set...)
			}
		}
		if first.high {
			b.b = append(b.b, 0xfc|byte(first.chroma), 0xf8|byte(first.luma), 0xf8|byte(first.chromaDepth), 0)
		}
	})
	return b.b, err
}

// vpFormat is the format of the samples of VP8 and VP9.
type vpFormat struct{ profile, depth, subsampling, fullRange uint32 }

// vpConfig returns the box vpcC (VP Codec ISO Media File Format Binding, 2.2). The level is the lowest for the size.
func vpConfig(f vpFormat, info Chunk) []byte {
	level := uint32(62)
	for _, l := range []struct{ level, pixels uint32 }{{10, 36864}, {11, 73728}, {20, 122880}, {21, 245760},
		{30, 552960}, {31, 983040}, {40, 2228224}, {50, 8912896}, {60, 35651584}} {
		if uint32(info.Width*info.Height) <= l.pixels {
			level = l.level
			break
		}
	}
	var b boxWriter
	b.full("vpcC", 1, 0, func() {
		b.u32(f.profile<<24 | level<<16 | f.depth<<12 | f.subsampling<<9 | f.fullRange<<8 | 2)
		b.u32(2<<24 | 2<<16) // colours as in the stream
	})
	return b.b
}

// vp9Config reads the format of a key frame (VP9 bitstream specification, 7.2).
func vp9Config(info Chunk, chunk []byte) ([]byte, error) {
	r := bitReader{b: chunk}
	r.u(2)
	f := vpFormat{profile: r.u(1) | r.u(1)<<1, depth: 8, subsampling: 1}
	if f.profile == 3 {
		r.u(1)
	}
	r.u(1 + 1 + 2 + 24)
	if f.profile >= 2 {
		f.depth = 10 + 2*r.u(1)
	}
	const rgb = 7
	if r.u(3) == rgb {
		f.subsampling, f.fullRange = 3, 1
	} else if f.fullRange = r.u(1); f.profile == 1 || f.profile == 3 {
		x, y := r.u(1), r.u(1)
		f.subsampling = 3 - x - x*y // 4:4:4, 4:2:2 or 4:2:0; MP4 has no 4:4:0
	}
	return vpConfig(f, info), r.err()
}

// appendOBUs appends the units of a chunk of AV1, without temporal delimiters, which MP4 leaves out.
func appendOBUs(to, b []byte) []byte {
	for len(b) > 0 {
		u, err := nextOBU(b)
		if err != nil {
			return append(to, b...) // damaged
		}
		if u.kind != obuDelimiter {
			to = append(to, u.whole...)
		}
		b = b[len(u.whole):]
	}
	return to
}

// av1Config returns the box av1C (AV1 Codec ISO Media File Format Binding, 2.3) with the sequence header of a key
// frame.
func av1Config(chunk []byte) ([]byte, error) {
	var u obu
	for rest := chunk; u.kind != obuSequence; rest = rest[len(u.whole):] {
		var err error
		if len(rest) == 0 {
			return nil, errHeader
		}
		if u, err = nextOBU(rest); err != nil {
			return nil, err
		}
	}
	s := parseSequence(u.content)
	if s.err != nil {
		return nil, s.err
	}
	var b boxWriter
	b.box("av1C", func() {
		b.u32(0x81<<24 | (s.profile<<5|s.level)<<16 | (s.tier<<7|s.high<<6|s.twelve<<5|s.mono<<4|s.x<<3|s.y<<2|
			s.position)<<8)
		b.b = append(b.b, u.whole...)
	})
	return b.b, nil
}
