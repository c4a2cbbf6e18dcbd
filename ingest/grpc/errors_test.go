package grpc

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"millrace/stream"
	"millrace/stream/coded"
)

func TestEveryCodeHasOneOfGRPC(t *testing.T) {
	for _, code := range coded.Codes {
		if _, ok := statusCodes[code]; !ok {
			t.Errorf("%s has none", code)
		}
	}
	if len(statusCodes) != len(coded.Codes) {
		t.Errorf("%d codes in the table, %d in all", len(statusCodes), len(coded.Codes))
	}
}

func TestErrorKeepsItsText(t *testing.T) {
	err := statusError(fmt.Errorf("here: %w", stream.Errorf(stream.NotFound, "model", "is missing")))
	if s := status.Convert(err); s.Code() != codes.NotFound || s.Message() != "here: model: is missing" {
		t.Errorf("%v", err)
	}
	if got := status.Code(statusError(fmt.Errorf("no code"))); got != codes.Internal {
		t.Errorf("an error without a code became %v", got)
	}
}
