package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
)

// keys are the keys of a telephone (ITU-T Q.23). Each key sounds as two tones: the tone of the row and the tone of
// the column.
const keys = "123A456B789C*0#D"

// tones are the frequencies of the rows and of the columns, in Hz.
var tones = [8]float64{697, 770, 852, 941, 1209, 1336, 1477, 1633}

const (
	press = rate / 10      // samples per key press: 100 ms
	pause = rate * 7 / 100 // between two keys: 70 ms
	loud  = 0.25           // amplitude of each tone
)

// dialled returns the samples, 16 bits each, of pressing the given keys one after the other in noise.
func dialled(pressed string, noise float64, seed uint64) ([]byte, error) {
	r := rand.New(rand.NewPCG(seed, 0))
	var pcm []byte
	add := func(v float64) {
		v = max(-1, min(v+noise*r.NormFloat64()/3, 1))
		pcm = binary.LittleEndian.AppendUint16(pcm, uint16(int16(v*math.MaxInt16)))
	}
	silence := func() {
		for range pause {
			add(0)
		}
	}
	silence()
	for _, key := range pressed {
		k := strings.IndexRune(keys, key)
		if k < 0 {
			return nil, fmt.Errorf("%q is not a key of a telephone: the keys are %s", key, keys)
		}
		row, column := 2*math.Pi*tones[k/4]/rate, 2*math.Pi*tones[4+k%4]/rate
		for i := range press {
			add(loud * (math.Sin(row*float64(i)) + math.Sin(column*float64(i))))
		}
		silence()
	}
	return pcm, nil
}
