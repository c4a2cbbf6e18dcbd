package wire

import (
	"encoding/binary"
	"fmt"
	"math"
)

// TensorsPrefixLen is the size of the JSON's length, which precedes the JSON in the payload of KindResult and
// KindTensor.
const TensorsPrefixLen = 4

// SplitTensors splits the payload of KindResult or KindTensor into its Open Inference Protocol JSON and the raw
// tensors after the JSON. Both are views. The error is an *Error.
func SplitTensors(payload []byte) (json, raw []byte, err error) {
	if len(payload) < TensorsPrefixLen {
		return nil, nil, invalid(ErrTensors, "payload", fmt.Sprintf("has %d bytes: want the length of its JSON in %d",
			len(payload), TensorsPrefixLen))
	}
	n := binary.LittleEndian.Uint32(payload)
	rest := payload[TensorsPrefixLen:]
	if uint64(n) > uint64(len(rest)) {
		return nil, nil, invalid(ErrTensors, "payload", fmt.Sprintf("announces %d bytes of JSON, but %d follow", n,
			len(rest)))
	}
	return rest[:n:n], rest[n:], nil
}

// PutTensorsPrefix writes the length of json and json itself to dst, and returns the number of bytes. The raw tensors
// follow in the order of the JSON. PutTensorsPrefix panics if dst is shorter than TensorsPrefixLen+len(json).
func PutTensorsPrefix(dst, json []byte) int {
	dst = dst[:TensorsPrefixLen+len(json)]
	binary.LittleEndian.PutUint32(dst, jsonLen(json))
	return TensorsPrefixLen + copy(dst[TensorsPrefixLen:], json)
}

// AppendTensorsPrefix appends the length of json and json itself.
func AppendTensorsPrefix(dst, json []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(dst, jsonLen(json)), json...)
}

func jsonLen(json []byte) uint32 {
	if uint64(len(json)) > math.MaxUint32 {
		panic(fmt.Sprintf("wire: %d bytes of JSON do not fit their length", len(json)))
	}
	return uint32(len(json))
}
