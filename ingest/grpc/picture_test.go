package grpc_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"image"
	"image/jpeg"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	pb "millrace/internal/inferencepb"
	"millrace/workers"
)

// A picture is the element of a BYTES tensor, raw or typed, plain or in base64. An element that is no picture is
// refused with its position.
func TestPictures(t *testing.T) {
	r := serve(t, nil, workers.Config{Name: "find", Source: "motion"})
	var b bytes.Buffer
	if err := jpeg.Encode(&b, image.NewGray(image.Rect(0, 0, 40, 20)), nil); err != nil {
		t.Fatal(err)
	}
	picture := b.Bytes()
	metadata, err := r.ModelMetadata(r.ctx, &pb.ModelMetadataRequest{Name: "find"})
	if err != nil {
		t.Fatal(err)
	}
	name := metadata.Inputs[0].Name
	request := func(name string, elements ...[]byte) *pb.ModelInferRequest {
		return &pb.ModelInferRequest{ModelName: "find", Id: "7", Inputs: []*pb.ModelInferRequest_InferInputTensor{{
			Name: name, Datatype: "BYTES", Shape: []int64{int64(len(elements))},
			Contents: &pb.InferTensorContents{BytesContents: elements},
		}}}
	}
	raw := func(element []byte) *pb.ModelInferRequest {
		q := request(name, element)
		q.Inputs[0].Contents, q.RawInputContents = nil,
			[][]byte{append(binary.LittleEndian.AppendUint32(nil, uint32(len(element))), element...)}
		return q
	}
	inBase64 := []byte(base64.StdEncoding.EncodeToString(picture))
	stream, err := r.ModelStreamInfer(r.ctx)
	if err != nil {
		t.Fatal(err)
	}
	for what, q := range map[string]*pb.ModelInferRequest{
		"typed": request(name, picture), "raw": raw(picture), "typed base64": request(name, inBase64),
		"raw base64": raw(inBase64),
	} {
		check := func(reply *pb.ModelInferResponse, err error) {
			t.Helper()
			if err != nil || reply.Id != "7" || reply.Parameters["width"].GetInt64Param() != 40 ||
				reply.Parameters["height"].GetInt64Param() != 20 {
				t.Errorf("%s: %v, %v", what, reply, err)
			}
		}
		check(r.ModelInfer(r.ctx, q))
		if err := stream.Send(q); err != nil {
			t.Fatal(err)
		}
		reply, err := stream.Recv()
		if err == nil && reply.ErrorMessage != "" {
			t.Errorf("%s: %s", what, reply.ErrorMessage)
		}
		check(reply.GetInferResponse(), err)
	}
	for _, c := range []struct {
		q    *pb.ModelInferRequest
		code codes.Code
		text string
	}{
		{request(name, picture, picture), codes.InvalidArgument, "inputs[0].shape: has 2 elements: send one picture"},
		{request(name), codes.InvalidArgument, "inputs[0].shape: has 0 elements"},
		{request("other", picture), codes.InvalidArgument,
			"inputs[0].name: unexpected inference input 'other' for model 'find'"},
		{raw([]byte("hello")), codes.Unimplemented,
			"inputs[0].data: model find takes one picture, as it is or in base64"},
		{raw(nil), codes.Unimplemented, "inputs[0].data: model find takes one picture"},
		{raw([]byte("\x00\x00\x00\x20ftypisom\x00\x00\x02\x00")), codes.Unimplemented, "a video"},
		{raw(slices.Clone(picture[:20])), codes.InvalidArgument, "inputs[0].data"},
	} {
		_, err := r.ModelInfer(r.ctx, proto.CloneOf(c.q))
		isStatus(t, err, c.code, c.text)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
}
