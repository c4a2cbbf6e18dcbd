package video

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"
)

// Fragment is a compressed picture of a source as a fragment of a fragmented MP4: the bytes Header, followed by the
// Data of packets from a key frame on, are a file. ffmpeg writes the fragments, so each codec of MP4 is supported.
type Fragment struct {
	Header *MP4Header // the same pointer for all packets of a Reader
	Data   []byte     // moof and mdat; valid during the call only
	Key    bool       // the first of pictures that need no earlier picture
	// PTS and DTS are on the clock of Frame.PTS, PTS is exact unless the source lacks certain times.
	PTS, DTS time.Duration
	Length   time.Duration // until the next picture

	Ticks int64 // DTS in units of the fragment's time scale, from any origin
	at    int   // of the decode time in Data
}

// MP4Header is the beginning of an MP4 of packets.
type MP4Header struct {
	Bytes []byte // ftyp and moov
	Codec string // by MP4's name, such as avc1
	scale uint32 // ticks per second
	mime  string // of an Encoder
}

// Duration returns the time of ticks.
func (h *MP4Header) Duration(ticks int64) time.Duration {
	return rational{1, uint64(h.scale)}.duration(ticks)
}

// TimeAt returns the offset of the decode time in Data: PutTime's at.
func (p *Fragment) TimeAt() int { return p.at }

// PutTime replaces the decode time of a fragment, which is at an offset given by TimeAt.
func PutTime(data []byte, at int, ticks int64) { binary.BigEndian.PutUint64(data[at:], uint64(ticks)) }

// packetOffset is added to the times of packets by ffmpeg, because a decode time in MP4 cannot be negative.
const packetOffset = time.Minute

// maxSkew is the largest distance of the newest frame and the newest packet of a live source, by their times, that a
// decoder and pipes explain. A larger distance means that the timeline filter has moved the times of frames.
const maxSkew = 5 * time.Second

// maxFragment bounds a box of the fragmented MP4.
const maxFragment = 64 << 20

// packetArgs make ffmpeg write the source's packets to a descriptor. The muxer tee, and the output without effect,
// keep ffmpeg and the frames going when the codec has no place in MP4 or the pipe is closed.
func packetArgs(descriptor int) []string {
	return []string{"-map", "0:V:0", "-an", "-sn", "-dn", "-map_metadata", "-1", "-c", "copy", "-f", "tee",
		fmt.Sprintf(`[onfail=ignore:f=mp4:output_ts_offset=%d:avoid_negative_ts=disabled:use_editlist=0:`+
			`movflags=empty_moov+default_base_moof+frag_every_frame+frag_discont]pipe\:%d|[f=null:onfail=ignore]-`,
			int(packetOffset/time.Second), descriptor)}
}

// packets reads the packets that ffmpeg writes beside the frames.
type packets struct {
	*sideOutput
	to func(Fragment)

	// Times of packets are uncertain before began, which the first call of Next calls: the packets wait in early.
	early      []Fragment
	earlyBytes int
	waits      atomic.Bool

	shift atomic.Int64 // added to the times of packets
	last  atomic.Int64 // PTS of the newest packet without shift
	any   atomic.Bool
}

func newPackets(to func(Fragment)) (*packets, error) {
	s, err := newSideOutput("packets")
	if err != nil {
		return nil, err
	}
	return &packets{sideOutput: s, to: to}, nil
}

// began sets the origin of the frames' times.
func (k *packets) began(origin time.Duration) {
	if k != nil {
		k.shift.Store(int64(-origin))
		k.waits.Store(false)
	}
}

// maxEarly bounds the packets that wait for the first frame. Beyond, the waiting packets are lost.
const maxEarly = 8 << 20

