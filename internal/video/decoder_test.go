package video

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"millrace/internal/child"
	"millrace/internal/video/videotest"
)

func decoder(t testing.TB, o DecoderOptions) *Decoder {
	t.Helper()
	o.Sandbox = o.FFmpeg == "" && child.SandboxError() == nil
	d, err := NewDecoder(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	d.SetDeadline(time.Now().Add(20 * time.Second))
	return d
}

// luma reads the announced frame and returns the mean brightness.
func luma(t testing.TB, d *Decoder) int {
	t.Helper()
	frame := make([]byte, d.FrameSize())
	if err := d.Frame(frame); err != nil {
		t.Fatal(err)
	}
	sum, y := 0, frame[:d.Width*d.Height]
	for _, v := range y {
		sum += int(v)
	}
	return sum / len(y)
}

// Each frame comes out before the next chunk goes in, with the number of its own chunk.
func TestDecoderReturnsEachFrameBeforeTheNextChunk(t *testing.T) {
	for _, codec := range videotest.Codecs {
		t.Run(codec, func(t *testing.T) {
			const w, h = 160, 120
			list := videotest.Chunks(t, codec, w, h, 24)
			d := decoder(t, DecoderOptions{Codec: codec, Width: w, Height: h, MaxPixels: w * h})
			for i, c := range list {
				if err := d.Write(c); err != nil {
					t.Fatal(err)
				}
				if i == 0 {
					if err := d.Start(); err != nil {
						t.Fatal(err)
					}
					if d.Width != w || d.Height != h {
						t.Fatalf("frames of %d x %d", d.Width, d.Height)
					}
				}
				n, err := d.Next()
				if err != nil || n != uint64(i) {
					t.Fatalf("chunk %d came back as %d, %v", i, n, err)
				}
				if got, want := luma(t, d), videotest.Luma(i); got < want-3 || got > want+3 {
					t.Errorf("frame %d has brightness %d, want %d", i, got, want)
				}
			}
			d.Finish()
			if _, err := d.Next(); err != io.EOF {
				t.Fatalf("at the end: %v", err)
			}
		})
	}
}

// Scaled frames show the whole picture: the corners of a rectangle keep their relative places at every ratio of
// sizes.
func TestDecoderScales(t *testing.T) {
	needs := []TargetSize{{}, {Width: 320, Height: 180}, {Width: 640, Height: 640, Letterbox: true},
		{Width: 301, Height: 173}, {Width: 64, Height: 4000}}
	sizes := [][2]int{{640, 480}, {1280, 720}, {322, 242}}
	codecs := videotest.Codecs
	if testing.Short() {
		needs, sizes, codecs = needs[1:4], sizes[:1], codecs[:2]
	}
	for _, codec := range codecs {
		for _, s := range sizes {
			w, h := s[0], s[1]
			x0, y0, x1, y1 := w/5, h/7, w*9/10, h*3/4
			list := videotest.Chunks(t, codec, w, h, 2, "-vf", fmt.Sprintf("drawbox=%d:%d:%d:%d:white:fill", x0, y0,
				x1-x0, y1-y0))
			for _, n := range needs {
				t.Run(fmt.Sprintf("%s/%dx%d/%+v", codec, w, h, n), func(t *testing.T) {
					d := decoder(t, DecoderOptions{Codec: codec, Width: w, Height: h, Need: n, MaxPixels: w * h})
					for _, c := range list {
						if err := d.Write(c[:len(c)/2], nil, c[len(c)/2:]); err != nil {
							t.Fatal(err)
						}
					}
					d.Finish()
					if err := d.Start(); err != nil {
						t.Fatal(err)
					}
					source := [2]int{d.SourceWidth, d.SourceHeight}
					wantW, wantH := n.In(w, h)
					if d.Width != wantW || d.Height != wantH || (source == [2]int{}) != (wantW == w && wantH == h) ||
						source != [2]int{} && source != s {
						t.Fatalf("frames of %d x %d from %v, want %d x %d", d.Width, d.Height, source, wantW, wantH)
					}
					for i := range list {
						if got, err := d.Next(); err != nil || got != uint64(i) {
							t.Fatalf("frame %d, %v", got, err)
						}
						frame := make([]byte, d.FrameSize())
						if err := d.Frame(frame); err != nil {
							t.Fatal(err)
						}
						// along finds the edges of the rectangle on lines through its middle.
						along := func(count, step, from int) (first, last float64) {
							first, last = -1, -1
							for j := range count {
								if frame[from+j*step] > 125 {
									if first < 0 {
										first = float64(j)
									}
									last = float64(j + 1)
								}
							}
							return first, last
						}
						left, right := along(d.Width, 1, (y0+y1)/2*d.Height/h*d.Width)
						top, bottom := along(d.Height, d.Width, (x0+x1)/2*d.Width/w)
						for _, e := range []struct {
							name     string
							got      float64
							of, from int
							want     int
						}{{"left", left, d.Width, w, x0}, {"right", right, d.Width, w, x1},
							{"top", top, d.Height, h, y0}, {"bottom", bottom, d.Height, h, y1}} {
							scale := float64(e.from) / float64(e.of)
							if got := e.got * scale; got < float64(e.want)-scale-1 || got > float64(e.want)+scale+1 {
								t.Errorf("frame %d: %s edge at %.1f, want %d", i, e.name, got, e.want)
							}
						}
					}
					if _, err := d.Next(); err != io.EOF {
						t.Errorf("at the end: %v", err)
					}
				})
			}
		}
	}
}

func TestDecoderSkipsBrokenChunks(t *testing.T) {
	for _, codec := range []string{H264, VP8, VP9} {
		t.Run(codec, func(t *testing.T) {
			list := videotest.Chunks(t, codec, 64, 48, 21)
			random := rand.New(rand.NewPCG(1, 2))
			for i := 5; i < 8; i++ { // garbage after the header of a delta frame
				list[i] = bytes.Clone(list[i])
				for j := 6; j < len(list[i]); j++ {
					list[i][j] = byte(random.Uint32())
				}
			}
			list[12] = []byte{0, 0, 0, 1, 0x41, 0xFF}
			d := decoder(t, DecoderOptions{Codec: codec, Width: 64, Height: 48})
			go func() {
				for _, c := range list {
					_ = d.Write(c)
				}
				d.Finish()
			}()
			if err := d.Start(); err != nil {
				t.Fatal(err)
			}
			var got []uint64
			for {
				n, err := d.Next()
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatalf("after %v: %v", got, err)
				}
				got = append(got, n)
				if err := d.Skip(); err != nil {
					t.Fatal(err)
				}
			}
			if n := len(got); n < 10 || got[n-1] != 20 || got[0] != 0 {
				t.Errorf("frames %v: want the first, the last, and most between", got)
			}
		})
	}
}

