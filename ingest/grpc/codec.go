package grpc

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// codec reads inference requests and writes their replies without the generated messages,
// which would copy each tensor twice. All other messages are read and written by those.
type codec struct {
	encoding.CodecV2
	read func(*call, mem.BufferSlice)
}

func newCodec(read func(*call, mem.BufferSlice)) codec {
	return codec{encoding.GetCodecV2(proto.Name), read}
}

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if r, ok := v.(*reply); ok {
		return r.buffers(), nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal implements encoding.CodecV2. A request that cannot be read is no error here: its
// call has the error, so that it is counted and answered as others are.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if k, ok := v.(*call); ok {
		c.read(k, data)
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}
