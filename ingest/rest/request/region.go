package request

import (
	"bytes"
	"encoding/json"
	"io"

	"millrace/stream"
)

type Region struct {
	Key      string
	Offset   uint64
	ByteSize uint64
}

// ParseRegion reads {"key": "/NAME", "offset": 0, "byte_size": 64}.
func ParseRegion(body []byte) (Region, error) {
	var ask struct {
		Key      *string `json:"key"`
		Offset   uint64  `json:"offset"`
		ByteSize *uint64 `json:"byte_size"`
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&ask); err != nil {
		return Region{}, NotJSON(err)
	}
	if _, err := d.Token(); err != io.EOF {
		return Region{}, stream.Errorf(stream.InvalidArgument, "", "the body has more bytes after its JSON object")
	}
	switch {
	case ask.Key == nil:
		return Region{}, stream.Errorf(stream.InvalidArgument, "key",
			"is missing: want the name of the shared memory, as for shm_open")
	case ask.ByteSize == nil:
		return Region{}, stream.Errorf(stream.InvalidArgument, "byte_size", "is missing: want the bytes of the region")
	}
	return Region{*ask.Key, ask.Offset, *ask.ByteSize}, nil
}
