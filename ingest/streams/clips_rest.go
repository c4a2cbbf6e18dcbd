package streams

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest"
	"millrace/ingest/clips"
	"millrace/internal/ctxio"
	"millrace/internal/httpd"
	"millrace/internal/video"
	"millrace/stream"
)

// clipsRoot is the path of the routes of clips.
const clipsRoot = "/v2/clips"

// maxClips bounds a list of clips.
const maxClips = 1000

func (a *Adapter) clipRoutes(app fiber.Router) {
	app.Get(clipsRoot, a.listClips)
	app.Get(clipsRoot+"/:id", a.showClip)
	app.Get(clipsRoot+"/:id/video", a.clipFile(".mp4", "video/mp4"))
	app.Get(clipsRoot+"/:id/objects", a.clipFile(".boxes.jsonl", "application/x-ndjson"))
	app.Get(clipsRoot+"/:id/boxes.vtt", a.clipBoxes)
	app.Get(clipsRoot+"/:id/pictures/:picture", a.clipPicture)
	app.Patch(clipsRoot+"/:id", a.changeClip)
	app.Delete(clipsRoot+"/:id", a.deleteClip)
}

// maySee reports whether a client may use all models of the stream of a clip, and so see the clip. Nobody sees a clip
// without models.
func maySee(by *ingest.Client, c *clips.Clip) bool {
	return len(c.Models) > 0 && !slices.ContainsFunc(c.Models, func(m string) bool {
		return by.Principal().AllowsModel(m) != nil
	})
}

// clip returns the clip of a request. A clip that the client may not see does not exist.
func (a *Adapter) clip(c *fiber.Ctx) (*clips.Clip, error) {
	id := strings.Clone(c.Params("id"))
	if a.opts.Clips == nil {
		return nil, clips.Missing(id)
	}
	found, err := a.opts.Clips.Get(id)
	if err == nil && !maySee(ingest.ClientOf(httpd.ClientOf(c)), found) {
		return nil, clips.Missing(id)
	}
	return found, err
}

// clipList is the answer of a list.
type clipList struct {
	Clips     []*clips.Clip    `json:"clips"`
	Next      string           `json:"next,omitempty"`      // before of the next page; "" = this is the last page
	Retention *clips.Retention `json:"retention,omitempty"` // nil = the server has no folder of clips
}

func (a *Adapter) listClips(c *fiber.Ctx) error {
	by := ingest.ClientOf(httpd.ClientOf(c))
	q := clips.Query{Limit: 100, Keep: func(k *clips.Clip) bool { return maySee(by, k) }}
	var err error
	bad := func(name, format string, args ...any) {
		if err == nil {
			err = stream.Errorf(stream.InvalidArgument, name, format, args...)
		}
	}
	c.Context().QueryArgs().VisitAll(func(k, v []byte) {
		switch name, value := string(k), string(v); name {
		case "stream":
			q.Stream = value
		case "before":
			q.Before = value
		case "event":
			if value == "" || len(value) > 100 {
				bad(name, "%.40q is no id of an event", value)
			}
			q.Event = value
		case "from", "to":
			t, e := time.Parse(time.RFC3339, value)
			if e != nil {
				bad(name, "%.40q is no time: want one such as 2026-11-30T18:00:00Z", value)
			}
			if name == "from" {
				q.From = t
			} else {
				q.To = t
			}
		case "limit":
			n, e := strconv.Atoi(value)
			if e != nil || n < 1 || n > maxClips {
				bad(name, "%.40q: want a number from 1 to %d", value, maxClips)
			}
			q.Limit = n
		default:
			bad(name, "is no option of %s", clipsRoot)
		}
	})
	if err != nil {
		return err
	}
	out := clipList{Clips: []*clips.Clip{}}
	if a.opts.Clips != nil {
		out.Retention = a.opts.Clips.Retention()
		list, more := a.opts.Clips.List(q)
		out.Clips = append(out.Clips, list...)
		if more {
			out.Next = list[len(list)-1].ID
		}
	}
	return c.JSON(out)
}

