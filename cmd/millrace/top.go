package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"millrace/client"
)

// minTopInterval is the shortest time between two questions to the server.
const minTopInterval = 100 * time.Millisecond

func topCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "top",
		Short: "Watch the models and streams of a running server",
		Long: `Watch the models and streams of a running server: rates, waiting frames, batches, and the time from a frame's receipt to the result (p50, p99). q quits.

Rates are of the last interval. If the output is not a terminal, the views are written one below the next. The variable NO_COLOR turns colours off.`,
		Example: "  millrace top\n  millrace top --interval 5s\n  millrace top --once\n  millrace top --json --once " +
			"| jq '.models[].in_per_second'",
		Args: wrongUsage(cobra.NoArgs),
	}
	t := &top{host: remoteFlags(c)}
	f := c.Flags()
	f.DurationVar(&t.interval, "interval", time.Second, "time between two views, and of the rates")
	f.BoolVar(&t.once, "once", false, "write one view, after one interval, and exit")
	f.BoolVar(&t.asJSON, "json", false, "write each view as a line of JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if t.interval < minTopInterval {
			return usagef("--interval: %v is too short: want at least %v", t.interval, minTopInterval)
		}
		cl, err := t.host.dial()
		if err != nil {
			return err
		}
		defer cl.Close()
		t.client, t.out = cl, c.OutOrStdout()
		if !t.once && !t.asJSON && isTerminal(t.out) {
			return t.screen(c.Context())
		}
		return t.print(c.Context())
	}
	return c
}

// top asks a server for its state and shows changes.
type top struct {
	host     *remote
	client   *client.Client
	out      io.Writer
	interval time.Duration
	once     bool
	asJSON   bool
}

// sample asks the server once.
func (t *top) sample(ctx context.Context) (s topSample, err error) {
	ctx, cancel := context.WithTimeout(ctx, max(t.interval, 5*time.Second))
	defer cancel()
	if s.status, err = t.client.Status(ctx); err != nil {
		return s, err
	}
	s.streams, err = t.client.ServerStreams(ctx)
	return s, err
}

// print writes a view each interval, until ctx ends or after the first.
func (t *top) print(ctx context.Context) error {
	before, err := t.sample(ctx)
	if err != nil {
		return err
	}
	tick := time.NewTicker(t.interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now, err := t.sample(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		if err := t.write(newTopView(t.client.Addr(), before, now)); err != nil || t.once {
			return err
		}
		before = now
	}
}

// write writes one view to an output other than a screen.
func (t *top) write(v topView) error {
	if t.asJSON {
		return json.NewEncoder(t.out).Encode(v)
	}
	width := 120
	if f, ok := t.out.(*os.File); ok {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
			width = w
		}
	}
	for _, l := range v.lines(width, 0, t.style()) {
		if _, err := fmt.Fprintln(t.out, l); err != nil {
			return err
		}
	}
	if !t.once {
		_, err := fmt.Fprintln(t.out)
		return err
	}
	return nil
}

// style returns the colours of the output.
func (t *top) style() topStyle {
	return topStyle(isTerminal(t.out) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb")
}

// Escape sequences that begin and end the use of the terminal's alternate screen, without a cursor.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
)

// screen shows views on the terminal until q is pressed or ctx ends.
func (t *top) screen(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if in := int(os.Stdin.Fd()); term.IsTerminal(in) {
		state, err := term.MakeRaw(in)
		if err != nil {
			return fmt.Errorf("the terminal cannot be read key by key: %w", err)
		}
		defer func() { _ = term.Restore(in, state) }()
		go readKeys(os.Stdin, cancel) // ends with the program
	}
	if _, err := io.WriteString(t.out, enterScreen); err != nil {
		return err
	}
	defer func() { _, _ = io.WriteString(t.out, leaveScreen) }()

	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	samples := make(chan topAnswer)
	go t.ask(ctx, samples) // ends with ctx
	var before, now topSample
	view := topView{Addr: t.client.Addr(), State: "connecting"}
	for {
		if err := t.draw(view); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-resized:
		case a := <-samples:
			if a.err != nil {
				view.Problem = errorText(a.err)
				continue
			}
			before, now = now, a.topSample
			view = newTopView(t.client.Addr(), before, now)
		}
	}
}

// topAnswer is a sample, or the error of sampling.
type topAnswer struct {
	topSample
	err error
}

// ask sends a sample each interval, until ctx ends.
func (t *top) ask(ctx context.Context, to chan<- topAnswer) {
	tick := time.NewTicker(t.interval)
	defer tick.Stop()
	for {
		s, err := t.sample(ctx)
		select {
		case to <- topAnswer{s, err}:
		case <-ctx.Done():
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// readKeys calls quit when q, Q or Ctrl-C is pressed, or the terminal is closed.
func readKeys(in io.Reader, quit func()) {
	defer quit()
	keys := make([]byte, 64)
	for {
		n, err := in.Read(keys)
		if err != nil {
			return
		}
		for _, k := range keys[:n] {
			if k == 'q' || k == 'Q' || k == 3 {
				return
			}
		}
	}
}

// draw replaces the content of the screen.
func (t *top) draw(v topView) error {
	width, height := 80, 24
	if f, ok := t.out.(*os.File); ok {
		if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 0 && h > 0 {
			width, height = w, h
		}
	}
	text := []byte("\x1b[H")
	for i, l := range v.lines(width, height, t.style()) {
		if i > 0 {
			text = append(text, "\r\n"...)
		}
		text = append(append(text, l...), "\x1b[K"...)
	}
	_, err := t.out.Write(append(text, "\x1b[J"...))
	return err
}
