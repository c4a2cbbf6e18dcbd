package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
)

// format is the chunk "fmt " of a WAV file.
type format struct {
	Coding, Channels  uint16
	Rate, BytesPerSec uint32
	Align, Bits       uint16
}

var supported = format{Coding: 1, Channels: 1, Rate: rate, BytesPerSec: 2 * rate, Align: 2, Bits: 16}

func writeWAV(path string, pcm []byte) error {
	var b bytes.Buffer
	b.WriteString("RIFF")
	le := binary.LittleEndian
	b.Write(le.AppendUint32(nil, uint32(36+len(pcm))))
	b.WriteString("WAVEfmt ")
	b.Write(le.AppendUint32(nil, 16))
	if err := binary.Write(&b, le, supported); err != nil {
		return err
	}
	b.WriteString("data")
	b.Write(le.AppendUint32(nil, uint32(len(pcm))))
	b.Write(pcm)
	return os.WriteFile(path, b.Bytes(), 0o644)
}

// readWAV returns the samples of a file in the supported format.
func readWAV(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if len(data) < 12 || string(data[:4]) != "RIFF" || string(data[8:12]) != "WAVE" {
		return nil, fmt.Errorf("%s is not a WAV file", path)
	}
	var f format
	for rest := data[12:]; len(rest) >= 8; {
		name, size := string(rest[:4]), int(binary.LittleEndian.Uint32(rest[4:]))
		rest = rest[8:]
		body := rest[:min(size, len(rest))]
		switch {
		case name == "fmt " && len(body) >= 16:
			if err := binary.Read(bytes.NewReader(body), binary.LittleEndian, &f); err != nil {
				return nil, err
			}
		case name == "data" && f != supported:
			return nil, fmt.Errorf("%s is %+v, not %+v: convert it with ffmpeg -i %s -ar %d -ac 1 -c:a pcm_s16le "+
				"keys.wav", path, f, supported, path, rate)
		case name == "data":
			return body[:len(body)/2*2], nil
		}
		rest = rest[min(size+size%2, len(rest)):]
	}
	return nil, fmt.Errorf("%s has no samples", path)
}