// give passes a packet on, after the packets that have waited for the first frame.
func (k *packets) give(p Fragment) {
	if k.waits.Load() {
		if k.earlyBytes += len(p.Data); k.earlyBytes > maxEarly {
			k.early, k.earlyBytes = nil, len(p.Data)
		}
		p.Data = bytes.Clone(p.Data)
		k.early = append(k.early, p)
		return
	}
	list := append(k.early, p)
	k.early, k.earlyBytes = nil, 0
	shift := time.Duration(k.shift.Load())
	for _, p := range list {
		p.PTS, p.DTS = p.PTS+shift, p.DTS+shift
		k.to(p)
	}
}

// follow compares the time of a frame with the newest packet's.
func (k *packets) follow(frame time.Duration) {
	if k == nil || !k.any.Load() {
		return
	}
	last := time.Duration(k.last.Load())
	if d := frame - last - time.Duration(k.shift.Load()); d > maxSkew || d < -maxSkew {
		k.shift.Store(int64(frame - last))
	}
}

func (k *packets) read(r *bufio.Reader) error {
	return readMP4(r, func(p Fragment, pts int64) {
		at := p.Header.Duration(pts) - packetOffset
		k.last.Store(int64(at))
		k.any.Store(true)
		p.PTS, p.DTS = at, p.DTS-packetOffset
		k.give(p)
	})
}

// ReadMP4 calls f with each whole fragment of a fragmented MP4. Each fragment has one picture. PTS and DTS are times in
// the file.
func ReadMP4(r *bufio.Reader, f func(Fragment)) error {
	return readMP4(r, func(p Fragment, pts int64) {
		p.PTS = p.Header.Duration(pts)
		f(p)
	})
}

// readMP4 is ReadMP4 with a PTS in ticks.
func readMP4(r *bufio.Reader, f func(p Fragment, pts int64)) error {
	h := &MP4Header{}
	var data []byte
	for {
		name, err := readBox(r, &data, 0)
		if err != nil {
			return err
		}
		switch name {
		case "ftyp":
			h.Bytes = append(h.Bytes, data...)
		case "moov":
			if err := h.parse(data); err != nil {
				return err
			}
			h.Bytes = append(h.Bytes, data...)
		case "moof":
			if h.scale == 0 {
				return errMP4
			}
			p := Fragment{Header: h}
			pts, length, err := p.parse(data)
			if err != nil {
				return err
			}
			if name, err = readBox(r, &data, len(data)); err != nil || name != "mdat" {
				return errors.Join(errMP4, err)
			}
			p.Data, p.Length, p.DTS = data, h.Duration(length), h.Duration(p.Ticks)
			f(p, pts)
		}
	}
}

var errMP4 = errors.New("malformed MP4")

// readBox reads a box behind the first n bytes of data. io.EOF is the end between two boxes.
func readBox(r *bufio.Reader, data *[]byte, n int) (name string, err error) {
	name, size, err := peekBox(r)
	if err != nil {
		return "", err
	}
	*data = slices.Grow((*data)[:n], size)[:n+size]
	_, err = io.ReadFull(r, (*data)[n:])
	return name, unexpectedEOF(err)
}

// peekBox returns the name and the size of the next box. io.EOF is the end between two boxes.
func peekBox(r *bufio.Reader) (name string, size int, err error) {
	head, err := r.Peek(8)
	if err != nil {
		if len(head) > 0 {
			err = unexpectedEOF(err)
		}
		return "", 0, err
	}
	if size, name = int(binary.BigEndian.Uint32(head)), string(head[4:8]); size < 8 || size > maxFragment {
		return "", 0, fmt.Errorf("%w: a box %q of %d bytes", errMP4, name, size)
	}
	return name, size, nil
}

// boxes calls f with each box in b, a sequence of boxes: its name, offset and content.
func boxes(b []byte, f func(name string, at int, content []byte) error) error {
	for at := 0; at < len(b); {
		if len(b)-at < 8 {
			return errMP4
		}
		size := int(binary.BigEndian.Uint32(b[at:]))
		if size < 8 || size > len(b)-at {
			return errMP4
		}
		if err := f(string(b[at+4:at+8]), at+8, b[at+8:at+size]); err != nil {
			return err
		}
		at += size
	}
	return nil
}

