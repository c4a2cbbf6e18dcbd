package grpc_test

import (
	"fmt"
	"testing"

	millracegrpc "millrace/ingest/grpc"
)

// BenchmarkReceive measures a unary call with a request of n bytes, read in parts and by the exported functions of
// package grpc.
func BenchmarkReceive(b *testing.B) {
	for _, n := range []int{1 << 10, 30 << 10, 1 << 20} {
		for _, way := range []string{"parts", "exported"} {
			b.Run(fmt.Sprintf("%s/%dKiB", way, n>>10), func(b *testing.B) {
				if way == "exported" {
					millracegrpc.ExportedOnly(b)
				}
				r := serve(b, nil, identity)
				in := raw("identity", "", pattern(n))
				b.SetBytes(int64(n))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := r.ModelInfer(r.ctx, in); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
