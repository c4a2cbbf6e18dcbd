package codec

import (
	"encoding/binary"
	"fmt"
	"image"
	"image/color"
	"image/draw"

	"golang.org/x/image/webp"
)

// decodeAnimated draws the first frame of an animated WebP on a black canvas.
//
// An ANMF chunk holds a frame's place on the canvas and the chunks of a still picture (WebP Container Specification,
// "Animation"). The library reads only still pictures, so the frame is wrapped in a container.
func (d *Decoder) decodeAnimated(b []byte, j *job) error {
	body, at, err := firstFrame(b)
	if err != nil {
		return err
	}
	canvas := image.Rect(0, 0, j.info.Width, j.info.Height)
	if !at.In(canvas) {
		return fmt.Errorf("codec: webp: %w: its first frame %v reaches beyond the canvas %v", ErrCorrupt, at,
			canvas.Max)
	}
	d.reader.Reset(stillContainer(body, at))
	m, err := webp.Decode(&timedReader{&d.reader, d})
	d.reader.Reset(nil)
	if err != nil {
		return pictureError(WebP, err)
	}
	if got := m.Bounds(); got.Dx() != at.Dx() || got.Dy() != at.Dy() {
		return fmt.Errorf("codec: webp: %w: its first frame is said to be %v and is %v", ErrCorrupt, at.Size(),
			got.Size())
	}
	if at == canvas {
		return d.drawImage(m, j)
	}
	whole := image.NewRGBA(canvas)
	draw.Draw(whole, canvas, image.NewUniform(color.Black), image.Point{}, draw.Src)
	draw.Draw(whole, at, m, m.Bounds().Min, draw.Over)
	return d.drawImage(whole, j)
}

// firstFrame returns the chunks and the place of the first frame.
func firstFrame(b []byte) (body []byte, at image.Rectangle, err error) {
	for rest := b[12:]; len(rest) >= 8; {
		n := uint64(binary.LittleEndian.Uint32(rest[4:]))
		chunk := rest[8:]
		if n > uint64(len(chunk)) {
			break
		}
		if string(rest[:4]) == "ANMF" {
			const head = 16
			if n < head {
				break
			}
			x, y := 2*u24(chunk), 2*u24(chunk[3:])
			return chunk[head:n], image.Rect(x, y, x+1+u24(chunk[6:]), y+1+u24(chunk[9:])), nil
		}
		if n += n & 1; n > uint64(len(chunk)) {
			break
		}
		rest = chunk[n:]
	}
	return nil, at, fmt.Errorf("codec: webp: %w: the animation has no complete frame", ErrTruncated)
}

// stillContainer wraps a frame's chunks in the container of a still picture. The container's header has the size, so
// the library refuses a frame of another size before allocating memory.
func stillContainer(body []byte, at image.Rectangle) []byte {
	out := make([]byte, 0, 30+len(body))
	out = append(out, "RIFF\x00\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00"...)
	flags := byte(0)
	if len(body) >= 4 && string(body[:4]) == "ALPH" {
		flags = 1 << 4
	}
	out = append(out, flags, 0, 0, 0)
	for _, side := range [2]int{at.Dx() - 1, at.Dy() - 1} {
		out = append(out, byte(side), byte(side>>8), byte(side>>16))
	}
	out = append(out, body...)
	binary.LittleEndian.PutUint32(out[4:], uint32(len(out)-8))
	return out
}