// parse reads the time scale and the codec from the box moov.
func (h *MP4Header) parse(moov []byte) error {
	var walk func(b []byte) error
	walk = func(b []byte) error {
		return boxes(b, func(name string, _ int, c []byte) error {
			switch name {
			case "trak", "mdia", "minf", "stbl":
				return walk(c)
			case "mdhd":
				at := 12 // after version, flags, and two times
				if len(c) > 0 && c[0] == 1 {
					at = 20
				}
				if len(c) < at+4 {
					return errMP4
				}
				h.scale = binary.BigEndian.Uint32(c[at:])
			case "stsd":
				if len(c) >= 16 {
					h.Codec = string(c[12:16])
				}
			}
			return nil
		})
	}
	if err := walk(moov[8:]); err != nil {
		return err
	}
	if h.scale == 0 {
		return fmt.Errorf("%w: no time scale", errMP4)
	}
	return nil
}

// Flags of the boxes tfhd and trun (ISO/IEC 14496-12, 8.8.7 and 8.8.8).
const (
	tfhdDataOffset, tfhdDescription          = 1, 2
	tfhdDuration, tfhdSize, tfhdFlags        = 8, 0x10, 0x20
	trunDataOffset, trunFirstFlags           = 1, 4
	trunDuration, trunSize, trunFlags        = 0x100, 0x200, 0x400
	trunComposition                          = 0x800
	sampleDependsOn                   uint32 = 0x10000 // sample_is_non_sync_sample
)

// parse reads a moof with one sample. pts and length are in ticks.
func (p *Fragment) parse(moof []byte) (pts, length int64, err error) {
	var flags uint32
	var composition int64
	found := 0
	// fields returns a reader of 32-bit fields that are present by flags.
	fields := func(c []byte) (func(present uint32, flag uint32) uint32, uint32) {
		if len(c) < 8 {
			err = errMP4
			return func(uint32, uint32) uint32 { return 0 }, 0
		}
		at := 8 // after version, flags, and the id of the track or the number of samples
		return func(present, flag uint32) (v uint32) {
			if present&flag == 0 {
				return 0
			}
			if len(c) < at+4 {
				err = errMP4
				return 0
			}
			v = binary.BigEndian.Uint32(c[at:])
			at += 4
			return v
		}, binary.BigEndian.Uint32(c) & 0xffffff
	}
	e := boxes(moof[8:], func(name string, at int, traf []byte) error {
		if name != "traf" {
			return nil
		}
		base := 8 + at
		return boxes(traf, func(name string, at int, c []byte) error {
			switch name {
			case "tfhd":
				next, has := fields(c)
				next(has, tfhdDataOffset)
				next(has, tfhdDataOffset) // 64 bits
				next(has, tfhdDescription)
				length = int64(next(has, tfhdDuration))
				next(has, tfhdSize)
				flags = next(has, tfhdFlags)
			case "tfdt":
				if len(c) != 12 || c[0] != 1 {
					return errMP4
				}
				p.Ticks, p.at = int64(binary.BigEndian.Uint64(c[4:])), base+at+4
				found++
			case "trun":
				next, has := fields(c)
				if len(c) < 8 || binary.BigEndian.Uint32(c[4:]) != 1 {
					return fmt.Errorf("%w: a fragment without exactly one picture", errMP4)
				}
				next(has, trunDataOffset)
				if has&trunFirstFlags != 0 {
					flags = next(has, trunFirstFlags)
				}
				if has&trunDuration != 0 {
					length = int64(next(has, trunDuration))
				}
				next(has, trunSize)
				if has&trunFlags != 0 {
					flags = next(has, trunFlags)
				}
				composition = int64(int32(next(has, trunComposition)))
				found++
			}
			return err
		})
	})
	switch {
	case e != nil || err != nil:
		return 0, 0, errors.Join(e, err)
	case found != 2:
		return 0, 0, fmt.Errorf("%w: a fragment without times", errMP4)
	}
	p.Key = flags&sampleDependsOn == 0
	return p.Ticks + composition, length, nil
}