func (a *Adapter) showClip(c *fiber.Ctx) error {
	found, err := a.clip(c)
	if err != nil {
		return err
	}
	return c.JSON(found)
}

func (a *Adapter) clipPicture(c *fiber.Ctx) error {
	text := strings.Clone(c.Params("picture"))
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return stream.Errorf(stream.NotFound, "", "%.40q is no number of a picture", text)
	}
	suffix := fmt.Sprintf(".%d.jpg", n)
	switch boxes := c.Query("boxes"); boxes {
	case "", "false":
	case "true":
		suffix = fmt.Sprintf(".%d.boxes.jpg", n)
	default:
		return stream.Errorf(stream.InvalidArgument, "boxes", "%.40q: want true or false", boxes)
	}
	return a.clipFile(suffix, "image/jpeg")(c)
}

// clipFile sends a file of a clip, or the part that the client asks for.
func (a *Adapter) clipFile(suffix, mime string) fiber.Handler {
	return func(c *fiber.Ctx) error {
		found, err := a.clip(c)
		if err != nil {
			return err
		}
		f, err := a.opts.Clips.File(found, suffix)
		if err != nil {
			return err
		}
		info, err := f.Stat()
		if err != nil {
			_ = f.Close()
			return err
		}
		h := &c.Response().Header
		h.SetContentType(mime)
		h.Set(fiber.HeaderCacheControl, "private, no-cache")
		if suffix == ".mp4" { // a part of a fragmented video is no part of the video with an index
			h.Set(fiber.HeaderETag, `"indexed"`)
			if video.Fragmented(f) {
				h.Set(fiber.HeaderETag, `"fragmented"`)
				h.Set(fiber.HeaderCacheControl, "private, no-store") // grows under the same tag
			}
		}
		from, to, ok := httpd.Part(c, info.Size())
		if !ok {
			_ = f.Close()
			return c.SendStatus(http.StatusRequestedRangeNotSatisfiable)
		}
		return httpd.Send(c, ingest.ClientOf(httpd.ClientOf(c)).OnEnd, struct {
			io.Reader
			io.Closer
		}{io.NewSectionReader(f, from, to-from), f}, int(to-from))
	}
}

// clipBoxes sends the objects of a clip as WebVTT. A clip without objects has no cue.
func (a *Adapter) clipBoxes(c *fiber.Ctx) error {
	found, err := a.clip(c)
	if err != nil {
		return err
	}
	f, err := a.opts.Clips.File(found, ".boxes.jsonl")
	if err != nil && stream.CodeOf(err) != stream.NotFound {
		return err
	}
	var text struct {
		io.Reader
		io.Closer
	}
	if text.Reader, text.Closer = found.VTT(strings.NewReader("")), io.NopCloser(nil); err == nil {
		text.Reader, text.Closer = found.VTT(f), f
	}
	c.Response().Header.SetContentType("text/vtt; charset=utf-8")
	c.Set(fiber.HeaderCacheControl, "private, no-cache")
	return httpd.Send(c, ingest.ClientOf(httpd.ClientOf(c)).OnEnd, text, -1)
}

func (a *Adapter) changeClip(c *fiber.Ctx) error {
	object, err := a.body(c)
	if err != nil {
		return err
	}
	favourite, ok := object["favourite"].(bool)
	if !ok || len(object) != 1 {
		return stream.Errorf(stream.InvalidArgument, "favourite", `want {"favourite": true} or false`)
	}
	found, err := a.clip(c)
	if err == nil {
		found, err = a.opts.Clips.SetFavourite(found.ID, favourite)
	}
	if err != nil {
		return err
	}
	return c.JSON(found)
}

func (a *Adapter) deleteClip(c *fiber.Ctx) error {
	found, err := a.clip(c)
	if err == nil {
		err = a.opts.Clips.Delete(found.ID)
	}
	if err != nil {
		return err
	}
	return c.SendStatus(http.StatusNoContent)
}

// tidyClips removes old clips, also while no clip ends.
func (a *Adapter) tidyClips(ctx context.Context) {
	for ctxio.Sleep(ctx, 10*time.Minute) {
		a.opts.Clips.Tidy()
	}
}
