// Command audio sends a recording of a telephone's keys to a server, in real time, and prints the recognised keys.
//
// The example shows how to serve a model over sound: the client sends each sample once, in pieces of 20 ms, and the
// server forms windows of 40 ms for the model to classify. The folder's README explains how to run the example.
package main

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"millrace/client"
	"millrace/stream"
)

//go:generate go run . -export .

const usage = `Usage: audio [flags]

Generates the sound of a telephone's keys in noise, streams it to a model of a server, and prints the keys that
the model recognises. With -in it streams a WAV file: 8000 samples per second, 16 bits, mono.

Flags:
`

const (
	rate     = 8000      // samples per second
	piece    = rate / 50 // samples of a frame: 20 ms
	width    = 2 * piece // samples of a window: 40 ms
	hop      = width / 2 // samples to the start of the next window
	minScore = 0.5       // least score of a key
	none     = "-"       // the label of windows without a key
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "audio:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("audio", flag.ContinueOnError)
	flags.Usage = func() {
		_, _ = io.WriteString(flags.Output(), usage)
		flags.PrintDefaults()
	}
	url := flags.String("url", "http://127.0.0.1:8000", "address of the server")
	model := flags.String("model", "keys", "name of the model")
	dial := flags.String("dial", "0123456789*#ABCD", "keys to dial")
	noise := flags.Float64("noise", 0.1, "how loud the noise is; a key is 0.5")
	file := flags.String("o", "", "write the recording to this file")
	in := flags.String("in", "", "send this recording instead of generated keys")
	fast := flags.Bool("fast", false, "send as fast as the server accepts it, not in real time")
	export := flags.String("export", "", "write keys.onnx and keys.txt to this folder, and exit")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *export != "" {
		return exportTo(*export)
	}
	var pcm []byte
	var err error
	if *in != "" {
		pcm, err = readWAV(*in)
	} else {
		pcm, err = dialled(*dial, *noise, 1)
		if err == nil && *file != "" {
			err = writeWAV(*file, pcm)
		}
	}
	if err != nil {
		return err
	}
	c, err := client.New(*url)
	if err != nil {
		return err
	}
	heard, err := recognise(ctx, c, *model, pcm, !*fast, out)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "heard %s\n", heard)
	return err
}

func exportTo(dir string) error {
	if err := os.WriteFile(filepath.Join(dir, "keys.onnx"), model(), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "keys.txt"), []byte(strings.Join(labels(), "\n")+"\n"), 0o644)
}

// recognise streams samples and returns the recognised keys. A held key counts once.
func recognise(ctx context.Context, c *client.Client, model string, pcm []byte, live bool,
	out io.Writer) (string, error) {
	var heard strings.Builder
	var failed error
	last := none
	s, err := c.Stream(ctx, model, client.StreamOptions{
		Codec: "pcm16", Policy: stream.Policy{Mode: stream.Every},
		OnReply: func(r client.Reply) {
			if r.Err != nil || r.Dropped != "" {
				failed = fmt.Errorf("piece %d: %v%s", r.Seq, r.Err, r.Dropped)
			}
			end, ok := r.Params["window_end"].(int64)
			if !ok { // the piece completed no window
				return
			}
			key, score := best(r.Outputs)
			if score < minScore {
				key = none
			}
			if key != last && key != none {
				at := time.Duration(end+1-width) * time.Second / rate
				_, _ = fmt.Fprintf(out, "%6.2f s  %s  %3.0f %%\n", at.Seconds(), key, 100*score)
				heard.WriteString(key)
			}
			last = key
		},
	})
	if err != nil {
		return "", err
	}
	begun := time.Now()
	for i := 0; i < len(pcm) && err == nil; i += 2 * piece {
		if live {
			played := time.Duration(i/2) * time.Second / rate
			select {
			case <-time.After(time.Until(begun.Add(played))):
			case <-ctx.Done():
			}
		}
		_, err = s.Send(ctx, client.Frame{Data: pcm[i:min(i+2*piece, len(pcm))]})
	}
	if err == nil {
		err = s.Drain(ctx)
	}
	if _, e := s.Close(ctx); err == nil {
		err = e
	}
	if err == nil {
		err = failed
	}
	return heard.String(), err
}

// best returns the label and the score of the best class.
func best(outputs []stream.Tensor) (label string, score float32) {
	for i := range outputs {
		switch t := &outputs[i]; {
		case t.Name == "labels" && len(t.Data) >= 4:
			label = string(t.Data[4:][:binary.LittleEndian.Uint32(t.Data)])
		case t.Name == "scores" && len(t.Data) >= 4:
			score = t.Float32s()[0]
		}
	}
	return label, score
}
