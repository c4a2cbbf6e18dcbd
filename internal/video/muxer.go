package video

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// muxerTick is the time scale of a Muxer: 1/1000000 s.
const muxerTick = 1000000

// maxMuxerTime bounds the times of chunks, which a client chooses: sums of times stay within a Duration.
const maxMuxerTime = time.Duration(1) << 61

// Muxer makes fragments of MP4 from chunks without B-frames. The first chunk is a key frame. A Muxer is for one
// goroutine at a time.
type Muxer struct {
	codec         string
	header        *MP4Header
	width, height int
	config        []byte // of header: the box with the codec's parameters
	data          []byte // reused
	number        uint32
	last          int64 // time of the newest chunk
	length        int64 // until the newest chunk
}

// NewMuxer returns the muxer of a video with a codec of ParseChunk.
func NewMuxer(codec string) *Muxer { return &Muxer{codec: codec} }

// Fragment returns a chunk as a fragment, whose Data is valid until the next call. info is the chunk's. Of H.264,
// sets are parameter sets that were sent separately, or nil. The fragment's Header is a new one when the codec's
// parameters or the size have changed.
func (m *Muxer) Fragment(info Chunk, sets, chunk []byte, at time.Duration) (p Fragment, err error) {
	if at > maxMuxerTime || at < -maxMuxerTime {
		return p, fmt.Errorf("a time of %v", at)
	}
	if info.Key {
		if err := m.configure(info, sets, chunk); err != nil {
			return p, err
		}
	}
	if m.header == nil {
		return p, errors.New("the video does not begin with a key frame")
	}
	ticks := at.Microseconds()
	if m.number > 0 {
		if ticks == m.last { // players want times that rise
			ticks++
		}
		if step := ticks - m.last; step > 0 && step <= muxerTick {
			m.length = step
		}
	}
	if m.length == 0 {
		m.length = muxerTick / 30 // of the first chunk: the next chunk tells
	}
	m.last = ticks
	m.number++
	m.data = beginFragment(m.data, m.number, ticks, m.length, info.Key)
	at = time.Duration(ticks) * time.Microsecond
	p = Fragment{Header: m.header, Key: info.Key, PTS: at, DTS: at, Length: m.header.Duration(m.length), Ticks: ticks,
		at: fragmentTimeAt}
	switch m.codec {
	case H264:
		m.data = appendLengthPrefixed(m.data, chunk)
	case AV1:
		m.data = appendOBUs(m.data, chunk)
	default:
		m.data = append(m.data, chunk...)
	}
	if size := len(m.data) - fragmentHeader; size > maxFragment {
		return p, fmt.Errorf("a chunk of %d bytes", size)
	}
	endFragment(m.data)
	p.Data = m.data
	return p, nil
}

// The length of a fragment up to the chunk, and the offsets of the decode time and of the chunk's size.
const (
	fragmentHeader = 8 + 16 + 8 + 16 + 20 + 32 + 8
	fragmentTimeAt = 8 + 16 + 8 + 16 + 12
	fragmentSizeAt = 8 + 16 + 8 + 16 + 20 + 24
)

// beginFragment writes the boxes in front of a picture to the memory of b.
func beginFragment(b []byte, number uint32, ticks, length int64, key bool) []byte {
	flags := uint32(0x01010000) // depends on another picture, and is no place to begin
	if key {
		flags = 0x02000000
	}
	w := boxWriter{b[:0]}
	w.box("moof", func() {
		w.full("mfhd", 0, 0, func() { w.u32(number) })
		w.box("traf", func() {
			w.full("tfhd", 0, 0x020000, func() { w.u32(1) }) // offsets count from moof
			w.full("tfdt", 1, 0, func() { w.u64(uint64(ticks)) })
			w.full("trun", 0, trunDataOffset|trunDuration|trunSize|trunFlags, func() {
				w.u32(1, fragmentHeader, uint32(length), 0, flags)
			})
		})
	})
	w.box("mdat", func() {})
	return w.b
}

// endFragment completes a fragment of beginFragment to which the picture was appended.
func endFragment(b []byte) {
	size := uint32(len(b) - fragmentHeader)
	binary.BigEndian.PutUint32(b[fragmentSizeAt:], size)
	binary.BigEndian.PutUint32(b[fragmentHeader-8:], size+8)
}