func TestDecoderRefusals(t *testing.T) {
	bad := []DecoderOptions{{Codec: "theora", Width: 8, Height: 8}, {Codec: VP8},
		{Codec: VP8, Width: 8, Height: 1 << 20}}
	for _, o := range bad {
		if d, err := NewDecoder(context.Background(), o); err == nil {
			_ = d.Close()
			t.Errorf("%+v was accepted", o)
		}
	}
	_, err := NewDecoder(context.Background(), DecoderOptions{Codec: VP8, Width: 8, Height: 8,
		FFmpeg: "no-such-program"})
	if KindOf(err) != FFmpegMissing {
		t.Errorf("without ffmpeg: %v", err)
	}

	t.Run("garbage", func(t *testing.T) {
		d := decoder(t, DecoderOptions{Codec: H264, Width: 64, Height: 48})
		_ = d.Write(bytes.Repeat([]byte{0, 0, 1, 0x65, 7, 7, 7}, 40))
		d.Finish()
		if err := d.Start(); KindOf(err) != Unsupported {
			t.Errorf("garbage: %v", err)
		}
	})
	t.Run("too large", func(t *testing.T) {
		if _, err := NewDecoder(t.Context(), DecoderOptions{Codec: VP8, Width: 64, Height: 48,
			MaxPixels: 64*48 - 1}); KindOf(err) != TooLarge || !strings.Contains(err.Error(), "limits.max_pixels") {
			t.Errorf("too large a picture: %v", err)
		}
		for _, width := range []int{64, 1024} { // within ffmpeg's limit of memory, and beyond
			d := decoder(t, DecoderOptions{Codec: VP8, Width: 32, Height: 24, MaxPixels: 64*48 - 1}) // a wrong size
			for _, c := range videotest.Chunks(t, VP8, width, 48*width/64, 3) {
				_ = d.Write(c)
			}
			d.Finish()
			want := fmt.Sprintf("(they have %d x %d pixels: raise limits.max_pixels to %d)", width, 48*width/64,
				48*width*width/64)
			err := d.Start()
			if err == nil { // of the size in the header of the container
				_, err = d.Next()
			}
			if KindOf(err) != TooLarge || !strings.Contains(err.Error(), want) {
				t.Errorf("a picture %d wide: %v", width, err)
			}
		}
	})
	t.Run("reordered", func(t *testing.T) {
		list := videotest.Chunks(t, H264, 64, 48, 12, "-tune", "film", "-bf", "2", "-x264-params",
			"aud=1:bframes=2:b-adapt=0")
		d := decoder(t, DecoderOptions{Codec: H264, Width: 64, Height: 48})
		for _, c := range list {
			_ = d.Write(c)
		}
		d.Finish()
		err := d.Start()
		for err == nil {
			if _, err = d.Next(); err == nil {
				err = d.Skip()
			}
		}
		if KindOf(err) != Unsupported || !strings.Contains(err.Error(), "B-frames") {
			t.Errorf("B-frames: %v", err)
		}
	})
	t.Run("killed", func(t *testing.T) {
		list := videotest.Chunks(t, VP8, 64, 48, 2)
		d := decoder(t, DecoderOptions{Codec: VP8, Width: 64, Height: 48})
		_ = d.Write(list[0])
		if err := d.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Next(); err != nil {
			t.Fatal(err)
		}
		_ = luma(t, d)
		if err := syscall.Kill(d.ffmpeg.Pid(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Next(); KindOf(err) != Killed {
			t.Errorf("killed: %v", err)
		}
	})
	t.Run("silent", func(t *testing.T) {
		d := decoder(t, DecoderOptions{Codec: VP8, Width: 64, Height: 48})
		d.SetDeadline(time.Now())
		if err := d.Start(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("nothing came: %v", err)
		}
	})
}

func TestParseChunk(t *testing.T) {
	sizes := [][2]int{{66, 50}, {64, 48}, {130, 98}, {640, 360}}
	if testing.Short() {
		sizes = sizes[:1]
	}
	for _, codec := range videotest.Codecs {
		for _, s := range sizes {
			for i, b := range videotest.Chunks(t, codec, s[0], s[1], 12) {
				c, err := ParseChunk(codec, b)
				if err != nil {
					t.Fatalf("%s chunk %d: %v", codec, i, err)
				}
				if want := i%10 == 0; c.Key != want {
					t.Errorf("%s chunk %d: key is %v", codec, i, c.Key)
				}
				if c.Key && (c.Width != s[0] || c.Height != s[1]) {
					t.Errorf("%s says %d x %d, is %v", codec, c.Width, c.Height, s)
				}
			}
		}
	}
	high := videotest.Chunks(t, H264, 98, 66, 1, "-profile:v", "high444", "-pix_fmt", "yuv444p", "-x264-params",
		"aud=1:cqm=jvt")
	if c, err := ParseChunk(H264, high[0]); err != nil || c != (Chunk{true, 98, 66}) {
		t.Errorf("4:4:4 with scaling lists: %+v, %v", c, err)
	}
	fields := videotest.Chunks(t, H264, 98, 68, 1, "-x264-params", "aud=1:interlaced=1")
	if c, err := ParseChunk(H264, fields[0]); err != nil || c != (Chunk{true, 98, 68}) {
		t.Errorf("interlaced: %+v, %v", c, err)
	}
	for _, bad := range []struct{ codec, text string }{
		{H264, ""}, {H264, "\x01\x64\x00\x1f"}, {VP8, "\x10"}, {VP8, "\x10\x02\x00\x9d\x01\x2b\x40\x01\xf0\x00"},
		{VP9, "\x00"}, {AV1, "\x0a\xff"}, {"mpeg2", "x"},
	} {
		if c, err := ParseChunk(bad.codec, []byte(bad.text)); err == nil {
			t.Errorf("%s %q: %+v", bad.codec, bad.text, c)
		}
	}
}

func FuzzParseChunk(f *testing.F) {
	names := []string{H264, VP8, VP9, AV1}
	f.Add(uint8(0), []byte("\x00\x00\x00\x01\x67\x42\xc0\x1e\xd9\x00\xa0\x47\xfe\xc8"))
	f.Add(uint8(1), []byte("\x10\x02\x00\x9d\x01\x2a\x40\x01\xf0\x00"))
	f.Add(uint8(2), []byte("\x82\x49\x83\x42\x00\x13\xf0\x0e\xf0"))
	f.Add(uint8(3), []byte("\x12\x00\x0a\x0a\x00\x00\x00\x24\xc6\xab\xdf\x3e\xfe\x24"))
	f.Fuzz(func(t *testing.T, codec uint8, b []byte) {
		c, err := ParseChunk(names[codec%4], b)
		if err != nil && c != (Chunk{}) {
			t.Errorf("%+v and %v", c, err)
		}
		if c.Width < 0 || c.Height < 0 || c.Width > maxSide || c.Height > maxSide {
			t.Errorf("%+v", c)
		}
	})
}
