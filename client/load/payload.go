package load

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/gorilla/websocket"

	"millrace/internal/codec"
	"millrace/stream"
)

// Frame is one payload. All streams share the payload, so the bytes must not change.
type Frame struct {
	Data  []byte
	Codec stream.Codec // JPEG, PNG or WebP by content, otherwise Opaque

	once     sync.Once
	prepared *websocket.PreparedMessage
	err      error
}

// NewFrame returns a frame with these bytes.
func NewFrame(data []byte) *Frame {
	f := &Frame{Data: data, Codec: stream.Opaque}
	switch codec.Sniff(data) {
	case codec.JPEG:
		f.Codec = stream.JPEG
	case codec.PNG:
		f.Codec = stream.PNG
	case codec.WebP:
		f.Codec = stream.WebP
	}
	return f
}

// message returns the frame as a WebSocket message. The frame is masked only once, since masking each copy would take
// the client's processor time.
func (f *Frame) message() (*websocket.PreparedMessage, error) {
	f.once.Do(func() { f.prepared, f.err = websocket.NewPreparedMessage(websocket.BinaryMessage, f.Data) })
	return f.prepared, f.err
}

// maxPayload bounds the sum of the sizes of a directory's files. The files are kept in memory to keep reading out of
// the measurement.
const maxPayload = 1 << 30

// frames returns the payloads that the streams send in turn.
func (c *Config) frames() ([]*Frame, error) {
	switch {
	case c.File != "":
		data, err := os.ReadFile(c.File)
		if err != nil {
			return nil, fmt.Errorf("--file: %w", err)
		}
		if len(data) == 0 {
			return nil, fmt.Errorf("--file: %s is empty", c.File)
		}
		return []*Frame{NewFrame(data)}, nil
	case c.Dir != "":
		return readDir(c.Dir)
	}
	data := make([]byte, c.Size)
	for i, v := 0, uint32(1); i < len(data); i++ {
		v ^= v << 13 // xorshift: incompressible data
		v ^= v >> 17
		v ^= v << 5
		data[i] = byte(v)
	}
	return []*Frame{NewFrame(data)}, nil
}

// readDir reads the files of a directory in the order of their names.
func readDir(dir string) (list []*Frame, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("--dir: %w", err)
	}
	sum := 0
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("--dir: %w", err)
		}
		if len(data) == 0 {
			continue
		}
		if sum += len(data); sum > maxPayload {
			return nil, fmt.Errorf("--dir: the files of %s have more than %d bytes together, all of which are kept "+
				"in memory: use fewer", dir, maxPayload)
		}
		list = append(list, NewFrame(data))
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("--dir: %s has no files, or only empty ones", dir)
	}
	return list, nil
}
