package grpc

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// codec writes the replies to inference requests without the generated messages, since generated messages would copy
// each tensor twice. Generated messages write all other replies. Received messages bypass the codec (see
// service.receive), or are copied by the codec (see service.readExported).
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(proto.Name)} }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if r, ok := v.(*reply); ok {
		return r.buffers(), nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if m, ok := v.(*exportedMessage); ok {
		return m.copyFrom(data)
	}
	return c.CodecV2.Unmarshal(data, v)
}