// configure makes the header for a key frame, unless the header stays.
func (m *Muxer) configure(info Chunk, sets, chunk []byte) (err error) {
	var config []byte
	switch m.codec {
	case H264:
		config, err = avcConfig(sets, chunk)
	case VP8:
		config = vpConfig(vpFormat{depth: 8, subsampling: 1}, info)
	case VP9:
		config, err = vp9Config(info, chunk)
	case AV1:
		config, err = av1Config(chunk)
	default:
		err = fmt.Errorf("no place in MP4 for %q", m.codec)
	}
	if err != nil {
		return err
	}
	width, height := info.Width, info.Height
	if width == 0 || config == nil { // of H.264: the parameter sets of before
		width, height = m.width, m.height
	}
	switch {
	case config == nil && m.header == nil || width == 0:
		return errors.New("the first key frame has no parameter sets")
	case config == nil || m.header != nil && bytes.Equal(config, m.config) && width == m.width && height == m.height:
		return nil
	}
	m.config, m.width, m.height = config, width, height
	name := muxerNames[m.codec]
	m.header = &MP4Header{Codec: name, scale: muxerTick, Bytes: movieHeader(name, config, width, height, muxerTick)}
	return nil
}

// muxerNames are MP4's names of the codecs.
var muxerNames = map[string]string{H264: "avc1", VP8: "vp08", VP9: "vp09", AV1: "av01"}

// movieHeader returns the boxes ftyp and moov (ISO/IEC 14496-12, 8.2 to 8.8) of a video. config is the box with the
// codec's parameters, scale the ticks of a second.
func movieHeader(codec string, config []byte, width, height int, scale uint32) []byte {
	var b boxWriter
	matrix := func() { b.u32(0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 0x40000000) }
	b.box("ftyp", func() { b.text("isom\x00\x00\x02\x00isomiso6mp41") })
	b.box("moov", func() {
		b.full("mvhd", 0, 0, func() {
			b.u32(0, 0, 1000, 0, 0x10000, 0x01000000, 0, 0)
			matrix()
			b.u32(0, 0, 0, 0, 0, 0, 2)
		})
		b.box("trak", func() {
			b.full("tkhd", 0, 3, func() {
				b.u32(0, 0, 1, 0, 0, 0, 0, 0, 0)
				matrix()
				b.u32(uint32(width)<<16, uint32(height)<<16)
			})
			b.box("mdia", func() {
				b.full("mdhd", 0, 0, func() { b.u32(0, 0, scale, 0, 0x55c40000) }) // language und
				b.full("hdlr", 0, 0, func() {
					b.u32(0)
					b.text("vide")
					b.u32(0, 0, 0)
					b.text("\x00")
				})
				b.box("minf", func() {
					b.full("vmhd", 0, 1, func() { b.u32(0, 0) })
					b.box("dinf", func() {
						b.full("dref", 0, 0, func() { b.u32(1); b.full("url ", 0, 1, func() {}) })
					})
					b.box("stbl", func() {
						b.full("stsd", 0, 0, func() {
							b.u32(1)
							b.box(codec, func() { sampleEntry(&b, config, width, height) })
						})
						b.full("stts", 0, 0, func() { b.u32(0) })
						b.full("stsc", 0, 0, func() { b.u32(0) })
						b.full("stsz", 0, 0, func() { b.u32(0, 0) })
						b.full("stco", 0, 0, func() { b.u32(0) })
					})
				})
			})
		})
		b.box("mvex", func() { b.full("trex", 0, 0, func() { b.u32(1, 1, 0, 0, 0) }) })
	})
	return b.b
}

// sampleEntry writes a VisualSampleEntry (12.1.3) with the codec's parameters.
func sampleEntry(b *boxWriter, config []byte, width, height int) {
	b.u32(0, 1, 0, 0, 0, 0, uint32(width)<<16|uint32(height))
	b.u32(0x480000, 0x480000, 0, 1<<16)
	b.text(string(make([]byte, 30)))
	b.u32(0x0018ffff)
	b.b = append(b.b, config...)
}

// boxWriter writes boxes of MP4.
type boxWriter struct{ b []byte }

// box writes a box around what content writes.
func (w *boxWriter) box(name string, content func()) {
	at := len(w.b)
	w.b = append(append(w.b, 0, 0, 0, 0), name...)
	content()
	binary.BigEndian.PutUint32(w.b[at:], uint32(len(w.b)-at))
}

// full is box with a version and flags.
func (w *boxWriter) full(name string, version byte, flags uint32, content func()) {
	w.box(name, func() {
		w.u32(uint32(version)<<24 | flags)
		content()
	})
}

func (w *boxWriter) u32(list ...uint32) {
	for _, v := range list {
		w.b = binary.BigEndian.AppendUint32(w.b, v)
	}
}

func (w *boxWriter) u64(v uint64)     { w.b = binary.BigEndian.AppendUint64(w.b, v) }
func (w *boxWriter) text(text string) { w.b = append(w.b, text...) }
