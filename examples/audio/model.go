package main

import (
	"math"
	"strings"

	"millrace/internal/onnxfile"
	"millrace/stream"
)

// labels are the model's classes.
func labels() []string { return append(strings.Split(keys, ""), none) }

// model returns an ONNX file that classifies which key sounds in a window: input sound, FP32 [batch, 320], output
// keys, FP32 [batch, 17], a score for each of labels.
//
// The weights are not trained, but computed from the telephone's tones. The window is weighted (Hann), to reduce
// spectral leakage, and multiplied by a cosine and a sine of each tone. The sum of the squares of both products,
// divided by the energy of the window, is the share of the tone. If a key sounds, its two tones have most of the
// energy.
func model() []byte {
	var waves, energy, sums, pairs, bias []float32
	var total, squares float64
	for n := range width {
		w := hann(n)
		total, squares = total+w, squares+w*w
		energy = append(energy, float32(w*w))
		for k := range 2 * len(tones) {
			phase := 2 * math.Pi * tones[k%len(tones)] / rate * float64(n)
			if k < len(tones) {
				waves = append(waves, float32(w*math.Cos(phase)))
			} else {
				waves = append(waves, float32(w*math.Sin(phase)))
			}
		}
	}
	// A tone of amplitude A gives (A/2 sum w)^2 for its share, and has the energy A^2/2 sum w^2.
	share := 2 * squares / (total * total)
	for k := range 2 * len(tones) {
		for tone := range tones {
			sums = append(sums, either(k%len(tones) == tone, share, 0))
		}
	}
	const sharp = 30 // scale of the scores
	for tone := range tones {
		for key := range keys {
			pairs = append(pairs, either(tone == key/4 || tone == 4+key%4, sharp, 0))
		}
		pairs = append(pairs, 0)
	}
	for range keys {
		bias = append(bias, 0)
	}
	bias = append(bias, 0.7*sharp) // the score of the class without a key
	silence := []float32{float32(1e-5 * squares)}
	var m onnxfile.Model
	weights := func(name string, v []float32, dims ...int64) string {
		m.Initializers = append(m.Initializers, onnxfile.Tensor{Name: name, Type: onnxfile.Float32, Dims: dims,
			Raw: stream.AppendFloat32(nil, v...)})
		return name
	}
	node := func(op, out string, in ...string) string {
		m.Nodes = append(m.Nodes, onnxfile.Node{Op: op, Inputs: in, Outputs: []string{out}})
		return out
	}
	const in, out = 320, 17
	m.Inputs = []onnxfile.Value{{Name: "sound", Type: onnxfile.Float32, Dims: []any{"batch", in}}}
	m.Outputs = []onnxfile.Value{{Name: "keys", Type: onnxfile.Float32, Dims: []any{"batch", out}}}
	parts := node("MatMul", "parts", "sound", weights("waves", waves, in, 16))
	powers := node("MatMul", "powers", node("Mul", "squares", parts, parts), weights("sums", sums, 16, 8))
	all := node("MatMul", "all", node("Mul", "loudness", "sound", "sound"), weights("energy", energy, in, 1))
	shares := node("Div", "shares", powers, node("Add", "floor", all, weights("silence", silence, 1)))
	node("Add", "keys", node("MatMul", "evidence", shares, weights("pairs", pairs, 8, out)), weights("bias", bias, out))
	return m.Bytes()
}

// hann is the weight of a window's sample n.
func hann(n int) float64 { return 0.5 - 0.5*math.Cos(2*math.Pi*(float64(n)+0.5)/width) }

func either(yes bool, a, b float64) float32 {
	if yes {
		return float32(a)
	}
	return float32(b)
}
