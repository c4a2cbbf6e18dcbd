package sinks

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"millrace/internal/setting"
)

// asked returns settings that enable a sink of the kind, with delivery into dir or to nobody.
func asked(t *testing.T, k Kind, dir string) Settings {
	t.Helper()
	own, _ := setting.TableOf("", k.New()).Find(k.Name)
	for _, value := range slices.Concat([]string{own.Example, filepath.Join(dir, "x"), "true", "2"}, own.Words) {
		s := k.New()
		table := setting.TableOf("", s)
		if value != "" && table.Set(k.Name, value) == nil && s.Enabled() && s.Validate() == nil &&
			len(table.Check()) == 0 {
			return s
		}
	}
	t.Fatalf("no value of %s asks for the sink: give it the tag example", k.Name)
	return nil
}

// Every kind of sink satisfies Kind, Settings and Sink: with or without a receiver, Write returns, each result is
// delivered or lost, and Run ends.
func TestEverySink(t *testing.T) {
	const written = 2500 // more than any queue has room for
	for _, k := range Kinds() {
		if s := k.New(); s.Enabled() || s.Validate() != nil {
			t.Errorf("%s is enabled without its key, or refused: %v", k.Name, s.Validate())
		}
		for _, ended := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, ended=%v", k.Name, ended), func(t *testing.T) {
				s := asked(t, k, t.TempDir())
				set := setting.TableOf("", s).Object()
				synctest.Test(t, func(t *testing.T) {
					sink := Open(s, Env{Stream: "door", Log: slog.New(slog.DiscardHandler)})
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					begun := time.Now()
					line := []byte(`{"seq":1}`)
					for range written {
						sink.Write(line)
					}
					if took := time.Since(begun); took != 0 {
						t.Errorf("writing took %v: it waits", took)
					}
					if string(line) != `{"seq":1}` {
						t.Errorf("the line is changed to %s", line)
					}
					over := make(chan struct{})
					go func() {
						defer close(over)
						sink.Run(ctx)
					}()
					if ended {
						cancel()
					}
					sink.Close()
					<-over
					if took := time.Since(begun); ended && took > endGrace {
						t.Errorf("it ends %v after its context", took)
					}
					if st := sink.Stats(); st.Sent+st.Lost != written || st.Lost > 0 != (st.Error != "") {
						t.Errorf("%+v of %d", st, written)
					}
				})
				if now := setting.TableOf("", s).Object(); fmt.Sprint(now) != fmt.Sprint(set) {
					t.Errorf("opening it has changed its settings from %v to %v", set, now)
				}
			})
		}
	}
}

// Register panics when two kinds have one name.
func TestRegisterTwice(t *testing.T) {
	defer func() {
		if text, _ := recover().(string); !strings.Contains(text, "file") {
			t.Errorf("it does not panic, or without the name: %q", text)
		}
	}()
	Register(Kind{Name: "file", New: func() Settings { return new(File) }})
}
