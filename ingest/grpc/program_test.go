package grpc

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"millrace/internal/inferencepb"
)

// isForApp finds the same name as the generated code.
func FuzzIsForApp(f *testing.F) {
	for _, name := range []string{"", "app", "other"} {
		message, err := proto.Marshal(&inferencepb.ModelInferRequest{ModelName: name, Id: "7",
			RawInputContents: [][]byte{{1, 2}}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(message)
		f.Add(append(message, "\x0a\x03app"...))
	}
	f.Add([]byte("\x0a\x7f"))
	f.Fuzz(func(t *testing.T, message []byte) {
		is := isForApp(message, "app")
		var in inferencepb.ModelInferRequest
		if proto.Unmarshal(message, &in) == nil && is != (in.ModelName == "" || in.ModelName == "app") {
			t.Errorf("%q is for the application: %v", in.ModelName, is)
		}
	})
}
