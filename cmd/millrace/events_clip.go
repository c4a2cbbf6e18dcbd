package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"millrace/client"
	"millrace/internal/ctxio"
	"millrace/stream/coded"
)

// clipFlags are the flags of millrace events clip.
type clipFlags struct {
	camera, out    string
	wait           time.Duration
	latest, asJSON bool
}

func clipOfEvent() *cobra.Command {
	f := clipFlags{}
	c := &cobra.Command{
		Use:   "clip (EVENT | --latest) [--out FILE]",
		Short: "Download the clip of an event",
		Long: `Download the clip of an event, an MP4 file. --latest is the newest clip that is ready. Without --out, the file is
STREAM-CLIP.mp4 in this folder. A file that exists is not replaced.

A clip grows while further events come, up to the stream's clips.length. The download of a clip that is still growing
has the video up to now; --wait waits for the end of the clip.`,
		Example: "  millrace events clip K7QWZ2M5TB4XA-7 --out door.mp4\n" +
			"  millrace events clip --latest --camera gate --json",
		Args: wrongUsage(cobra.MaximumNArgs(1)),
	}
	host := remoteFlags(c)
	flags := c.Flags()
	flags.BoolVar(&f.latest, "latest", false, "the newest clip that is ready")
	flags.StringVar(&f.camera, "camera", "", "with --latest: only of this server stream")
	flags.DurationVar(&f.wait, "wait", 0, "wait for the end of a clip that is still growing, at most this long")
	flags.StringVar(&f.out, "out", "", "the file to write; - = standard output (STREAM-CLIP.mp4)")
	flags.BoolVar(&f.asJSON, "json", false, "print the clip with its events as a line of JSON")
	c.RunE = func(c *cobra.Command, args []string) error {
		switch {
		case (len(args) == 1) == f.latest:
			return usagef("want either the id of an event, as millrace events list --json prints it, or --latest")
		case f.camera != "" && !f.latest:
			return usagef("--camera is for --latest: an event is of one camera")
		case f.asJSON && f.out == "-":
			return usagef("--json and --out - would both write to the standard output")
		}
		cl, err := host.dial()
		if err != nil {
			return err
		}
		defer cl.Close()
		q := client.ClipQuery{Stream: f.camera}
		if !f.latest {
			q.Event = args[0]
		}
		clip, err := newestClip(c.Context(), cl, q)
		last := time.Now().Add(f.wait)
		for waits := false; err == nil && clip.State != "ready"; clip, err = newestClip(c.Context(), cl, q) {
			switch {
			case f.wait == 0 && f.latest:
				return coded.Errorf(coded.NotFound, "", "the only clip, %s, is still growing: --wait 2m waits for its "+
					"end", clip.ID)
			case f.wait == 0:
				fmt.Fprintf(c.ErrOrStderr(), "The clip %s is still growing: the download ends at the present. "+
					"--wait 2m waits for the end of the clip.\n", clip.ID)
				return f.download(c, cl, clip)
			case time.Now().After(last):
				return coded.Errorf(coded.Timeout, "", "the clip %s is still growing after --wait %v: wait longer, or "+
					"download the clip up to now without --wait", clip.ID, f.wait)
			case !waits:
				waits = true
				fmt.Fprintf(c.ErrOrStderr(), "Waiting for the end of the clip %s.\n", clip.ID)
			}
			if !ctxio.Sleep(c.Context(), time.Second) {
				return c.Context().Err()
			}
		}
		if err != nil {
			return err
		}
		return f.download(c, cl, clip)
	}
	return c
}

// newestClip returns the newest clip that is ready; without such a clip, a clip that is being written.
func newestClip(ctx context.Context, cl *client.Client, q client.ClipQuery) (*client.Clip, error) {
	var writing *client.Clip
	for {
		list, next, err := cl.Clips(ctx, q)
		if err != nil {
			return nil, err
		}
		for i := range list {
			if list[i].State == "ready" {
				return &list[i], nil
			}
			writing = &list[i]
		}
		if q.Before = next; next != "" {
			continue
		}
		switch {
		case writing != nil:
			return writing, nil
		case q.Event != "":
			return nil, coded.Errorf(coded.NotFound, "", "no clip has the event %.80q: the setting clips.on of the "+
				"stream lists the types of events with clips", q.Event)
		}
		return nil, coded.Errorf(coded.NotFound, "", "there is no clip: the setting clips of a stream makes clips")
	}
}

// download writes the video of a clip. A file that is not whole is removed.
func (f *clipFlags) download(c *cobra.Command, cl *client.Client, clip *client.Clip) (err error) {
	video, err := cl.ClipVideo(c.Context(), clip.ID)
	if err != nil {
		return err
	}
	defer video.Close()
	if f.out == "-" {
		_, err = io.Copy(c.OutOrStdout(), video)
		return err
	}
	name := f.out
	if name == "" {
		name = filepath.Base(clip.Stream) + "-" + clip.ID + ".mp4" // the name of a stream may have slashes
	}
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	_, err = io.Copy(file, video)
	if e := file.Close(); err == nil {
		err = e
	}
	if err != nil {
		_ = os.Remove(name)
		return fmt.Errorf("--out: %s: %w", name, err)
	}
	if f.asJSON {
		return json.NewEncoder(c.OutOrStdout()).Encode(struct {
			*client.Clip
			File string `json:"file"`
		}{clip, name})
	}
	events := fmt.Sprint(len(clip.Events), " events")
	if clip.State != "ready" {
		events = "still growing"
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "%s: %.1f s of %s, begun at %s, %s\n", name, clip.Seconds, clip.Stream,
		clip.Begin.UTC().Format("2006-01-02T15:04:05Z"), events)
	return err
}
