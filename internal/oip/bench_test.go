package oip

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

// reusing gives an alloc that returns the same memory each time, like a pool.
func reusing() func(int) []byte {
	var mem []byte
	return func(n int) []byte {
		if n > len(mem) {
			mem = make([]byte, n)
		}
		return mem[:n]
	}
}

// imageRequest is a request with a 224x224x3 UINT8 tensor; sep is the separator between two numbers.
func imageRequest(sep string) ([]byte, []byte) {
	rng := rand.New(rand.NewPCG(1, 2))
	pixels := make([]byte, 224*224*3)
	texts := make([]string, len(pixels))
	for i := range pixels {
		pixels[i] = byte(rng.IntN(256))
		texts[i] = strconv.Itoa(int(pixels[i]))
	}
	return []byte(`{"inputs":[{"name":"image","datatype":"UINT8","shape":[1,224,224,3],"data":[` + strings.Join(texts,
		sep) + `]}]}`), pixels
}

// nestedImageRequest is the same image as nested arrays.
func nestedImageRequest() []byte {
	_, pixels := imageRequest(",")
	image := make([][][3]int, 224)
	for y := range image {
		image[y] = make([][3]int, 224)
		for x := range image[y] {
			for c := range 3 {
				image[y][x][c] = int(pixels[(y*224+x)*3+c])
			}
		}
	}
	data, _ := json.Marshal([][][][3]int{image})
	return []byte(`{"inputs":[{"name":"image","datatype":"UINT8","shape":[1,224,224,3],"data":` + string(data) + `}]}`)
}

func benchDecode(b *testing.B, body []byte) {
	var r InferRequest
	alloc := reusing()
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if err := DecodeRequest(&r, body, -1, alloc, Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeUint8Image(b *testing.B) {
	compact, _ := imageRequest(",")
	spaced, _ := imageRequest(", ")
	late := []byte(strings.Replace(string(compact), `"datatype":"UINT8",`, "", 1))
	late = append(late[:len(late)-3], `,"datatype":"UINT8"}]}`...)
	b.Run("compact", func(b *testing.B) { benchDecode(b, compact) })
	b.Run("spaced", func(b *testing.B) { benchDecode(b, spaced) })
	b.Run("nested", func(b *testing.B) { benchDecode(b, nestedImageRequest()) })
	b.Run("datatype-last", func(b *testing.B) { benchDecode(b, late) })
}

func floatRequest(format func(v float32) string, datatype string) []byte {
	rng := rand.New(rand.NewPCG(3, 4))
	texts := make([]string, 3*224*224)
	for i := range texts {
		texts[i] = format(rng.Float32()*2 - 1)
	}
	return []byte(`{"inputs":[{"name":"x","datatype":"` + datatype + `","shape":[3,224,224],"data":[` +
		strings.Join(texts, ",") + `]}]}`)
}

func BenchmarkDecodeFloat32(b *testing.B) {
	short := func(v float32) string { return strconv.FormatFloat(float64(v), 'g', -1, 32) }
	long := func(v float32) string { return strconv.FormatFloat(float64(v), 'g', -1, 64) }
	b.Run("shortest", func(b *testing.B) { benchDecode(b, floatRequest(short, FP32)) })
	b.Run("as-double", func(b *testing.B) { benchDecode(b, floatRequest(long, FP32)) })
	b.Run("FP64", func(b *testing.B) { benchDecode(b, floatRequest(long, FP64)) })
}

func BenchmarkDecodeInt64(b *testing.B) {
	benchDecode(b, floatRequest(func(v float32) string { return strconv.Itoa(int(v * 50000)) }, Int64))
}

func BenchmarkAppendResponse(b *testing.B) {
	rng := rand.New(rand.NewPCG(5, 6))
	run := func(name string, t Tensor, binary func(int) bool) {
		b.Run(name, func(b *testing.B) {
			r := InferResponse{ModelName: "m", ModelVersion: "1", ID: "7", Outputs: []Tensor{t}}
			var dst []byte
			var err error
			b.SetBytes(int64(len(t.Data)))
			b.ReportAllocs()
			for b.Loop() {
				if dst, err = AppendResponse(dst[:0], &r, binary); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	_, pixels := imageRequest(",")
	run("uint8", Tensor{Name: "y", Datatype: Uint8, Shape: []int{224, 224, 3}, Data: pixels}, NeverBinary)
	var floats []byte
	for range 1000 {
		floats = binary.LittleEndian.AppendUint32(floats, math.Float32bits(rng.Float32()))
	}
	run("float32x1000", Tensor{Name: "y", Datatype: FP32, Shape: []int{1000}, Data: floats}, NeverBinary)
	run("binary", Tensor{Name: "y", Datatype: FP32, Shape: []int{1000}, Data: floats}, AlwaysBinary)
}

// BenchmarkAppendReply is the JSON of a small result with raw data.
func BenchmarkAppendReply(b *testing.B) {
	r := InferResponse{
		ModelName: "identity", ModelVersion: "1",
		Params: Params{{Key: "received_us", Kind: Int, Int: 1700000000000000}, {Key: "queue_us", Kind: Int, Int: 120},
			{Key: "run_us", Kind: Int, Int: 900}, {Key: "total_us", Kind: Int, Int: 1020},
			{Key: "batch", Kind: Int, Int: 1}},
		Outputs: []Tensor{{Name: "output", Datatype: Uint8, Shape: []int{1024}, Data: make([]byte, 1024)}},
	}
	var dst []byte
	var err error
	b.ReportAllocs()
	for b.Loop() {
		if dst, err = AppendResponse(dst[:0], &r, AlwaysBinary); err != nil {
			b.Fatal(err)
		}
	}
}
